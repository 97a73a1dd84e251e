/**
 * L5 (docs/design.md#invariants): among contending replicas one write succeeds per round. A conflict shows that another
 * writer succeeded, so what can go wrong is that webhooks conflict again and again and none of them succeeds.
 */
interface Struggle {
  conflicts: number;
  sinceMs: number;
}

/** Three replicas in three rounds, and as many conflicts again with aggregators and operators. */
const MOST_CONFLICTS = 40;

export class Contention {
  readonly #violation: (invariant: string, message: string) => void;
  readonly #struggles = new Map<string, Struggle>();

  constructor(violation: (invariant: string, message: string) => void) {
    this.#violation = violation;
  }

  /** A webhook tried to write the status of `protector`. */
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
