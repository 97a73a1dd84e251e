/** What passes between the HTTPS server and the admission handler, which alone knows what bodies mean. */
import type { MaybePromise } from "../../shared/runtime/maybe-promise.ts";

/** One call of an apiserver. */
export interface AdmissionCall {
  readonly cell: string;
  /**
   * By URL: `validate` decides a disruption, `mutate` adds the UID precondition to an eviction, `gate` adds the counted
   * readiness gate to new pods whose protector asks for it, `gateAll` to all new pods that are counted.
   */
  readonly kind: "validate" | "mutate" | "gate" | "gateAll";
  readonly body: string;
  /** The network address of the caller; undefined once it has disconnected. */
  readonly address?: string | undefined;
  /** Value of the query parameter `timeout`. */
  readonly timeout: string | undefined;
  /** True once the caller has disconnected. */
  readonly isCallerGone: () => boolean;
}

export interface HttpResponse {
  readonly status: number;
  /** JSON for 200, plain text otherwise. */
  readonly body: string;
  /** Called once, with whether the response was handed over while the caller was still connected. */
  readonly delivered?: (isComplete: boolean) => void;
}

export type CallHandler = (call: AdmissionCall) => MaybePromise<HttpResponse>;

/** An invalid call, or one above a limit. The response has this status and message, and the process goes on. */
export class HttpError extends Error {
  override readonly name = "HttpError";
  readonly status: 400 | 401 | 403 | 404 | 405 | 413 | 415 | 503;
  constructor(status: HttpError["status"], message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}
