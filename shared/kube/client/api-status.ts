import * as v from "valibot";

/**
 * A server that asks for more is asked again at this pace all the same, so that recovery is never put off for long: work that waits out
 * what a proxy said during an outage of seconds is not woken by anything else.
 */
const MAX_RETRY_AFTER_MS = 60_000;

const Status = v.looseObject({
  kind: v.literal("Status"),
  code: v.optional(v.number(), 0),
  reason: v.optional(v.string()),
  message: v.optional(v.string(), ""),
  details: v.optional(
    v.nullable(
      v.looseObject({
        name: v.optional(v.string()),
        kind: v.optional(v.string()),
        retryAfterSeconds: v.optional(v.number()),
        causes: v.optional(v.nullable(v.array(v.looseObject({ reason: v.optional(v.string()) })))),
      }),
    ),
  ),
});

/** What of a `metav1.Status` is acted on. */
export interface ApiStatus {
  readonly code: number;
  readonly reason: string | undefined;
  readonly message: string;
  /** The object that the answer is about; absent when the path itself is not served. */
  readonly name: string | undefined;
  /** Bounded. */
  readonly retryAfterMs: number | undefined;
  /** "Too large resource version": the server has not reached the version that was asked for. */
  readonly versionTooLarge: boolean;
}

/** Reads a Status from a body or a parsed object; undefined when it is none (a proxy's error page, plain text). */
export function parseStatus(source: unknown): ApiStatus | undefined {
  const parsed = v.safeParse(Status, typeof source === "string" ? parseJson(source) : source);
  if (!parsed.success) return undefined;
  const { code, reason, message, details } = parsed.output;
  const causes = details?.causes ?? [];
  const seconds = details?.retryAfterSeconds;
  return {
    code,
    reason,
    message,
    name: details?.name,
    retryAfterMs: seconds !== undefined && seconds > 0 ? bounded(seconds) : undefined,
    versionTooLarge:
      causes.some((cause) => cause.reason === "ResourceVersionTooLarge") ||
      message.includes("Too large resource version"),
  };
}

/** `Retry-After` in whole seconds, as apiservers send it, in milliseconds, bounded. The HTTP-date form needs a clock and is not used there. */
export function retryAfterHeaderMs(headers: Readonly<Record<string, string>>): number | undefined {
  const value = headers["retry-after"];
  if (value === undefined || !/^[0-9]{1,9}$/.test(value)) return undefined;
  return bounded(Number(value));
}

function bounded(seconds: number): number {
  return Math.min(seconds * 1000, MAX_RETRY_AFTER_MS);
}

/** JSON or undefined. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
