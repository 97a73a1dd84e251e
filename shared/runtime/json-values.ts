/** How many values JSON has, before it is parsed: each takes up to 70 bytes of memory, and `{},` has three. */

const QUOTE = 2;
const ESCAPE = 3;
/** By byte: 0 for most of them, 1 where a value begins. */
const KINDS = new Uint8Array(256);
for (const [kind, characters] of [",:[{", '"', "\\"].entries())
  for (const character of characters) KINDS[character.charCodeAt(0)] = kind + 1;

/** Counts the values of JSON chunk by chunk, or more. A string costs little, whatever JSON an annotation has in it. */
export function valueCounter(): (chunk: Uint8Array) => number {
  let isInString = false;
  /** 1 where the chunk before ended with an escape. */
  let start = 0;
  return (chunk) => {
    let values = 0;
    let index = start;
    for (; index < chunk.length; index++) {
      const kind = KINDS[chunk[index] ?? 0];
      if (kind === 0) continue;
      if (kind === QUOTE) isInString = !isInString;
      else if (kind === ESCAPE) index++;
      else if (!isInString) values++;
    }
    start = index - chunk.length;
    return values;
  };
}

/** No text of this size has values for much memory: it is not counted. */
const UNCOUNTED_BYTES = 8 * 1024 * 1024;
/** A quarter of the heap of a webhook as shipped. Fifty pages of ordinary pods have fewer. */
const MAX_VALUES = 3_000_000;

/**
 * True for JSON that would fill the memory of a process when it is parsed. A server that is taken over could answer
 * with it, and end a process that serves other clusters, too.
 */
export function hasTooManyValues(json: Uint8Array): boolean {
  return json.length > UNCOUNTED_BYTES && valueCounter()(json) > MAX_VALUES;
}
