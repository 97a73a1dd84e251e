/**
 * Evidence for rule R3 (design 5.2): that a pod is alive at a time of this process's choosing. A GET of each pod where they are few,
 * one `limit=1` LIST for all where they are many, or where no single pod can be named (ranges, holds).
 */
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import type { Ports, Timer } from "../../../shared/runtime/clock.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { PodInformer } from "../counting/cell-pods.ts";
import type { EvidenceMethod } from "../events.ts";

/** A pod whose being alive, asked at `dueMs` (monotonic) or later, would settle a record. */
export interface PodNeed {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly dueMs: number;
}

export interface EvidenceNeed {
  readonly pods: readonly PodNeed[];
  /** A LIST sent at this monotonic time or later is needed, whatever the pods are. */
  readonly listDueMs: number | undefined;
}

export interface EvidenceOptions<K> {
  readonly pods: Pick<PodInformer, "confirmedSentMs" | "heardMs" | "heardMsOf" | "requestEvidence" | "subscribe">;
  /** A quorum read of one pod. */
  readonly getPod: (namespace: string, name: string, signal: AbortSignal) => Promise<ApiResult<Pod>>;
  readonly ports: Ports;
  /** There is new evidence that `key` needed: it is to be reconciled. */
  readonly onEvidence: (key: K) => void;
  readonly onAsked?: (method: EvidenceMethod, pods: number, found: "alive" | "dead" | "failed" | "asked") => void;
}

/** More pods than this are asked for by one LIST: it costs about as much as one GET, but waits for the stream to reach it. */
export const MOST_GETS = 10;
const GETS_AT_ONCE = 4;
/** What was asked for and not answered is asked for again. */
const ASK_AGAIN_MS = 30_000;
/** An answer that nobody has used for so long is forgotten. */
const KEPT_MS = 300_000;

interface Waiting {
  readonly need: EvidenceNeed;
  /** What was due by then has been asked for ... */
  readonly askedForMs: number;
  /** ... at this time. */
  readonly askedAtMs: number;
}

export class AliveEvidence<K> {
  readonly #options: EvidenceOptions<K>;
  readonly #waiting = new Map<K, Waiting>();
  /** Send time of the newest GET that found the UID alive. */
  readonly #alive = new Map<string, number>();
  readonly #stopping = new AbortController();
  readonly #unsubscribe: () => void;
  #timer: { readonly atMs: number; readonly timer: Timer } | undefined;

  constructor(options: EvidenceOptions<K>) {
    this.#options = options;
    this.#unsubscribe = options.pods.subscribe({ confirmed: (sentMs) => this.#confirmed(sentMs) });
  }

  /** Send time of the newest GET that found this pod alive; undefined without one. */
  aliveSentMs(uid: string): number | undefined {
    return this.#alive.get(uid);
  }

  /** When the stream of this pod last brought something; infinite where it does not say. */
  heardMs(uid: string | undefined): number {
    const { pods } = this.#options;
    const heardMs = uid === undefined || pods.heardMsOf === undefined ? pods.heardMs : pods.heardMsOf(uid);
    return heardMs ?? Number.POSITIVE_INFINITY;
  }

  /** Send time of the newest LIST that the stream has reached. */
  get reachedSentMs(): number | undefined {
    return this.#options.pods.confirmedSentMs;
  }

  /** Replaces what `key` needs. */
  need(key: K, need: EvidenceNeed | undefined): void {
    if (need === undefined || (need.pods.length === 0 && need.listDueMs === undefined)) {
      this.#waiting.delete(key);
      return;
    }
    const before = this.#waiting.get(key);
    const asked = { askedForMs: before?.askedForMs ?? Number.NEGATIVE_INFINITY, askedAtMs: before?.askedAtMs ?? 0 };
    const waiting = { need, ...asked };
    this.#waiting.set(key, waiting);
    this.#wakeAt(dueMs(waiting));
  }

  stop(): void {
    this.#stopping.abort();
    this.#timer?.timer.cancel();
    this.#unsubscribe();
    this.#waiting.clear();
  }

