/** Which deletions of nodes were reviewed lately (docs/design.md#node-deletion). */

/** As long as a kube-apiserver works on one request, unless a flag says otherwise. */
const REQUEST_MS = 60_000;
const MAX_REMEMBERED = 10_000;

/** The time of the last review of each node's deletion, by cell and UID, for nodes without finalizers. */
export class ReviewedDeletions {
  /** The oldest comes first. */
  readonly #times = new Map<string, number>();
  /** The time of the newest forgotten review: any client of the port can send more reviews than are remembered. */
  #forgottenMs = -Infinity;

  add(key: string, nowMs: number): void {
    this.#times.delete(key);
    this.#times.set(key, nowMs);
    const [oldest] = this.#times;
    if (oldest === undefined || this.#times.size <= MAX_REMEMBERED) return;
    this.#times.delete(oldest[0]);
    this.#forgottenMs = oldest[1];
  }

  /**
   * True when kube-apiserver may still repeat an earlier review of this node. True for every node while a forgotten
   * review may be repeated.
   */
  mayBeAskedAgain(key: string, nowMs: number): boolean {
    return nowMs - (this.#times.get(key) ?? this.#forgottenMs) < REQUEST_MS;
  }
}
