/**
 * The commands that change one protector: `suspend`, `resume`, `release`. Without --yes, a command that reduces
 * protection is only a dry run.
 */

import * as v from "valibot";
import { podProtectorPath } from "../../shared/kube/client/api-path.ts";
import { type ApiResult, describeFailure } from "../../shared/kube/client/api-result.ts";
import { isMadeByHand } from "../../shared/recovery/lost-protector.ts";
import {
  CLUSTER_BUDGETS_ANNOTATION,
  CLUSTER_BUDGETS_LABEL,
  GENERATOR_FINALIZER,
  PROTECT_ANNOTATION,
  RELEASED_ANNOTATION,
  SOURCE_GROUP_LABEL,
  SOURCE_KIND_LABEL,
  SOURCE_NAME_LABEL,
  SOURCE_RESOURCE_LABEL,
  SUSPENSION_CHANGED_BY_ANNOTATION,
} from "../../shared/schema/annotations.ts";
import { valueAt } from "../../shared/schema/check.ts";
import { namespacedName, type PodProtector, parsePodProtector } from "../../shared/schema/podprotector.ts";
import { formatMs, LATEST_MS } from "../../shared/schema/time.ts";
import { ownName, requireProtector, sourceName } from "./find-protectors.ts";
import { waitForGenerator } from "./generator-wait.ts";
import { CALL_TIMEOUT_MS, type ClusterClient } from "./invocation/cluster.ts";
import { argument, type Command, type Context, cellId, YES } from "./invocation/command.ts";
import { CommandError, EXIT, type ExitCode } from "./invocation/errors.ts";
import { age, inLine, plural } from "./invocation/output.ts";
import { withFlags } from "./invocation/printed-commands.ts";
import { type ProtectorView, viewProtector } from "./view.ts";

const HOUR_MS = 3_600_000;
/** Flux removes what it finds of managers whose names begin with `kubectl` (docs/gitops.md#what-flux-takes-back). */
const FIELD_MANAGER = "podseidon-plugin";

export interface Change {
  readonly protector?: string;
  /** The ConfigMap that is changed instead of a protector. */
  readonly configMap?: string;
  readonly action: string;
  readonly done: boolean;
  readonly warnings: readonly string[];
}

async function read(
  context: Context,
  args: readonly string[],
): Promise<{ core: ClusterClient; protector: PodProtector }> {
  const word = argument(args, 0, "a PodProtector");
  const [core, namespace] = await Promise.all([context.core(), context.namespace()]);
  return await context.progress.during(`reading podprotector ${namespace}/${word} of ${core.name}`, async () => {
    const name = ownName(word);
    const raw = name.includes("/") ? undefined : await core.find(podProtectorPath(namespace, name));
    if (raw !== undefined) return { core, protector: parsePodProtector(raw) };
    const others = await core.protectors(namespace);
    return { core, protector: requireProtector(word, others, namespace, core) };
  });
}

interface ProtectorPatch {
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly spec?: unknown;
}

/** Fails with a conflict where another protector of the name has taken the place of the one that was read. */
function patch(core: ClusterClient, read: PodProtector, body: ProtectorPatch, dryRun: boolean): Promise<void> {
  const { name, namespace = "", uid } = read.metadata;
  return patchAt(core, podProtectorPath(namespace, name), { ...body, metadata: { ...body.metadata, uid } }, dryRun);
}

/** A merge patch of the object at this path. Throws a sentence when it fails. */
export async function patchAt(core: ClusterClient, path: string, body: unknown, dryRun: boolean): Promise<void> {
  const result = await tryPatch(core, path, body, dryRun);
  if (result.kind !== "ok") throw new CommandError(`${core.name}: ${describeFailure(result, "it is not there")}`);
}

/** As {@link patchAt}, but returns the failure. */
export function tryPatch(
  core: ClusterClient,
  path: string,
  body: unknown,
  dryRun: boolean,
): Promise<ApiResult<unknown>> {
  const options = { timeoutMs: CALL_TIMEOUT_MS, dryRun, fieldManager: FIELD_MANAGER };
  return core.api.patch(path, "application/merge-patch+json", body, (raw) => raw, options);
}

export const idOf = ({ metadata }: PodProtector): string => namespacedName(metadata);

/** Only the generator acts on most annotations, and only for its own protectors. */
export function isManaged({ metadata }: PodProtector): boolean {
  return metadata.finalizers?.includes(GENERATOR_FINALIZER) === true;
}

