/** The facts in a protector's spec that decisions need, with defaults applied. */
import { hash } from "node:crypto";
import {
  DEFAULTS,
  type HealthCriterion,
  healthCriterionOf,
  keptUnhealthyOf,
  type Operation,
  type PodProtectorSpec,
  type ProtectedOperation,
  protectedOperationsOf,
} from "../../schema/podprotector.ts";
import { parseMs } from "../../schema/time.ts";

const ENFORCEMENT_OFF = "spec.enforcement is Off";

export interface SpecFacts {
  readonly minAvailable: number;
  /** The condition under which a pod counts; this project then calls it available. */
  readonly healthCriterion: HealthCriterion;
  /** 0 or more; 0 where the criterion is not Available. */
  readonly minReadySeconds: number;
  readonly availabilityConditions: readonly string[];
  /** A pod with a label whose key has this prefix is not available. Never empty. */
  readonly unavailableLabelPrefix: string | undefined;
  /** Operations that are denied for unavailable pods while the budget is not healthy. */
  readonly keptUnhealthy: readonly Operation[];
  /** Undefined for no limit. */
  readonly maxConcurrentLag: number | undefined;
  readonly compactThreshold: number;
  readonly protectedOperations: readonly ProtectedOperation[];
  /** Other health criteria that any user may ask for. */
  readonly allowedHealthCriteria: readonly string[];
  /**
   * Wall clock, Unix milliseconds before which the protector is suspended: infinite without an end, 0 when it is not
   * suspended.
   */
  readonly suspendedUntilMs: number;
  /** The cells in which the protector is suspended; undefined for all. */
  readonly suspendedCells: readonly string[] | undefined;
  /** Why the protector is suspended, if the spec states a reason. */
  readonly suspendReason: string | undefined;
  /** Denies nothing: the client gets each denial as a warning. */
  readonly warnsOnly: boolean;
  readonly specHash: string;
}

export function specFacts(spec: PodProtectorSpec): SpecFacts {
  const { maxConcurrentLag = 0, compactThreshold } = spec.admissionHistoryConfig ?? {};
  const healthCriterion = healthCriterionOf(spec);
  return {
    minAvailable: spec.minAvailable,
    healthCriterion,
    minReadySeconds: healthCriterion === "Available" ? Math.max(0, spec.minReadySeconds) : 0,
    availabilityConditions: spec.availabilityConditions ?? [],
    unavailableLabelPrefix: spec.unavailableLabelPrefix || undefined,
    keptUnhealthy: keptUnhealthyOf(spec),
    maxConcurrentLag: maxConcurrentLag > 0 ? maxConcurrentLag : undefined,
    compactThreshold: Math.max(0, compactThreshold ?? DEFAULTS.compactThreshold),
    protectedOperations: protectedOperationsOf(spec),
    allowedHealthCriteria: spec.allowedHealthCriteria ?? [],
    ...suspensionOf(spec),
    warnsOnly: spec.enforcement === "Warn",
    specHash: specHash(spec),
  };
}

/**
 * Hash of the fields that a cell's counts depend on: the counted selector, `minReadySeconds`, `availabilityConditions`,
 * and `healthCriterion` where it is not Available. The order of keys, values and conditions does not matter; 16
 * hexadecimal digits.
 */
export function specHash(spec: PodProtectorSpec): string {
  const known = hashes.get(spec) ?? hashOf(spec);
  hashes.set(spec, known);
  return known;
}

/** Cached, because every decision needs the hash, and a spec does not change after it was read. */
const hashes = new WeakMap<PodProtectorSpec, string>();

function hashOf(spec: PodProtectorSpec): string {
  const { matchLabels = {}, matchExpressions = [] } = spec.aggregationSelector ?? spec.selector;
  const expressions = matchExpressions.map(({ key, operator, values }) =>
    JSON.stringify([key, operator, [...new Set(values ?? [])].sort()]),
  );
  const criterion = healthCriterionOf(spec);
  const canonical = JSON.stringify([
    Object.entries(matchLabels).sort(([a], [b]) => (a < b ? -1 : 1)),
    expressions.sort(),
    Math.max(0, spec.minReadySeconds),
    [...new Set(spec.availabilityConditions ?? [])].sort(),
    ...(criterion === "Available" ? [] : [criterion]),
  ]);
  return hash("sha256", canonical, "hex").slice(0, 16);
}

function suspensionOf({
  suspend,
  enforcement,
}: PodProtectorSpec): Pick<SpecFacts, "suspendedUntilMs" | "suspendedCells" | "suspendReason"> {
  const { enabled = false, until, cells, reason } = suspend ?? {};
  if (enforcement === "Off")
    return { suspendedUntilMs: Number.POSITIVE_INFINITY, suspendedCells: undefined, suspendReason: ENFORCEMENT_OFF };
  const untilMs = until === undefined ? Number.POSITIVE_INFINITY : parseMs(until);
  return { suspendedUntilMs: enabled ? untilMs : 0, suspendedCells: cells, suspendReason: reason };
}
