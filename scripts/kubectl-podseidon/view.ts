/** A protector for people: its minimum, the available pods, the reservations that use quota, and their ages. Pure. */

import { orderedRecords, type Reservation } from "../../shared/decide/ledger/reservation.ts";
import { estimate, isReliable } from "../../shared/decide/state/estimate.ts";
import { holdWrittenMs } from "../../shared/decide/state/hold.ts";
import { type CellState, type ProtectorState, parseProtector } from "../../shared/decide/state/protector-state.ts";
import {
  DERIVATION_ANNOTATION,
  GENERATOR_FINALIZER,
  RELEASED_ANNOTATION,
  SOURCE_KIND_LABEL,
} from "../../shared/schema/annotations.ts";
import { type Condition, isDeleting, type PodProtector, STALE_AFTER_MS } from "../../shared/schema/podprotector.ts";
import { parseMs } from "../../shared/schema/time.ts";
import { sourceName } from "./find-protectors.ts";
import type { HealthState } from "./health.ts";

export interface CellView {
  readonly cell: string;
  readonly available: number;
  readonly total: number;
  readonly reserved: number;
  /** Undefined where the aggregator writes none (upstream's). */
  readonly heartbeatAgeMs: number | undefined;
  readonly lastEventAgeMs: number | undefined;
  readonly epoch: number | undefined;
  readonly hold: string | undefined;
  readonly holdAgeMs: number | undefined;
  /**
   * How long its aggregator has written nothing: a cell that was lost with the protector has sent no heartbeat since,
   * and may have nothing but a hold, or reservations.
   */
  readonly silentMs: number | undefined;
  readonly state: "ok" | "not counted" | "on hold" | "outdated spec" | "stale" | "removed";
}

export interface ReservationView {
  readonly cell: string;
  /** Undefined in a packed record without the name. */
  readonly pod: string | undefined;
  readonly uid: string | undefined;
  readonly operation: string;
  /** The number of available pods that the reservation subtracts from the estimate. */
  readonly weight: number;
  readonly paid: boolean;
  /** Milliseconds since the latest admission, and since the first one. */
  readonly ageMs: number;
  readonly firstAgeMs: number;
}

export interface ProtectorView {
  readonly namespace: string;
  readonly name: string;
  readonly source: string | undefined;
  readonly managed: boolean;
  readonly derivation: string | undefined;
  readonly required: number;
  /** The condition under which a pod counts: available, running, ... */
  readonly counted: string;
  readonly available: number;
  readonly total: number;
  readonly reserved: number;
  readonly estimated: number;
  readonly allowed: number;
  readonly cells: readonly CellView[];
  readonly reservations: readonly ReservationView[];
  readonly oldestReservationMs: number | undefined;
  readonly suspended:
    | {
        readonly until: string | undefined;
        readonly reason: string | undefined;
        /** Undefined for all cells. */
        readonly cells: readonly string[] | undefined;
      }
    | undefined;
  readonly released: string | undefined;
  readonly conditions: readonly Condition[];
  readonly state: HealthState;
}

/** Four settle periods: a hold that is older does not end as it should. */
const HOLD_OVERDUE_MS = 300_000;

export function isOverdue({ holdAgeMs = 0 }: CellView): boolean {
  return holdAgeMs > HOLD_OVERDUE_MS;
}

/** A cell without pods of the protector is shown only if it has a problem. */
export function presentCells({ cells }: Pick<ProtectorView, "cells">): readonly CellView[] {
  return cells.filter(({ state, total }) => state !== "removed" && (total > 0 || state !== "ok"));
}

/** Empty for a protector that is not suspended. */
export function suspensionText({ suspended }: ProtectorView): string {
  if (suspended === undefined) return "";
  const where = suspended.cells === undefined ? "" : `in ${suspended.cells.join(", ")} `;
  const why = suspended.reason === undefined ? "" : `: ${suspended.reason}`;
  return `${where}until ${suspended.until ?? "it is resumed"}${why}`;
}

/** `nowMs` is this machine's wall clock: ages are for people, and no decision uses them. */
export function viewProtector(protector: PodProtector, nowMs: number): ProtectorView {
  const { metadata, spec } = protector;
  const state = parseProtector(protector);
  const { available, reserved, estimated } = estimate(state);
  const cells = [...state.cells.values()].map((cell) => viewCell(cell, nowMs));
  const reservations = [...state.cells.values()].flatMap((cell) => viewReservations(cell, nowMs));
  const suspended = state.spec.suspendedUntilMs > nowMs;
  const kind = metadata.labels?.[SOURCE_KIND_LABEL];
  const facts = {
    namespace: metadata.namespace ?? "",
    name: metadata.name,
    source: kind === undefined ? undefined : `${kind} ${sourceName(metadata) ?? ""}`,
    managed: metadata.finalizers?.includes(GENERATOR_FINALIZER) ?? false,
    derivation: metadata.annotations?.[DERIVATION_ANNOTATION],
    required: spec.minAvailable,
    counted: state.spec.healthCriterion.toLowerCase(),
    available,
    total: cells.reduce((sum, { total }) => sum + total, 0),
    reserved,
    estimated,
    allowed: Math.max(0, Math.min(estimated - spec.minAvailable, (state.spec.maxConcurrentLag ?? Infinity) - reserved)),
    cells,
    reservations,
    oldestReservationMs: reservations.reduce<number | undefined>(
      (oldest, { firstAgeMs }) => Math.max(oldest ?? 0, firstAgeMs),
      undefined,
    ),
    suspended: suspended
      ? {
          until: Number.isFinite(state.spec.suspendedUntilMs) ? spec.suspend?.until : undefined,
          reason: state.spec.suspendReason,
          cells: state.spec.suspendedCells,
        }
      : undefined,
    released: metadata.annotations?.[RELEASED_ANNOTATION],
    conditions: protector.status?.conditions ?? [],
  };
  return { ...facts, state: stateOf({ ...facts, deleting: isDeleting(metadata) }, state) };
}

