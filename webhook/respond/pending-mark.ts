/**
 * Marks a pod whose disruption waits for a pre-activity with x-pdb's annotation
 * `xpdb.form3.tech/has-pending-disruption`. The annotation starts the program behind the pre-activity.
 */

import { preActivitiesOf } from "../../shared/decide/overrides.ts";
import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import { podPath } from "../../shared/kube/client/api-path.ts";
import { PENDING_DISRUPTION_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { CellClient } from "../request/cell-client.ts";

/** Patches in flight. At this number, a denial does not mark its pod; the pod's next denial does. */
const MAX_IN_FLIGHT = 32;
const TIMEOUT_MS = 3_000;

export class PendingMark {
  readonly #api: Pick<ApiClient, "patch">;
  readonly #readPod: NonNullable<CellClient["readPod"]>;
  readonly #onFailed: (message: string) => void;
  readonly #inFlight = new Set<string>();

  constructor(
    api: Pick<ApiClient, "patch">,
    readPod: NonNullable<CellClient["readPod"]>,
    onFailed: (message: string) => void,
  ) {
    this.#api = api;
    this.#readPod = readPod;
    this.#onFailed = onFailed;
  }

  /**
   * Does not wait for the patch. `pod` is only the caller's claim, so the pod is read first, and marked only if it
   * waits for a pre-activity itself.
   */
  mark(pod: Pod): void {
    const { uid } = pod;
    if (isMarked(pod) || this.#inFlight.has(uid) || this.#inFlight.size >= MAX_IN_FLIGHT) return;
    this.#inFlight.add(uid);
    void this.#mark(pod).finally(() => this.#inFlight.delete(uid));
  }

  async #mark({ namespace, name, uid }: Pod): Promise<void> {
    const live = await this.#readPod(namespace, name, TIMEOUT_MS);
    if (live.kind === "failed") this.#onFailed(live.message);
    if (live.kind !== "found" || live.pod.uid !== uid) return;
    if (isMarked(live.pod) || preActivitiesOf(live.pod).length === 0) return;
    const body = { metadata: { uid, annotations: { [PENDING_DISRUPTION_ANNOTATION]: "true" } } };
    const options = { timeoutMs: TIMEOUT_MS, fieldManager: "podseidon-webhook" };
    const path = podPath(namespace, name);
    const result = await this.#api.patch(path, "application/merge-patch+json", body, () => undefined, options);
    if (result.kind === "rejected") this.#onFailed(result.message);
    else if (result.kind === "unavailable") this.#onFailed(result.error.message);
  }
}

function isMarked({ annotations }: Pod): boolean {
  return annotations?.[PENDING_DISRUPTION_ANNOTATION] !== undefined;
}
