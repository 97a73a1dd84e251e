/**
 * L5: among contending replicas one write succeeds per round. A conflict says that somebody else has written, so what can go wrong is
 * that webhooks conflict again and again and none of them gets through.
 */
interface Struggle {
  conflicts: number;
  sinceMs: number;
}

/** Three replicas in three rounds, and as many again for aggregators and operators that write in between. */
const MOST_CONFLICTS = 40;

export class Contention {
  readonly #violation: (invariant: string, message: string) => void;
  readonly #struggles = new Map<string, Struggle>();

  constructor(violation: (invariant: string, message: string) => void) {
    this.#violation = violation;
  }

  /** A webhook has tried to write the status of `protector`. */
  wrote(protector: string, status: number, atMs: number): void {
    if (status < 300) {
      this.#struggles.delete(protector);
      return;
    }
    if (status !== 409) return;
    const struggle = this.#struggles.get(protector) ?? { conflicts: 0, sinceMs: atMs };
    struggle.conflicts += 1;
    this.#struggles.set(protector, struggle);
    if (struggle.conflicts !== MOST_CONFLICTS) return;
    const tookMs = Math.round(atMs - struggle.sinceMs);
    this.#violation("L5", `${protector}: ${MOST_CONFLICTS} conflicts of webhooks in ${tookMs} ms and no write of one`);
  }
}
