/**
 * Marks a pod whose disruption waits for a pre-activity with x-pdb's annotation
 * `xpdb.form3.tech/has-pending-disruption`, which tells the program behind the pre-activity to start.
 */

import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import { podPath } from "../../shared/kube/client/api-path.ts";
import { PENDING_DISRUPTION_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";

/** Patches in flight. A denial beyond it marks nothing, and the next denial of its pod does. */
const MAX_IN_FLIGHT = 32;
const TIMEOUT_MS = 3_000;

export class PendingMark {
  readonly #api: Pick<ApiClient, "patch">;
  readonly #onFailed: (message: string) => void;
  readonly #inFlight = new Set<string>();

  constructor(api: Pick<ApiClient, "patch">, onFailed: (message: string) => void) {
    this.#api = api;
    this.#onFailed = onFailed;
  }

  /** Does not wait for the patch. */
  mark({ namespace, name, uid, annotations }: Pod): void {
    if (annotations?.[PENDING_DISRUPTION_ANNOTATION] !== undefined) return;
    if (this.#inFlight.has(uid) || this.#inFlight.size >= MAX_IN_FLIGHT) return;
    this.#inFlight.add(uid);
    const path = podPath(namespace, name);
    const body = { metadata: { uid, annotations: { [PENDING_DISRUPTION_ANNOTATION]: "true" } } };
    const options = { timeoutMs: TIMEOUT_MS, fieldManager: "podseidon-webhook" };
    void this.#api
      .patch(path, "application/merge-patch+json", body, () => undefined, options)
      .then((result) => {
        this.#inFlight.delete(uid);
        if (result.kind === "rejected") this.#onFailed(result.message);
        else if (result.kind === "unavailable") this.#onFailed(result.error.message);
      });
  }
}
