/**
 * Ends a livelock. A process that immediately finds something to do, again and again, would be a busy core in a
 * cluster. In virtual time it stops everybody else, and the run would not end.
 */

/** No correct process does the same thing so often at one moment. */
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

  /** `what` happened once more. Throws when it happens too often at one moment. */
  happened(what: string): void {
    const nowMs = this.#nowMs();
    this.#count = nowMs === this.#atMs ? this.#count + 1 : 1;
    this.#atMs = nowMs;
    if (this.#count <= MOST_AT_ONE_MOMENT) return;
    if (this.#count === MOST_AT_ONE_MOMENT + 1) this.#complain(`${what}, again and again at one moment`);
    throw new Error(`${what}, again and again at one moment`);
  }
}
