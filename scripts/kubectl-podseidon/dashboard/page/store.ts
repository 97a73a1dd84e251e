/** The page's data: messages of the plugin change it, and the page is drawn again. */
import { batch, computed, signal } from "@preact/signals";
import {
  type DashboardUpdate,
  type FleetPoint,
  type Hello,
  type ProtectorRow,
  type RefusalRow,
  rowKey,
  WINDOW_MS,
} from "../page-messages.ts";
import { countStates, filterRows, NO_FILTER, namespacesOf, PAGE_ROWS, sortRows, WORST_FIRST } from "./rows.ts";

/** As many as the plugin keeps. */
export const MAX_REFUSALS = 200;

type Cells = NonNullable<DashboardUpdate["cells"]>;
type Reservations = NonNullable<DashboardUpdate["reservations"]>;
type Watches = NonNullable<DashboardUpdate["watches"]>;

export class Store {
  readonly #rows = new Map<string, ProtectorRow>();
  readonly #version = signal(0);
  readonly hello = signal<Hello | undefined>(undefined);
  readonly cellNames = signal<readonly string[]>([]);
  readonly cells = signal<Cells>([]);
  readonly reservations = signal<Reservations>({ all: 0, oldest: [] });
  /** Newest first. */
  readonly refusals = signal<readonly RefusalRow[]>([]);
  /** By id, how often a refusal had happened when it was announced, or when the page began. */
  #announced: ReadonlyMap<string, number> | undefined;
  readonly points = signal<readonly FleetPoint[]>([]);
  readonly watches = signal<Watches>([]);
  /** Unix milliseconds of the last message; 0 before the first. */
  readonly heardMs = signal(0);
  readonly isConnected = signal(false);

  readonly filter = signal(NO_FILTER);
  readonly order = signal(WORST_FIRST);
  readonly page = signal(0);
  /** The key of the protector whose detail is open. */
  readonly selected = signal<string | undefined>(undefined);

  readonly states = computed(() => countStates(this.present().values()));
  #namespaces: readonly string[] = [];
  /** The same array until a namespace appears or disappears, so that the list of choices is rarely drawn. */
  readonly namespaces = computed(() => {
    const found = namespacesOf(this.present().values());
    if (found.join() !== this.#namespaces.join()) this.#namespaces = found;
    return this.#namespaces;
  });
  readonly found = computed(() => sortRows(filterRows(this.present().values(), this.filter.value), this.order.value));
  readonly pages = computed(() => Math.max(1, Math.ceil(this.found.value.length / PAGE_ROWS)));
  readonly shownPage = computed(() => Math.min(this.page.value, this.pages.value - 1));
  readonly shown = computed(() => {
    const from = this.shownPage.value * PAGE_ROWS;
    return this.found.value.slice(from, from + PAGE_ROWS);
  });

  /** The rows; the caller is subscribed to their changes. */
  present(): ReadonlyMap<string, ProtectorRow> {
    this.#version.value;
    return this.#rows;
  }

  /** A stream has begun, and will send all data. */
  greet(hello: Hello, nowMs: number): void {
    batch(() => {
      this.#rows.clear();
      this.#version.value++;
      this.hello.value = hello;
      this.points.value = hello.history;
      this.refusals.value = [];
      this.isConnected.value = true;
      this.heardMs.value = nowMs;
    });
  }

  apply(update: DashboardUpdate, nowMs: number): void {
    batch(() => {
      const { rows = [], gone = [], cellNames, cells, reservations, refusals, point, watches } = update;
      for (const row of rows) this.#rows.set(rowKey(row), row);
      for (const key of gone) this.#rows.delete(key);
      if (rows.length + gone.length > 0) this.#version.value++;
      if (cellNames !== undefined) this.cellNames.value = cellNames;
      if (cells !== undefined) this.cells.value = cells;
      if (reservations !== undefined) this.reservations.value = reservations;
      if (refusals !== undefined) this.#refuse(refusals);
      if (point !== undefined) this.#add(point);
      if (watches !== undefined) this.watches.value = watches;
      this.heardMs.value = nowMs;
    });
  }

  /** The refusals since the last call, newest first. Not by their times: an Event arrives later than it happened. */
  takeUnannounced(): readonly RefusalRow[] {
    const refusals = this.refusals.value;
    const before = this.#announced;
    // A stream that begins again has not sent them yet.
    if (before === undefined || refusals.length === 0) return [];
    this.#announced = countsOf(refusals);
    return refusals.filter(({ id, count }) => (before.get(id) ?? 0) < count);
  }

  #refuse(news: readonly RefusalRow[]): void {
    this.#announced ??= countsOf(news);
    const ids = new Set(news.map(({ id }) => id));
    const others = this.refusals.value.filter(({ id }) => !ids.has(id));
    this.refusals.value = [...news.toReversed(), ...others]
      .toSorted((a, b) => b.lastMs - a.lastMs)
      .slice(0, MAX_REFUSALS);
  }

  /** A present slot is told several times. */
  #add(point: FleetPoint): void {
    const kept = this.points.value.filter(({ atMs }) => atMs < point.atMs && atMs > point.atMs - WINDOW_MS);
    this.points.value = [...kept, point];
  }
}

const countsOf = (refusals: readonly RefusalRow[]): ReadonlyMap<string, number> =>
  new Map(refusals.map(({ id, count }) => [id, count]));

export const store = new Store();