export function report(context: Context, changes: readonly Change[]): ExitCode {
  const done = changes.every((change) => change.done);
  const lines = changes.flatMap(({ protector, configMap, action, warnings, done: made }) => {
    const object = protector === undefined ? `configmap ${configMap}` : `podprotector ${protector}`;
    const what = made ? action : `would be ${action} (server dry run)`;
    return [...warnings.map((warning) => `Warning: ${inLine(warning)}\n`), `${object}: ${what}\n`];
  });
  const advice = done ? "" : "Nothing was changed. Repeat the command with --yes to do it.\n";
  context.print(changes, lines.join("") + advice);
  return done ? EXIT.yes : EXIT.no;
}

/** Kinds of sources with their own suspension: the generator reverts a suspension of their protectors. */
const SUSPENDING_KINDS: readonly (string | undefined)[] = ["XPodDisruptionBudget"];

async function refuseWhereSourceDecides(core: ClusterClient, protector: PodProtector): Promise<void> {
  const { labels = {}, finalizers = [] } = protector.metadata;
  const kind = labels[SOURCE_KIND_LABEL];
  if (!finalizers.includes(GENERATOR_FINALIZER) || !SUSPENDING_KINDS.includes(kind)) return;
  const source = await findSource(core, protector);
  if (source === undefined) return;
  const decides = `spec.suspend of ${kind} ${sourceName(protector.metadata)} decides`;
  await refuseMerged(core, protector, source, ["spec.suspend decides", decides]);
  throw new CommandError(
    `${decides} about ${idOf(protector)}, so the generator would undo this change: change it there`,
  );
}

const Clusters = v.looseObject({ name: v.string(), clusters: v.record(v.string(), v.unknown()) });
const MergedBudget = v.looseObject({
  metadata: v.looseObject({
    labels: v.looseObject({ [CLUSTER_BUDGETS_LABEL]: v.literal("true") }),
    annotations: v.optional(v.looseObject({ [CLUSTER_BUDGETS_ANNOTATION]: v.optional(v.string(), "") }), {}),
  }),
});

/**
 * For a budget that the generator makes of those of worker clusters, and writes again after each change. `there` is
 * what to do in these clusters, and `here` what to do where the generator has no `--budget-cluster` any more.
 */
async function refuseMerged(
  core: ClusterClient,
  protector: PodProtector,
  source: string,
  [there, here]: readonly [string, string],
): Promise<void> {
  const budget = v.safeParse(MergedBudget, await core.find(source));
  if (!budget.success) return;
  const { [CLUSTER_BUDGETS_ANNOTATION]: text } = budget.output.metadata.annotations;
  const parts = v.safeParse(v.pipe(v.string(), v.parseJson(), Clusters), text);
  const names = parts.success ? Object.keys(parts.output.clusters).join(", ") : "";
  const { namespace = "", labels } = protector.metadata;
  const of =
    parts.success && names !== ""
      ? `${labels?.[SOURCE_KIND_LABEL]} ${namespace}/${parts.output.name} in ${names}`
      : "budgets of worker clusters, which its annotation does not name";
  throw new CommandError(
    `${idOf(protector)} is made of ${of}, and a generator with --budget-cluster would undo this change: ${there} in ` +
      `each of them; without that flag, ${here} (docs/generator.md#budgets-of-worker-clusters)`,
  );
}

/**
 * The generator's Events name the user who suspends or resumes: the API's managed fields only have the client's name.
 */
async function changedBy(core: ClusterClient): Promise<Readonly<Record<string, string>>> {
  const body = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  const path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
  const username = (raw: unknown): unknown => valueAt(raw, "status", "userInfo", "username");
  const result = await core.api.create(path, body, username, { timeoutMs: CALL_TIMEOUT_MS });
  const who = (result.kind === "ok" && result.object) || "somebody";
  return { [SUSPENSION_CHANGED_BY_ANNOTATION]: `${who} at ${formatMs(core.nowMs())}` };
}

/**
 * The cells of `--cells`; undefined without the flag, which means all. An empty text, such as from an unset variable,
 * is rejected: it would suspend all cells.
 */
function cellsOf({ flags: { cells } }: Context): readonly string[] | undefined {
  if (typeof cells !== "string") return undefined;
  const named = [...new Set(cells.split(",").map((cell) => cell.trim()))];
  if (named.includes("")) throw new CommandError(`--cells "${cells}": name each cell, as in --cells worker-1,worker-2`);
  return named.map(cellId);
}

function unknownCells({ status }: PodProtector, cells: readonly string[] = []): readonly string[] {
  const known = new Set(status?.cells?.map(({ cellID }) => cellID));
  return cells.filter((cell) => !known.has(cell)).map((cell) => `it is not counted in a cell ${cell}: is that the id?`);
}

