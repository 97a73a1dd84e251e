/** Errors as log fields: what went wrong and why, bounded, without secrets. */

/** A chain of causes is followed this far; errors can cause each other. */
const MAX_CAUSES = 5;
const MAX_TEXT_LENGTH = 2000;
/** Text beyond is not even searched for secrets; it is cut off anyway. */
const MAX_SEARCHED_LENGTH = 10 * MAX_TEXT_LENGTH;
/** A credential is long; "basic authentication" is not one. */
const BEARER = /\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{16,}/gi;
const JSON_WEB_TOKEN = /eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*/g;
const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|$)/g;

interface ErrorFields {
  readonly name: string;
  readonly message: string;
  /** The error's own classification, as metrics use it. */
  readonly tag?: string;
  readonly code?: string;
  /** Of errors without a tag: those that nobody foresaw. */
  readonly stack?: string;
  readonly cause?: unknown;
}

/** An error as plain fields, its causes nested; anything else as it is. */
export function describeError(value: unknown, depth = 0): unknown {
  if (typeof value === "string") return scrub(value);
  if (!(value instanceof Error)) return value;
  const { name, message, stack, cause } = value;
  const tag = "tag" in value && typeof value.tag === "string" ? value.tag : undefined;
  const code =
    "code" in value && (typeof value.code === "string" || typeof value.code === "number")
      ? String(value.code)
      : undefined;
  const foreseen = tag !== undefined || code !== undefined || depth > 0;
  return {
    name,
    message: scrub(message),
    ...(tag === undefined ? {} : { tag }),
    ...(code === undefined ? {} : { code }),
    ...(foreseen || stack === undefined ? {} : { stack: scrub(stack) }),
    ...(cause === undefined || depth >= MAX_CAUSES ? {} : { cause: describeError(cause, depth + 1) }),
  } satisfies ErrorFields;
}

/** The text without what looks like a credential, cut to a bounded length. */
export function scrub(text: string): string {
  const clean = text
    .slice(0, MAX_SEARCHED_LENGTH)
    .replaceAll(PRIVATE_KEY, "[redacted]")
    .replaceAll(BEARER, "$1 [redacted]")
    .replaceAll(JSON_WEB_TOKEN, "[redacted]");
  return clean.length > MAX_TEXT_LENGTH ? `${clean.slice(0, MAX_TEXT_LENGTH)}...` : clean;
}
