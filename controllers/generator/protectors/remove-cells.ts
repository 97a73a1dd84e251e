/** Annotation `remove-cell-once` (design 12): cells leave the status, once, and then the annotation goes. */
import { encodeStatus } from "../../../shared/decide/state/encode-status.ts";
import { parseProtector } from "../../../shared/decide/state/protector-state.ts";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { GROUP, KIND, REMOVE_CELL_ONCE_ANNOTATION, VERSION } from "../../../shared/schema/annotations.ts";
import { type CellStatus, type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";

export interface RemovalCalls {
  readonly api: Pick<ApiClient, "putPodProtectorStatus" | "update">;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** What is left of a cell that was removed: its epoch, by which an aggregator knows that admissions were forgotten (design 5.4). */
function remainder({ cellID, aggregation }: CellStatus): CellStatus {
  return { cellID, aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: aggregation?.epoch ?? 0 } };
}

/** Two writes: the status, then the annotation at the version that the first one made, so that a crash between repeats the first. */
export async function removeCells(
  calls: RemovalCalls,
  protector: PodProtector,
  cells: readonly string[],
): Promise<ApiResult<PodProtector>> {
  const { api, timeoutMs, signal } = calls;
  const { namespace = "", name, uid, resourceVersion } = protector.metadata;
  let current = protector;
  const removed = (protector.status?.cells ?? []).filter(({ cellID }) => cells.includes(cellID));
  if (removed.length > 0) {
    const state = parseProtector(protector);
    for (const { cellID } of removed) state.cells.delete(cellID);
    const rest = encodeStatus(state, protector.status);
    const status = { ...rest, cells: [...rest.cells, ...removed.map(remainder)] };
    const identity = { namespace, name, uid, resourceVersion };
    const written = await api.putPodProtectorStatus(identity, status, { timeoutMs, signal });
    if (written.kind !== "ok") return written;
    current = written.object;
  }
  const { [REMOVE_CELL_ONCE_ANNOTATION]: _, ...annotations } = current.metadata.annotations ?? {};
  const body = {
    ...current,
    apiVersion: `${GROUP}/${VERSION}`,
    kind: KIND,
    metadata: { ...current.metadata, annotations },
  };
  return await api.update(podProtectorPath(namespace, name), body, parsePodProtector, { timeoutMs, signal });
}
