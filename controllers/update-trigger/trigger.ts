import { isForked, nextTriggerMark, type TriggerMark } from "../../shared/decide/settling/trigger-mark.ts";
import type { ApiClient, WriteOptions } from "../../shared/kube/client/api-client.ts";
import { podPath } from "../../shared/kube/client/api-path.ts";
import { type ApiFailure, type ApiResult, errorOf } from "../../shared/kube/client/api-result.ts";
import { Backoff } from "../../shared/runtime/backoff.ts";
import { type Ports, sleep } from "../../shared/runtime/clock.ts";
import { completion, newTriggerPod, parseTriggerPod, type TriggerPod, triggerPatch } from "./trigger-pod.ts";

export const TRIGGER_ACTIONS = ["create", "adopt", "update", "complete"] as const;
export type TriggerAction = (typeof TRIGGER_ACTIONS)[number];

export type TriggerEvent =
  | { readonly kind: "done"; readonly action: TriggerAction; readonly counter: number }
  /** The next try follows after `retryMs`; until then, a quiet stream does not advance. */
  | { readonly kind: "failed"; readonly action: TriggerAction; readonly error: Error; readonly retryMs: number }
  /**
   * The stored mark does not follow from the last one of this process: the cell's etcd was restored
   * (docs/design.md#lost-history).
   */
  | { readonly kind: "wentBack"; readonly from: number; readonly to: number }
  /** A pod of the same name exists that a scheduler may place or has placed. The trigger patches it anyway. */
  | { readonly kind: "schedulable" };

export interface TriggerOptions {
  readonly client: Pick<ApiClient, "getPod" | "create" | "patch">;
  readonly ports: Ports;
  readonly namespace: string;
  readonly name: string;
  /** Labels of the pod beside the project's own. */
  readonly labels: Readonly<Record<string, string>>;
  readonly intervalMs: number;
  readonly onEvent: (event: TriggerEvent) => void;
}

const CALL_TIMEOUT_MS = 5_000;
/** Spread of the interval, so that the triggers of many cells don't patch in step. */
const JITTER = 0.1;
/** Most steps of a round, which reads and patches, and repeats both when the pod changed in between. */
const MAX_STEPS = 4;

/** Patches one dummy pod at an interval, so that a quiet watch stream advances. Only the leader does so. */
export class UpdateTrigger {
  readonly #options: TriggerOptions;
  readonly #backoff: Backoff;
  #pod: TriggerPod | undefined;
  /** The newest mark that this process knows to have been stored. */
  #lastMark: TriggerMark | undefined;
  /**
   * Identifies this process in the lineage of marks. A restore changes the token, so that later readers of the mark
   * notice the restore, too.
   */
  #token: string;
  #lastDoneMs: number | undefined;

