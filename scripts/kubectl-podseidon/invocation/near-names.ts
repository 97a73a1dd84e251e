/** Names that a user may have meant. Pure. */

/** Names with more edits are not typing mistakes. */
const MAX_EDITS = 2;
const MAX_SUGGESTED = 3;

/** True for a name that contains the word, or differs by a typing mistake. */
export function isNear(name: string, wanted: string): boolean {
  return name.includes(wanted) || edits(name, wanted) <= MAX_EDITS;
}

/** `; did you mean a or b?`, or nothing. */
export function didYouMean(near: readonly string[]): string {
  return near.length === 0 ? "" : `; did you mean ${near.slice(0, MAX_SUGGESTED).join(" or ")}?`;
}

/** How many characters have to be added, removed or replaced (Levenshtein). */
function edits(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (const [index, character] of [...from].entries()) {
    const next = [index + 1];
    for (const [at, other] of [...to].entries()) {
      const [left = 0, above = 0, diagonal = 0] = [next[at], row[at + 1], row[at]];
      next.push(Math.min(left + 1, above + 1, diagonal + Number(character !== other)));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
