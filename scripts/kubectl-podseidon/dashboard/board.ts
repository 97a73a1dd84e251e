/**
 * The dashboard's data about all cores: rows, cells, reservations, refusals and the last hour. Changes are marked when
 * they arrive; `update` then collects all of them for the page.
 */
import { BoundedMap } from "../../../shared/runtime/bounded-map.ts";
import { namespacedName, type PodProtector } from "../../../shared/schema/podprotector.ts";
import { type ProtectorView, viewProtector } from "../view.ts";
import { CellNames, cellRows, fleetCounts, oldestReservations } from "./fleet.ts";
import { CapacityHistory, FleetHistory } from "./history.ts";
import {
  type DashboardUpdate,
  type Detail,
  type FleetPoint,
  type ProtectorRow,
  type RefusalRow,
  type ReservationRow,
  rowKey,
  type WatchRow,
} from "./page-messages.ts";
import { deniedBetween, type EventAtProtector } from "./refusals.ts";
import { type CellShare, detailOfView, reservationsOf, rowOfView, sharesOf } from "./rows.ts";

/** The number of newest refusals that are kept. */
export const MAX_REFUSALS = 200;
/** Rows in each of the first updates of a page, so that the browser reads an update in some milliseconds. */
const ROWS_A_PART = 250;
const POINT_EVERY_MS = 2_000;
/** Number of updates in which each protector is checked again, because a heartbeat becomes stale without a change. */
const SWEEP_UPDATES = 20;

export interface Shown {
  readonly core: number;
  readonly protector: PodProtector;
  readonly row: ProtectorRow;
  readonly shares: readonly CellShare[];
  readonly reservations: readonly ReservationRow[];
  readonly reservationCount: number;
  readonly history: CapacityHistory;
}

export class Board {
  readonly #startedMs: number;
  readonly #aheadMs: (core: number) => number;
  readonly #shown = new Map<string, Shown>();
  readonly #cellNames = new CellNames();
  readonly #fleet = new FleetHistory();
  /** Protectors that changed since the last update: the present object, or undefined when it is gone. */
  readonly #changed = new Map<string, { readonly core: number; readonly protector: PodProtector } | undefined>();
  /** By UID, in the order of their last change. */
  readonly #refusals = new BoundedMap<string, RefusalRow>(MAX_REFUSALS);
  readonly #newRefusals = new Set<string>();
  #denied = 0;
  #sweep: IterableIterator<[string, Shown]> | undefined;
  #point: FleetPoint | undefined;
  /** When the point was last sent. */
  #pointMs = Number.NEGATIVE_INFINITY;
  /** The contents of the last update, so that the next one only has differences. */
  readonly #said = new Map<keyof DashboardUpdate, string>();

  /** `aheadMs`: by how much the clock of a core, which wrote the times of its objects, is ahead of this machine's. */
  constructor(startedMs: number, aheadMs: (core: number) => number = () => 0) {
    this.#startedMs = startedMs;
    this.#aheadMs = aheadMs;
  }

  get size(): number {
    return this.#shown.size;
  }

  get history(): readonly FleetPoint[] {
    return this.#fleet.points;
  }

  changed(core: number, before: PodProtector | undefined, after: PodProtector | undefined): void {
    const { metadata } = after ?? before ?? {};
    if (metadata !== undefined)
      this.#changed.set(`${core}/${namespacedName(metadata)}`, after && { core, protector: after });
  }

  /** `isNew` is false for Events from before the dashboard's start, whose denials have unknown times. */
  event(core: number, before: EventAtProtector | undefined, after: EventAtProtector, isNew: boolean): void {
    if (after.refusal === undefined) return;
    const { id, firstMs, lastMs } = after.refusal;
    const aheadMs = this.#aheadMs(core);
    this.#refusals.set(id, { ...after.refusal, core, firstMs: firstMs - aheadMs, lastMs: lastMs - aheadMs });
    this.#newRefusals.add(id);
    if (isNew) this.#denied += deniedBetween(before, after);
  }

