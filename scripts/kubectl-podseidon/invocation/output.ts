/** Results for people: tables and ages in kubectl's format. Pure. */

/** Control characters except the line feed, and characters that reorder a line. */
const CONTROL = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;

/** The text with control characters escaped, such as `\u001b`: tenants write much of the output. */
export function escapeControls(text: string): string {
  return text.replace(CONTROL, (character) =>
    character === "\n" ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** As {@link escapeControls}, for a text that must stay in its line. */
export const inLine = (text: string): string => escapeControls(text).replaceAll("\n", "\\n");

/** Each row as one line, every column as wide as its longest cell. */
export function columns(texts: readonly (readonly string[])[], separator: string): readonly string[] {
  const rows = texts.map((row) => row.map(inLine));
  const count = Math.max(0, ...rows.map((row) => row.length));
  const widths = Array.from({ length: count }, (_, column) =>
    Math.max(...rows.map((row) => widthOf(row[column] ?? ""))),
  );
  return rows.map((row) => widths.map((width, column) => pad(row[column] ?? "", width)).join(separator));
}

/** A table in kubectl's format: three blanks between columns. */
export function table(head: readonly string[], rows: readonly (readonly string[])[], indent = ""): string {
  return columns([head, ...rows], "   ")
    .map((line) => `${indent}${line.trimEnd()}\n`)
    .join("");
}

/** Characters that terminals show in two columns, and in none. */
const SCRIPTS = String.raw`\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}`;
const WIDE = new RegExp(String.raw`[${SCRIPTS}\p{Emoji_Presentation}\u3001-\u303e\uff01-\uff60]`, "gu");
const NONE = /[\p{Mn}\p{Me}\u200b-\u200d]/gu;

/** The columns of a terminal that the text takes: names of contexts may be Chinese. */
export function widthOf(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length;
  return [...text].length + (text.match(WIDE)?.length ?? 0) - (text.match(NONE)?.length ?? 0);
}

/** The beginning of the text that fits. */
export function cut(text: string, width: number): string {
  let beginning = "";
  for (const character of text) {
    if (widthOf(beginning + character) > width) break;
    beginning += character;
  }
  return beginning;
}

function pad(cell: string, width: number): string {
  return cell + " ".repeat(Math.max(0, width - widthOf(cell)));
}

/** `Name:   value` lines. */
export function fields(entries: readonly (readonly [string, string])[]): string {
  const width = Math.max(...entries.map(([name]) => name.length)) + 1;
  return entries.map(([name, value]) => `${`${name}:`.padEnd(width)}   ${inLine(value)}\n`).join("");
}

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** `7s`, `4m10s`, `3h5m`, `12d`, like kubectl's ages; `-` when unknown, and `in 7s` for the future. */
export function age(ms: number | undefined): string {
  if (ms === undefined || !Number.isFinite(ms)) return "-";
  if (ms < -SECOND_MS) return `in ${age(-ms)}`;
  const part = (unitMs: number, name: string, smallerMs: number, smaller: string): string => {
    const rest = Math.floor((ms % unitMs) / smallerMs);
    return `${Math.floor(ms / unitMs)}${name}${rest > 0 ? `${rest}${smaller}` : ""}`;
  };
  if (ms < 2 * MINUTE_MS) return `${Math.max(0, Math.floor(ms / SECOND_MS))}s`;
  if (ms < 10 * MINUTE_MS) return part(MINUTE_MS, "m", SECOND_MS, "s");
  if (ms < 3 * HOUR_MS) return `${Math.floor(ms / MINUTE_MS)}m`;
  if (ms < 8 * HOUR_MS) return part(HOUR_MS, "h", MINUTE_MS, "m");
  if (ms < 2 * DAY_MS) return `${Math.floor(ms / HOUR_MS)}h`;
  if (ms < 8 * DAY_MS) return part(DAY_MS, "d", HOUR_MS, "h");
  return `${Math.floor(ms / DAY_MS)}d`;
}

export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** The first names, and how many more there are. */
export function firstNames(names: readonly string[], most: number): string {
  const others = names.length - most;
  return `${names.slice(0, most).join(", ")}${others > 0 ? ` and ${others} more` : ""}`;
}

const UNITS: Readonly<Record<string, number>> = { s: SECOND_MS, m: MINUTE_MS, h: HOUR_MS, d: DAY_MS };

/** Milliseconds of `90s`, `15m`, `1h30m`, `2d`; undefined for anything else. */
export function parseDuration(text: string): number | undefined {
  if (!/^(\d{1,6}[smhd])+$/.test(text)) return undefined;
  let ms = 0;
  for (const [, digits = "", unit = ""] of text.matchAll(/(\d+)([smhd])/g)) ms += Number(digits) * (UNITS[unit] ?? 0);
  return ms > 0 ? ms : undefined;
}
