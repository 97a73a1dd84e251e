/**
 * A protector that somebody has deleted and nobody has released stays in force by its finalizer, but for good on its way out. It is replaced
 * (design 7): the finalizer goes without a mark, and the same is created again with its history. Not where creating is refused, as
 * while its CRD or its namespace is being deleted: there what is there stays in force.
 */
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { protectorsPath, restore } from "../../../shared/recovery/restore-protector.ts";
import { GENERATOR_FINALIZER, GROUP, KIND, VERSION } from "../../../shared/schema/annotations.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";

export interface ReplaceCalls {
  readonly api: Pick<ApiClient, "create" | "update" | "putPodProtectorStatus" | "getPodProtector">;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

export type Replaced =
  | { readonly kind: "replaced"; readonly object: PodProtector }
  /** It stays as it is, in force; why. */
  | { readonly kind: "kept"; readonly why: string }
  | { readonly kind: "failed"; readonly result: Exclude<ApiResult<never>, { kind: "ok" }> };

/** Replaces `protector`, which is being deleted, by `object`. Never without having asked whether creating is possible. */
export async function replace(calls: ReplaceCalls, protector: PodProtector, object: object): Promise<Replaced> {
  const { api, timeoutMs, signal } = calls;
  const { namespace = "", name } = protector.metadata;
  // An object of its name is there, so a conflict is what an apiserver says that would create it otherwise.
  const asked = await api.create(protectorsPath(namespace), object, parsePodProtector, {
    timeoutMs,
    signal,
    dryRun: true,
  });
  if (asked.kind === "rejected") return { kind: "kept", why: asked.message };
  if (asked.kind !== "conflict" && asked.kind !== "ok") return { kind: "failed", result: asked };
  const finalizers = (protector.metadata.finalizers ?? []).filter((finalizer) => finalizer !== GENERATOR_FINALIZER);
  const body = {
    ...protector,
    apiVersion: `${GROUP}/${VERSION}`,
    kind: KIND,
    metadata: { ...protector.metadata, finalizers },
  };
  const freed = await api.update(podProtectorPath(namespace, name), body, parsePodProtector, { timeoutMs, signal });
  if (freed.kind !== "ok") return { kind: "failed", result: freed };
  if (finalizers.length > 0) return { kind: "kept", why: `it waits for the finalizers ${finalizers.join(", ")}` };
  // Bound to the version: what it returned is the last state there was.
  const restored = await restore(api, object, freed.object, { timeoutMs, signal });
  return restored.kind === "ok" ? { kind: "replaced", object: restored.object } : { kind: "failed", result: restored };
}
