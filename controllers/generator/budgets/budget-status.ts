/**
 * The status of a PodUnavailableBudget, counted like OpenKruise's controller does, for `kubectl get pub` and
 * dashboards. Pure; `protectors/budget-status-writer.ts` writes it.
 */
import * as v from "valibot";
import type { Ledger } from "../../../shared/decide/ledger/ledger.ts";
import type { Reservation } from "../../../shared/decide/ledger/reservation.ts";
import { podCount } from "../../../shared/decide/minimum/workload-minimum.ts";
import { summarize } from "../../../shared/decide/state/encode-status.ts";
import { parseProtector } from "../../../shared/decide/state/protector-state.ts";
import type { Operation, PodProtector } from "../../../shared/schema/podprotector.ts";

/** The status of a PodUnavailableBudget, in OpenKruise's format. */
export interface BudgetStatus {
  readonly observedGeneration: number;
  readonly currentAvailable: number;
  readonly desiredAvailable: number;
  readonly unavailableAllowed: number;
  readonly totalReplicas: number;
  /** Admitted deletions and evictions: their times, by the pod's name. */
  readonly disruptedPods: Readonly<Record<string, string>>;
  /** The same for in-place changes. */
  readonly unavailablePods: Readonly<Record<string, string>>;
}

/** OpenKruise's own bound. */
const MAX_PODS = 2_000;
const DISRUPTIONS: readonly Operation[] = ["DELETE", "EVICT"];
const CHANGES: readonly Operation[] = ["UPDATE"];

/** Undefined while no cell has counted the present version of the protector: users would believe a status of zero. */
export function budgetStatus(
  generation: number,
  protector: PodProtector,
  expectedPods: number | undefined,
): BudgetStatus | undefined {
  const { metadata, spec, status } = protector;
  const state = parseProtector(protector);
  const cells = [...state.cells.values()];
  const isOfOlderSpec = status?.observedGeneration !== undefined && status.observedGeneration !== metadata.generation;
  if (isOfOlderSpec || !cells.some(({ isCounted }) => isCounted)) return undefined;
  const { estimatedAvailableReplicas, disruptionsAllowed = 0, totalReplicas } = summarize(state, undefined);
  const ledgers = cells.map(({ ledger }) => ledger);
  return {
    observedGeneration: generation,
    currentAvailable: estimatedAvailableReplicas,
    desiredAvailable: spec.minAvailable,
    unavailableAllowed: disruptionsAllowed,
    totalReplicas: podCount(expectedPods ?? totalReplicas),
    disruptedPods: podsOf(ledgers, DISRUPTIONS),
    unavailablePods: podsOf(ledgers, CHANGES),
  };
}

/** The pods whose reservations use quota for one of these operations, by name, with the time of the last admission. */
function podsOf(ledgers: readonly Ledger[], operations: readonly Operation[]): Record<string, string> {
  const pods: [string, string][] = [];
  for (const ledger of ledgers) {
    for (const reservation of ledger.reservations()) {
      const startMicros = lastAdmission(reservation, operations);
      if (reservation.weight === 0 || reservation.podName === undefined || startMicros === undefined) continue;
      pods.push([reservation.podName, `${new Date(startMicros / 1000).toISOString().slice(0, 19)}Z`]);
    }
  }
  return Object.fromEntries(pods.sort().slice(0, MAX_PODS));
}

function lastAdmission({ records }: Reservation, operations: readonly Operation[]): number | undefined {
  const times = operations.flatMap((operation) => records.get(operation)?.startMicros ?? []);
  return times.length === 0 ? undefined : Math.max(...times);
}

const Times = v.nullish(v.record(v.string(), v.string()));
const UnavailableBudgetStatus = v.looseObject({
  observedGeneration: v.optional(v.number()),
  currentAvailable: v.number(),
  desiredAvailable: v.number(),
  unavailableAllowed: v.number(),
  totalReplicas: v.number(),
  disruptedPods: Times,
  unavailablePods: Times,
});

/** Undefined for an unreadable status. */
export function storedStatus(raw: unknown): BudgetStatus | undefined {
  const parsed = v.safeParse(UnavailableBudgetStatus, raw);
  if (!parsed.success) return undefined;
  const { observedGeneration = 0, currentAvailable, desiredAvailable, ...others } = parsed.output;
  const { unavailableAllowed, totalReplicas, disruptedPods, unavailablePods } = others;
  return {
    ...{ observedGeneration, currentAvailable, desiredAvailable, unavailableAllowed, totalReplicas },
    disruptedPods: disruptedPods ?? {},
    unavailablePods: unavailablePods ?? {},
  };
}
