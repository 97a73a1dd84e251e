/**
 * Reads the force-delete annotation (docs/design.md#bypass): the claim of a pod, not whether the webhook follows it.
 */

/** The claim of a pod's annotation. */
export type BypassClaim =
  | { readonly kind: "none" }
  | { readonly kind: "malformed" }
  | {
      readonly kind: "claimed";
      /** Wall clock, Unix milliseconds; undefined when the claim does not expire. */
      readonly untilMs: number | undefined;
      readonly until: string | undefined;
      readonly reason: string | undefined;
    };

/**
 * Values that begin with this, or with white space before it, are JSON: `{"until": RFC 3339, "reason": text}`, either
 * or both.
 */
const STRUCTURED = "{";
const MAX_REASON = 200;
/** Kubernetes' limit for all annotations of a pod. A forged pod may have megabytes of JSON. */
const MAX_LENGTH = 256 * 1024;
/** With nanoseconds at most: responses repeat the time. */
const RFC3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$/;
const KNOWN_KEYS: ReadonlySet<string> = new Set(["until", "reason"]);

function field(fields: ReadonlyMap<string, unknown>, name: string): string | undefined {
  const value = fields.get(name);
  if (value !== undefined && typeof value !== "string") throw new SyntaxError(`${name} is not a string`);
  return value;
}

/** JavaScript reads 30 February as 2 March. Throws for what is no time at all. */
function isInCalendar(rfc3339: string): boolean {
  const local = rfc3339.slice(0, 19);
  return new Date(`${local}Z`).toISOString().startsWith(local);
}

/** Reads a value. An unreadable value allows nothing: its author may have meant less than "always". */
export function readClaim(value: string | undefined): BypassClaim {
  if (value === undefined) return { kind: "none" };
  if (value.length > MAX_LENGTH) return { kind: "malformed" };
  if (!value.trimStart().startsWith(STRUCTURED)) {
    return { kind: "claimed", untilMs: undefined, until: undefined, reason: undefined };
  }
  try {
    const raw: unknown = JSON.parse(value);
    const fields = new Map<string, unknown>(Object.entries(Object(raw)));
    if (fields.size === 0 || fields.keys().some((key) => !KNOWN_KEYS.has(key))) return { kind: "malformed" };
    const until = field(fields, "until");
    const untilMs = until === undefined ? undefined : Date.parse(until);
    if (until !== undefined && (!RFC3339.test(until) || Number.isNaN(untilMs) || !isInCalendar(until)))
      return { kind: "malformed" };
    return { kind: "claimed", untilMs, until, reason: field(fields, "reason")?.slice(0, MAX_REASON) };
  } catch {
    return { kind: "malformed" };
  }
}
