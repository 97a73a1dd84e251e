/**
 * When a pod counts as available (docs/design.md#state): the predicate that webhook and aggregator share. If they
 * disagreed about a pod, the pod would be counted and deleted at the same time. `selector.ts` decides which pods a
 * protector selects, `spec-facts.ts` reads its spec.
 */
import { COUNTED_CONDITION } from "../../schema/annotations.ts";
import type { Pod } from "../../schema/pod.ts";
import type { HealthCriterion } from "../../schema/podprotector.ts";
import { hasReached, oldestComponent } from "../../schema/resource-version.ts";
import { LATEST_MS } from "../../schema/time.ts";
import type { SpecFacts } from "./spec-facts.ts";

type AvailabilitySpec = Pick<
  SpecFacts,
  "minReadySeconds" | "availabilityConditions" | "unavailableLabelPrefix" | "healthCriterion"
>;

/** True for a final phase: the pod never becomes available again. */
export function isFinished(pod: Pod): boolean {
  return pod.phase === "Succeeded" || pod.phase === "Failed";
}

/** True when the pod can never be available again, or is terminating. */
export function isDead(pod: Pod): boolean {
  return pod.terminating || isFinished(pod);
}

/**
 * Unix milliseconds since which the pod is Ready; undefined when it is not. Ignores the counted gate: the gate waits
 * for the count, and only a Ready pod is counted (docs/design.md#counted-gate). A gated pod that is not Ready counts
 * only while its kubelet reports that it waits for gates. For the pods of a dead node, node-lifecycle sets Ready to
 * False, and leaves the rest of the status unchanged.
 */
export function readySinceMs(pod: Pod): number | undefined {
  const readyMs = trueSinceMs(pod, "Ready");
  if (pod.readinessGates?.includes(COUNTED_CONDITION) !== true) return readyMs;
  if (readyMs === undefined && !pod.waitsForGates) return undefined;
  return readyButForCountSinceMs(pod, pod.readinessGates) ?? readyMs;
}

/**
 * True for a pod that is not Ready and does not become Ready by waiting: Kubernetes is about to end it, or its node is
 * lost. For the pods of a lost node, node-lifecycle sets Ready to False, and changes nothing else. A kubelet that sets
 * Ready to False while the containers are ready reports that readiness gates are missing.
 */
export function isLost(pod: Pod): boolean {
  if (trueSinceMs(pod, "Ready") !== undefined) return false;
  const isAbandoned = trueSinceMs(pod, "ContainersReady") !== undefined && !pod.waitsForGates;
  return isAbandoned || isCondemned(pod);
}

/** True for a pod that is not Ready and that Kubernetes is about to end, for example on a tainted node. */
export function isCondemned(pod: Pod): boolean {
  return trueSinceMs(pod, "Ready") === undefined && trueSinceMs(pod, "DisruptionTarget") !== undefined;
}

/** Counted before it is Ready, because it waits for the count (docs/design.md#counted-gate). */
function isCountedEarly(pod: Pod, { healthCriterion }: AvailabilitySpec): boolean {
  const isByReadiness = healthCriterion === "Available" || healthCriterion === "Ready";
  return isByReadiness && pod.waitsForGates && trueSinceMs(pod, "Ready") === undefined;
}

/** Unix milliseconds since which all conditions of Ready, except for the counted gate, are True. */
function readyButForCountSinceMs({ conditions }: Pod, gates: readonly string[]): number | undefined {
  // A pod may have thousands of gates, and as many conditions. Of conditions of one type, the first counts.
  const awaited = new Set(gates).add("ContainersReady");
  awaited.delete(COUNTED_CONDITION);
  let latestMs = 0;
  for (const { type, status, sinceMs } of conditions) {
    if (!awaited.delete(type)) continue;
    if (!status) return undefined;
    latestMs = Math.max(latestMs, sinceMs);
  }
  return awaited.size === 0 ? latestMs : undefined;
}

/**
 * Unix milliseconds since which a pod fulfils the protector's criterion, if it is available but for `minReadySeconds`;
 * undefined for any other pod. A static pod's mirror pod may always be deleted, whatever its conditions are, so it must
 * not count.
 */
export function availableSinceMs(pod: Pod, spec: AvailabilitySpec): number | undefined {
  return isTakenOut(pod, spec) ? undefined : inServiceSinceMs(pod, spec);
}

