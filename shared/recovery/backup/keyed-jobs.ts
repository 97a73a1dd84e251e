/** Concurrent jobs, at most one of each key at a time: a core that hangs delays no other. */
export class KeyedJobs {
  readonly #running = new Map<string, Promise<void>>();

  /** Does nothing while the previous job of this key runs. */
  start(key: string, job: () => Promise<void>): void {
    if (this.#running.has(key)) return;
    const running = job().finally(() => this.#running.delete(key));
    this.#running.set(key, running);
  }

  /** Resolves when no job runs any more; no further one may be started meanwhile. */
  async ended(): Promise<void> {
    await Promise.all(this.#running.values());
  }
}
