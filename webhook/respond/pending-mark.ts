/**
 * Tells whoever has something to do before a pod goes that it is time (design 9): the pod is marked with x-pdb's annotation
 * `xpdb.form3.tech/has-pending-disruption`, as x-pdb does when it refuses a disruption because of a pre-activity.
 */
import type { ApiClient } from "../../shared/kube/client/api-client.ts";
import { PENDING_DISRUPTION_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";

/** Marks under way at once; a refusal beyond it marks nothing, and the next one of its pod does. */
const MAX_AT_ONCE = 32;
const TIMEOUT_MS = 3_000;

export class PendingMark {
  readonly #api: Pick<ApiClient, "patch">;
  readonly #onFailed: (message: string) => void;
  readonly #marking = new Set<string>();

  constructor(api: Pick<ApiClient, "patch">, onFailed: (message: string) => void) {
    this.#api = api;
    this.#onFailed = onFailed;
  }

  /** Does not wait: the refusal that it goes with is answered meanwhile. */
  mark({ namespace, name, uid, annotations }: Pod): void {
    if (annotations?.[PENDING_DISRUPTION_ANNOTATION] !== undefined) return;
    if (this.#marking.has(uid) || this.#marking.size >= MAX_AT_ONCE) return;
    this.#marking.add(uid);
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace.toWellFormed())}/pods/${encodeURIComponent(name.toWellFormed())}`;
    const body = { metadata: { uid, annotations: { [PENDING_DISRUPTION_ANNOTATION]: "true" } } };
    const options = { timeoutMs: TIMEOUT_MS, fieldManager: "podseidon-webhook" };
    void this.#api
      .patch(path, "application/merge-patch+json", body, () => undefined, options)
      .then((result) => {
        this.#marking.delete(uid);
        if (result.kind === "rejected") this.#onFailed(result.message);
        else if (result.kind === "unavailable") this.#onFailed(result.error.message);
      });
  }
}