/** As {@link availableSinceMs}, but ignores labels that make the pod unavailable. */
function inServiceSinceMs(pod: Pod, spec: AvailabilitySpec): number | undefined {
  if (isDead(pod) || pod.mirror) return undefined;
  const { healthCriterion, availabilityConditions: types } = spec;
  return types.length === 0 || hasAll(pod, types) ? criterionSinceMs(pod, healthCriterion) : undefined;
}

/** True when each of these conditions is True, except for the counted one of a gated pod: it depends on the count. */
function hasAll({ conditions, readinessGates }: Pod, types: readonly string[]): boolean {
  // A pod may have thousands of conditions, and a protector may ask for many of them.
  const missing = new Set(types);
  if (missing.has(COUNTED_CONDITION) && readinessGates?.includes(COUNTED_CONDITION)) missing.delete(COUNTED_CONDITION);
  for (const { type, status } of conditions) if (missing.delete(type) && !status) return false;
  return missing.size === 0;
}

/** 0 where the criterion has no time: only Available needs one (docs/design.md#criterion-of-a-protector). */
function criterionSinceMs(pod: Pod, criterion: HealthCriterion): number | undefined {
  switch (criterion) {
    case "Available":
    case "Ready":
      return pod.phase === "Pending" ? undefined : knownSinceMs(readySinceMs(pod));
    case "Running":
      return pod.phase === "Running" ? 0 : undefined;
    case "Scheduled":
      return pod.scheduled ? 0 : undefined;
    case "Initialized":
      return trueSinceMs(pod, "Initialized");
  }
}

/** A pod that does not say since when it is Ready never matures, as for Kubernetes' own controllers. */
function knownSinceMs(sinceMs: number | undefined): number | undefined {
  return sinceMs === 0 ? LATEST_MS : sinceMs;
}

/** The keys of each set of labels, in order: a pod may have 40,000 labels, and be decided on by many protectors. */
const sortedKeys = new WeakMap<Pod["labels"], readonly string[]>();

/** True where labels make the pod unavailable, Ready or not (docs/design.md#unavailable-labels). */
export function isTakenOut(
  { labels }: Pick<Pod, "labels">,
  { unavailableLabelPrefix: prefix }: Pick<SpecFacts, "unavailableLabelPrefix">,
): boolean {
  if (prefix === undefined) return false;
  const keys = sortedKeys.get(labels) ?? Object.keys(labels).sort();
  sortedKeys.set(labels, keys);
  let low = 0;
  for (let high = keys.length; low < high; ) {
    const middle = (low + high) >>> 1;
    if ((keys[middle] ?? "") < prefix) low = middle + 1;
    else high = middle;
  }
  return keys[low]?.startsWith(prefix) === true;
}

/**
 * The mark of counts at `position` that leave out the pods for which {@link isTakenOut} holds. An aggregator that does
 * not know these labels keeps its predecessor's mark, but counts at another position.
 */
export function leftOutMark(
  { unavailableLabelPrefix: prefix }: Pick<SpecFacts, "unavailableLabelPrefix">,
  position: string | undefined,
): string | undefined {
  return prefix && position && `${prefix}@${position}`;
}

/**
 * The mark for the number of counted pods that are neither Ready nor reserved, at `position`. An aggregator that does
 * not know the field keeps its predecessor's mark, but counts at another position.
 */
export function notReadyMark(count: number, position: string | undefined, saysNone = false): string | undefined {
  return (count > 0 || saysNone) && position !== undefined ? `${count}@${position}` : undefined;
}

/** The number in a {@link notReadyMark}; 0 where the mark is not for the counts at `position`. */
export function notReadyOf(mark: string | undefined, position: string | undefined): number {
  const at = mark?.indexOf("@") ?? -1;
  if (mark === undefined || at < 0 || mark.slice(at + 1) !== position) return 0;
  const count = Number(mark.slice(0, at));
  return Number.isSafeInteger(count) && count > 0 ? count : 0;
}

/** True when the pod is available under the maturity cutoff `cutoffMs` ({@link maturityCutoffMs}). */
export function isAvailable(pod: Pod, spec: AvailabilitySpec, cutoffMs: number): boolean {
  const sinceMs = availableSinceMs(pod, spec);
  return sinceMs !== undefined && (spec.minReadySeconds === 0 || sinceMs <= cutoffMs);
}

/**
 * The latest Ready transition that counts as mature at `nowMs` (wall clock of the aggregator), in whole seconds like
 * the transitions: Unix milliseconds.
 */
export function maturityCutoffMs(nowMs: number, spec: AvailabilitySpec): number {
  return Math.max(0, Math.floor(nowMs / 1000 - spec.minReadySeconds)) * 1000;
}

