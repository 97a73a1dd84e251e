const KEY = Buffer.from('"managedFields":[');
const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Returns the same JSON with every `managedFields` replaced by an empty array. They are up to half of an object, and
 * their many distinct names take longer to parse than all other fields. Invalid JSON stays invalid.
 */
export function withoutManagedFields(json: Buffer): Buffer {
  const kept: Buffer[] = [];
  let from = 0;
  for (let at = json.indexOf(KEY); at >= 0; at = json.indexOf(KEY, Math.max(from, at + KEY.length))) {
    if (!isName(json, at)) continue;
    const start = at + KEY.length;
    const end = endOfArray(json, start);
    if (end < 0) break;
    kept.push(json.subarray(from, start));
    from = end;
  }
  if (from === 0) return json;
  kept.push(json.subarray(from));
  return Buffer.concat(kept);
}

/**
 * True for a quote directly after a brace or comma, which begins a name: inside a string, a backslash would precede it.
 */
function isName(json: Buffer, at: number): boolean {
  return json[at - 1] === COMMA || json[at - 1] === OPEN_BRACE;
}

/** Index of the bracket that closes the array whose content begins at `from`; -1 when it is missing. */
function endOfArray(json: Buffer, from: number): number {
  let depth = 1;
  for (let at = from; at < json.length; at++) {
    switch (json[at]) {
      case QUOTE:
        for (at++; at < json.length && json[at] !== QUOTE; at++) if (json[at] === BACKSLASH) at++;
        break;
      case OPEN_BRACKET:
      case OPEN_BRACE:
        depth++;
        break;
      case CLOSE_BRACKET:
      case CLOSE_BRACE:
        if (--depth === 0) return at;
    }
  }
  return -1;
}
