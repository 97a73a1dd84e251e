/**
 * The commands that change protection: `suspend`, `resume`, `remove-cell`, `release`. Without --yes, a command that
 * loosens protection is only a dry run.
 */

import * as v from "valibot";
import { podProtectorPath } from "../../shared/kube/client/api-path.ts";
import { describeFailure } from "../../shared/kube/client/api-result.ts";
import { sleep } from "../../shared/runtime/clock.ts";
import {
  GENERATOR_FINALIZER,
  RELEASED_ANNOTATION,
  REMOVE_CELL_ONCE_ANNOTATION,
  SOURCE_GROUP_LABEL,
  SOURCE_KIND_LABEL,
  SOURCE_NAME_LABEL,
  SOURCE_RESOURCE_LABEL,
} from "../../shared/schema/annotations.ts";
import { type PodProtector, parsePodProtector } from "../../shared/schema/podprotector.ts";
import { formatMs } from "../../shared/schema/time.ts";
import { CALL_TIMEOUT_MS, type ClusterClient } from "./invocation/cluster.ts";
import { argument, type Command, type Context, type Flag, protectorName } from "./invocation/command.ts";
import { CommandError, EXIT, type ExitCode } from "./invocation/errors.ts";
import { age, parseDuration, plural } from "./invocation/output.ts";
import { viewProtector } from "./view.ts";

const HOUR_MS = 3_600_000;
const WAIT_MS = 60_000;
const POLL_MS = 500;

const YES = { yes: { type: "boolean", help: "Do it. Without this nothing is changed." } } as const satisfies Record<
  string,
  Flag
>;

interface Change {
  readonly protector: string;
  readonly action: string;
  readonly done: boolean;
  readonly warnings: readonly string[];
}

async function read(
  context: Context,
  args: readonly string[],
): Promise<{ core: ClusterClient; protector: PodProtector }> {
  const name = protectorName(argument(args, 0, "a PodProtector"));
  const [core, namespace] = await Promise.all([context.core(), context.namespace()]);
  const raw = await context.progress.during(`reading podprotector ${namespace}/${name} of ${core.name}`, () =>
    core.find(podProtectorPath(namespace, name)),
  );
  if (raw === undefined) throw new CommandError(`there is no PodProtector ${namespace}/${name} in ${core.name}`);
  return { core, protector: parsePodProtector(raw) };
}

async function patch(core: ClusterClient, { metadata }: PodProtector, body: unknown, dryRun: boolean): Promise<void> {
  const path = podProtectorPath(metadata.namespace ?? "", metadata.name);
  const options = { timeoutMs: CALL_TIMEOUT_MS, dryRun, fieldManager: "kubectl-podseidon" };
  const result = await core.api.patch(path, "application/merge-patch+json", body, (raw) => raw, options);
  if (result.kind !== "ok") throw new CommandError(`${core.name}: ${describeFailure(result, "it is not there")}`);
}

function idOf({ metadata }: PodProtector): string {
  return `${metadata.namespace ?? ""}/${metadata.name}`;
}

function report(context: Context, changes: readonly Change[]): ExitCode {
  const done = changes.every((change) => change.done);
  const lines = changes.flatMap(({ protector, action, warnings, done: made }) => [
    ...warnings.map((warning) => `Warning: ${warning}\n`),
    `podprotector ${protector}: ${made ? "" : "would be "}${action}${made ? "" : " (server dry run)"}\n`,
  ]);
  const advice = done ? "" : "Nothing was changed. Repeat the command with --yes to do it.\n";
  context.print(changes, lines.join("") + advice);
  return EXIT.yes;
}

/** Kinds of sources with a suspension of their own: the generator reverts a suspension of their protectors. */
const SUSPENDING_KINDS: readonly (string | undefined)[] = ["XPodDisruptionBudget"];

async function refuseWhereSourceDecides(core: ClusterClient, protector: PodProtector): Promise<void> {
  const { labels = {}, finalizers = [] } = protector.metadata;
  const kind = labels[SOURCE_KIND_LABEL];
  if (!finalizers.includes(GENERATOR_FINALIZER) || !SUSPENDING_KINDS.includes(kind)) return;
  if ((await sourceIsThere(core, protector)) !== true) return;
  throw new CommandError(
    `of ${idOf(protector)} spec.suspend in its ${kind} ${labels[SOURCE_NAME_LABEL]} ` +
      "decides, so the generator would take this back: change it there",
  );
}

