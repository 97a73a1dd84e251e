import type { Operation } from "../../schema/podprotector.ts";
import { EARLIER, type ReservationRecord } from "../ledger/reservation.ts";

/** When the oldest and the newest admission of one record were first seen, monotonic milliseconds. */
export interface SeenSpan {
  readonly firstMs: number;
  readonly lastMs: number;
}

/**
 * When this process first saw each admission, by its own monotonic clock: `seen(nonce)` in docs/design.md#state. One
 * instance for each protector and cell. A new leader starts with an empty one, which restarts the settle timers.
 */
export class FirstSeenTimes {
  readonly #firstSeenMs = new Map<string, number>();
  /** Keys that were observed since the last {@link forgetOthers}. */
  #observed = new Set<string>();
  /** UIDs of pods whose packed records only have hashes: from before the last {@link forgetOthers}, and since. */
  #uids: ReadonlyMap<string, string> = new Map();
  #uidsNow = new Map<string, string>();

  /** Monotonic time when `key` was first seen; `nowMs` for a new key. */
  observe(key: string, nowMs: number): number {
    this.#observed.add(key);
    const known = this.#firstSeenMs.get(key);
    if (known !== undefined) return known;
    this.#firstSeenMs.set(key, nowMs);
    return nowMs;
  }

  /** Observes the admissions of a record. `identity` of the pod identifies a record without a listed nonce. */
  observeRecord(record: ReservationRecord, operation: Operation, identity: string, nowMs: number): SeenSpan {
    let firstMs = Number.POSITIVE_INFINITY;
    let lastMs = Number.NEGATIVE_INFINITY;
    for (const key of admissionKeys(identity, operation, record)) {
      const seenMs = this.observe(key, nowMs);
      firstMs = Math.min(firstMs, seenMs);
      lastMs = Math.max(lastMs, seenMs);
    }
    return { firstMs, lastMs };
  }

  /**
   * The UID of a packed record's pod: `seen` while the snapshot has the pod, and the remembered one afterwards. Without
   * a UID, the shard of a vanished pod is unknown, so its record waits for the shard that has been silent for the
   * longest.
   */
  uidOf(identity: string, seen: string | undefined): string | undefined {
    const uid = seen ?? this.#uids.get(identity);
    if (uid !== undefined) this.#uidsNow.set(identity, uid);
    return uid;
  }

  /** Forgets the keys that were not observed since the last call: their records have left the history. */
  forgetOthers(): void {
    // Most histories have no packed record, and every reconcile calls this.
    if (this.#uids.size + this.#uidsNow.size > 0) [this.#uids, this.#uidsNow] = [this.#uidsNow, new Map()];
    const observed = this.#observed;
    this.#observed = new Set();
    if (this.#firstSeenMs.size === observed.size) return;
    for (const key of this.#firstSeenMs.keys()) if (!observed.has(key)) this.#firstSeenMs.delete(key);
  }

  get size(): number {
    return this.#firstSeenMs.size;
  }
}

/**
 * Unlisted admissions are older than the listed ones. In a record without listed ones, a later time shows a refresh.
 */
function admissionKeys(identity: string, operation: Operation, record: ReservationRecord): readonly string[] {
  const listed = record.nonces.filter((nonce) => nonce !== EARLIER);
  if (listed.length > 0) return listed.map((nonce) => `nonce/${nonce}`);
  return [`record/${identity}/${operation}/${record.startMicros}`];
}
