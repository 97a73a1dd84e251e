import type { DisruptionRequest } from "../../shared/decide/quota.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { WrittenBatch } from "./batch.ts";
import type { PendingRequest, Reassertion } from "./pending-queue.ts";

/** Reservations in the whole process; the oldest are forgotten first. */
const MAX_REMEMBERED = 50_000;
/** A re-assertion is tried for this long, and then again before the next reservation. */
const REASSERT_MS = 60_000;

interface Remembered {
  readonly atMs: number;
  readonly reassertion: Reassertion;
}

interface ProtectorRecords {
  records: Remembered[];
}

interface RecentReservationsOptions {
  readonly ports: Ports;
  readonly settleMs: number;
  readonly submit: (key: string, pending: PendingRequest) => void;
}

/** The fields of a pod that are needed after its admission. The others may have megabytes. */
export function trimmed(pod: Pod): Pod {
  return { ...pod, labels: {}, annotations: undefined, conditions: [], readinessGates: undefined };
}

/**
 * The reservations of the last two settle periods, by protector of one core. This process writes them again when an
 * object turns out to be older than they are (docs/design.md#lost-history). An older reservation is settled.
 */
export class RecentReservations {
  readonly #options: RecentReservationsOptions;
  /** In the order of the last write, so that the oldest are forgotten first. */
  readonly #protectors = new Map<string, ProtectorRecords>();
  #size = 0;

  constructor(options: RecentReservationsOptions) {
    this.#options = options;
  }

  remember(key: string, batch: WrittenBatch): void {
    const atMs = this.#options.ports.clock.monotonicMs();
    const protector = this.#protectors.get(key) ?? { records: [] };
    for (const pending of batch.writes) {
      if (pending.kind === "rollBack") this.#forget(protector, pending.nonce);
      const found = pending.kind === "reserve" ? batch.decisions.get(pending) : undefined;
      if (pending.kind !== "reserve" || found === undefined) continue;
      // The denial that was not enforced may name megabytes of a pod's pre-activities.
      const { instead: _, ...decision } = found;
      const request: DisruptionRequest = { ...pending.request, pod: trimmed(pending.request.pod) };
      protector.records.push({ atMs, reassertion: { request, decision } });
      this.#size++;
    }
    this.#protectors.delete(key);
    this.#protectors.set(key, protector);
    this.#prune(atMs, protector);
  }

  /** Writes the reservations of one protector again, with a hold on these cells. */
  reassert(key: string, hold: string, cells: readonly string[]): void {
    const nowMs = this.#options.ports.clock.monotonicMs();
    this.#prune(nowMs, this.#protectors.get(key));
    const protector = this.#protectors.get(key);
    this.#options.submit(key, {
      kind: "reassert",
      reassertions: protector?.records.map(({ reassertion }) => reassertion) ?? [],
      cells,
      hold,
      arrivedMs: nowMs,
      deadlineMs: nowMs + REASSERT_MS,
    });
  }

  #forget(protector: ProtectorRecords, nonce: string): void {
    const before = protector.records.length;
    protector.records = protector.records.filter(({ reassertion }) => reassertion.request.nonce !== nonce);
    this.#size -= before - protector.records.length;
  }

  /** Forgets settled reservations: of `hot`, and of whole protectors, oldest first. */
  #prune(nowMs: number, hot?: ProtectorRecords): void {
    const oldestMs = nowMs - 2 * this.#options.settleMs;
    const settled = hot?.records.findIndex(({ atMs }) => atMs >= oldestMs) ?? 0;
    if (settled > 0) {
      hot?.records.splice(0, settled);
      this.#size -= settled;
    }
    for (const [key, protector] of this.#protectors) {
      const lastMs = protector.records.at(-1)?.atMs ?? Number.NEGATIVE_INFINITY;
      if (this.#size <= MAX_REMEMBERED && lastMs >= oldestMs) break;
      this.#size -= protector.records.length;
      this.#protectors.delete(key);
    }
  }
}