/** What becomes of the suspension that this one takes the place of. */
function alreadyWarnings(
  { status }: PodProtector,
  before: NonNullable<ProtectorView["suspended"]>,
  cells: readonly string[] | undefined,
): readonly string[] {
  const ends = (before.cells ?? status?.cells?.map(({ cellID }) => cellID) ?? []).filter(
    (cell) => cells?.includes(cell) === false,
  );
  const only = before.cells === undefined ? "" : ` in ${before.cells.join(", ")} alone`;
  return [
    `it is suspended already${only}, until ${before.until ?? "it is resumed"}`,
    ...(only !== "" && cells === undefined ? [`the other cells are new: --cells ${before.cells} leaves them out`] : []),
    ...(ends.length > 0 ? [`this ends its suspension in ${ends.join(", ")}`] : []),
  ];
}

async function suspendIt(context: Context, args: readonly string[]): Promise<ExitCode> {
  const forever = context.is("forever");
  const askedMs = context.duration("for", "30m, 2h or 1d");
  if (forever && askedMs !== undefined) throw new CommandError("--for and --forever exclude each other");
  const forMs = askedMs ?? HOUR_MS;
  const cells = cellsOf(context);
  const { core, protector } = await read(context, args);
  await refuseWhereSourceDecides(core, protector);
  const nowMs = core.nowMs();
  const longestMs = LATEST_MS - nowMs;
  const isCapped = !forever && forMs > longestMs;
  const until = forever ? undefined : formatMs(nowMs + forMs);
  const before = viewProtector(protector, nowMs).suspended;
  const reason = context.text("reason") ?? before?.reason;
  const suspend = { enabled: true, until: until ?? null, reason: reason ?? null, cells: cells ?? null };
  const done = context.is("yes");
  const metadata = done ? { annotations: await changedBy(core) } : {};
  await patch(core, protector, { metadata, spec: { suspend } }, !done);
  const where = cells === undefined ? "" : ` in ${cells.join(", ")}`;
  const warnings = [
    `while ${idOf(protector)} is suspended every deletion of its pods${where} is allowed`,
    ...(forever ? ["it stays so until somebody resumes it"] : []),
    ...(isCapped ? [`--for ${context.text("for")} is longer than a suspension can be: --forever has no end`] : []),
    ...unknownCells(protector, cells),
    ...(before === undefined ? [] : alreadyWarnings(protector, before, cells)),
    ...(reason === undefined || context.text("reason") !== undefined ? [] : [`the reason stays: ${reason}`]),
  ];
  const ends = until === undefined ? "until it is resumed" : `for ${age(Math.min(forMs, longestMs))}, until ${until}`;
  const action = `suspended${where} ${ends}`;
  return report(context, [{ protector: idOf(protector), action, done, warnings }]);
}

async function resumeIt(context: Context, args: readonly string[]): Promise<ExitCode> {
  const { core, protector } = await read(context, args);
  await refuseWhereSourceDecides(core, protector);
  if (protector.spec.enforcement === "Off") {
    throw new CommandError(
      `${idOf(protector)} protects nothing, with a suspension or without: its spec.enforcement is Off. Set it to ` +
        "Enforce, by podseidon.kubewharf.io/enforcement at the workload or its namespace if the generator made it",
    );
  }
  // The webhooks' clocks decide whether a suspension has ended, and this machine's clock may be wrong.
  if (protector.spec.suspend?.enabled !== true)
    return report(context, [{ protector: idOf(protector), action: "not suspended", done: true, warnings: [] }]);
  await patch(core, protector, { metadata: { annotations: await changedBy(core) }, spec: { suspend: null } }, false);
  return report(context, [{ protector: idOf(protector), action: "resumed", done: true, warnings: [] }]);
}

const Group = v.looseObject({ versions: v.array(v.looseObject({ groupVersion: v.string() })) });

/**
 * The path of the workload that the protector names; undefined when the workload is gone, or the protector names none.
 * The protector does not show in which version of its group a kind is served: the preferred version may lack the kind.
 */
