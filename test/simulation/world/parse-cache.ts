/**
 * All processes of a world live in one thread, and each of them reads the very bytes that an API server sends to all. A text that one of
 * them has read is not read again for the next: that was a tenth of a run. Nothing that was read may be changed, then; with `isFrozen` whoever tries throws.
 */

/** What goes to many: events of watches, and lists that only ask for a version. Other texts are met once. */
const SHARED = ['{"type":"', '{"kind":"PodProtectorList"'];
/** What is still under way, and a little. */
const MOST_TEXTS = 500;

const parse = JSON.parse;
const known = new Map<string, unknown>();
let isFreezing = false;

function parseOnce(
  text: string,
  ...rest: [reviver?: (this: unknown, key: string, value: unknown) => unknown]
): unknown {
  if (rest.length > 0 || !isShared(text)) return parse(text, ...rest);
  let value: unknown = known.get(text);
  if (value === undefined) {
    if (known.size >= MOST_TEXTS) known.clear();
    value = parse(text);
    if (isFreezing) freezeAll(value);
    known.set(text, value);
  }
  return value;
}

function isShared(text: unknown): boolean {
  return typeof text === "string" && SHARED.some((begin) => text.startsWith(begin));
}

function freezeAll(value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  Object.freeze(value);
  for (const field of Object.values(value)) freezeAll(field);
}

/** From here on texts are read once, by whoever parses JSON in this thread. Returns how to end it. */
export function shareTexts(isFrozen = false): () => void {
  isFreezing = isFrozen;
  JSON.parse = parseOnce;
  return () => {
    JSON.parse = parse;
    known.clear();
  };
}