/** The class of a pod for one protector. Its criterion does not count Pending and Unavailable pods. */
export type PodClass = "Finished" | "Terminating" | "Mirror" | "Pending" | "Unavailable" | "Immature" | "Available";

/** What a cell has published about its counts. */
export interface PublishedCounts {
  /** Undefined for counts of another spec. */
  readonly cutoffMs?: number | undefined;
  readonly position?: string | undefined;
  /** {@link leftOutMark} of the counts. */
  readonly leftOut?: string | undefined;
}

/**
 * The class of `pod`. The pod is Immature, or Unavailable only because of labels, only where the published snapshot
 * includes this version: an older snapshot may still count the pod, whose labels may change just before its deletion.
 * Without published counts, the pod is Available, which is safe because it needs quota.
 */
export function classifyPod(pod: Pod, spec: AvailabilitySpec, published: PublishedCounts = {}): PodClass {
  if (isFinished(pod)) return "Finished";
  if (pod.terminating) return "Terminating";
  if (pod.mirror) return "Mirror";
  const { cutoffMs, position, leftOut } = published;
  const isKnown = hasReached(oldestComponent(position), pod.resourceVersion);
  const isLeftOut = isKnown && isTakenOut(pod, spec) && leftOut === leftOutMark(spec, position);
  const sinceMs = isLeftOut ? undefined : inServiceSinceMs(pod, spec);
  if (sinceMs === undefined) return pod.phase === "Pending" ? "Pending" : "Unavailable";
  if (spec.minReadySeconds === 0 || cutoffMs === undefined || sinceMs <= cutoffMs) return "Available";
  return isKnown ? "Immature" : "Available";
}

/** The counts of one cell. They leave out finished and terminating pods, and mirrors of static pods. */
interface PodCounts {
  total: number;
  available: number;
  ready: number;
  scheduled: number;
  running: number;
}

/** The pods of a cell under one cutoff. */
export interface Availability {
  readonly counts: Readonly<PodCounts>;
  /** UIDs of the available pods. */
  readonly available: ReadonlySet<string>;
  /** UIDs of the available pods that are not Ready yet; undefined when all are Ready. */
  readonly notReady: ReadonlySet<string> | undefined;
  /** Ready pods that are not mature. */
  readonly immature: readonly Pod[];
  /** When the next immature pod matures: wall clock, Unix milliseconds; undefined without immature pods. */
  readonly nextMaturityMs: number | undefined;
  /** The latest Ready transition among the available pods; 0 without available pods. */
  readonly newestSinceMs: number;
}

/**
 * Counts `pods`, which all match the aggregation selector. A pod that waits for the counted gate is ready only where
 * `notReady` has it, so that the estimate of Ready pods leaves it out.
 */
export function countPods(pods: Iterable<Pod>, spec: AvailabilitySpec, cutoffMs: number): Availability {
  const counts: PodCounts = { total: 0, available: 0, ready: 0, scheduled: 0, running: 0 };
  const available = new Set<string>();
  const immature: Pod[] = [];
  let notReady: Set<string> | undefined;
  let earliestMs = Number.POSITIVE_INFINITY;
  let newestSinceMs = 0;
  for (const pod of pods) {
    if (isDead(pod) || pod.mirror) continue;
    counts.total++;
    if (pod.scheduled) counts.scheduled++;
    if (pod.phase === "Running") counts.running++;
    if (trueSinceMs(pod, "Ready") !== undefined) counts.ready++;
    const sinceMs = availableSinceMs(pod, spec);
    if (sinceMs === undefined) continue;
    if (spec.minReadySeconds === 0 || sinceMs <= cutoffMs) {
      available.add(pod.uid);
      if (isCountedEarly(pod, spec)) {
        notReady ??= new Set();
        notReady.add(pod.uid);
        counts.ready++;
      }
      newestSinceMs = Math.max(newestSinceMs, sinceMs);
    } else {
      immature.push(pod);
      earliestMs = Math.min(earliestMs, sinceMs);
    }
  }
  counts.available = available.size;
  const nextMaturityMs = immature.length === 0 ? undefined : earliestMs + spec.minReadySeconds * 1000;
  return { counts, available, notReady, immature, nextMaturityMs, newestSinceMs };
}

function trueSinceMs(pod: Pod, type: string): number | undefined {
  for (const condition of pod.conditions)
    if (condition.type === type) return condition.status === true ? condition.sinceMs : undefined;
  return undefined;
}
