/**
 * The last hour in slots of some seconds. Keeps the tightest moment of each slot, which readers look for, and the last
 * one.
 */
import { type CapacityPoint, type FleetPoint, WINDOW_MS } from "./page-messages.ts";

export const SLOT_MS = 15_000;
export const SLOTS = WINDOW_MS / SLOT_MS;
/** The tightest and the last point of each slot. */
export const MAX_POINTS = 2 * SLOTS;
const COLUMNS = 4;
const FIRST_POINTS = 4;

type Counts = Omit<CapacityPoint, "atMs">;

const spareOf = ({ available, required }: Counts): number => available - required;

/**
 * Capacity against promise of one protector. Stores changes in at most {@link MAX_POINTS} points of 16 bytes, because
 * thousands of protectors have a history.
 */
export class CapacityHistory {
  readonly #originMs: number;
  #points = new Uint32Array(FIRST_POINTS * COLUMNS);
  #first = 0;
  #length = 0;

  /** `originMs` is the start of the process; times are stored as seconds since then. */
  constructor(originMs: number) {
    this.#originMs = originMs;
  }

  record(nowMs: number, counts: Counts): void {
    const last = this.#at(this.#length - 1);
    if (last === undefined || !isEqual(last, counts)) this.#add(nowMs, counts, last);
    this.#forget(nowMs);
  }

  #add(nowMs: number, counts: Counts, last: CapacityPoint | undefined): void {
    const before = this.#at(this.#length - 2);
    const slot = slotOf(nowMs);
    const isThird = last !== undefined && before !== undefined && slotOf(before.atMs) === slot;
    // This point replaces the last one of the slot; the tightest of the three stays.
    if (isThird && slotOf(last.atMs) === slot) {
      if (spareOf(last) < spareOf(before)) this.#set(this.#length - 2, last.atMs, last);
      this.#length--;
    }
    this.#push(nowMs, counts);
  }

  /** Oldest first. A point is valid until the next one. */
  points(): readonly CapacityPoint[] {
    return Array.from({ length: this.#length }, (_, index) => this.#at(index)).filter((point) => point !== undefined);
  }

  #push(atMs: number, counts: Counts): void {
    const capacity = this.#points.length / COLUMNS;
    if (this.#first + this.#length === capacity) {
      const used = this.#points.subarray(this.#first * COLUMNS, (this.#first + this.#length) * COLUMNS);
      // Twice the needed length, so that points are rarely copied.
      const grown = new Uint32Array(Math.max(FIRST_POINTS, 2 * this.#length) * COLUMNS);
      grown.set(used);
      this.#points = grown;
      this.#first = 0;
    }
    this.#length++;
    this.#set(this.#length - 1, atMs, counts);
  }

  #set(index: number, atMs: number, { available, required, reserved }: Counts): void {
    const seconds = Math.max(0, Math.floor((atMs - this.#originMs) / 1000));
    this.#points.set([seconds, available, required, reserved], (this.#first + index) * COLUMNS);
  }

  #at(index: number): CapacityPoint | undefined {
    if (index < 0 || index >= this.#length) return undefined;
    const from = (this.#first + index) * COLUMNS;
    const [seconds = 0, available = 0, required = 0, reserved = 0] = this.#points.subarray(from, from + COLUMNS);
    return { atMs: this.#originMs + seconds * 1000, available, required, reserved };
  }

  /**
   * Drops a point older than the window once the next point is also older, because a point is valid until the next one.
   */
  #forget(nowMs: number): void {
    for (;;) {
      const next = this.#at(1);
      if (next === undefined || (next.atMs > nowMs - WINDOW_MS && this.#length <= MAX_POINTS)) return;
      this.#first++;
      this.#length--;
    }
  }
}

const slotOf = (atMs: number): number => Math.floor(atMs / SLOT_MS);

function isEqual(a: Counts, b: Counts): boolean {
  return a.available === b.available && a.required === b.required && a.reserved === b.reserved;
}

type FleetCounts = Omit<FleetPoint, "atMs" | "denied">;

/** All protectors together: for each slot its worst moment, and all its denials. */
export class FleetHistory {
  readonly #points: FleetPoint[] = [];

  get points(): readonly FleetPoint[] {
    return this.#points;
  }

  /** Returns the point of the present slot. */
  record(nowMs: number, counts: FleetCounts, denied: number): FleetPoint {
    const atMs = slotOf(nowMs) * SLOT_MS;
    const last = this.#points.at(-1);
    if (last?.atMs !== atMs) {
      this.#points.push({ atMs, ...counts, denied });
      // Several are too old where the machine slept.
      while (this.#points.length > SLOTS || (this.#points[0]?.atMs ?? atMs) <= atMs - WINDOW_MS) this.#points.shift();
    } else {
      const isWorse =
        counts.missing > last.missing || (counts.missing === last.missing && spareOf(counts) < spareOf(last));
      this.#points[this.#points.length - 1] = { ...last, ...(isWorse ? counts : {}), denied: last.denied + denied };
    }
    return this.#points.at(-1) ?? { atMs, ...counts, denied };
  }
}
