/**
 * The state of a world that has to be the same whatever happened on the way: without times, versions and UIDs, which
 * differ from one world to the next.
 */
import { isDeepStrictEqual } from "node:util";
import { field, items } from "../../scripts/control-plane/api-client.ts";
import { RESTORED_ANNOTATION } from "../../shared/schema/annotations.ts";
import { isRecord } from "../../shared/schema/check.ts";

/** Of `metadata`. */
const KEPT_METADATA = ["labels", "annotations", "finalizers"];
/** Times, and versions of objects. */
const TIMES = [
  ...["resourceVersion", "heartbeatTime", "lastEventTime", "maturityCutoff", "lastTransitionTime", "leftOut"],
  ...["observedGeneration", "maxLatencyMillis", "vanishedTime"],
];
/**
 * A protector that is created while its source still has the finalizer may be a lost one: the cells hold once, and go
 * on. How fast the source changes decides whether that is so (docs/design.md#lost-history).
 */
const OF_PAST_HOLDS = ["epoch", RESTORED_ANNOTATION];
/** Which pods of the namespace are shared goes with the next count (docs/design.md#several-protectors). */
const OF_OTHER_TRACKS = ["sharesPodsWith"];
const DIFFERING = new Set([...TIMES, ...OF_PAST_HOLDS, ...OF_OTHER_TRACKS]);
/** The annotation by which a disturbance makes a component look again. */
export const POKED = "example.com/poked";
/** A condition need not be there that was never True, or for a moment that a component may have missed. */
const ABSENT_WHEN_FALSE = new Set(["SourceVanished", "SourceDeleting", "Suspended"]);

export function lasting(object: unknown, world: string): unknown {
  const metadata = field(object, "metadata");
  const kept = KEPT_METADATA.map((name): [string, unknown] => [name, field(metadata, name)]);
  const owners = items(metadata, "ownerReferences").map((owner) => [
    ...[field(owner, "kind"), field(owner, "name"), field(owner, "controller")],
  ]);
  const text = JSON.stringify({
    metadata: { ...Object.fromEntries(kept), owners, deleting: field(metadata, "deletionTimestamp") !== undefined },
    spec: field(object, "spec"),
    status: field(object, "status"),
  });
  const plain: unknown = JSON.parse(text.replaceAll(world, "WORLD"));
  return without(plain);
}

function without(value: unknown): unknown {
  if (Array.isArray(value)) return value.filter((entry) => !isAbsent(entry)).map(without);
  if (!isRecord(value)) return value;
  const entries = Object.entries(value).filter(([key]) => !DIFFERING.has(key) && key !== POKED);
  return Object.fromEntries(entries.map(([key, one]) => [key, without(one)]));
}

function isAbsent(entry: unknown): boolean {
  if (field(entry, "type") === "SharesPods") return true;
  return ABSENT_WHEN_FALSE.has(String(field(entry, "type"))) && field(entry, "status") === "False";
}

/** Where two states differ, as `path: one, other`. */
export function differences(one: unknown, other: unknown, path = ""): string[] {
  if (isDeepStrictEqual(one, other)) return [];
  const isBoth = (isRecord(one) && isRecord(other)) || (Array.isArray(one) && Array.isArray(other));
  if (!isBoth) return [`${path}: ${text(one)}, ${text(other)}`];
  const keys = new Set([...Object.keys(Object(one)), ...Object.keys(Object(other))]);
  return [...keys].flatMap((key) => differences(field(one, key), field(other, key), `${path}/${key}`));
}

/** A value in a report. */
export function text(value: unknown): string {
  return (JSON.stringify(value) ?? "(absent)").slice(0, 300);
}
