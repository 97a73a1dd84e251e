/** Writes the status of a protector with a compare-and-swap, and classifies the result. */

import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { type ApiFailure, errorOf } from "../../../shared/kube/client/api-result.ts";
import type { LearningInformer } from "../../../shared/kube/informer/informer.ts";
import { sleep } from "../../../shared/runtime/clock.ts";
import { DONE, failed, type ReconcileOutcome } from "../../../shared/runtime/reconcile.ts";
import type { PodProtector, PodProtectorStatus, ProtectorId } from "../../../shared/schema/podprotector.ts";
import type { ReconcileResult } from "../observe/events.ts";
import type { ReconcileSettings } from "./reconcile-input.ts";

/** Access to the protectors of one core cluster. */
export interface CoreAccess {
  readonly name: string;
  readonly api: Pick<ApiClient, "getPodProtector" | "putPodProtectorStatus">;
  readonly protectors: LearningInformer<PodProtector> & Syncing;
}

export interface Syncing {
  /** Resolves at the first complete list, or when the signal aborts. */
  whenSynced(signal: AbortSignal): Promise<void>;
}

interface StatusWriterOptions extends Pick<ReconcileSettings, "ports" | "timeoutMs" | "onEvent"> {
  readonly core: CoreAccess;
}

export type WriteResult =
  | { readonly kind: "written"; readonly object: PodProtector }
  /** Another writer was faster; `object` is what it stored. */
  | { readonly kind: "conflict"; readonly object: PodProtector }
  | { readonly kind: "failed"; readonly result: ReconcileResult; readonly outcome: ReconcileOutcome };

/**
 * Conflicts that are retried at once. Before further retries, each writer waits a random time, so that writers do not
 * collide again.
 */
const PROMPT_CONFLICTS = 3;
const CONFLICT_PAUSE_MS = { least: 5, most: 20 };
const FIELD_MANAGER = "podseidon-aggregator";

export class StatusWriter {
  readonly #options: StatusWriterOptions;
  readonly #stopping = new AbortController();

  constructor(options: StatusWriterOptions) {
    this.#options = options;
  }

  /** Aborts the calls in flight. */
  stop(): void {
    this.#stopping.abort();
  }

  /** Replaces the status of `protector` unless another version is stored. `conflicts` is the number in a row so far. */
  async write(
    id: ProtectorId,
    { metadata }: PodProtector,
    status: PodProtectorStatus,
    conflicts: number,
  ): Promise<WriteResult> {
    const { core, ports, timeoutMs } = this.#options;
    const { signal } = this.#stopping;
    const { namespace, name } = id;
    const options = { timeoutMs, signal, fieldManager: FIELD_MANAGER };
    const written = await core.api.putPodProtectorStatus(metadata, status, options);
    if (written.kind === "ok") return { kind: "written", object: written.object };
    const failure = this.#failure(id, written);
    if (written.kind !== "conflict") return failure;
    if (conflicts >= PROMPT_CONFLICTS) {
      const { least, most } = CONFLICT_PAUSE_MS;
      await sleep(ports, least + (most - least) * ports.random.fraction(), signal);
    }
    const read = await core.api.getPodProtector(namespace, name, { timeoutMs, signal });
    return read.kind === "ok" ? { kind: "conflict", object: read.object } : this.#failure(id, read);
  }

  /** Retries every failure except for a deleted protector: a new permission or an upgraded CRD may end a rejection. */
  #failure(id: ProtectorId, failure: ApiFailure): WriteResult {
    const error = errorOf(failure, "the protector is gone");
    if (!this.#stopping.signal.aborted) {
      this.#options.onEvent({ kind: "writeFailed", id, failure: failure.kind, message: error.message });
    }
    if (failure.kind === "gone") return { kind: "failed", result: "gone", outcome: DONE };
    const retryAfterMs = failure.kind === "unavailable" ? failure.retryAfterMs : undefined;
    return { kind: "failed", result: "failed", outcome: failed(error, true, retryAfterMs) };
  }
}
