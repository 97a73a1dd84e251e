/**
 * The register of released protectors in a core cluster (design 7), as it is stored: ConfigMaps that are filled one after the other,
 * one key for each UID. Absent and recorded is released; absent and not recorded is a ghost.
 */
import { GROUP } from "../../schema/annotations.ts";

/** Where the project lives by default; the command of a refusal names it. */
export const OWN_NAMESPACE = "podseidon-system";
/** On each ConfigMap of the register. */
export const REGISTER_LABEL = `${GROUP}/register`;
export const REGISTER_LABEL_VALUE = "released";
/** Segments are named this and a number. */
export const SEGMENT_PREFIX = "podseidon-released-";
/** The one that is an operator's: a UID as key releases a protector that is gone. */
export const BY_HAND = "podseidon-released-by-hand";
/** One key for each registered cell: up to which version it has worked in the register. */
export const ACKNOWLEDGEMENTS = "podseidon-cells";

/** Entries of one segment: small enough that each write and each watch event of it stays small. */
export const SEGMENT_ENTRIES = 200;
/** Segments kept at most; beyond it the oldest go, acknowledged or not. */
export const MAX_SEGMENTS = 100;

/** Number of a segment by its name; undefined for any other ConfigMap. */
export function segmentNumber(name: string): number | undefined {
  const found = /^podseidon-released-([0-9]{1,12})$/.exec(name)?.[1];
  return found === undefined ? undefined : Number(found);
}

export function segmentName(number: number): string {
  return `${SEGMENT_PREFIX}${number}`;
}

/** The key of a cell among the acknowledgements: ids may have a `~`, keys may not, and `_.` in no id is ambiguous with one of it. */
export function acknowledgementKey(cellID: string): string {
  return cellID.replaceAll("_", "__").replaceAll("~", "_.");
}

/** What an operator runs to release a protector that is gone; `identity` is its `namespace/name`. */
export function releaseCommand(namespace: string, uid: string, identity: string): string {
  const patch = JSON.stringify({ data: { [uid]: identity } });
  return `kubectl -n ${namespace} patch configmap ${BY_HAND} --type merge -p '${patch}'`;
}
