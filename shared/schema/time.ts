/**
 * Times: on the wire RFC 3339 with microseconds, like upstream's `metav1.MicroTime`; in memory integer Unix
 * microseconds.
 */

const FRACTION = /\.(\d+)/;

/** The year 2112, so that the packed form can store every difference of two times (`shared/decide/ledger/bytes.ts`). */
const MAX_MICROS = 2 ** 52 - 1;

/** {@link MAX_MICROS} in Unix milliseconds. */
export const LATEST_MS = Math.floor(MAX_MICROS / 1000);

/**
 * Unix microseconds of an RFC 3339 time, without smaller fractions. Unreadable times and times before 1970 are 0, and
 * times after 2112 are clamped, because the schema accepts any string and every caller needs a number.
 */
export function parseMicros(text: string | null | undefined): number {
  if (text === null || text === undefined) return 0;
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) return 0;
  const digits = FRACTION.exec(text)?.[1];
  if (digits === undefined) return clampMicros(ms * 1000);
  return clampMicros(Math.floor(ms / 1000) * 1_000_000 + Number(digits.padEnd(6, "0").slice(0, 6)));
}

/** Cache of the last formatted millisecond: one status has the same few times in many places. */
let lastMs = 0;
let lastText = "1970-01-01T00:00:00.000";

/** The inverse of {@link parseMicros}, always with six digits and `Z`. */
export function formatMicros(micros: number): string {
  const ms = Math.floor(micros / 1000);
  if (ms !== lastMs) {
    lastText = new Date(ms).toISOString().slice(0, -1);
    lastMs = ms;
  }
  const rest = micros - ms * 1000;
  return rest === 0 ? `${lastText}000Z` : `${lastText}${String(rest).padStart(3, "0")}Z`;
}

/** {@link formatMicros} of Unix milliseconds. */
export function formatMs(ms: number): string {
  return formatMicros(clampMicros(Math.floor(ms) * 1000));
}

/** {@link parseMicros} in Unix milliseconds. */
export function parseMs(text: string | null | undefined): number {
  return Math.floor(parseMicros(text) / 1000);
}

function clampMicros(micros: number): number {
  return Math.min(Math.max(micros, 0), MAX_MICROS);
}