  #wakeAt(atMs: number): void {
    if (this.#stopping.signal.aborted || !Number.isFinite(atMs)) return;
    if (this.#timer !== undefined && this.#timer.atMs <= atMs) return;
    this.#timer?.timer.cancel();
    const { ports } = this.#options;
    const timer = ports.timers.after(Math.max(0, atMs - ports.clock.monotonicMs()), () => {
      this.#timer = undefined;
      void this.#serve();
    });
    this.#timer = { atMs, timer };
  }

  /** Asks, in one go, for all that is due. */
  async #serve(): Promise<void> {
    const nowMs = this.#options.ports.clock.monotonicMs();
    const pods = new Map<string, PodNeed>();
    let needsList = false;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const [key, waiting] of this.#waiting) {
      if (dueMs(waiting) > nowMs) {
        nextMs = Math.min(nextMs, dueMs(waiting));
        continue;
      }
      // A second time by LIST: whatever became of the GETs, it answers.
      if (Number.isFinite(waiting.askedForMs) && isUnanswered(waiting)) needsList = true;
      if ((waiting.need.listDueMs ?? Number.POSITIVE_INFINITY) <= nowMs) needsList = true;
      for (const pod of waiting.need.pods) if (pod.dueMs <= nowMs) pods.set(pod.uid, pod);
      const asked = { need: waiting.need, askedForMs: nowMs, askedAtMs: nowMs };
      this.#waiting.set(key, asked);
      nextMs = Math.min(nextMs, dueMs(asked));
    }
    this.#forgetOld(nowMs);
    this.#wakeAt(nextMs);
    if (needsList || pods.size > MOST_GETS) this.#askList(pods.size);
    else await this.#get([...pods.values()]);
  }

  #askList(pods: number): void {
    this.#options.onAsked?.("list", pods, "asked");
    this.#options.pods.requestEvidence();
  }

  async #get(pods: readonly PodNeed[]): Promise<void> {
    const queue = pods.values();
    const work = async (): Promise<void> => {
      for (const pod of queue) await this.#getOne(pod);
    };
    await Promise.all(Array.from({ length: Math.min(GETS_AT_ONCE, pods.length) }, work));
  }

  async #getOne({ uid, namespace, name }: PodNeed): Promise<void> {
    const { getPod, ports, onAsked } = this.#options;
    const sentMs = ports.clock.monotonicMs();
    const result = await getPod(namespace, name, this.#stopping.signal);
    if (this.#stopping.signal.aborted) return;
    if (result.kind === "ok" && result.object.uid === uid && !result.object.terminating) {
      onAsked?.("get", 1, "alive");
      this.#alive.set(uid, sentMs);
      for (const [key, { need }] of this.#waiting) {
        if (need.pods.some((pod) => pod.uid === uid && pod.dueMs <= sentMs)) this.#options.onEvidence(key);
      }
      return;
    }
    // Gone or terminating proves nothing about the snapshot (design 5.2): that it has reached this state, the LIST will show.
    onAsked?.("get", 1, result.kind === "ok" || result.kind === "gone" ? "dead" : "failed");
    this.#options.pods.requestEvidence();
  }

  #confirmed(sentMs: number): void {
    for (const [key, { need }] of this.#waiting) {
      const isAnswered = (need.listDueMs ?? Number.POSITIVE_INFINITY) <= sentMs;
      if (isAnswered || need.pods.some((pod) => pod.dueMs <= sentMs)) this.#options.onEvidence(key);
    }
  }

  #forgetOld(nowMs: number): void {
    for (const [uid, sentMs] of this.#alive) if (nowMs - sentMs > KEPT_MS) this.#alive.delete(uid);
  }
}

/** When to ask next: at the first need that was not asked for, or again. */
function dueMs(waiting: Waiting): number {
  const { need, askedForMs, askedAtMs } = waiting;
  let earliestMs = isUnanswered(waiting) ? askedAtMs + ASK_AGAIN_MS : Number.POSITIVE_INFINITY;
  const consider = (atMs: number | undefined): void => {
    if (atMs !== undefined && atMs > askedForMs) earliestMs = Math.min(earliestMs, atMs);
  };
  consider(need.listDueMs);
  for (const pod of need.pods) consider(pod.dueMs);
  return earliestMs;
}

function isUnanswered({ need, askedForMs }: Waiting): boolean {
  return (need.listDueMs ?? Number.POSITIVE_INFINITY) <= askedForMs || need.pods.some((pod) => pod.dueMs <= askedForMs);
}