export async function findSource(
  core: Pick<ClusterClient, "find">,
  { metadata }: PodProtector,
): Promise<string | undefined> {
  const labels = metadata.labels ?? {};
  const [name, group, resource] = [SOURCE_NAME_LABEL, SOURCE_GROUP_LABEL, SOURCE_RESOURCE_LABEL].map(
    (key) => labels[key],
  );
  const owner = metadata.ownerReferences?.find(({ controller }) => controller === true)?.name ?? name;
  if (owner === undefined || resource === undefined) return undefined;
  const discovered = group ? await core.find(`/apis/${group}`) : undefined;
  if (group && discovered === undefined) return undefined;
  const prefixes = group
    ? v.parse(Group, discovered).versions.map(({ groupVersion }) => `/apis/${groupVersion}`)
    : ["/api/v1"];
  for (const prefix of prefixes) {
    const path = `${prefix}/namespaces/${metadata.namespace ?? ""}/${resource}/${encodeURIComponent(owner)}`;
    if ((await core.find(path)) !== undefined) return path;
  }
  return undefined;
}

/**
 * How to release a protector without the generator's finalizer. With a label of the generator, the protector would
 * count as lost.
 */
function withoutGenerator(protector: PodProtector): string {
  const { name, namespace = "" } = protector.metadata;
  const remove = `kubectl delete podprotector ${name} -n ${namespace}`;
  if (isMadeByHand(protector)) return `${idOf(protector)} was made by hand: ${remove} releases it`;
  const mark = `kubectl annotate podprotector ${name} -n ${namespace} ${RELEASED_ANNOTATION}=true`;
  return (
    `${idOf(protector)} has the label ${SOURCE_NAME_LABEL} and not the generator's finalizer, so that it would be ` +
    `restored: release it by ${mark} && ${remove}`
  );
}

async function releaseIt(context: Context, args: readonly string[]): Promise<ExitCode> {
  const { core, protector } = await read(context, args);
  const id = idOf(protector);
  const [plugin, kubectl] = await context.flagsFor(core);
  if (!isManaged(protector)) throw new CommandError(withFlags(withoutGenerator(protector), plugin, kubectl));
  const done = context.is("yes");
  const source = await findSource(core, protector);
  if (source !== undefined) {
    const { namespace, labels } = protector.metadata;
    const budget = `${labels?.[SOURCE_RESOURCE_LABEL]} ${sourceName(protector.metadata)} -n ${namespace}`;
    const remove = withFlags(`kubectl delete ${budget} releases it`, plugin, kubectl);
    await refuseMerged(core, protector, source, [`annotate it with ${PROTECT_ANNOTATION}=false`, remove]);
  }
  const mark = `by kubectl podseidon ${formatMs(core.nowMs())}`;
  // The generator reverts the release of a protector whose workload asks for protection.
  await (source === undefined
    ? patch(core, protector, { metadata: { annotations: { [RELEASED_ANNOTATION]: mark } } }, !done)
    : patchAt(core, source, { metadata: { annotations: { [PROTECT_ANNOTATION]: "false" } } }, !done));
  if (done) await waitForGenerator(context, core, [protector], isManaged);
  const view = viewProtector(protector, core.nowMs());
  const kind = protector.metadata.labels?.[SOURCE_KIND_LABEL];
  const warnings = [
    `${plural(view.available, "available pod")} of ${id} will no longer be protected`,
    ...(source === undefined
      ? []
      : [
          `${kind} ${sourceName(protector.metadata)} is there: it gets the annotation ` +
            `${PROTECT_ANNOTATION}=false, and a deletion of it that waits goes on; ` +
            "to let everything pass for a while, use suspend",
        ]),
  ];
  return report(context, [{ protector: id, action: "released", done, warnings }]);
}

export const safe = "Without --yes the command is a dry run, and changes nothing.";

export const suspend: Command = {
  name: "suspend",
  usage: "PROTECTOR",
  summary: "Allow every deletion for a while (default: an hour).",
  doing: "suspending the protector",
  description: `The suspension ends by itself. Each deletion that it lets pass carries a warning. ${safe}`,
  flags: {
    for: { type: "string", value: "TIME", help: "How long, as 30m, 2h or 1d. Default: 1h." },
    forever: { type: "boolean", help: "Until it is resumed." },
    cells: { type: "string", value: "A,B", help: "In these cells alone. Default: in all." },
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

export const release: Command = {
  name: "release",
  usage: "PROTECTOR",
  summary: "Give up the protection of a workload, or of one that has vanished.",
  doing: "releasing the protector",
  description:
    "A workload that vanished without being deleted leaves its protector in force, and one that is deleted while " +
    "it asks for replicas waits. This lets its pods go, for good. A workload that is there is annotated: it is not " +
    `protected any more. Waits until the generator has done it. ${safe}`,
  flags: YES,
  arity: [1, 1],
  completes: "protectors",
  run: releaseIt,
};
