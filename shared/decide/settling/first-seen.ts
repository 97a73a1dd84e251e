import type { Operation } from "../../schema/podprotector.ts";
import { EARLIER, type ReservationRecord } from "../ledger/reservation.ts";

/**
 * When this process first saw each admission, by its own monotonic clock: `seen(nonce)` in docs/design.md#state. One
 * instance for each protector and cell. A new leader starts with an empty one, which restarts the settle timers.
 */
export class FirstSeenTimes {
  readonly #firstSeenMs = new Map<string, number>();

  /** When `key` was first seen; `monotonicMs` when it is new. */
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

/** When the oldest and the newest admission of one record were first seen, monotonic milliseconds. */
export interface SeenSpan {
  readonly firstMs: number;
  readonly lastMs: number;
}

/** Observes a record's admissions; `touched` receives their keys, which are still in use. */
export function seenSpan(
  times: FirstSeenTimes,
  touched: Set<string>,
  monotonicMs: number,
  identity: string,
  operation: Operation,
  record: ReservationRecord,
): SeenSpan {
  let firstMs = Number.POSITIVE_INFINITY;
  let lastMs = Number.NEGATIVE_INFINITY;
  for (const key of admissionKeys(identity, operation, record)) {
    touched.add(key);
    const seenMs = times.observe(key, monotonicMs);
    firstMs = Math.min(firstMs, seenMs);
    lastMs = Math.max(lastMs, seenMs);
  }
  return { firstMs, lastMs };
}

/** Unlisted admissions are older than the listed ones. A record that lists none shows a refresh by its time. */
function admissionKeys(identity: string, operation: Operation, record: ReservationRecord): readonly string[] {
  const listed = record.nonces.filter((nonce) => nonce !== EARLIER);
  if (listed.length > 0) return listed.map((nonce) => `nonce/${nonce}`);
  return [`record/${identity}/${operation}/${record.startMicros}`];
}
