/** Which deletions of nodes were reviewed lately (docs/design.md#node-deletion). */

/** As long as a kube-apiserver works on one request, unless a flag says otherwise. */
const REQUEST_MS = 60_000;
const MAX_REMEMBERED = 10_000;

/** When the deletion of a node that nothing kept was reviewed, by cell and UID. */
export class ReviewedDeletions {
  /** The oldest comes first. */
  readonly #times = new Map<string, number>();
  /** Of the last one that was forgotten: any client that reaches the port can send more than are remembered. */
  #forgottenMs = -Infinity;

  add(key: string, nowMs: number): void {
    this.#times.delete(key);
    this.#times.set(key, nowMs);
    const [oldest] = this.#times;
    if (oldest === undefined || this.#times.size <= MAX_REMEMBERED) return;
    this.#times.delete(oldest[0]);
    this.#forgottenMs = oldest[1];
  }

  /** True for each node while one that was forgotten may be asked about again. */
  mayBeAskedAgain(key: string, nowMs: number): boolean {
    return nowMs - (this.#times.get(key) ?? this.#forgottenMs) < REQUEST_MS;
  }
}
