/**
 * Quorum reads that prove that a pod is alive, for rule R3 (docs/design.md#settling). A few pods are read by one GET
 * each. Many pods, and records without a single pod (time ranges, holds), need one `limit=1` LIST, whose position the
 * pods' stream then has to reach.
 */

import { isDead } from "../../../shared/decide/availability/availability.ts";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { Ports, Timer } from "../../../shared/runtime/clock.ts";
import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";
import { parseAnyPod } from "../../../shared/schema/pod.ts";
import type { PodInformer } from "../counting/cell-pods.ts";
import type { TrackedProtector } from "../counting/membership.ts";
import type { EventSink } from "../observe/events.ts";

/** A pod that settles a reservation if a read sent at `dueMs` (monotonic) or later finds it alive. */
export interface PodNeed {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly dueMs: number;
}

export interface EvidenceNeed {
  readonly pods: readonly PodNeed[];
  /** A LIST sent at this monotonic time or later is needed; infinite when no LIST is needed. */
  readonly listDueMs: number;
}

export interface AliveEvidenceOptions {
  readonly pods: Pick<PodInformer, "confirmedSentMs" | "heardMs" | "heardMsOf" | "requestEvidence" | "subscribe">;
  /** Client of the cell, whose GET is a quorum read. */
  readonly client: Pick<ApiClient, "getPod">;
  readonly ports: Ports;
  /** Evidence that the protector needs has arrived. */
  readonly onEvidence: (tracked: TrackedProtector) => void;
  readonly onEvent: EventSink;
}

/** Beyond this many pods one LIST costs less than the GETs. */
const MAX_GETS = 10;
const MAX_GETS_IN_FLIGHT = 4;
const GET_TIMEOUT_MS = 10_000;
/** Evidence that has not arrived after this time is requested again. */
const REPEAT_MS = 30_000;
/** A GET that no reconcile has used for this long is forgotten. */
const KEPT_MS = 300_000;

interface Waiting {
  readonly need: EvidenceNeed;
  /** Monotonic time of the last request, for everything that was due by then. */
  readonly requestedMs: number;
}

export class AliveEvidence {
  readonly #options: AliveEvidenceOptions;
  readonly #waiting = new Map<TrackedProtector, Waiting>();
  /** Send time of the newest GET that found the UID alive. */
  readonly #aliveSentMs = new Map<string, number>();
  readonly #stopping = new AbortController();
  readonly #unsubscribe: () => void;
  #wakeUp: { readonly atMs: number; readonly timer: Timer } | undefined;

  constructor(options: AliveEvidenceOptions) {
    this.#options = options;
    this.#unsubscribe = options.pods.subscribe({ confirmed: (sentMs) => this.#listReached(sentMs) });
  }

  /** Send time of the newest GET that found this pod alive; undefined without one. */
  aliveSentMs(uid: string): number | undefined {
    return this.#aliveSentMs.get(uid);
  }

  /** Monotonic time of the last message in this pod's stream; infinite where the stream does not report it. */
  heardMs(uid: string | undefined): number {
    const { pods } = this.#options;
    const heardMs = uid === undefined || pods.heardMsOf === undefined ? pods.heardMs : pods.heardMsOf(uid);
    return heardMs ?? Number.POSITIVE_INFINITY;
  }

  /** Send time of the newest LIST that the stream has reached. */
  get reachedSentMs(): number | undefined {
    return this.#options.pods.confirmedSentMs;
  }

