/** The same question as an HTTP POST of JSON. */
import { type IncomingMessage, Agent as PlainAgent, request as plainRequest } from "node:http";
import { Agent as TlsAgent, request as tlsRequest } from "node:https";
import { BadReply, type ProbeReply, parseReplyJson, requestJson } from "./message.ts";
import type { OwnerQuestion } from "./owner.ts";
import { describeError, IDLE_MS, MAX_REPLY_BYTES, ProbeFailure, type Wire, type WireOptions } from "./probe-client.ts";

class StaleConnection extends ProbeFailure {}

/** One URL. Redirects are not followed: the answer has to come from whom the protector names. */
export class HttpWire implements Wire {
  readonly #url: URL;
  readonly #agent: PlainAgent | TlsAgent;
  readonly #isSecure: boolean;

  /** Throws {@link ProbeFailure} for what is no http or https URL. */
  constructor({ endpoint, caBundle }: WireOptions) {
    if (!URL.canParse(endpoint)) throw new ProbeFailure("its endpoint is no URL");
    this.#url = new URL(endpoint);
    this.#isSecure = this.#url.protocol === "https:";
    if (!this.#isSecure && this.#url.protocol !== "http:")
      throw new ProbeFailure("its endpoint is no http or https URL");
    const kept = { keepAlive: true, timeout: IDLE_MS, ...(caBundle === undefined ? {} : { ca: caBundle }) };
    this.#agent = this.#isSecure ? new TlsAgent(kept) : new PlainAgent(kept);
  }

  async ask(question: OwnerQuestion, signal: AbortSignal): Promise<ProbeReply> {
    const body = requestJson(question);
    try {
      return await this.#attempt(body, signal);
    } catch (error) {
      // A kept connection was lost unnoticed. The question changes nothing, so it can be asked again.
      if (!(error instanceof StaleConnection) || signal.aborted) throw error;
      return await this.#attempt(body, signal);
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #attempt(body: string, signal: AbortSignal): Promise<ProbeReply> {
    return new Promise((resolve, reject) => {
      let hasResponse = false;
      const fail = (error: unknown): void => {
        if (error instanceof BadReply) reject(error);
        else if (sending.reusedSocket && !hasResponse && !signal.aborted)
          reject(new StaleConnection(describeError(error)));
        else reject(new ProbeFailure(signal.aborted ? "no answer in time" : describeError(error), { cause: error }));
        sending.destroy();
      };
      const send = this.#isSecure ? tlsRequest : plainRequest;
      const sending = send(this.#url, {
        method: "POST",
        agent: this.#agent,
        signal,
        headers: {
          "content-type": "application/json",
          "content-length": Buffer.byteLength(body),
          accept: "application/json",
        },
      });
      sending.on("error", fail);
      sending.on("response", (response) => {
        hasResponse = true;
        this.#read(response, resolve, fail);
      });
      sending.end(body);
    });
  }

  #read(response: IncomingMessage, resolve: (reply: ProbeReply) => void, fail: (error: unknown) => void): void {
    if (response.statusCode !== 200) {
      fail(new BadReply(`HTTP status ${String(response.statusCode)}`));
      return;
    }
    const chunks: Buffer[] = [];
    let bytes = 0;
    response.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes <= MAX_REPLY_BYTES) chunks.push(chunk);
      else fail(new BadReply(`the answer is larger than ${MAX_REPLY_BYTES} bytes`));
    });
    response.on("error", fail);
    response.on("close", () => fail(new ProbeFailure("the connection was closed before the end of the answer")));
    response.on("end", () => {
      try {
        resolve(parseReplyJson(Buffer.concat(chunks, bytes).toString()));
      } catch (error) {
        fail(error);
      }
    });
  }
}
