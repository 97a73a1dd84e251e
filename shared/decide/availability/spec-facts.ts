/** What decisions need of a protector's spec, with the readers' defaults applied (design 4). */
import { hash } from "node:crypto";
import {
  DEFAULTS,
  type Operation,
  type PodProtectorSpec,
  protectedOperationsOf,
  type UnhealthyPodPolicy,
  unhealthyPodPolicyOf,
} from "../../schema/podprotector.ts";
import { parseMs } from "../../schema/time.ts";

export interface SpecFacts {
  readonly minAvailable: number;
  /** 0 or more. */
  readonly minReadySeconds: number;
  readonly availabilityConditions: readonly string[];
  readonly unhealthyPodPolicy: UnhealthyPodPolicy;
  /** No limit when undefined. */
  readonly maxConcurrentLag: number | undefined;
  readonly compactThreshold: number;
  readonly protectedOperations: readonly Operation[];
  /** Wall clock, Unix milliseconds: suspended before this time; infinite when suspended for good, 0 when not. */
  readonly suspendedUntilMs: number;
  /** Why it is suspended, where somebody said so. */
  readonly suspendReason: string | undefined;
  /** Hash of what the counts depend on ({@link specHash}). */
  readonly specHash: string;
}

export function specFacts(spec: PodProtectorSpec): SpecFacts {
  const { maxConcurrentLag = 0, compactThreshold } = spec.admissionHistoryConfig ?? {};
  return {
    minAvailable: spec.minAvailable,
    minReadySeconds: Math.max(0, spec.minReadySeconds),
    availabilityConditions: spec.availabilityConditions ?? [],
    unhealthyPodPolicy: unhealthyPodPolicyOf(spec),
    maxConcurrentLag: maxConcurrentLag > 0 ? maxConcurrentLag : undefined,
    compactThreshold: Math.max(0, compactThreshold ?? DEFAULTS.compactThreshold),
    protectedOperations: protectedOperationsOf(spec),
    suspendedUntilMs: suspendedUntilMs(spec),
    suspendReason: spec.suspend?.reason,
    specHash: specHash(spec),
  };
}

/**
 * Hash of what a cell's counts depend on (design 4, 5.3): the counted selector, `minReadySeconds`,
 * `availabilityConditions`. The order of keys, of values and of conditions does not matter; 16 hexadecimal digits.
 */
export function specHash(spec: PodProtectorSpec): string {
  const known = hashes.get(spec) ?? hashOf(spec);
  hashes.set(spec, known);
  return known;
}

/** A spec that was read is never changed, and its hash is asked for by every decision on it. */
const hashes = new WeakMap<PodProtectorSpec, string>();

function hashOf(spec: PodProtectorSpec): string {
  const { matchLabels = {}, matchExpressions = [] } = spec.aggregationSelector ?? spec.selector;
  const expressions = matchExpressions.map(({ key, operator, values }) =>
    JSON.stringify([key, operator, [...new Set(values ?? [])].sort()]),
  );
  const canonical = JSON.stringify([
    Object.entries(matchLabels).sort(([a], [b]) => (a < b ? -1 : 1)),
    expressions.sort(),
    Math.max(0, spec.minReadySeconds),
    [...new Set(spec.availabilityConditions ?? [])].sort(),
  ]);
  return hash("sha256", canonical, "hex").slice(0, 16);
}

function suspendedUntilMs({ suspend }: PodProtectorSpec): number {
  if (suspend?.enabled !== true) return 0;
  return suspend.until === undefined ? Number.POSITIVE_INFINITY : parseMs(suspend.until);
}