  /** Replaces the evidence that `tracked` needs. */
  need(tracked: TrackedProtector, need: EvidenceNeed | undefined): void {
    if (need === undefined) {
      this.#waiting.delete(tracked);
      return;
    }
    const waiting = { need, requestedMs: this.#waiting.get(tracked)?.requestedMs ?? Number.NEGATIVE_INFINITY };
    this.#waiting.set(tracked, waiting);
    this.#wakeAt(nextRequestMs(waiting));
  }

  stop(): void {
    this.#stopping.abort();
    this.#wakeUp?.timer.cancel();
    this.#unsubscribe();
    this.#waiting.clear();
  }

  #wakeAt(atMs: number): void {
    if (this.#stopping.signal.aborted || !Number.isFinite(atMs)) return;
    if (this.#wakeUp !== undefined && this.#wakeUp.atMs <= atMs) return;
    this.#wakeUp?.timer.cancel();
    const { ports } = this.#options;
    const timer = ports.timers.after(Math.max(0, atMs - ports.clock.monotonicMs()), () => {
      this.#wakeUp = undefined;
      void this.#requestDue();
    });
    this.#wakeUp = { atMs, timer };
  }

  /** Requests all evidence that is due for any protector, in one go. */
  async #requestDue(): Promise<void> {
    const nowMs = this.#options.ports.clock.monotonicMs();
    const pods = new Map<string, PodNeed>();
    let needsList = false;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const [tracked, waiting] of this.#waiting) {
      if (nextRequestMs(waiting) > nowMs) {
        nextMs = Math.min(nextMs, nextRequestMs(waiting));
        continue;
      }
      // The second request is a LIST, whatever the results of the GETs were.
      if (isAnyDue(waiting.need, waiting.requestedMs) || waiting.need.listDueMs <= nowMs) needsList = true;
      for (const pod of waiting.need.pods) if (pod.dueMs <= nowMs) pods.set(pod.uid, pod);
      const requested = { need: waiting.need, requestedMs: nowMs };
      this.#waiting.set(tracked, requested);
      nextMs = Math.min(nextMs, nextRequestMs(requested));
    }
    for (const [uid, sentMs] of this.#aliveSentMs) if (nowMs - sentMs > KEPT_MS) this.#aliveSentMs.delete(uid);
    this.#wakeAt(nextMs);
    if (needsList || pods.size > MAX_GETS) {
      this.#options.onEvent({ kind: "evidence", method: "list", pods: pods.size, found: "asked" });
      this.#options.pods.requestEvidence();
    } else await eachAtMost(MAX_GETS_IN_FLIGHT, pods.values(), (pod) => this.#get(pod));
  }

  async #get({ uid, namespace, name }: PodNeed): Promise<void> {
    const { client, ports, onEvidence, onEvent, pods } = this.#options;
    const { signal } = this.#stopping;
    const sentMs = ports.clock.monotonicMs();
    const result = await client.getPod(namespace, name, parseAnyPod, { timeoutMs: GET_TIMEOUT_MS, signal });
    if (signal.aborted) return;
    if (result.kind === "ok" && result.object.uid === uid && !isDead(result.object)) {
      onEvent({ kind: "evidence", method: "get", pods: 1, found: "alive" });
      this.#aliveSentMs.set(uid, sentMs);
      for (const [tracked, { need }] of this.#waiting) {
        if (need.pods.some((pod) => pod.uid === uid && pod.dueMs <= sentMs)) onEvidence(tracked);
      }
      return;
    }
    // A pod that is gone or has ended may still be in the snapshot: a LIST shows when the snapshot has caught up.
    const found = result.kind === "ok" || result.kind === "gone" ? "dead" : "failed";
    onEvent({ kind: "evidence", method: "get", pods: 1, found });
    pods.requestEvidence();
  }

  #listReached(sentMs: number): void {
    for (const [tracked, { need }] of this.#waiting) if (isAnyDue(need, sentMs)) this.#options.onEvidence(tracked);
  }
}

/** Monotonic time of the next request: for evidence that becomes due, or to repeat an unanswered one. */
function nextRequestMs({ need, requestedMs }: Waiting): number {
  let nextMs = isAnyDue(need, requestedMs) ? requestedMs + REPEAT_MS : Number.POSITIVE_INFINITY;
  if (need.listDueMs > requestedMs) nextMs = Math.min(nextMs, need.listDueMs);
  for (const { dueMs } of need.pods) if (dueMs > requestedMs) nextMs = Math.min(nextMs, dueMs);
  return nextMs;
}

function isAnyDue(need: EvidenceNeed, atMs: number): boolean {
  return need.listDueMs <= atMs || need.pods.some(({ dueMs }) => dueMs <= atMs);
}
