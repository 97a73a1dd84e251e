import {
  type ApiRequest,
  type ApiResponse,
  type ApiStream,
  type Transport,
  TransportError,
  type TransportErrorTag,
} from "../../../shared/kube/client/transport.ts";

type Answer = { readonly status: number; readonly headers?: Record<string, string>; readonly body?: unknown };

export const JSON_TYPE = { "content-type": "application/json" };

/** A stream that a test feeds by hand. */
export class ScriptedStream {
  readonly #encoder = new TextEncoder();
  readonly #chunks: (Uint8Array | TransportError | "end")[] = [];
  #wake = Promise.withResolvers<void>();
  closed = false;

  event(type: string, object: unknown): this {
    return this.text(`${JSON.stringify({ type, object })}\n`);
  }

  text(text: string): this {
    return this.bytes(this.#encoder.encode(text));
  }

  bytes(bytes: Uint8Array): this {
    return this.#push(bytes);
  }

  end(): this {
    return this.#push("end");
  }

  fail(tag: TransportErrorTag): this {
    return this.#push(new TransportError(tag, true, `scripted ${tag}`));
  }

  async *read(signal: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
    const aborted = (): void => this.#wake.resolve();
    signal?.addEventListener("abort", aborted, { once: true });
    for (;;) {
      if (signal?.aborted) throw new TransportError("aborted", true, "scripted abort");
      const next = this.#chunks.shift();
      if (next === undefined) {
        this.#wake = Promise.withResolvers();
        await this.#wake.promise;
      } else if (next === "end") {
        return;
      } else if (next instanceof TransportError) {
        throw next;
      } else {
        yield next;
      }
    }
  }

  #push(chunk: Uint8Array | TransportError | "end"): this {
    this.#chunks.push(chunk);
    this.#wake.resolve();
    return this;
  }
}

/**
 * Responds to lists and watches from two scripts, in order, and records the requests. A script that has ended refuses
 * connections. Lists with `limit=1` have a script of their own.
 */
export class ScriptedTransport implements Transport {
  readonly requests: string[] = [];
  readonly lists: (Answer | TransportErrorTag | ((request: ApiRequest) => Answer))[] = [];
  readonly confirmations: (Answer | TransportErrorTag)[] = [];
  readonly watches: (ScriptedStream | Answer | TransportErrorTag | Promise<ScriptedStream>)[] = [];

  async request(request: ApiRequest): Promise<ApiResponse> {
    this.requests.push(`LIST ${readable(request.path)}`);
    const confirmation = new URLSearchParams(request.path.split("?")[1]).get("limit") === "1";
    const step = (confirmation ? this.confirmations : this.lists).shift() ?? "refused";
    if (typeof step === "string") throw new TransportError(step, step !== "refused", `scripted ${step}`);
    return response(typeof step === "function" ? step(request) : step);
  }

  async stream(request: ApiRequest): Promise<ApiStream> {
    this.requests.push(`WATCH ${readable(request.path)}${request.isMoved ? ", moved" : ""}`);
    const step = await (this.watches.shift() ?? "refused");
    if (typeof step === "string") throw new TransportError(step, step !== "refused", `scripted ${step}`);
    const { status, headers, body } =
      step instanceof ScriptedStream ? { status: 200, headers: JSON_TYPE, body: "" } : response(step);
    const stream = step instanceof ScriptedStream ? step : new ScriptedStream().text(body).end();
    return {
      status,
      headers,
      chunks: stream.read(request.signal),
      close: () => {
        stream.closed = true;
      },
    };
  }

  close(): void {}
}

/** Query parameters other than those of every watch. */
function readable(path: string): string {
  const query = new URLSearchParams(path.split("?")[1]);
  for (const name of ["watch", "allowWatchBookmarks", "timeoutSeconds"]) query.delete(name);
  return decodeURIComponent(query.toString());
}

function response(answer: Answer): ApiResponse {
  const { status, headers = {}, body = {} } = answer;
  return { status, headers, body: typeof body === "string" ? body : JSON.stringify(body) };
}

/** A page of a list. */
export function page(resourceVersion: string, items: readonly unknown[], continueToken?: string): Answer {
  return { status: 200, body: { metadata: { resourceVersion, continue: continueToken }, items } };
}

/** A `metav1.Status`. */
export function statusAnswer(
  code: number,
  extra: Record<string, unknown> = {},
  headers: Record<string, string> = {},
): Answer {
  return { status: code, headers, body: { kind: "Status", code, message: `scripted ${code}`, ...extra } };
}