async function suspendIt(context: Context, args: readonly string[]): Promise<ExitCode> {
  const { core, protector } = await read(context, args);
  await refuseWhereSourceDecides(core, protector);
  const forever = context.is("forever");
  const text = context.text("for");
  if (forever && text !== undefined) throw new CommandError("--for and --forever exclude each other");
  const forMs = text === undefined ? HOUR_MS : parseDuration(text);
  if (forMs === undefined) throw new CommandError(`--for ${text}: write it as 30m, 2h or 1d`);
  const until = forever ? undefined : formatMs(context.nowMs() + forMs);
  const reason = context.text("reason");
  const suspend = { enabled: true, until: until ?? null, reason: reason ?? null };
  const done = context.is("yes");
  await patch(core, protector, { spec: { suspend } }, !done);
  const warnings = [
    `while ${idOf(protector)} is suspended every deletion of its pods is admitted`,
    ...(forever ? ["it stays so until somebody resumes it"] : []),
  ];
  const action = `suspended ${until === undefined ? "until it is resumed" : `for ${age(forMs)}, until ${until}`}`;
  return report(context, [{ protector: idOf(protector), action, done, warnings }]);
}

async function resumeIt(context: Context, args: readonly string[]): Promise<ExitCode> {
  const { core, protector } = await read(context, args);
  await refuseWhereSourceDecides(core, protector);
  await patch(core, protector, { spec: { suspend: null } }, false);
  return report(context, [{ protector: idOf(protector), action: "resumed", done: true, warnings: [] }]);
}

async function removeCell(context: Context, args: readonly string[]): Promise<ExitCode> {
  const cell = argument(args, 0, "a cell");
  if (!/^[^/%,\s]+$/.test(cell)) throw new CommandError(`${cell} is no id of a cell`);
  const names = args.slice(1).map(protectorName);
  const core = await context.core();
  const namespace = names.length > 0 ? await context.namespace() : await context.namespaces();
  const all = await context.progress.during(`reading the protectors of ${core.name}`, () => core.protectors(namespace));
  const protectors = all.filter(({ metadata, status }) => {
    if (names.length > 0 && !names.includes(metadata.name)) return false;
    const aggregation = status?.cells?.find(({ cellID }) => cellID === cell)?.aggregation;
    return (aggregation?.resourceVersion ?? aggregation?.lastEventTime) !== undefined;
  });
  if (protectors.length === 0)
    throw new CommandError(`no protector of ${namespace ?? "any namespace"} counts a cell ${cell}`);
  const done = context.is("yes");
  const changes: Change[] = [];
  const change = async (): Promise<void> => {
    for (const protector of protectors) {
      const warnings = cellWarnings(protector, cell, context.nowMs());
      await patch(core, protector, { metadata: { annotations: { [REMOVE_CELL_ONCE_ANNOTATION]: cell } } }, !done);
      changes.push({ protector: idOf(protector), action: `rid of cell ${cell}`, done, warnings });
    }
  };
  await context.progress.during(`removing cell ${cell}`, change, () => `${changes.length} of ${protectors.length}`);
  if (done) await waitForRemoval(context, core, protectors);
  return report(context, changes);
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
    warnings.push(`${idOf(protector)} is not the generator's, which alone acts on this: edit its status by hand`);
  return warnings;
}

/** The generator takes the annotation off when the cell is gone from the status. */
async function waitForRemoval(
  context: Context,
  core: ClusterClient,
  protectors: readonly PodProtector[],
): Promise<void> {
  const waiting = new Set(protectors.filter(({ metadata }) => metadata.finalizers?.includes(GENERATOR_FINALIZER)));
  const deadlineMs = context.ports.clock.monotonicMs() + WAIT_MS;
  const poll = async (): Promise<void> => {
    while (waiting.size > 0 && context.ports.clock.monotonicMs() < deadlineMs) {
      for (const one of waiting) {
        const raw = await core.find(podProtectorPath(one.metadata.namespace ?? "", one.metadata.name));
        const annotations = raw === undefined ? {} : parsePodProtector(raw).metadata.annotations;
        if (annotations?.[REMOVE_CELL_ONCE_ANNOTATION] === undefined) waiting.delete(one);
      }
      if (waiting.size > 0) await sleep(context.ports, POLL_MS);
    }
  };
  await context.progress.during("waiting for the generator", poll, () => plural(waiting.size, "protector"));
  if (waiting.size > 0) {
    const names = [...waiting].map(idOf).join(", ");
    throw new CommandError(
      `the generator has not acted on ${names} in ${age(WAIT_MS)}: is it running? (kubectl podseidon doctor)`,
    );
  }
}

const Group = v.looseObject({ versions: v.array(v.looseObject({ groupVersion: v.string() })) });

