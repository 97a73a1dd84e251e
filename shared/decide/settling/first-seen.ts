/**
 * When this process first saw each admission, by its own monotonic clock (design 5.1 `seen(nonce)`). One instance for each
 * protector and cell. A new leader starts with an empty one, which restarts the settle timers (design 5.4).
 */
export class SeenTimes {
  #firstSeenMs = new Map<string, number>();

  /** Milliseconds of first sight of `key`; `monotonicMs` when this is it. */
  observe(key: string, monotonicMs: number): number {
    const known = this.#firstSeenMs.get(key);
    if (known !== undefined) return known;
    this.#firstSeenMs.set(key, monotonicMs);
    return monotonicMs;
  }

  /** Forgets every key that is not in `alive`: its record has left the history. */
  retain(alive: ReadonlySet<string>): void {
    if (this.#firstSeenMs.size === alive.size) return;
    for (const key of this.#firstSeenMs.keys()) if (!alive.has(key)) this.#firstSeenMs.delete(key);
  }

  get size(): number {
    return this.#firstSeenMs.size;
  }
}