function viewCell(cell: CellState, nowMs: number): CellView {
  const { aggregation } = cell;
  const age = (time: string | null | undefined): number | undefined => {
    const ms = parseMs(time);
    return ms === 0 ? undefined : nowMs - ms;
  };
  const heartbeatAgeMs = age(aggregation?.heartbeatTime);
  const heldMs = holdWrittenMs(aggregation?.hold ?? "");
  const holdAgeMs = heldMs === undefined ? undefined : nowMs - heldMs;
  const [oldest] = cell.isCounted ? [] : viewReservations(cell, nowMs);
  return {
    cell: cell.cellID,
    available: aggregation?.availableReplicas ?? 0,
    total: aggregation?.totalReplicas ?? 0,
    reserved: cell.ledger.weight,
    heartbeatAgeMs,
    lastEventAgeMs: age(aggregation?.lastEventTime),
    epoch: aggregation?.epoch,
    hold: aggregation?.hold,
    holdAgeMs,
    silentMs: heartbeatAgeMs ?? holdAgeMs ?? oldest?.firstAgeMs,
    state: cellStateOf(cell, heartbeatAgeMs),
  };
}

function cellStateOf(cell: CellState, heartbeatAgeMs: number | undefined): CellView["state"] {
  if (cell.isOnHold) return "on hold";
  if (!cell.isCounted) return cell.aggregation?.epoch === undefined ? "not counted" : "removed";
  if (!isReliable(cell)) return "outdated spec";
  return heartbeatAgeMs !== undefined && heartbeatAgeMs > STALE_AFTER_MS ? "stale" : "ok";
}

/** One view for each record of the reservation. */
export function viewReservation(cell: string, reservation: Reservation, nowMs: number): ReservationView[] {
  const { podName: pod, uid, weight } = reservation;
  return orderedRecords(reservation).map(([operation, { paid, startMicros, firstMicros }]) => ({
    ...{ cell, pod, uid, operation, weight, paid },
    ageMs: nowMs - startMicros / 1000,
    firstAgeMs: nowMs - firstMicros / 1000,
  }));
}

function viewReservations({ cellID, ledger }: CellState, nowMs: number): ReservationView[] {
  const views = [...ledger.reservations()].flatMap((one) => viewReservation(cellID, one, nowMs));
  for (const { weight, startMicros, endMicros } of ledger.ranges) {
    const ages = { ageMs: nowMs - endMicros / 1000, firstAgeMs: nowMs - startMicros / 1000 };
    views.push({ cell: cellID, pod: undefined, uid: undefined, operation: "RANGE", weight, paid: true, ...ages });
  }
  return views.sort((a, b) => b.firstAgeMs - a.firstAgeMs);
}

type Facts = Omit<ProtectorView, "state"> & { readonly deleting: boolean };

/** The first thing that an operator should know, in one or two words. */
function stateOf(facts: Facts, state: ProtectorState): HealthState {
  if (facts.suspended !== undefined) return facts.suspended.cells === undefined ? "suspended" : "partly suspended";
  if (facts.released !== undefined) return "released";
  if (state.spec.warnsOnly) return "only warns";
  const bad = (wanted: CellView["state"]): boolean => facts.cells.some((cell) => cell.state === wanted);
  if (bad("on hold")) return "cell on hold";
  if (bad("stale")) return "cell stale";
  if (!state.cells.values().some((cell) => cell.isCounted)) return "not counted";
  const holds = (wanted: string): boolean =>
    facts.conditions.some(({ type, status }) => type === wanted && status === "True");
  if (holds("SourceDeleting")) return "waits to be deleted";
  if (facts.deleting) return "being deleted";
  if (holds("SourceVanished")) return "workload vanished";
  if (facts.required > 0 && facts.total === 0) return "no pods match";
  if (facts.required > 0 && facts.available < facts.required) return "below minimum";
  if (facts.total > 0 && facts.required >= facts.total) return "no disruption possible";
  // A minimum of 0, as of a workload that is scaled to zero, denies nothing.
  if (facts.required > 0 && facts.allowed === 0) return facts.reserved > 0 ? "busy" : "at minimum";
  return "ok";
}
