/**
 * `--void-after` (docs/design.md#settling). A DELETE that the webhook allows, but something else rejects, such as
 * another webhook, never happens. Its reservation would use quota for the whole settle period. Voiding frees the quota
 * early: an annotation raises the pod's resourceVersion. kube-apiserver commits a DELETE only at the reviewed version,
 * so the old DELETE can no longer be committed, and rule R2 settles the reservation.
 */
import type { UnsettledRecord } from "../../../shared/decide/settling/settle-history.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { TrackedProtector } from "../counting/membership.ts";
import type { ReconcileSettings } from "./reconcile-input.ts";

export interface ReservationVoiderOptions extends Pick<ReconcileSettings, "ports" | "mayWrite" | "onEvent"> {
  readonly afterMs: number;
  readonly podByUid: (uid: string) => Pod | undefined;
  /** Annotates the pod only if it still has this UID. */
  readonly annotate: (pod: Pod) => Promise<ApiResult<unknown>>;
}

/** Patches in flight. Further pods wait for the next reconcile of their protector. */
const MAX_IN_FLIGHT = 4;
/** Shortest time between two annotations of one pod. */
const REPEAT_MS = 30_000;
/**
 * Time until the next try for a pod that can't be annotated yet: it is not in the snapshot, or too many patches are in
 * flight.
 */
const RETRY_MS = 1_000;

export class ReservationVoider {
  readonly #options: ReservationVoiderOptions;
  /** Monotonic time of the last annotation, by UID. */
  readonly #annotatedMs = new Map<string, number>();
  #inFlight = 0;

  constructor(options: ReservationVoiderOptions) {
    this.#options = options;
  }

  /** Milliseconds until the next of these reservations is due; infinite without one. */
  dueInMs(reservations: readonly UnsettledRecord[]): number {
    const nowMs = this.#options.ports.clock.monotonicMs();
    let soonestMs = Number.POSITIVE_INFINITY;
    for (const reservation of reservations) {
      const inMs = this.#dueMs(reservation) - nowMs;
      soonestMs = Math.min(soonestMs, inMs > 0 ? inMs : RETRY_MS);
    }
    return soonestMs;
  }

  /** Annotates the pods whose reservations are due, without waiting for the patches. */
  voidDue(tracked: TrackedProtector, reservations: readonly UnsettledRecord[]): void {
    const { ports, mayWrite, podByUid } = this.#options;
    const nowMs = ports.clock.monotonicMs();
    for (const reservation of reservations) {
      const { uid } = reservation;
      if (uid === undefined || this.#dueMs(reservation) > nowMs) continue;
      if (this.#inFlight >= MAX_IN_FLIGHT || !mayWrite()) return;
      const pod = podByUid(uid);
      if (pod === undefined || pod.terminating) continue;
      this.#annotatedMs.set(uid, nowMs);
      void this.#annotate(tracked, pod);
    }
    for (const [uid, atMs] of this.#annotatedMs) if (nowMs - atMs >= REPEAT_MS) this.#annotatedMs.delete(uid);
  }

  #dueMs({ operation, firstSeenMs, uid }: UnsettledRecord): number {
    if (operation !== "DELETE" || uid === undefined) return Number.POSITIVE_INFINITY;
    const repeatMs = (this.#annotatedMs.get(uid) ?? Number.NEGATIVE_INFINITY) + REPEAT_MS;
    return Math.max(firstSeenMs + this.#options.afterMs, repeatMs);
  }

  async #annotate(tracked: TrackedProtector, pod: Pod): Promise<void> {
    this.#inFlight++;
    const { kind } = await this.#options.annotate(pod);
    this.#inFlight--;
    const result = kind === "ok" ? "done" : kind === "gone" || kind === "conflict" ? "gone" : "failed";
    this.#options.onEvent({ kind: "voided", id: tracked.id, podName: pod.name, result });
  }
}
