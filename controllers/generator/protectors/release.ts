/**
 * The release of a protector (docs/design.md#lost-protectors): the mark, the deletion, the entry in the release
 * register, the removal of the finalizer. So a client that sees the protector vanish has seen the mark before. Each
 * call uses the object that the previous call returned; after a crash, the next reconcile continues. An entry in the
 * register is final, so it is written only when the protector can't stay in force: until then, its source may ask for
 * protection again.
 */
import { podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { isMarkedReleased } from "../../../shared/recovery/lost-protector.ts";
import { entryText } from "../../../shared/recovery/register/register-format.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { isDeleting, type PodProtector } from "../../../shared/schema/podprotector.ts";
import { type ApiCalls, updateProtector, withoutFinalizer } from "./calls.ts";
import type { ReleaseReason } from "./plan.ts";
import { hasGeneratorFinalizer } from "./protector.ts";

export interface ReleaseCalls extends ApiCalls<"update" | "delete" | "getPodProtector"> {
  /** Writes an entry to the release register. */
  readonly record: (uid: string, text: string) => Promise<ApiResult<unknown>>;
}

const GONE: ApiResult<undefined> = { kind: "ok", object: undefined };

/**
 * Of a lost protector only the record is left to write. Returns `ok` when the protector is gone, or when only other
 * finalizers keep it.
 */
export async function release(
  calls: ReleaseCalls,
  protector: PodProtector,
  reason: ReleaseReason,
  time: string,
  isLost?: boolean,
): Promise<ApiResult<unknown>> {
  const marked: ApiResult<PodProtector> = isLost ? { kind: "gone" } : await mark(calls, protector, `${reason} ${time}`);
  if (marked.kind === "gone") return (await record(calls, protector, reason, time)) ?? GONE;
  if (marked.kind !== "ok") return marked;
  const deleted = await remove(calls, marked.object);
  if (deleted.kind !== "ok" && deleted.kind !== "gone") return deleted;
  // The only precondition of the deletion is the UID, because each count changes the version. A client that has removed
  // the mark since wants the protector to stay in force.
  if (deleted.kind === "ok" && !isMarkedReleased(deleted.object))
    return { kind: "conflict", message: "its release was taken back" };
  const recorded = await record(calls, protector, reason, time);
  if (recorded !== undefined) return recorded;
  if (deleted.kind === "gone" || !hasGeneratorFinalizer(deleted.object)) return GONE;
  const freed = await updateProtector(calls, withoutFinalizer(deleted.object));
  return freed.kind === "gone" ? GONE : freed;
}

/** Returns the failure that stops the release. Without a register the mark on the protector is enough. */
async function record(
  { record }: ReleaseCalls,
  protector: PodProtector,
  reason: ReleaseReason,
  time: string,
): Promise<ApiResult<unknown> | undefined> {
  const result = await record(protector.metadata.uid, entryText(time, protector, reason));
  return result.kind === "unavailable" || result.kind === "conflict" ? result : undefined;
}

/** With the finalizer, which somebody may have taken off: without it nothing can be recorded after the deletion. */
async function mark(calls: ReleaseCalls, protector: PodProtector, text: string): Promise<ApiResult<PodProtector>> {
  const { metadata } = protector;
  const { finalizers = [], annotations } = metadata;
  // Nothing that is being deleted gets a finalizer.
  const isHeld = hasGeneratorFinalizer(protector) || isDeleting(metadata);
  if (isMarkedReleased(protector) && isHeld) return { kind: "ok", object: protector };
  const marked = {
    ...metadata,
    annotations: { [RELEASED_ANNOTATION]: text, ...annotations },
    finalizers: isHeld ? finalizers : [...finalizers, GENERATOR_FINALIZER],
  };
  return await updateProtector(calls, { ...protector, metadata: marked });
}

async function remove(calls: ReleaseCalls, protector: PodProtector): Promise<ApiResult<PodProtector>> {
  const { uid, namespace = "", name } = protector.metadata;
  if (isDeleting(protector.metadata)) return { kind: "ok", object: protector };
  const deleted = await calls.api.delete(podProtectorPath(namespace, name), { ...calls, preconditions: { uid } });
  if (deleted.kind !== "ok") return deleted;
  const present = await calls.api.getPodProtector(namespace, name, calls);
  // Does not release a new protector of the same name.
  return present.kind === "ok" && present.object.metadata.uid !== uid ? { kind: "gone" } : present;
}
