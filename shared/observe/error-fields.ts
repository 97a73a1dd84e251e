/** Errors as log fields: bounded, with their causes, and without secrets. */

/** Longest chain of causes; errors can cause each other. */
const MAX_CAUSES = 5;
const MAX_TEXT_LENGTH = 2000;
/** Longer text is cut before the search for secrets. */
const MAX_SEARCHED_LENGTH = 10 * MAX_TEXT_LENGTH;
/** A credential is long, unlike the second word of "basic authentication". */
const BEARER = /\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{16,}/gi;
const JSON_WEB_TOKEN = /eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*/g;
const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|$)/g;

interface ErrorFields {
  readonly name: string;
  readonly message: string;
  /** The classification of the error, as in metrics. */
  readonly tag?: string;
  readonly code?: string;
  /** Only for unforeseen errors, without tag and code. */
  readonly stack?: string;
  readonly cause?: unknown;
}

/** Returns an error as plain fields with its causes nested, and any other value unchanged. */
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

/** Returns the text without anything that looks like a credential, cut to a bounded length. */
export function scrub(text: string): string {
  const clean = text
    .slice(0, MAX_SEARCHED_LENGTH)
    .replaceAll(PRIVATE_KEY, "[redacted]")
    .replaceAll(BEARER, "$1 [redacted]")
    .replaceAll(JSON_WEB_TOKEN, "[redacted]");
  return clean.length > MAX_TEXT_LENGTH ? `${clean.slice(0, MAX_TEXT_LENGTH)}...` : clean;
}
