/** Converts a protector's view to the rows and the detail of the page. Pure. Ages become times, which do not change. */
import { type CellView, type ProtectorView, presentCells, suspensionText } from "../view.ts";
import { type Detail, type ProtectorRow, type ReservationRow, UNKNOWN_MS } from "./page-messages.ts";

/** Most reservations of one protector, oldest first. */
const MAX_RESERVATIONS = 100;
const MAX_DETAIL_CELLS = 200;

/** The location of a protector, and the time of the view. */
export interface Seen {
  readonly core: number;
  readonly nowMs: number;
}

/** A cell of one protector, for the sums by cell. */
export interface CellShare extends Pick<CellView, "cell" | "state" | "available" | "reserved"> {
  readonly heartbeatMs: number;
}

export function rowOfView(view: ProtectorView, { core, nowMs }: Seen, indexOf: (cell: string) => number): ProtectorRow {
  const { namespace, name, state, required, available, total, reserved, allowed, oldestReservationMs } = view;
  const present = presentCells(view);
  return {
    ...{ core, namespace, name, state, required, available, total, reserved, allowed },
    cells: present.map(({ cell }) => indexOf(cell)),
    cellsOk: present.filter((cell) => cell.state === "ok").length,
    oldestMs: since(nowMs, oldestReservationMs),
  };
}

export function sharesOf(view: ProtectorView, nowMs: number): readonly CellShare[] {
  return view.cells
    .filter(({ state }) => state !== "removed")
    .map(({ cell, state, available, reserved, heartbeatAgeMs }) => {
      return { cell, state, available, reserved, heartbeatMs: since(nowMs, heartbeatAgeMs) };
    });
}

export function reservationsOf(view: ProtectorView, { core, nowMs }: Seen): ReservationRow[] {
  const { namespace, name } = view;
  return view.reservations.slice(0, MAX_RESERVATIONS).map(({ cell, pod, operation, weight, firstAgeMs }) => {
    const place = { core, namespace, name, cell, pod: pod ?? "(packed)" };
    return { ...place, operation, weight, sinceMs: since(nowMs, firstAgeMs) };
  });
}

type DetailOfView = Omit<Detail, "row" | "refusals" | "history">;

export function detailOfView(view: ProtectorView, seen: Seen): DetailOfView {
  const { nowMs } = seen;
  return {
    source: view.source ?? (view.managed ? "unknown" : "none: made by hand"),
    derivation: view.derivation ?? "",
    suspended: suspensionText(view),
    cells: view.cells
      .slice(0, MAX_DETAIL_CELLS)
      .map(({ cell, state, hold, available, total, reserved, heartbeatAgeMs, lastEventAgeMs }) => ({
        ...{ cell, available, total, reserved },
        state: hold === undefined ? state : `${state}: ${hold.split("/")[0]}`,
        heartbeatMs: since(nowMs, heartbeatAgeMs),
        lastEventMs: since(nowMs, lastEventAgeMs),
      })),
    reservations: reservationsOf(view, seen),
    reservationCount: view.reservations.length,
    conditions: view.conditions.map(({ type, status, reason, message }) => ({ type, status, reason, message })),
  };
}

function since(nowMs: number, ageMs: number | undefined): number {
  return ageMs === undefined ? UNKNOWN_MS : Math.floor(nowMs - ageMs);
}
