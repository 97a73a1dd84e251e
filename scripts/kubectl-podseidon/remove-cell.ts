/** The command `remove-cell`: forgets a cell that is gone, in the protectors and in the release register. */
import { isCounted } from "../../shared/decide/state/protector-state.ts";
import { configMapPath, podProtectorPath } from "../../shared/kube/client/api-path.ts";
import { describeFailure } from "../../shared/kube/client/api-result.ts";
import { ACKNOWLEDGEMENTS, acknowledgementKey } from "../../shared/recovery/register/register-format.ts";
import { REMOVE_CELL_ONCE_ANNOTATION } from "../../shared/schema/annotations.ts";
import { parseConfigMap } from "../../shared/schema/config-map.ts";
import { type CellStatus, type PodProtector, parsePodProtector } from "../../shared/schema/podprotector.ts";
import { type Change, idOf, isManaged, patchAt, report, safe, tryPatch } from "./changes.ts";
import { requireProtectors } from "./find-protectors.ts";
import { waitForGenerator } from "./generator-wait.ts";
import { mapAtOnce } from "./invocation/at-once.ts";
import type { ClusterClient } from "./invocation/cluster.ts";
import { argument, type Command, type Context, cellId, SYSTEM_NAMESPACE, YES } from "./invocation/command.ts";
import { CommandError, EXIT, type ExitCode, orElse } from "./invocation/errors.ts";
import { age, firstNames, plural } from "./invocation/output.ts";
import { viewProtector } from "./view.ts";

/** Of those that are cleared all the same, in the sentence about them. */
const MAX_NAMED = 5;
/** Aggregators and webhooks write the protector all the time. */
const MAX_TRIES = 20;

async function removeCell(context: Context, args: readonly string[]): Promise<ExitCode> {
  const cell = cellId(argument(args, 0, "a cell"));
  const words = args.slice(1);
  if (words.length > 0 && context.is("all-namespaces"))
    throw new CommandError("the named protectors are those of one namespace: leave -A or their names out");
  const core = await context.core();
  const { systemNamespace } = context;
  const namespace = words.length > 0 ? await context.namespace() : await context.namespaces();
  const all = await context.progress.during(`reading the protectors of ${core.name}`, () => core.protectors(namespace));
  const named = words.length === 0 ? all : words.flatMap((word) => requireProtectors(word, all, namespace, core));
  const protectors = named.filter(({ status }) => isThere(status?.cells.find(({ cellID }) => cellID === cell)));
  const isForGood = namespace === undefined && !context.is("may-return");
  const acknowledges = isForGood && (await isAcknowledging(core, systemNamespace, cell));
  if (protectors.length === 0 && !acknowledges)
    throw new CommandError(
      `no protector of ${namespace === undefined ? "any namespace" : `namespace ${namespace}`} counts a cell ${cell}` +
        (words.length > 0 || namespace === undefined ? "" : "; -A looks in all namespaces"),
    );
  const done = context.is("yes");
  const asked: string[] = [];
  const removed = await mapAtOnce(context, `removing cell ${cell}`, protectors, async (protector) => {
    const warnings = cellWarnings(protector, cell, core.nowMs());
    const change = await removeFrom(core, protector, cell, { done, warnings });
    if (done && isManaged(protector)) asked.push(idOf(protector));
    return change;
  }).catch(
    orElse(({ message }) => {
      if (asked.length === 0) throw new CommandError(message);
      const names = firstNames(asked, MAX_NAMED);
      throw new CommandError(
        `${message}; at least ${plural(asked.length, "protector")} (${names}) will be cleared of ${cell} all the ` +
          "same. The command can be repeated",
      );
    }),
  );
  const changes: Change[] = removed.filter((change) => change !== undefined);
  if (done) await waitForGenerator(context, core, protectors.filter(isManaged), asksForRemoval);
  if (acknowledges) {
    const path = configMapPath(systemNamespace, ACKNOWLEDGEMENTS);
    await patchAt(core, path, { data: { [acknowledgementKey(cell)]: null } }, !done);
    const configMap = `${systemNamespace}/${ACKNOWLEDGEMENTS}`;
    changes.push({ configMap, action: `cleared of cell ${cell}`, done, warnings: [] });
  }
  const code = report(context, changes);
  return protectors.every(isManaged) ? code : EXIT.no;
}

/**
 * Only the epoch stays of a removed cell. A cell that is held, or has reservations, may not have counted: it was lost
 * with its protector, and can't come back to settle them.
 */