  /** The differences from the last update. */
  update(nowMs: number, watches: readonly WatchRow[]): DashboardUpdate {
    const rows: ProtectorRow[] = [];
    const gone: string[] = [];
    for (const [key, found] of this.#changed) {
      if (found !== undefined) this.#look(key, found, nowMs, rows);
      else if (this.#shown.delete(key)) gone.push(key);
    }
    const isQuiet = this.#changed.size === 0;
    this.#changed.clear();
    this.#lookAgain(nowMs, rows);
    const refusals = [...this.#newRefusals].flatMap((id) => this.#refusals.get(id) ?? []);
    this.#newRefusals.clear();
    const before = this.#point;
    this.#point = this.#fleet.record(nowMs, fleetCounts(this.#shown.values()), this.#denied);
    this.#denied = 0;
    return {
      atMs: nowMs,
      ...this.#ifNews("cellNames", this.#cellNames.all),
      ...(rows.length > 0 ? { rows } : {}),
      ...(gone.length > 0 ? { gone } : {}),
      ...(refusals.length > 0 ? { refusals } : {}),
      ...(isQuiet && rows.length === 0 ? {} : this.#ifNews("cells", this.#cells())),
      ...(isQuiet && rows.length === 0 ? {} : this.#ifNews("reservations", oldestReservations(this.#shown.values()))),
      ...this.#pointNow(nowMs, before),
      ...this.#ifNews("watches", watches),
    };
  }

  /** The complete data as of the last update, in parts. */
  *parts(nowMs: number, watches: readonly WatchRow[]): Iterable<DashboardUpdate> {
    const rows = [...this.#shown.values()].map(({ row }) => row);
    yield { atMs: nowMs, cellNames: [...this.#cellNames.all], watches: [...watches] };
    for (let from = 0; from < rows.length; from += ROWS_A_PART)
      yield { atMs: nowMs, rows: rows.slice(from, from + ROWS_A_PART) };
    yield {
      atMs: nowMs,
      cells: this.#cells(),
      reservations: oldestReservations(this.#shown.values()),
      refusals: [...this.#refusals.values()],
    };
  }

  detail(key: string, nowMs: number): Detail | undefined {
    const shown = this.#shown.get(key);
    if (shown === undefined) return undefined;
    const { core, protector, row, history } = shown;
    return {
      row,
      ...detailOfView(this.#view(core, protector, nowMs), { core, nowMs }),
      refusals: [...this.#refusals.values()].filter((refusal) => rowKey(refusal) === key),
      history: [...history.points()],
    };
  }

  #look(key: string, found: Pick<Shown, "core" | "protector">, nowMs: number, rows: ProtectorRow[]): void {
    const before = this.#shown.get(key);
    const { core, protector } = found;
    const view = this.#view(core, protector, nowMs);
    const row = rowOfView(view, { core, nowMs }, (cell) => this.#cellNames.indexOf(cell));
    const history = before?.history ?? new CapacityHistory(this.#startedMs);
    history.record(nowMs, row);
    const isSame = before !== undefined && JSON.stringify(before.row) === JSON.stringify(row);
    this.#shown.set(key, {
      ...{ core, protector, history },
      row: isSame ? before.row : row,
      shares: sharesOf(view, nowMs),
      reservations: reservationsOf(view, { core, nowMs }),
      reservationCount: view.reservations.length,
    });
    if (!isSame) rows.push(row);
  }

  #view(core: number, protector: PodProtector, nowMs: number): ProtectorView {
    return viewProtector(protector, nowMs + this.#aheadMs(core));
  }

  #lookAgain(nowMs: number, rows: ProtectorRow[]): void {
    for (let left = Math.ceil(this.#shown.size / SWEEP_UPDATES); left > 0; left--) {
      this.#sweep ??= this.#shown.entries();
      const { value, done } = this.#sweep.next();
      if (done === true) this.#sweep = undefined;
      else this.#look(value[0], value[1], nowMs, rows);
    }
  }

  /**
   * The present point at intervals, because the page draws its charts each time, and the final point of a slot that has
   * ended.
   */
  #pointNow(nowMs: number, before: FleetPoint | undefined): Partial<DashboardUpdate> {
    const isOver = before !== undefined && before.atMs !== this.#point?.atMs;
    const ended = isOver ? this.#ifNews("point", before) : {};
    if (ended.point !== undefined || nowMs - this.#pointMs < POINT_EVERY_MS) return ended;
    const news = this.#ifNews("point", this.#point);
    if (news.point !== undefined) this.#pointMs = nowMs;
    return news;
  }

  #cells() {
    return cellRows(this.#shown.values());
  }

  #ifNews(
    key: keyof DashboardUpdate,
    value: DashboardUpdate[keyof DashboardUpdate] | readonly unknown[],
  ): Partial<DashboardUpdate> {
    const text = JSON.stringify(value);
    if (this.#said.get(key) === text) return {};
    this.#said.set(key, text);
    return { [key]: value };
  }
}
