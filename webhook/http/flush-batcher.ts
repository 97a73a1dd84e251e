/**
 * Groups the work of one turn of the event loop: its requests are decided together, and their responses leave together.
 * Each write to a connection wakes the caller's process, which may preempt this one unless it is awake already. With 50
 * callers this saves a third of the processor time of a request. A single request does not wait.
 */
export class FlushBatcher {
  #waiting: (() => void)[] = [];
  readonly #large: (() => void)[] = [];

  /** Calls `flush`, which must not throw, once everything that has arrived by now is read. */
  after(flush: () => void): void {
    if (this.#waiting.push(flush) > 1) return;
    setImmediate(() => this.#flush());
  }

  /** As {@link after}, for long work: one item in each turn, after everything else. */
  afterOthers(flush: () => void): void {
    if (this.#large.push(flush) === 1) this.#nextLarge();
  }

  #nextLarge(): void {
    setImmediate(() => {
      this.#flush();
      this.#large[0]?.();
      this.#large.shift();
      if (this.#large.length > 0) this.#nextLarge();
    });
  }

  #flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const next of waiting) next();
  }

  reached(): Promise<void> {
    return new Promise((resolve) => this.after(resolve));
  }
}
