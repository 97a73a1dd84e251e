/**
 * The release of a protector (design 7): first the mark, then the deletion, then the register, then the finalizer that kept it in force, so that
 * whoever sees it vanish has seen before that it was meant to. Each step starts from what the one before returned; after a crash
 * the next reconciliation goes on where it ended. The register can't be taken back: a UID is on it only when it can't live on, so that
 * one whose source asks again before that is missed like any other when it vanishes.
 */

import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { isMarkedReleased } from "../../../shared/recovery/lost-protector.ts";
import { GENERATOR_FINALIZER, GROUP, KIND, RELEASED_ANNOTATION, VERSION } from "../../../shared/schema/annotations.ts";
import { isDeleting, type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import type { ReleaseReason } from "./plan.ts";

export interface ReleaseCalls {
  readonly api: Pick<ApiClient, "update" | "delete" | "getPodProtector">;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** Puts a release on record (design 7); resolves when that is stored, or with why it is not. */
  readonly record?: (uid: string, text: string) => Promise<ApiResult<unknown>>;
}

const GONE: ApiResult<undefined> = { kind: "ok", object: undefined };

/** Releases the protector; `ok` when it is gone, or waits for someone else's finalizer only. */
export async function release(
  calls: ReleaseCalls,
  protector: PodProtector,
  reason: ReleaseReason,
  time: string,
): Promise<ApiResult<unknown>> {
  const marked = await mark(calls, protector, `${reason} ${time}`);
  if (marked.kind === "gone") return GONE;
  if (marked.kind !== "ok") return marked;
  // Nothing would be left of it after the deletion.
  const isHeld = marked.object.metadata.finalizers?.includes(GENERATOR_FINALIZER) === true;
  const early = isHeld ? undefined : await record(calls, protector, reason, time);
  if (early !== undefined) return early;
  const deleted = await remove(calls, marked.object);
  if (deleted.kind !== "ok" && deleted.kind !== "gone") return deleted;
  // The deletion is bound to the UID alone, as every count makes a version: who took the mark off since wants it in force.
  if (deleted.kind === "ok" && !isMarkedReleased(deleted.object))
    return { kind: "conflict", message: "its release was taken back" };
  const recorded = isHeld ? await record(calls, protector, reason, time) : undefined;
  if (recorded !== undefined) return recorded;
  if (deleted.kind === "gone") return GONE;
  const freed = await dropFinalizer(calls, deleted.object);
  return freed.kind === "gone" ? GONE : freed;
}

/** What keeps the release from going on: not that there is no register, the mark on the object stands for it then. */
async function record(
  { record }: ReleaseCalls,
  { metadata }: PodProtector,
  reason: ReleaseReason,
  time: string,
): Promise<ApiResult<unknown> | undefined> {
  const result = await record?.(metadata.uid, `${time} ${metadata.namespace ?? ""}/${metadata.name} ${reason}`);
  return result?.kind === "unavailable" || result?.kind === "conflict" ? result : undefined;
}

function pathOf({ metadata }: PodProtector): string {
  return podProtectorPath(metadata.namespace ?? "", metadata.name);
}

async function mark(calls: ReleaseCalls, protector: PodProtector, text: string): Promise<ApiResult<PodProtector>> {
  const { metadata } = protector;
  if (isMarkedReleased(protector)) return { kind: "ok", object: protector };
  const annotations = { ...metadata.annotations, [RELEASED_ANNOTATION]: text };
  return await put(calls, { ...protector, metadata: { ...metadata, annotations } });
}

async function remove(calls: ReleaseCalls, protector: PodProtector): Promise<ApiResult<PodProtector>> {
  const { uid, namespace = "", name } = protector.metadata;
  if (isDeleting(protector.metadata)) return { kind: "ok", object: protector };
  const { timeoutMs, signal } = calls;
  const deleted = await calls.api.delete(pathOf(protector), { timeoutMs, signal, preconditions: { uid } });
  if (deleted.kind !== "ok") return deleted;
  const present = await calls.api.getPodProtector(namespace, name, { timeoutMs, signal });
  // Another object of that name is not what is released here.
  return present.kind === "ok" && present.object.metadata.uid !== uid ? { kind: "gone" } : present;
}

async function dropFinalizer(calls: ReleaseCalls, protector: PodProtector): Promise<ApiResult<unknown>> {
  const { metadata } = protector;
  const finalizers = (metadata.finalizers ?? []).filter((finalizer) => finalizer !== GENERATOR_FINALIZER);
  if (finalizers.length === metadata.finalizers?.length) return GONE;
  return await put(calls, { ...protector, metadata: { ...metadata, finalizers } });
}

async function put(calls: ReleaseCalls, protector: PodProtector): Promise<ApiResult<PodProtector>> {
  const { timeoutMs, signal } = calls;
  const body = { ...protector, apiVersion: `${GROUP}/${VERSION}`, kind: KIND };
  return await calls.api.update(pathOf(protector), body, parsePodProtector, { timeoutMs, signal });
}
