/** Asks an owner by an HTTP POST of JSON. */
import { type IncomingMessage, Agent as PlainAgent, request as plainRequest } from "node:http";
import { Agent as TlsAgent, request as tlsRequest } from "node:https";
import { lookupOnce } from "../../shared/runtime/name-lookup.ts";
import { BadProbeResponse, type ProbeResponse, parseResponseJson, requestJson } from "./message.ts";
import {
  describeError,
  IDLE_MS,
  MAX_RESPONSE_BYTES,
  type ProbeClient,
  type ProbeClientOptions,
  ProbeFailure,
} from "./probe-client.ts";
import type { ProbeRequest } from "./probe-request.ts";

class StaleConnection extends ProbeFailure {}

/** One URL. Redirects are not followed: the response has to come from the server that the protector names. */
export class HttpProbeClient implements ProbeClient {
  readonly #url: URL;
  readonly #agent: PlainAgent | TlsAgent;
  readonly #isSecure: boolean;

  /** `endpoint` is an http or https URL. */
  constructor({ endpoint, caBundle, clientCertificate }: ProbeClientOptions) {
    this.#url = new URL(endpoint);
    this.#isSecure = this.#url.protocol === "https:";
    const kept = { lookup: lookupOnce, keepAlive: true, timeout: IDLE_MS };
    const tls = { ...kept, ...(caBundle === undefined ? {} : { ca: caBundle }), ...clientCertificate };
    this.#agent = this.#isSecure ? new TlsAgent(tls) : new PlainAgent(kept);
  }

  async ask(request: ProbeRequest, signal: AbortSignal): Promise<ProbeResponse> {
    const body = requestJson(request);
    try {
      return await this.#call(body, signal);
    } catch (error) {
      // An idle connection was lost unnoticed. A probe changes nothing, so the call can be repeated.
      if (!(error instanceof StaleConnection) || signal.aborted) throw error;
      // The other idle ones are lost, too, as after a failover.
      for (const sockets of Object.values(this.#agent.freeSockets))
        for (const socket of sockets ?? []) socket.destroy();
      return await this.#call(body, signal);
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #call(body: string, signal: AbortSignal): Promise<ProbeResponse> {
    return new Promise((resolve, reject) => {
      let hasResponse = false;
      const fail = (error: unknown): void => {
        if (error instanceof BadProbeResponse) reject(error);
        else if (sending.reusedSocket && !hasResponse && !signal.aborted)
          reject(new StaleConnection(describeError(error)));
        else reject(new ProbeFailure(signal.aborted ? "no answer in time" : describeError(error), { cause: error }));
        sending.destroy();
      };
      const json = "application/json";
      const headers = { "content-type": json, "content-length": Buffer.byteLength(body), accept: json };
      const send = this.#isSecure ? tlsRequest : plainRequest;
      const sending = send(this.#url, { method: "POST", agent: this.#agent, signal, headers });
      sending.on("error", fail);
      // After HTTP 101, Node closes the connection without an error.
      sending.on("close", () => fail(new ProbeFailure("the connection was closed before the answer")));
      sending.on("response", (response) => {
        hasResponse = true;
        readResponse(response, resolve, fail);
      });
      sending.end(body);
    });
  }
}

function readResponse(
  response: IncomingMessage,
  resolve: (response: ProbeResponse) => void,
  fail: (error: unknown) => void,
): void {
  if (response.statusCode !== 200) {
    fail(new BadProbeResponse(`HTTP status ${String(response.statusCode)}`));
    return;
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  response.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes <= MAX_RESPONSE_BYTES) chunks.push(chunk);
    else fail(new BadProbeResponse(`the answer is larger than ${MAX_RESPONSE_BYTES} bytes`));
  });
  response.on("error", fail);
  response.on("close", () => fail(new ProbeFailure("the connection was closed before the end of the answer")));
  response.on("end", () => {
    try {
      resolve(parseResponseJson(Buffer.concat(chunks, bytes).toString()));
    } catch (error) {
      fail(error);
    }
  });
}
