/**
 * A protector that vanished, made again from what is known of it (design 7): spec and outstanding admissions, never the counts; with a mark by
 * which the cells are put on hold (design 5.4).
 */

import type { ApiClient, CallOptions } from "../kube/client/api-client.ts";
import type { ApiResult } from "../kube/client/api-result.ts";
import { GROUP, KIND, PLURAL, RESTORED_ANNOTATION, VERSION } from "../schema/annotations.ts";
import type { CellStatus, PodProtector } from "../schema/podprotector.ts";
import { parsePodProtector } from "../schema/podprotector.ts";

export type RestoreCalls = Pick<ApiClient, "create" | "putPodProtectorStatus" | "getPodProtector">;

const MARK = "the protector before this one vanished without a release";
/** Others write the status of a protector as soon as it is there. */
const MAX_CONFLICTS = 3;

/** Path of the protectors of a namespace. */
export function protectorsPath(namespace: string): string {
  return `/apis/${GROUP}/${VERSION}/namespaces/${encodeURIComponent(namespace)}/${PLURAL}`;
}

/** The object to create. Without owner references, unless `withOwners`: an owner that is gone takes what it owns with it. */
export function restoredObject(copy: PodProtector, withOwners: boolean): object {
  const { namespace, name, labels, annotations, finalizers, ownerReferences } = copy.metadata;
  return {
    apiVersion: `${GROUP}/${VERSION}`,
    kind: KIND,
    metadata: {
      namespace,
      name,
      labels,
      annotations: { ...annotations, [RESTORED_ANNOTATION]: MARK },
      finalizers,
      ...(withOwners && ownerReferences !== undefined ? { ownerReferences } : {}),
    },
    spec: copy.spec,
  };
}

/** Creates `object` and gives it the outstanding admissions of `copy`. `conflict`: there is one of its name already. */
export async function restore(
  api: RestoreCalls,
  object: object,
  copy: PodProtector,
  options: CallOptions,
): Promise<ApiResult<PodProtector>> {
  const created = await api.create(protectorsPath(copy.metadata.namespace ?? ""), object, parsePodProtector, options);
  if (created.kind === "ok") await carryHistory(api, created.object, copy, options);
  return created;
}

/**
 * Adds the outstanding admissions of `copy` to the cells of `created` that know none. Best effort: until a settle period is over the cells
 * are on hold anyway.
 */
export async function carryHistory(
  api: Pick<RestoreCalls, "putPodProtectorStatus" | "getPodProtector">,
  created: PodProtector,
  copy: PodProtector,
  options: CallOptions,
): Promise<void> {
  const histories = (copy.status?.cells ?? []).filter((cell) => (cell.admissionHistory?.buckets?.length ?? 0) > 0);
  if (histories.length === 0) return;
  let object = created;
  for (let conflicts = 0; conflicts < MAX_CONFLICTS; conflicts++) {
    const { namespace = "", name, uid, resourceVersion } = object.metadata;
    const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
    const status = { summary, ...object.status, cells: withHistories(object.status?.cells ?? [], histories) };
    const result = await api.putPodProtectorStatus({ namespace, name, uid, resourceVersion }, status, options);
    if (result.kind !== "conflict") return;
    const read = await api.getPodProtector(namespace, name, options);
    if (read.kind !== "ok" || read.object.metadata.uid !== uid) return;
    object = read.object;
  }
}

/** What a cell has recorded since it is there again stays as it is. */
export function withHistories(present: readonly CellStatus[], histories: readonly CellStatus[]): CellStatus[] {
  const cells = [...present];
  for (const { cellID, admissionHistory } of histories) {
    const at = cells.findIndex((cell) => cell.cellID === cellID);
    const found = cells[at];
    if (found === undefined) cells.push({ cellID, admissionHistory });
    else if ((found.admissionHistory?.buckets?.length ?? 0) === 0) cells[at] = { ...found, admissionHistory };
  }
  return cells;
}
