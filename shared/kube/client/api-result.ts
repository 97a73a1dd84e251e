import * as v from "valibot";
import { toError } from "../../runtime/errors.ts";
import { checker } from "../../schema/check.ts";
import type { ApiResponse } from "./transport.ts";

/** The result of one API call, classified; calls never throw for an HTTP status. */
export type ApiResult<T> =
  | { readonly kind: "ok"; readonly object: T }
  /** 409: the version or UID precondition did not hold, or (create) the object exists. Nothing was written. */
  | { readonly kind: "conflict"; readonly message: string }
  /** 404 for this object (a Status that names it). A path that is not served is `unavailable`. */
  | { readonly kind: "gone" }
  /** Another 4xx: the same request will not succeed. Nothing was written. */
  | { readonly kind: "rejected"; readonly status: number; readonly message: string }
  | Unavailable;

/** No response, or one without a result of the request: 401, 429, 5xx, no JSON, a path that is not served. */
export interface Unavailable {
  readonly kind: "unavailable";
  readonly error: Error;
  /** The write may have succeeded anyway: only a read shows whether it did. */
  readonly sent: boolean;
  readonly status?: number | undefined;
  /** From `Retry-After`. */
  readonly retryAfterMs?: number | undefined;
}

/** The beginning of kube-apiserver's message where a webhook with failurePolicy Fail gives no answer. */
const UNCALLED_WEBHOOK = "Internal error occurred: failed calling webhook ";

/** The admission webhook that the server could not call, so that it wrote nothing. */
export function uncalledWebhook({ error, sent, status }: Unavailable): string | undefined {
  return status === 500 && !sent ? /webhook "(.+?)"/.exec(error.message)?.[1] : undefined;
}

/** Every result but `ok`. */
export type ApiFailure = Exclude<ApiResult<never>, { readonly kind: "ok" }>;

/** Every kind of failure; metric labels. */
export const API_FAILURES = ["conflict", "gone", "rejected", "unavailable"] as const satisfies ApiFailure["kind"][];

/** Returns a sentence for logs, conditions and Events; `gone` is the sentence for a missing object. */
export function describeFailure(failure: ApiFailure, gone = "the object does not exist"): string {
  switch (failure.kind) {
    case "gone":
      return gone;
    case "unavailable":
      return failure.error.message;
    default:
      return failure.message;
  }
}

/** Returns the failure as an error: the original one, if any. */
export function errorOf(failure: ApiFailure, gone?: string): Error {
  return failure.kind === "unavailable" ? failure.error : new Error(describeFailure(failure, gone));
}

/** A call without a complete response, or with a 2xx response that can't be read. */
export function unavailable(error: unknown, sent: boolean, status?: number): Unavailable {
  return { kind: "unavailable", error: toError(error), sent, status };
}

/**
 * Classifies a response other than 2xx. `what` is method and path without query, for messages. `name` is that of the
 * object, where a 404 about another object must not count: a proxy may mix up responses.
 */
export function failureOf(response: ApiResponse, what: string, name?: string): ApiFailure {
  const { code, status, retryAfterMs, message } = readFailure(response, what);
  if (code === 409) return { kind: "conflict", message };
  // The Status of a missing object names the object, or the missing namespace of a creation. A missing API answers in
  // plain text.
  const absent = code === 404 ? status?.absent : undefined;
  if (absent !== undefined && (name ?? absent) === absent) return { kind: "gone" };
  if (code >= 400 && code < 500 && ![401, 404, 408, 429].includes(code)) {
    return { kind: "rejected", status: code, message };
  }
  return {
    kind: "unavailable",
    error: new Error(message),
    // Only a 5xx may come after a successful write. Admission comes before it.
    sent: code >= 500 && !status?.message.startsWith(UNCALLED_WEBHOOK),
    status: code,
    retryAfterMs: code === 429 ? retryAfterMs : ofOutage(retryAfterMs),
  };
}

/** How much of `Retry-After` is followed where the server is not just busy: a proxy without one asks for minutes. */
export function ofOutage(retryAfterMs: number | undefined): number | undefined {
  return retryAfterMs && Math.min(retryAfterMs, MAX_OUTAGE_RETRY_MS);
}

