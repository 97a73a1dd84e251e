/** Names that a user may have meant. Pure. */
import { edits } from "../../../shared/runtime/options/option-sources.ts";

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
