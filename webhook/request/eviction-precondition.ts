import type { Eviction, PatchOperation } from "../../shared/schema/admission.ts";

/** The UID that an eviction is bound to (S12). */
export function boundUid(eviction: Eviction): string | undefined {
  return eviction.deleteOptions?.preconditions?.uid ?? undefined;
}

/** The eviction's own dry run, beside the request's (design 6). */
export function isDryRun(eviction: Eviction): boolean {
  return eviction.deleteOptions?.dryRun?.includes("All") ?? false;
}

/** JSON Patch that binds the eviction to `uid` (design 6), whatever part of the path is there already. */
export function bindingPatch(eviction: Eviction, uid: string): readonly PatchOperation[] {
  const { deleteOptions } = eviction;
  if (deleteOptions === undefined || deleteOptions === null) {
    return [{ op: "add", path: "/deleteOptions", value: { preconditions: { uid } } }];
  }
  if (deleteOptions.preconditions === undefined || deleteOptions.preconditions === null) {
    return [{ op: "add", path: "/deleteOptions/preconditions", value: { uid } }];
  }
  return [{ op: "add", path: "/deleteOptions/preconditions/uid", value: uid }];
}
