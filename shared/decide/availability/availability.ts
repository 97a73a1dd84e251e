/**
 * When a pod counts (design 5.1 `AV`): the one predicate that webhook and aggregator share. What they disagreed on
 * would be counted and let go at the same time.
 */
import { COUNTED_CONDITION } from "../../schema/annotations.ts";
import type { Pod } from "../../schema/pod.ts";
import { hasReached, oldestComponent } from "../../schema/resource-version.ts";
import type { SpecFacts } from "./spec-facts.ts";

type AvailabilitySpec = Pick<SpecFacts, "minReadySeconds" | "availabilityConditions">;

/** Succeeded and Failed are final: such a pod never becomes available again. */
export function isFinished(pod: Pod): boolean {
  return pod.phase === "Succeeded" || pod.phase === "Failed";
}

/** Can never be available again, or is on its way out (design 5.2 R1). */
export function isDead(pod: Pod): boolean {
  return pod.terminating || isFinished(pod);
}

/**
 * Unix milliseconds since which the pod is Ready; undefined when it is not. A pod with the counted gate is as Ready as
 * it would be without that gate: it waits for being counted, and must be counted to be Ready (design 5.1, 10).
 */
export function readySinceMs(pod: Pod): number | undefined {
  if (pod.readinessGates?.includes(COUNTED_CONDITION) !== true) return trueSinceMs(pod, "Ready");
  let sinceMs = trueSinceMs(pod, "ContainersReady");
  for (const gate of pod.readinessGates) {
    if (gate === COUNTED_CONDITION || sinceMs === undefined) continue;
    const gateSinceMs = trueSinceMs(pod, gate);
    sinceMs = gateSinceMs === undefined ? undefined : Math.max(sinceMs, gateSinceMs);
  }
  return sinceMs;
}

/**
 * Available but for `minReadySeconds`: since when it is Ready, undefined when it is not available at all. A Pending pod
 * is let go whatever its conditions say (design 6), so it must not be counted either.
 */
export function availableSinceMs(pod: Pod, spec: AvailabilitySpec): number | undefined {
  return mayBeAvailable(pod, spec) ? readySinceMs(pod) : undefined;
}

/** All that being available asks for but being Ready. */
function mayBeAvailable(pod: Pod, { availabilityConditions }: AvailabilitySpec): boolean {
  if (isDead(pod) || pod.phase === "Pending") return false;
  return availabilityConditions.every((type) => trueSinceMs(pod, type) !== undefined || isCountedGate(pod, type));
}

/** A member of `AV` under the maturity cutoff `cutoffMs` ({@link maturityCutoffMs}). */
export function isAvailable(pod: Pod, spec: AvailabilitySpec, cutoffMs: number): boolean {
  const sinceMs = availableSinceMs(pod, spec);
  return sinceMs !== undefined && (spec.minReadySeconds === 0 || sinceMs <= cutoffMs);
}

/**
 * The latest Ready transition that counts as mature at `nowMs` (wall clock of the aggregator), whole seconds as the
 * transitions themselves: Unix milliseconds.
 */
export function maturityCutoffMs(nowMs: number, spec: AvailabilitySpec): number {
  return Math.max(0, Math.floor(nowMs / 1000 - spec.minReadySeconds)) * 1000;
}

export const POD_CLASSES = [
  "Finished",
  "Terminating",
  "Mirror",
  "Pending",
  "Unavailable",
  "Immature",
  "Available",
] as const;
/** What a pod is to one protector, for the webhook (design 5.3, 6). */
export type PodClass = (typeof POD_CLASSES)[number];

/** What a cell has published about maturity; undefined where it has not, or did under another spec. */
export interface PublishedMaturity {
  readonly cutoffMs: number;
  readonly position: string | undefined;
}

/**
 * The class of `pod`. It is Immature only where the published snapshot knows this version of it: a newer one may have
 * been counted by now. Nothing published means that it is taken for available, which costs quota and is safe.
 */
export function classifyPod(pod: Pod, spec: AvailabilitySpec, published: PublishedMaturity | undefined): PodClass {
  if (isFinished(pod)) return "Finished";
  if (pod.terminating) return "Terminating";
  if (pod.mirror) return "Mirror";
  if (pod.phase === "Pending") return "Pending";
  const sinceMs = availableSinceMs(pod, spec);
  if (sinceMs === undefined) return "Unavailable";
  if (spec.minReadySeconds === 0 || published === undefined || sinceMs <= published.cutoffMs) return "Available";
  const isKnown = hasReached(oldestComponent(published.position), pod.resourceVersion);
  return isKnown ? "Immature" : "Available";
}

/** The counts of one cell (design 4). Finished and terminating pods are in none of them. */
export interface PodCounts {
  total: number;
  available: number;
  ready: number;
  scheduled: number;
  running: number;
}

/** What the pods of a cell amount to under one cutoff. */
export interface Availability {
  readonly counts: Readonly<PodCounts>;
  /** UIDs of the available pods. */
  readonly available: ReadonlySet<string>;
  /** Ready pods that are not mature. */
  readonly immature: readonly Pod[];
  /** Wall clock, Unix milliseconds at which the next of them matures; undefined when there is none. */
  readonly nextMaturityMs: number | undefined;
  /** The latest Ready transition among the available pods; 0 when there is none. */
  readonly newestSinceMs: number;
}

/** Counts `pods`, which all match the aggregation selector. */
export function countPods(pods: Iterable<Pod>, spec: AvailabilitySpec, cutoffMs: number): Availability {
  const counts: PodCounts = { total: 0, available: 0, ready: 0, scheduled: 0, running: 0 };
  const available = new Set<string>();
  const immature: Pod[] = [];
  let earliestMs = Number.POSITIVE_INFINITY;
  let newestSinceMs = 0;
  for (const pod of pods) {
    if (isDead(pod)) continue;
    counts.total++;
    if (pod.scheduled) counts.scheduled++;
    if (pod.phase === "Running") counts.running++;
    const sinceMs = readySinceMs(pod);
    if (sinceMs === undefined) continue;
    counts.ready++;
    if (!mayBeAvailable(pod, spec)) continue;
    if (spec.minReadySeconds === 0 || sinceMs <= cutoffMs) {
      available.add(pod.uid);
      newestSinceMs = Math.max(newestSinceMs, sinceMs);
    } else {
      immature.push(pod);
      earliestMs = Math.min(earliestMs, sinceMs);
    }
  }
  counts.available = available.size;
  const nextMaturityMs = immature.length === 0 ? undefined : earliestMs + spec.minReadySeconds * 1000;
  return { counts, available, immature, nextMaturityMs, newestSinceMs };
}

function trueSinceMs(pod: Pod, type: string): number | undefined {
  for (const condition of pod.conditions)
    if (condition.type === type) return condition.status === true ? condition.sinceMs : undefined;
  return undefined;
}

/** The counted condition follows the count; a count that waited for it would never begin. */
function isCountedGate(pod: Pod, type: string): boolean {
  return type === COUNTED_CONDITION && pod.readinessGates?.includes(COUNTED_CONDITION) === true;
}