  constructor(options: TriggerOptions) {
    this.#options = options;
    this.#token = options.ports.random.token();
    this.#backoff = new Backoff(
      { initialMs: options.intervalMs, maxMs: Math.max(options.intervalMs, 30_000) },
      options.ports.random,
    );
  }

  /** Monotonic milliseconds of the last successful patch of this term. */
  get lastDoneMs(): number | undefined {
    return this.#lastDoneMs;
  }

  /** Runs until `signal` aborts. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    this.#pod = undefined;
    while (!signal.aborted) {
      const failed = await this.round(signal);
      const spreadMs = this.#options.intervalMs * (1 - JITTER + 2 * JITTER * this.#options.ports.random.fraction());
      await sleep(this.#options.ports, failed ?? spreadMs, signal);
    }
    this.#lastDoneMs = undefined;
  }

  /**
   * One update, with the creation or adoption of the pod if needed. After a failure, returns the wait in milliseconds.
   */
  async round(signal: AbortSignal): Promise<number | undefined> {
    for (let step = 0; step < MAX_STEPS && !signal.aborted; step++) {
      const action: TriggerAction = this.#pod === undefined ? "adopt" : "update";
      const result = this.#pod === undefined ? await this.#find(signal) : await this.#update(this.#pod, signal);
      if (result.kind === "ok") {
        if (action === "adopt") {
          await this.#complete(result.object, signal);
          continue;
        }
        return this.#done(action, result.object);
      }
      if (result.kind === "gone") {
        const created = await this.#create(signal);
        if (created.kind === "ok") {
          this.#done("create", created.object);
          await this.#complete(created.object, signal);
          return undefined;
        }
        this.#pod = undefined;
        // Another client was faster: adopt its pod.
        if (created.kind === "conflict") continue;
        return this.#failed("create", created, signal);
      }
      if (result.kind !== "conflict") return this.#failed(action, result, signal);
      this.#pod = undefined;
    }
    return undefined;
  }

  async #find(signal: AbortSignal): Promise<ApiResult<TriggerPod>> {
    const { client, namespace, name, ports, onEvent } = this.#options;
    const result = await client.getPod(namespace, name, parseTriggerPod, { timeoutMs: CALL_TIMEOUT_MS, signal });
    if (result.kind !== "ok") return result;
    const pod = result.object;
    if (this.#lastMark !== undefined && isForked(this.#lastMark, pod.mark)) {
      onEvent({ kind: "wentBack", from: this.#lastMark.counter, to: pod.mark.counter });
      this.#token = ports.random.token();
    }
    this.#lastMark = pod.mark;
    onEvent({ kind: "done", action: "adopt", counter: pod.mark.counter });
    if (pod.isSchedulable) onEvent({ kind: "schedulable" });
    this.#pod = pod;
    return result;
  }

  /** Tries once for each pod. The trigger works without it, for example with the permissions of an earlier version. */
  async #complete(pod: TriggerPod, signal: AbortSignal): Promise<void> {
    if (pod.isCompleted || pod.isSchedulable) return;
    const { client, namespace, name, onEvent } = this.#options;
    const path = `${podPath(namespace, name)}/status`;
    const options = callOptions(signal);
    const type = "application/merge-patch+json";
    const result = await client.patch(path, type, completion(pod), parseTriggerPod, options);
    if (result.kind === "ok") {
      this.#pod = result.object;
      onEvent({ kind: "done", action: "complete", counter: result.object.mark.counter });
      // Another client changed or deleted the pod: the next round reads it again.
    } else if (result.kind === "conflict" || result.kind === "gone") this.#pod = undefined;
    else if (!signal.aborted)
      onEvent({ kind: "failed", action: "complete", error: errorOf(result, "the pod is gone"), retryMs: 0 });
  }

  /**
   * Increments the stored mark, never the remembered one: the aggregator must see the counter go back after a restore
   * of etcd.
   */
  #update(pod: TriggerPod, signal: AbortSignal): Promise<ApiResult<TriggerPod>> {
    const { client, namespace, name, labels, ports } = this.#options;
    const path = podPath(namespace, name);
    const touch = { mark: nextTriggerMark(pod.mark, this.#token), atMs: ports.clock.nowMs(), labels };
    const patch = triggerPatch(pod, touch);
    return client.patch(path, "application/merge-patch+json", patch, parseTriggerPod, callOptions(signal));
  }

  #create(signal: AbortSignal): Promise<ApiResult<TriggerPod>> {
    const { client, namespace, name, labels, ports } = this.#options;
    // The counter continues after a deletion. A process without a mark starts at the current time, which no earlier
    // counter can have passed.
    const atMs = ports.clock.nowMs();
    const last = this.#lastMark ?? { counter: Math.floor(atMs), lineage: [] };
    const touch = { mark: nextTriggerMark(last, this.#token), atMs, labels };
    const path = podPath(namespace);
    return client.create(path, newTriggerPod(namespace, name, touch), parseTriggerPod, callOptions(signal));
  }

  #done(action: TriggerAction, pod: TriggerPod): undefined {
    this.#pod = pod;
    this.#lastMark = pod.mark;
    this.#backoff.reset();
    this.#lastDoneMs = this.#options.ports.clock.monotonicMs();
    this.#options.onEvent({ kind: "done", action, counter: pod.mark.counter });
  }

  #failed(action: TriggerAction, failure: ApiFailure, signal: AbortSignal): number | undefined {
    if (signal.aborted) return undefined;
    const askedMs = failure.kind === "unavailable" ? failure.retryAfterMs : undefined;
    const retryMs = Math.max(this.#backoff.nextMs(), askedMs ?? 0);
    this.#options.onEvent({ kind: "failed", action, error: errorOf(failure, "the namespace is gone"), retryMs });
    return retryMs;
  }
}

function callOptions(signal: AbortSignal): WriteOptions {
  return { timeoutMs: CALL_TIMEOUT_MS, signal, fieldManager: "podseidon-update-trigger" };
}
