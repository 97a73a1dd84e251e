/** The annotation `remove-cell-once`: removes cells from the status, and then the annotation. */
import { encodeStatus } from "../../../shared/decide/state/encode-status.ts";
import { parseProtector } from "../../../shared/decide/state/protector-state.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { REMOVE_CELL_ONCE_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { CellStatus, PodProtector } from "../../../shared/schema/podprotector.ts";
import { type ApiCalls, updateProtector } from "./calls.ts";

export type RemovalCalls = ApiCalls<"putPodProtectorStatus" | "update">;

/** A removed cell keeps its epoch, which shows its aggregator that reservations are lost. */
function removedCell({ cellID, aggregation }: CellStatus): CellStatus {
  return { cellID, aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: aggregation?.epoch ?? 0 } };
}

/**
 * Makes two writes, the second one based on the result of the first. After a crash between them, the first is repeated.
 */
export async function removeCells(
  calls: RemovalCalls,
  protector: PodProtector,
  cells: readonly string[],
): Promise<ApiResult<PodProtector>> {
  let current = protector;
  const removed = (protector.status?.cells ?? []).filter(({ cellID }) => cells.includes(cellID));
  if (removed.length > 0) {
    const state = parseProtector(protector);
    for (const { cellID } of removed) state.cells.delete(cellID);
    const kept = encodeStatus(state, protector.status);
    const status = { ...kept, cells: [...kept.cells, ...removed.map(removedCell)] };
    const written = await calls.api.putPodProtectorStatus(protector.metadata, status, calls);
    if (written.kind !== "ok") return written;
    current = written.object;
  }
  const { [REMOVE_CELL_ONCE_ANNOTATION]: _, ...annotations } = current.metadata.annotations ?? {};
  return await updateProtector(calls, { ...current, metadata: { ...current.metadata, annotations } });
}
