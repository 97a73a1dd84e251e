/**
 * Pods that vanished (docs/design.md#vanished-pods): they counted as available, and were gone without a
 * `deletionTimestamp` and without an admission. No request removes such a pod, so the cell's etcd has lost it. This
 * only raises an alarm, and affects no decision.
 */
import { FORCE_DELETE_ANNOTATION, NO_PROTECT_ANNOTATION } from "../../schema/annotations.ts";
import type { Pod } from "../../schema/pod.ts";
import type { Aggregation, CellStatus, PodProtectorSpec } from "../../schema/podprotector.ts";
import { formatMs, parseMs } from "../../schema/time.ts";
import { isAvailable, maturityCutoffMs } from "../availability/availability.ts";
import { compileSelector, ignoredBy } from "../availability/selector.ts";
import { type SpecFacts, specFacts } from "../availability/spec-facts.ts";
import { Ledger } from "../ledger/ledger.ts";
import { podCount } from "../minimum/workload-minimum.ts";
import { isCounted } from "../state/protector-state.ts";

/** How long the status says that pods have vanished. */
export const VANISHED_FOR_MS = 3_600_000;

export type VanishedPod = Pick<Pod, "uid" | "name">;

/**
 * True for a pod that counted in its last known state, and whose deletion the protector would always have recorded.
 * Where a disruption may be allowed without a record, it is not known whether a pod has vanished.
 */
export function needsRecord(pod: Pod, spec: PodProtectorSpec, nowMs: number): boolean {
  const facts = specFacts(spec);
  const { annotations } = pod;
  const isBypassed =
    annotations?.[FORCE_DELETE_ANNOTATION] !== undefined || annotations?.[NO_PROTECT_ANNOTATION] === "true";
  if (isBypassed || !recordsAll(facts, nowMs) || !isAvailable(pod, facts, maturityCutoffMs(nowMs, facts))) return false;
  if (!compileSelector(spec.selector, "fails").matches(pod.labels)) return false;
  return ignoredBy(spec.ignoredPodSelector)?.(pod.labels) !== true;
}

/**
 * False for a protector that is suspended, promises nothing or only warns: it may allow a disruption without a record.
 */
function recordsAll({ minAvailable, warnsOnly, suspendedUntilMs, protectedOperations }: SpecFacts, nowMs: number) {
  const isEnforced = minAvailable > 0 && !warnsOnly && suspendedUntilMs <= nowMs;
  return isEnforced && protectedOperations.includes("DELETE") && protectedOperations.includes("EVICT");
}

/**
 * The pods of `gone` without a record in the stored history. This is certain only for a version that a compare-and-swap
 * then replaces: a record is stored before its deletion can be committed, so every version after the deletion has the
 * record, unless this cell's aggregator has settled it.
 */
export function vanishedPods(
  gone: readonly VanishedPod[],
  stored: CellStatus | undefined,
  { specHash }: Pick<SpecFacts, "specHash">,
): readonly VanishedPod[] {
  const aggregation = stored?.aggregation ?? undefined;
  if (gone.length === 0 || aggregation === undefined || !isCounted(aggregation)) return [];
  // Records may be missing, or the pods were counted by another spec.
  if (aggregation.hold !== undefined || aggregation.specHash !== specHash) return [];
  const ledger = Ledger.parse(stored?.admissionHistory?.buckets);
  // The members of a range have no identity.
  if (ledger.ranges.size > 0) return [];
  return gone.filter(({ uid, name }) => ledger.get(uid, name) === undefined);
}

/** The fields of the entry about pods that vanished in the last hour. */
export function vanishedFields(
  before: Aggregation | undefined,
  vanished: number,
  nowMs: number,
): Pick<Aggregation, "vanishedPods" | "vanishedTime"> {
  const known = before === undefined || !isRecentlyVanished(before, nowMs) ? undefined : before;
  const vanishedTime = vanished > 0 ? formatMs(nowMs) : known?.vanishedTime;
  return vanishedTime === undefined
    ? {}
    : { vanishedPods: podCount((known?.vanishedPods ?? 0) + vanished), vanishedTime };
}

export function isRecentlyVanished({ vanishedTime }: Pick<Aggregation, "vanishedTime">, nowMs: number): boolean {
  return vanishedTime !== undefined && nowMs - parseMs(vanishedTime) <= VANISHED_FOR_MS;
}
