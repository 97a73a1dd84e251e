import type { DisruptionRequest } from "../../shared/decide/quota.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { MAX_REMEMBERED_RESERVATIONS } from "../limits.ts";
import type { Batch } from "./batch.ts";
import type { PendingRequest, Reassertion } from "./pending.ts";

/** A re-assertion is tried for this long; by then the hold of another replica, or an aggregator's own finding, is in place. */
const REASSERT_MS = 60_000;

interface Remembered {
  readonly atMs: number;
  readonly reassertion: Reassertion;
}

interface Protector {
  records: Remembered[];
}

export interface MemoryOptions {
  readonly ports: Ports;
  readonly settleMs: number;
  readonly submit: (key: string, work: PendingRequest) => void;
}

/** What of a pod a re-assertion needs; the rest would be most of the memory. */
function trimmed(pod: Pod): Pod {
  return { ...pod, labels: {}, annotations: undefined, conditions: [], readinessGates: undefined };
}

/**
 * The reservations that this process has written lately, per protector of one core: what it writes again when the object turns
 * out to be older than they are (design 5.4). Kept for two settle periods, after which none of them can be unsettled.
 */
export class RecentReservations {
  readonly #options: MemoryOptions;
  /** In the order of the last write, so that the oldest are forgotten first. */
  readonly #protectors = new Map<string, Protector>();
  #size = 0;

  constructor(options: MemoryOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#size;
  }

  /** Notes what a round has written. */
  remember(key: string, round: Batch): void {
    const atMs = this.#options.ports.clock.monotonicMs();
    const known = this.#protectors.get(key);
    const protector: Protector = known ?? { records: [] };
    for (const work of round.writes) {
      if (work.kind === "rollBack") this.#forget(protector, work.nonce);
      const decision = work.kind === "reserve" ? round.decisions.get(work) : undefined;
      if (work.kind !== "reserve" || decision === undefined) continue;
      const request: DisruptionRequest = { ...work.request, pod: trimmed(work.request.pod) };
      protector.records.push({ atMs, reassertion: { request, decision } });
      this.#size++;
    }
    this.#protectors.delete(key);
    this.#protectors.set(key, protector);
    this.#prune(atMs, protector);
  }

  /** The object went back or was replaced: its reservations are written again, with a hold on every cell. */
  lost(key: string, reason: string, cells: ReadonlySet<string>): void {
    const nowMs = this.#options.ports.clock.monotonicMs();
    this.#prune(nowMs);
    const protector = this.#protectors.get(key);
    this.#options.submit(key, {
      kind: "reassert",
      reassertions: protector?.records.map(({ reassertion }) => reassertion) ?? [],
      cells,
      hold: `${reason}/${this.#options.ports.random.token()}`,
      arrivedMs: nowMs,
      deadlineMs: nowMs + REASSERT_MS,
      settle: () => undefined,
    });
  }

  #forget(protector: Protector, nonce: string): void {
    const before = protector.records.length;
    protector.records = protector.records.filter(({ reassertion }) => reassertion.request.nonce !== nonce);
    this.#size -= before - protector.records.length;
  }

  /** Forgets what must be settled by now: whole protectors, oldest first, and the head of `hot`, which was written last. */
  #prune(nowMs: number, hot?: Protector): void {
    const oldestMs = nowMs - 2 * this.#options.settleMs;
    for (const [key, protector] of this.#protectors) {
      const lastMs = protector.records.at(-1)?.atMs ?? Number.NEGATIVE_INFINITY;
      if (this.#size <= MAX_REMEMBERED_RESERVATIONS && lastMs >= oldestMs) break;
      this.#size -= protector.records.length;
      this.#protectors.delete(key);
    }
    if ((hot?.records[0]?.atMs ?? oldestMs) >= oldestMs) return;
    const first = hot?.records.findIndex(({ atMs }) => atMs >= oldestMs) ?? 0;
    if (first <= 0) return;
    hot?.records.splice(0, first);
    this.#size -= first;
  }
}
