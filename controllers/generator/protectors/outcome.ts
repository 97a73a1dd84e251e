/** What a call to the apiserver means for the reconciler's key. */
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { DONE, failed, type ReconcileOutcome } from "../../../shared/runtime/reconcile.ts";

/** One writing step did not succeed. The tag is a metric label. */
class StepError extends Error {
  override readonly name = "StepError";
  readonly tag: "conflict" | "gone" | "rejected" | "unavailable";
  constructor(tag: StepError["tag"], message: string, options?: ErrorOptions) {
    super(message, options);
    this.tag = tag;
  }
}

/**
 * The outcome of a step that did `what`. Everything is tried again: a conflict because the newer version is on its way, a
 * rejection because permissions and other webhooks change without the object changing.
 */
export function outcomeOf(what: string, result: ApiResult<unknown>): ReconcileOutcome {
  switch (result.kind) {
    case "ok":
      return DONE;
    case "conflict":
      return failed(new StepError("conflict", `${what}: the object has changed meanwhile: ${result.message}`), true);
    case "gone":
      return failed(new StepError("gone", `${what}: the object is gone`), true);
    case "rejected":
      return failed(
        new StepError("rejected", `${what}: the apiserver refused (${result.status}): ${result.message}`),
        true,
      );
    case "unavailable": {
      const error = new StepError("unavailable", `${what}: the apiserver gave no answer`, { cause: result.error });
      return failed(error, true, result.retryAfterMs);
    }
  }
}
