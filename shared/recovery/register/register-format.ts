/**
 * The stored form of a core's release register (docs/design.md#lost-protectors): ConfigMaps ("segments") that are
 * filled one after the other, one key for each UID. An absent protector in the register was released; an absent
 * protector that is not in the register is lost.
 */
import { GROUP } from "../../schema/annotations.ts";
import { namespacedName, type PodProtector } from "../../schema/podprotector.ts";

/** Where the project runs by default. */
export const OWN_NAMESPACE = "podseidon-system";
/** Label of each ConfigMap of the register. */
export const REGISTER_LABEL = `${GROUP}/register`;
export const REGISTER_LABEL_VALUE = "released";
/** The segment for operators: a UID as key releases a lost protector. */
const BY_HAND = "podseidon-released-by-hand";
/** One key for each registered cell: the version of the register that the cell has processed. */
export const ACKNOWLEDGEMENTS = "podseidon-cells";

/** Entries of one segment: few, so that each of its writes and watch events stays small. */
export const SEGMENT_ENTRIES = 200;
/** Segments that are kept; beyond this number, segments that every cell has acknowledged are deleted, however young. */
export const MAX_SEGMENTS = 100;

export function segmentName(number: number): string {
  return `podseidon-released-${number}`;
}

/** Number of a segment by its name; undefined for any other ConfigMap. */
export function segmentNumber(name: string): number | undefined {
  const found = /^podseidon-released-([0-9]{1,12})$/.exec(name)?.[1];
  return found === undefined ? undefined : Number(found);
}

/** True for the names of segments: a ConfigMap of another name releases nothing, whatever its labels are. */
export function isSegment(name: string): boolean {
  return name === BY_HAND || segmentNumber(name) !== undefined;
}

/**
 * The text of an entry: the time of the release, the protector's name, the reason, and the protector's creation time.
 */
export function entryText(time: string, { metadata }: Pick<PodProtector, "metadata">, reason: string): string {
  return `${time} ${namespacedName(metadata)} ${reason} ${metadata.creationTimestamp ?? ""}`.trimEnd();
}

/**
 * Each apiserver of a core sets `creationTimestamp` by its own clock. Two protectors that were created within this time
 * have no known order, so neither ends the other: an extra protector protects too much, a missing one protects nothing.
 */
export const CLOCKS_APART_MS = 30_000;

/**
 * The `namespace/name` of an entry's protector, and its creation time (Unix milliseconds); where the clock of its
 * apiserver was ahead by more than that, the time of its release. Undefined for other texts, such as an operator's.
 */
export function parseEntry(text: string): { readonly key: string; readonly madeMs: number } | undefined {
  const [released = "", key, , made = ""] = text.split(" ");
  const madeMs = Date.parse(made);
  if (key === undefined || Number.isNaN(madeMs)) return undefined;
  // Compared as texts first, because a register has thousands of entries.
  const releasedMs = made > released ? Date.parse(released) : madeMs;
  return { key, madeMs: madeMs - CLOCKS_APART_MS > releasedMs ? releasedMs : madeMs };
}

/**
 * The key of a cell in {@link ACKNOWLEDGEMENTS}, and where cells acknowledge authorities. Cell ids may contain a `~`,
 * keys may not; the escape is unambiguous.
 */
export function acknowledgementKey(cellID: string): string {
  return cellID.replaceAll("_", "__").replaceAll("~", "_.");
}

/** The cell of a key in {@link ACKNOWLEDGEMENTS}. */
export function acknowledgingCell(key: string): string {
  return key.replace(/_[_.]/g, (escaped) => (escaped === "__" ? "_" : "~"));
}

/** The command by which an operator releases a lost protector; `identity` is its `namespace/name`. */
export function releaseCommand(namespace: string, uid: string, identity: string): string {
  const patch = JSON.stringify({ data: { [uid]: identity } });
  return `kubectl -n ${namespace} patch configmap ${BY_HAND} --type merge -p '${patch}'`;
}