/** A response or watch line that no apiserver sends. The message does not quote it, because it may contain a Secret. */
export class MalformedResponse extends Error {
  override readonly name = "MalformedResponse";
  readonly tag = "corrupt";
}

/** Parses JSON. Throws {@link MalformedResponse}. */
export function parseJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Without the cause: the parser's message quotes the text.
    throw new MalformedResponse(`${what} is not JSON`);
  }
}

/** Longest Retry-After that is followed: a proxy may ask for hours during an outage of seconds. */
const MAX_RETRY_AFTER_MS = 60_000;
/** For a watch, what follows after a second counts as an outage. */
const MAX_OUTAGE_RETRY_MS = 1_000;

/** It stops at the first field that is wrong: a server that is taken over may send millions of them. */
const checkStatus = checker(
  v.looseObject({
    kind: v.picklist(["Status"]),
    code: v.optional(v.number()),
    reason: v.optional(v.string()),
    message: v.optional(v.string()),
    details: v.nullish(
      v.looseObject({
        name: v.optional(v.string()),
        retryAfterSeconds: v.optional(v.number()),
        causes: v.nullish(v.array(v.looseObject({ reason: v.optional(v.string()) }))),
      }),
    ),
  }),
);

/** Characters of a server's text that are kept: responses and conditions repeat it. */
const MAX_TEXT = 8_192;

/** A copy: a part of a text would keep the whole in memory. */
function cut(text: string, length = MAX_TEXT): string {
  return text.length <= length ? text : Buffer.from(text.slice(0, length)).toString();
}

/** The fields of a `metav1.Status` that this project acts on. */
export interface ApiStatus {
  readonly code: number;
  /** Cut. It is the only text that is kept of a Status. */
  readonly message: string;
  /** Name of the object that does not exist; undefined when the path itself is not served. */
  readonly absent: string | undefined;
  /** Bounded. */
  readonly retryAfterMs: number | undefined;
  /** "Too large resource version": the server has not reached the requested version. */
  readonly versionTooLarge: boolean;
}

/** Reads a Status from a body or a parsed object; undefined for anything else (a proxy's error page, plain text). */
export function parseStatus(source: unknown): ApiStatus | undefined {
  try {
    const {
      code = 0,
      reason,
      message = "",
      details,
    } = checkStatus(typeof source === "string" ? JSON.parse(source) : source);
    const causes = details?.causes ?? [];
    const seconds = details?.retryAfterSeconds;
    return {
      code,
      message: cut(message),
      absent: reason === "NotFound" && details?.name !== undefined ? cut(details.name) : undefined,
      // Apiservers send whole seconds. A millisecond would be no pause.
      retryAfterMs: seconds !== undefined && seconds >= 1 ? boundedMs(seconds) : undefined,
      versionTooLarge:
        causes.some((cause) => cause.reason === "ResourceVersionTooLarge") ||
        message.includes("Too large resource version"),
    };
  } catch {
    return undefined;
  }
}

/** Reads a response other than 2xx. `what` is the request, for messages. */
export function readFailure(response: Pick<ApiResponse, "status" | "headers" | "body">, what: string) {
  const { status: code, headers, body } = response;
  const status = parseStatus(body);
  const message = `${what}: HTTP ${code}: ${status?.message ?? cut(body, 200)}`;
  return { code, status, message, retryAfterMs: retryAfterHeaderMs(headers) ?? status?.retryAfterMs };
}

/** `Retry-After` in milliseconds, bounded. Apiservers send whole seconds, never the form with a date. */
function retryAfterHeaderMs(headers: Readonly<Record<string, string>>): number | undefined {
  const value = headers["retry-after"];
  if (value === undefined || !/^[0-9]{1,9}$/.test(value)) return undefined;
  return boundedMs(Number(value));
}

function boundedMs(seconds: number): number {
  return Math.min(seconds * 1000, MAX_RETRY_AFTER_MS);
}
