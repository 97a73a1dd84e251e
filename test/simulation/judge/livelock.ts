/**
 * In virtual time a process that finds something to do at once, again and again, gives nobody else a turn: what would be a busy core in a
 * cluster would be a run without an end here.
 */

/** Nothing does the same so often at one moment and is right. */
const MOST_AT_ONE_MOMENT = 1_000;

export class Livelock {
  readonly #nowMs: () => number;
  readonly #complain: (what: string) => void;
  #atMs = Number.NaN;
  #count = 0;

  constructor(nowMs: () => number, complain: (what: string) => void) {
    this.#nowMs = nowMs;
    this.#complain = complain;
  }

  /** `what` happens once more; throws at whoever does not stop. */
  happened(what: string): void {
    const nowMs = this.#nowMs();
    this.#count = nowMs === this.#atMs ? this.#count + 1 : 1;
    this.#atMs = nowMs;
    if (this.#count <= MOST_AT_ONE_MOMENT) return;
    if (this.#count === MOST_AT_ONE_MOMENT + 1) this.#complain(`${what}, again and again at one moment`);
    throw new Error(`${what}, again and again at one moment`);
  }
}