function isThere(cell: CellStatus | undefined): boolean {
  const aggregation = cell?.aggregation ?? undefined;
  return isCounted(aggregation) || aggregation?.hold !== undefined || !!cell?.admissionHistory?.buckets?.length;
}

/** Asks the generator to remove the cell. Undefined where the protector was deleted meanwhile. */
async function removeFrom(
  core: ClusterClient,
  protector: PodProtector,
  cell: string,
  what: Pick<Change, "done" | "warnings">,
): Promise<Change | undefined> {
  const change = { protector: idOf(protector), ...what };
  if (!isManaged(protector)) return { ...change, action: `left with cell ${cell}` };
  const { name, namespace = "" } = protector.metadata;
  const path = podProtectorPath(namespace, name);
  let now = protector;
  for (let tries = 1; ; tries++) {
    // Somebody else may have asked for another cell since: what they asked for must stay.
    const { uid, resourceVersion } = now.metadata;
    const annotations = { [REMOVE_CELL_ONCE_ANNOTATION]: cellsToRemove(now, cell) };
    const result = await tryPatch(core, path, { metadata: { uid, resourceVersion, annotations } }, !what.done);
    if (result.kind === "ok") return { ...change, action: `cleared of cell ${cell}` };
    if (result.kind === "gone") return undefined;
    if (result.kind !== "conflict" || tries === MAX_TRIES)
      throw new CommandError(`${core.name}: ${describeFailure(result)}`);
    const raw = await core.find(path);
    if (raw === undefined) return undefined;
    now = parsePodProtector(raw);
  }
}

/** This cell, and the cells whose removal is still pending in the annotation. */
function cellsToRemove({ metadata }: PodProtector, cell: string): string {
  const before = metadata.annotations?.[REMOVE_CELL_ONCE_ANNOTATION]?.split(",").map((one) => one.trim()) ?? [];
  return [...before.filter((one) => one !== "" && one !== cell), cell].join(",");
}

/** The release register keeps all entries that a cell in this ConfigMap has not acknowledged. */
async function isAcknowledging(core: ClusterClient, namespace: string, cell: string): Promise<boolean> {
  const raw = await core.find(configMapPath(namespace, ACKNOWLEDGEMENTS));
  return raw !== undefined && parseConfigMap(raw).data?.[acknowledgementKey(cell)] !== undefined;
}

function cellWarnings(protector: PodProtector, cell: string, nowMs: number): string[] {
  const view = viewProtector(protector, nowMs);
  const entry = view.cells.find((one) => one.cell === cell);
  const warnings: string[] = [];
  if (entry === undefined) return warnings;
  if (entry.available > 0) {
    const left = view.available - entry.available;
    warnings.push(
      `${idOf(protector)} no longer counts ${plural(entry.available, "available pod")} of ${cell}: ${left} are ` +
        `left for ${view.required} that must be${left <= view.required ? ", so that nothing can be disrupted" : ""}`,
    );
  }
  if (entry.heartbeatAgeMs !== undefined && entry.heartbeatAgeMs < 60_000) {
    warnings.push(
      `the aggregator of ${cell} lives, its heartbeat was ` +
        `${age(entry.heartbeatAgeMs)} ago: it will count the cell again`,
    );
  }
  if (!view.managed)
    warnings.push(`${idOf(protector)} is not the generator's, which alone removes a cell: edit its status by hand`);
  return warnings;
}

/** The generator removes the annotation when the status no longer has the cells. */
function asksForRemoval({ metadata }: PodProtector): boolean {
  return metadata.annotations?.[REMOVE_CELL_ONCE_ANNOTATION] !== undefined;
}

export const removeCellCommand: Command = {
  name: "remove-cell",
  usage: "CELL [PROTECTOR ...]",
  summary: "Forget a cell that is gone, in the protectors that count it.",
  doing: "removing the cell from the protectors",
  description:
    "For a cluster that is gone, or down with its pods: its pods are no longer counted and its " +
    "reservations are forgotten. In the named protectors, or in all of the namespace, or of " +
    "all namespaces with -A: then the release register of the core does not wait for the cell any more, " +
    "and a cell that comes back a day later restores the protectors that were released meanwhile. " +
    `Waits until the generator has done it. ${safe}`,
  flags: {
    ...SYSTEM_NAMESPACE,
    "may-return": { type: "boolean", help: "The register goes on waiting, for a cell that may come back." },
    ...YES,
  },
  arity: [1, 100],
  completes: "cells",
  run: removeCell,
};
