import type { IncomingMessage } from "node:http";
import { Agent, request } from "node:https";
import * as v from "valibot";
import { valueAt as field } from "../../shared/schema/check.ts";
import { type HttpsAnswer, httpsCall } from "./https-call.ts";

/** A small HTTPS client for one server, for tests and scripts: JSON in, JSON out, certificates verified. */
export interface ApiClientOptions {
  /** `https://ADDRESS:PORT` */
  readonly url: string;
  /** The only trusted authority. */
  readonly certificateAuthorityPem: string;
  readonly token?: string;
  readonly clientCertificate?: { readonly certificatePem: string; readonly privateKeyPem: string };
}

export interface ApiCallOptions {
  /** `application/json` by default; for PATCH `application/merge-patch+json`. */
  readonly contentType?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** For the whole call; 75 s by default. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

export interface ApiAnswer extends HttpsAnswer {
  /** The parsed JSON; undefined when the text is not JSON. */
  readonly body: unknown;
}

/** The server answered with a status of 400 or more. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;
  readonly answer: ApiAnswer;

  constructor(method: string, path: string, answer: ApiAnswer) {
    const message = field(answer.body, "message");
    super(`${method} ${path} answered ${answer.status}: ${typeof message === "string" ? message : answer.text}`);
    this.status = answer.status;
    this.answer = answer;
  }
}

const Json = v.fallback(v.pipe(v.string(), v.parseJson()), undefined);
/** Against what hangs: an apiserver itself gives a request up after 60 s, and says so. */
const CALL_TIMEOUT_MS = 75_000;
/** Idle connections are closed before the apiserver closes them (after 90 s), so that no call uses a closing one. */
const IDLE_SOCKET_MS = 60_000;

export class ApiserverClient {
  readonly url: string;
  readonly #options: ApiClientOptions;
  readonly #agent: Agent;

  constructor(options: ApiClientOptions) {
    this.url = options.url;
    this.#options = options;
    this.#agent = new Agent({
      keepAlive: true,
      timeout: IDLE_SOCKET_MS,
      ca: options.certificateAuthorityPem,
      ...(options.clientCertificate === undefined
        ? {}
        : { cert: options.clientCertificate.certificatePem, key: options.clientCertificate.privateKeyPem }),
    });
  }

  /** Resolves with the response, whatever its status; rejects without a response. */
  async request(method: string, path: string, body?: unknown, options: ApiCallOptions = {}): Promise<ApiAnswer> {
    const defaultType = method === "PATCH" ? "application/merge-patch+json" : "application/json";
    const payload = body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body);
    const timeout = AbortSignal.timeout(options.timeoutMs ?? CALL_TIMEOUT_MS);
    const signal = options.signal === undefined ? timeout : AbortSignal.any([timeout, options.signal]);
    const headers = {
      accept: "application/json",
      ...(this.#options.token === undefined ? {} : { authorization: `Bearer ${this.#options.token}` }),
      // Node.js sends the body of a DELETE only with an explicit length.
      ...(payload === undefined
        ? {}
        : {
            "content-type": options.contentType ?? defaultType,
            "content-length": String(Buffer.byteLength(payload)),
          }),
      ...options.headers,
    };
    const answer = await httpsCall(`${this.url}${path}`, { method, agent: this.#agent, signal, headers }, payload);
    return { ...answer, body: v.parse(Json, answer.text) };
  }

  /** Resolves with the body of an answer below 400; rejects with {@link ApiError} otherwise. */
  async call(method: string, path: string, body?: unknown, options?: ApiCallOptions): Promise<unknown> {
    const answer = await this.request(method, path, body, options);
    if (answer.status >= 400) throw new ApiError(method, path, answer);
    return answer.body;
  }

  /** Resolves with the response to a POST, whose body continues until `signal`; rejects without a response. */
  stream(path: string, body: unknown, signal: AbortSignal): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const call = request(`${this.url}${path}`, { method: "POST", agent: this.#agent, signal }, resolve);
      call.on("error", reject);
      call.end(JSON.stringify(body));
    });
  }

  async get(path: string): Promise<unknown> {
    return await this.call("GET", path);
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** `field(pod, "status", "phase")` */
export { field };

/** The list at a property; empty when there is none. */
export function items(object: unknown, name = "items"): readonly unknown[] {
  const found = field(object, name);
  return Array.isArray(found) ? found : [];
}

/** The status of one of an object's conditions: `conditionStatus(pod, "Ready")`. */
export function conditionStatus(object: unknown, type: string): string | undefined {
  const found = items(field(object, "status"), "conditions").find((condition) => field(condition, "type") === type);
  const status = field(found, "status");
  return typeof status === "string" ? status : undefined;
}
