/**
 * `--void-after` (design 5.2): a DELETE that was admitted and never happened, because something else refuses it, holds its quota for the
 * settle period each time. An annotation on the pod raises its version; the reviewed deletion can't be committed any more (R2).
 */
import type { Pending } from "../../../shared/decide/settling/account.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { TrackedProtector } from "../counting/membership.ts";
import type { EventSink } from "../events.ts";

export interface ReservationVoiderOptions {
  readonly afterMs: number;
  readonly ports: Ports;
  readonly podByUid: (uid: string) => Pod | undefined;
  readonly mayWrite: () => boolean;
  /** Puts the annotation on this very pod, bound to its UID. */
  readonly annotate: (pod: Pod) => Promise<ApiResult<unknown>>;
  readonly onEvent: EventSink;
}

/** Annotations under way at once; the others are taken up when the protector is next looked at. */
const AT_ONCE = 4;
/** One pod is annotated no more often than this. */
const AGAIN_MS = 30_000;
/** One that is due and can't be annotated now (its pod is not seen yet, others are under way) is looked at again after this. */
const DUE_AGAIN_MS = 1_000;

export class ReservationVoider {
  readonly #options: ReservationVoiderOptions;
  /** Monotonic time of the last annotation, by UID. */
  readonly #done = new Map<string, number>();
  #underWay = 0;

  constructor(options: ReservationVoiderOptions) {
    this.#options = options;
  }

  /** Milliseconds until the next of these records is old enough; undefined when none will be. */
  dueInMs(records: readonly Pending[]): number | undefined {
    const nowMs = this.#options.ports.clock.monotonicMs();
    let soonestMs: number | undefined;
    for (const { operation, firstSeenMs, uid } of records) {
      if (operation !== "DELETE" || uid === undefined) continue;
      const dueMs = Math.max(
        firstSeenMs + this.#options.afterMs,
        (this.#done.get(uid) ?? Number.NEGATIVE_INFINITY) + AGAIN_MS,
      );
      const inMs = dueMs > nowMs ? dueMs - nowMs : DUE_AGAIN_MS;
      soonestMs = Math.min(soonestMs ?? Number.POSITIVE_INFINITY, inMs);
    }
    return soonestMs;
  }

  /** Annotates the pods of those that are old enough. Returns at once. */
  consider(entry: TrackedProtector, records: readonly Pending[]): void {
    const nowMs = this.#options.ports.clock.monotonicMs();
    for (const { operation, firstSeenMs, uid } of records) {
      if (operation !== "DELETE" || uid === undefined || nowMs - firstSeenMs < this.#options.afterMs) continue;
      if (this.#underWay >= AT_ONCE || !this.#options.mayWrite()) return;
      if (nowMs - (this.#done.get(uid) ?? Number.NEGATIVE_INFINITY) < AGAIN_MS) continue;
      const pod = this.#options.podByUid(uid);
      if (pod === undefined || pod.terminating) continue;
      this.#done.set(uid, nowMs);
      void this.#annotate(entry, pod);
    }
    for (const [uid, atMs] of this.#done) if (nowMs - atMs >= AGAIN_MS) this.#done.delete(uid);
  }

  async #annotate(entry: TrackedProtector, pod: Pod): Promise<void> {
    this.#underWay++;
    const result = await this.#options.annotate(pod);
    this.#underWay--;
    const isGone = result.kind === "gone" || result.kind === "conflict";
    const outcome = result.kind === "ok" ? "done" : isGone ? "gone" : "failed";
    this.#options.onEvent({ kind: "voided", id: entry.id, podName: pod.name, result: outcome });
  }
}
