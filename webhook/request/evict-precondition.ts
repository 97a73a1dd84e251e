import { type Eviction, type PatchOperation, parseEviction } from "../../shared/schema/admission.ts";
import { type AdmissionRequest, parseOrReject } from "./admission-request.ts";
import type { CellClient } from "./cell-client.ts";
import { isEviction, type NoTarget, nameOf, preconditionUid, readPod } from "./disruption-target.ts";

/**
 * Adds the live pod's UID to an eviction's preconditions, so that the evicted pod is the one that was decided on (S12
 * of docs/design.md#invariants). Any other request, and an eviction that names a UID, passes unchanged.
 */
export async function bindEviction(
  request: AdmissionRequest,
  cell: CellClient,
  leftMs: () => number,
): Promise<NoTarget> {
  if (!isEviction(request)) return { kind: "ignored" };
  const eviction = parseOrReject("Eviction in request.object", () => parseEviction(request.object));
  if (preconditionUid(eviction) !== undefined) return { kind: "ignored" };
  const live = await readPod(cell, request.namespace, nameOf(request, eviction), leftMs);
  if (live.kind !== "found") return live;
  return { kind: "bound", patch: preconditionPatch(eviction, live.pod.uid) };
}

/** JSON Patch that adds the UID precondition, whichever parts of its path exist. */
function preconditionPatch({ deleteOptions }: Eviction, uid: string): readonly PatchOperation[] {
  if (deleteOptions === undefined || deleteOptions === null) {
    return [{ op: "add", path: "/deleteOptions", value: { preconditions: { uid } } }];
  }
  if (deleteOptions.preconditions === undefined || deleteOptions.preconditions === null) {
    return [{ op: "add", path: "/deleteOptions/preconditions", value: { uid } }];
  }
  return [{ op: "add", path: "/deleteOptions/preconditions/uid", value: uid }];
}
