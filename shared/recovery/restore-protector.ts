/**
 * Restores a lost protector: its spec and its reservations, never its counts. A mark on the restored object makes the
 * aggregators put their cells on hold (docs/design.md#lost-history).
 */

import { isCounted, isRemoved } from "../decide/state/protector-state.ts";
import { type ApiClient, about, type CallOptions } from "../kube/client/api-client.ts";
import { podProtectorPath } from "../kube/client/api-path.ts";
import type { ApiResult } from "../kube/client/api-result.ts";
import { GROUP, KIND, RESTORED_ANNOTATION, VERSION } from "../schema/annotations.ts";
import { type Aggregation, type CellStatus, type PodProtector, parsePodProtector } from "../schema/podprotector.ts";

type OwnerReference = NonNullable<PodProtector["metadata"]["ownerReferences"]>[number];

export type RestoreCalls = Pick<ApiClient, "create" | "putPodProtectorStatus" | "getPodProtector">;

/** The reason in the mark `restored`. A cell writes its name before the reason, which the policy of the core checks. */
export const RESTORED = "the protector before this one vanished without a release";
/**
 * The mark of a protector that is created beside others of its source: the source may have had this one before, too.
 */
export const PERHAPS_RESTORED = "nothing shows that it is the first of this name";
const CELL = "cell ";

export function markOfCell(cellID: string): string {
  return `${CELL}${cellID}: ${RESTORED}`;
}

/** The spec of this protector is known only from a cell. */
export function isMadeByCell({ metadata }: Pick<PodProtector, "metadata">): boolean {
  return metadata.annotations?.[RESTORED_ANNOTATION]?.startsWith(CELL) ?? false;
}

/** Conflicts are likely: webhook and aggregator of each cell write the status as soon as the protector exists. */
const MAX_CONFLICTS = 20;

/**
 * The object to create; `mark` is the reason, which stays that of a cell. Has owner references only `withOwners`: the
 * garbage collector deletes an object whose owner does not exist. No owner is blocked: that needs a permission for the
 * owner in clusters with the plugin OwnerReferencesPermissionEnforcement, such as OpenShift, and a generator's
 * finalizer holds the owner anyway.
 */
export function restoredObject(lost: PodProtector, withOwners: boolean, mark?: string): object {
  const { namespace, name, labels, annotations, finalizers, ownerReferences } = lost.metadata;
  const before = isMadeByCell(lost) ? annotations?.[RESTORED_ANNOTATION] : undefined;
  return {
    apiVersion: `${GROUP}/${VERSION}`,
    kind: KIND,
    metadata: {
      namespace,
      name,
      labels,
      annotations: { ...annotations, [RESTORED_ANNOTATION]: mark ?? before ?? RESTORED },
      finalizers,
      ...(withOwners && ownerReferences !== undefined ? { ownerReferences: ownerReferences.map(unblocked) } : {}),
    },
    spec: lost.spec,
  };
}

function unblocked({ blockOwnerDeletion: _, ...owner }: OwnerReference): OwnerReference {
  return owner;
}

/**
 * Creates `object`, and adds the reservations of `lost`. The result is `conflict` if a protector of this name exists.
 * With `hold`, each cell of `lost` keeps its number of expected pods until it counts.
 */
export async function restore(
  api: RestoreCalls,
  object: object,
  lost: PodProtector,
  options: CallOptions,
  hold?: string,
): Promise<ApiResult<PodProtector>> {
  const { namespace = "", name } = lost.metadata;
  const parse = about(namespace, name, parsePodProtector);
  const created = await api.create(podProtectorPath(namespace), object, parse, options);
  if (created.kind === "ok") await restoreEntries(api, created.object, entriesOf(lost, hold), options);
  return created;
}

/** What is restored of the cells of `lost`. */
function entriesOf({ status }: PodProtector, hold: string | undefined): readonly CellStatus[] {
  return (status?.cells ?? []).flatMap((cell) => {
    const { cellID, admissionHistory } = cell;
    const aggregation = hold === undefined ? undefined : partOf(cell.aggregation ?? undefined, hold);
    if (aggregation === undefined && !hasHistory(cell)) return [];
    return [{ cellID, ...(hasHistory(cell) && { admissionHistory }), ...(aggregation && { aggregation }) }];
  });
}

/**
 * What stays of a cell's counts: the number of expected pods is no count, and nobody else may know it. A removed cell
 * stays removed: nobody waits for it, also where its webhook holds it. Undefined for a cell that never counted.
 */
function partOf(before: Aggregation | undefined, hold: string): Aggregation | undefined {
  const none = { totalReplicas: 0, availableReplicas: 0 };
  if (isRemoved(before)) return { ...none, epoch: before?.epoch };
  if (before === undefined || (!isCounted(before) && before.hold === undefined)) return undefined;
  const { expectedReplicas, specHash } = before;
  const said = { ...(expectedReplicas !== undefined && { expectedReplicas }), ...(specHash && { specHash }) };
  return { ...none, ...said, hold };
}

function hasHistory({ admissionHistory }: CellStatus): boolean {
  return (admissionHistory?.buckets?.length ?? 0) > 0;
}

/** Adds `entries` to the cells of `created`. Best effort: the cells are on hold for a settle period anyway. */
async function restoreEntries(
  api: Pick<RestoreCalls, "putPodProtectorStatus" | "getPodProtector">,
  created: PodProtector,
  entries: readonly CellStatus[],
  options: CallOptions,
): Promise<void> {
  if (entries.length === 0) return;
  let object = created;
  for (let conflicts = 0; conflicts < MAX_CONFLICTS; conflicts++) {
    const { namespace = "", name, uid } = object.metadata;
    const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
    const status = { summary, ...object.status, cells: withEntries(object.status?.cells ?? [], entries) };
    const result = await api.putPodProtectorStatus(object.metadata, status, options);
    if (result.kind !== "conflict") return;
    const read = await api.getPodProtector(namespace, name, options);
    if (read.kind !== "ok" || read.object.metadata.uid !== uid) return;
    object = read.object;
  }
}

/** A cell that has counted, or has recorded reservations, since the restore keeps its own. */
function withEntries(present: readonly CellStatus[], entries: readonly CellStatus[]): CellStatus[] {
  const cells = [...present];
  for (const entry of entries) {
    const at = cells.findIndex((cell) => cell.cellID === entry.cellID);
    const found = cells[at];
    if (found === undefined) cells.push(entry);
    else {
      const { aggregation, admissionHistory } = entry;
      const isNew = aggregation && !isCounted(found.aggregation ?? undefined);
      cells[at] = {
        ...found,
        ...(admissionHistory && !hasHistory(found) ? { admissionHistory } : {}),
        ...(isNew ? { aggregation: { ...aggregation, ...found.aggregation } } : {}),
      };
    }
  }
  return cells;
}