/**
 * Whether the workload that the protector names is still there; undefined when it names none. In which version of its
 * group a kind is served is nowhere written: the preferred one may be without it.
 */
export async function sourceIsThere(
  core: Pick<ClusterClient, "find">,
  { metadata }: PodProtector,
): Promise<boolean | undefined> {
  const labels = metadata.labels ?? {};
  const [name, group, resource] = [SOURCE_NAME_LABEL, SOURCE_GROUP_LABEL, SOURCE_RESOURCE_LABEL].map(
    (key) => labels[key],
  );
  const owner = metadata.ownerReferences?.find(({ controller }) => controller === true)?.name ?? name;
  if (owner === undefined || resource === undefined) return undefined;
  const discovered = group ? await core.find(`/apis/${group}`) : undefined;
  if (group && discovered === undefined) return false;
  const prefixes = group
    ? v.parse(Group, discovered).versions.map(({ groupVersion }) => `/apis/${groupVersion}`)
    : ["/api/v1"];
  for (const prefix of prefixes) {
    const path = `${prefix}/namespaces/${metadata.namespace ?? ""}/${resource}/${encodeURIComponent(owner)}`;
    if ((await core.find(path)) !== undefined) return true;
  }
  return false;
}

async function releaseIt(context: Context, args: readonly string[]): Promise<ExitCode> {
  const { core, protector } = await read(context, args);
  const id = idOf(protector);
  if (!protector.metadata.finalizers?.includes(GENERATOR_FINALIZER)) {
    throw new CommandError(
      `${id} was made by hand: kubectl delete podprotector ${protector.metadata.name} releases it`,
    );
  }
  if ((await sourceIsThere(core, protector)) === true) {
    const labels = protector.metadata.labels ?? {};
    throw new CommandError(
      `${id} belongs to ${labels[SOURCE_KIND_LABEL]} ${labels[SOURCE_NAME_LABEL]}, which is there and asks for ` +
        "protection, so the generator would take the release back: scale it to zero and delete it, or remove its " +
        "label podseidon.kubewharf.io/protect; to let everything pass for a while, use suspend",
    );
  }
  const done = context.is("yes");
  const mark = `by kubectl podseidon ${formatMs(context.nowMs())}`;
  await patch(core, protector, { metadata: { annotations: { [RELEASED_ANNOTATION]: mark } } }, !done);
  const view = viewProtector(protector, context.nowMs());
  const warnings = [`${plural(view.available, "available pod")} of ${id} will no longer be protected`];
  return report(context, [{ protector: id, action: "released", done, warnings }]);
}

const safe = "Without --yes it is tried as a dry run by the apiserver and nothing is changed.";

export const suspend: Command = {
  name: "suspend",
  usage: "PROTECTOR",
  summary: "Let everything pass for a while (an hour when not told otherwise).",
  doing: "suspending the protector",
  description: `The suspension ends by itself. Each deletion that it lets pass carries a warning. ${safe}`,
  flags: {
    for: { type: "string", value: "TIME", help: "How long, as 30m, 2h or 1d. Default: 1h." },
    forever: { type: "boolean", help: "Until it is resumed." },
    reason: { type: "string", value: "TEXT", help: "Why, for those who read it later." },
    ...YES,
  },
  arity: [1, 1],
  completes: "protectors",
  run: suspendIt,
};

export const resume: Command = {
  name: "resume",
  usage: "PROTECTOR",
  summary: "End a suspension.",
  doing: "resuming the protector",
  description: "Protects again at once. It takes nothing away, so it needs no --yes.",
  flags: {},
  arity: [1, 1],
  completes: "protectors",
  run: resumeIt,
};

export const removeCellCommand: Command = {
  name: "remove-cell",
  usage: "CELL [PROTECTOR ...]",
  summary: "Forget a cell that is gone for good, in the protectors that count it.",
  doing: "removing the cell from the protectors",
  description:
    "For a cluster that will not come back: its pods are no longer counted and its " +
    "reservations are forgotten. In the named protectors, or in all of the namespace, or of " +
    `all namespaces with -A. Waits until the generator has done it. ${safe}`,
  flags: YES,
  arity: [1, 100],
  completes: "cells",
  run: removeCell,
};

export const release: Command = {
  name: "release",
  usage: "PROTECTOR",
  summary: "Give up a protector whose workload has vanished.",
  doing: "releasing the protector",
  description:
    "A workload that vanished without being deleted leaves its " +
    `protector in force. This lets its pods go, for good. ${safe}`,
  flags: YES,
  arity: [1, 1],
  completes: "protectors",
  run: releaseIt,
};
