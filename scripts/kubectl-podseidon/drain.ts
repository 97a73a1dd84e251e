/** `drain-check`: what would happen to `kubectl drain` of a node now. */
import * as v from "valibot";
import { isFinished } from "../../shared/decide/availability/availability.ts";
import { wayOut } from "../../shared/decide/minimum/promise-less.ts";
import { type Decision, decide } from "../../shared/decide/quota.ts";
import { apply } from "../../shared/decide/reserve.ts";
import { type ProtectorState, parseProtector } from "../../shared/decide/state/protector-state.ts";
import { valueAt } from "../../shared/schema/check.ts";
import { type Pod, parseAnyPod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import {
  ask,
  cellOfWebhookConfiguration,
  covering,
  type DryRunResult,
  decisionText,
  requestFor,
  webhookConfigurationOf,
} from "./disruption-dry-run.ts";
import { mapAtOnce } from "./invocation/at-once.ts";
import type { ClusterClient } from "./invocation/cluster.ts";
import { CELL, type Command, type Context, objectName } from "./invocation/command.ts";
import { CommandError, EXIT, type ExitCode, orElse } from "./invocation/errors.ts";
import { plural, table } from "./invocation/output.ts";
import { isUnprotected, runsDry } from "./unprotected.ts";

const Owned = v.looseObject({
  metadata: v.looseObject({
    ownerReferences: v.optional(v.array(v.looseObject({ kind: v.string(), controller: v.optional(v.boolean()) })), []),
  }),
});

interface NodePod {
  readonly pod: Pod;
  /** Whether kubectl drain leaves the pod. A finished pod is deleted, even one of a DaemonSet. */
  readonly stays: boolean;
}

function nodePod(raw: unknown): NodePod {
  const pod = parseAnyPod(raw);
  const owners = v.parse(Owned, raw).metadata.ownerReferences;
  const isDaemons = owners.some(({ kind, controller }) => kind === "DaemonSet" && controller === true);
  return { pod, stays: pod.mirror || (isDaemons && !isFinished(pod)) };
}

export interface DrainLine {
  readonly namespace: string;
  readonly pod: string;
  readonly protectors: readonly string[];
  /** The webhook's verdict on the pod's eviction alone. */
  readonly now: DryRunResult["verdict"];
  /**
   * The result after the node's earlier pods: evicted at once, waits for replacements, or never evicted in this state.
   */
  readonly together: "goes" | "waits" | "never" | "unknown";
  readonly why: string;
}

/**
 * Simulates the evictions of all pods, in order, on copies of the protectors. Pods with quota are evicted at once; the
 * others wait until pods elsewhere become available. A pod is never evicted when its protector requires as many pods as
 * exist. Pure.
 */
export function planDrain(
  pods: readonly { readonly pod: Pod; readonly answer: DryRunResult }[],
  protectors: readonly PodProtector[],
  cell: string | undefined,
  nowMs: number,
): readonly DrainLine[] {
  const states = new Map<PodProtector, ProtectorState>(protectors.map((one) => [one, parseProtector(one)]));
  return pods.map(({ pod, answer }) => {
    const own = covering(protectors, pod);
    const names = own.map(({ metadata }) => metadata.name);
    const line = { namespace: pod.namespace, pod: pod.name, protectors: names, now: answer.verdict };
    if (answer.verdict !== "admitted" && answer.verdict !== "refused") {
      return { ...line, together: "unknown", why: answer.message };
    }
    if (own.length > 0 && cell === undefined)
      return { ...line, together: "unknown", why: "the cell is not known: --cell" };
    const request = requestFor(pod, "evict", cell ?? "", nowMs);
    const decided = own.map((one) => {
      const state = states.get(one) ?? parseProtector(one);
      return { protector: one, state, decision: decide(state, request) };
    });
    const blocks = decided.flatMap((one) =>
      one.decision.allowed ? [] : [blockedBy(one.protector, one.state, one.decision)],
    );
    const blocker = blocks.find(({ together }) => together === "never") ?? blocks[0];
    if (blocker === undefined && answer.verdict === "refused") {
      // Something other than a protector denies: a PodDisruptionBudget, a probe, another webhook.
      return { ...line, together: "waits", why: answer.message };
    }
    if (blocker === undefined) {
      for (const { state, decision } of decided) apply(state, request, decision);
      return { ...line, together: "goes", why: own.length === 0 ? "no protector covers it" : "" };
    }
    return { ...line, ...blocker };
  });
}

/** The decisions that the numbers of a protector explain. */
const BY_NUMBERS: readonly string[] = ["AtMinimum", "Reserved"];

/** What the decision of a protector against a pod means for a drain. */
function blockedBy(
  protector: PodProtector,
  { spec, cells }: ProtectorState,
  decision: Extract<Decision, { allowed: false }>,
): Pick<DrainLine, "together" | "why"> {
  const total = cells.values().reduce((sum, one) => sum + (one.aggregation?.totalReplicas ?? 0), 0);
  const { minAvailable, available, reserved } = decision.facts;
  const { name } = protector.metadata;
  const facts = `${name} needs ${minAvailable} of ${total}`;
  // A pod that is not counted yet is missing from the total.
  if (decision.cause !== "NotCounted" && total > 0 && spec.minAvailable >= total)
    return { together: "never", why: `${facts}${wayOut(protector)}` };
  if (!BY_NUMBERS.includes(decision.cause)) return { together: "waits", why: `${name}: ${decisionText(decision)}` };
  return { together: "waits", why: `${facts}, ${available} available, ${reserved} reserved` };
}

/** Whether there are other nodes, but none on which the scheduler may place replacements. Pure. */
export function othersCordoned(node: string, nodes: readonly unknown[]): boolean {
  const others = nodes.filter((raw) => valueAt(raw, "metadata", "name") !== node);
  return others.length > 0 && others.every((raw) => valueAt(raw, "spec", "unschedulable") === true);
}

/** True for a protected pod whose eviction was admitted. */
function isAdmitted({ now, protectors }: DrainLine): boolean {
  return now === "admitted" && protectors.length > 0;
}

/** Why no webhook protects the pods of some namespaces. */
interface Unheld {
  readonly why: "the webhook is not called" | "the webhook only warns";
  readonly namespaces: ReadonlySet<string>;
}

/** The lines of pods that no webhook protects: whatever the protectors decide, admitted evictions happen. Pure. */
function unheldLines(lines: readonly DrainLine[], { why, namespaces }: Unheld): readonly DrainLine[] {
  return lines.map((line) =>
    isAdmitted(line) && namespaces.has(line.namespace) ? { ...line, together: "goes", why } : line,
  );
}

function unprotectedText({ why, namespaces }: Unheld, flags: string): string {
  if (namespaces.size === 0) return "";
  const where = `${namespaces.size === 1 ? "namespace" : "namespaces"} ${[...namespaces].sort().join(", ")}`;
  const what = `UNPROTECTED: ${why} before pods of ${where} go: a drain takes all at once.`;
  return `${what} See kubectl podseidon doctor${flags}\n\n`;
}

const HELD: Unheld = { why: "the webhook is not called", namespaces: new Set() };

export function drainText(
  node: string,
  lines: readonly DrainLine[],
  stay: number,
  cordoned = false,
  unheld: Unheld = HELD,
  flags = "",
): string {
  const count = (what: DrainLine["together"]): number => lines.filter(({ together }) => together === what).length;
  const rows = lines.map(({ namespace, pod, protectors, now, together, why }) => {
    return [namespace, pod, protectors.join(",") || "-", now, together, why];
  });
  const sum = [
    `${plural(count("goes"), "pod")} can go at once`,
    `${count("waits")} ${count("waits") === 1 ? "waits" : "wait"} until others have taken over`,
    `${count("never")} can't go as things are`,
    ...(count("unknown") > 0 ? [`${count("unknown")} could not be checked`] : []),
    ...(stay > 0 ? [`${stay} stay (DaemonSets or static pods)`] : []),
  ];
  const head = table(["NAMESPACE", "POD", "PROTECTOR", "ALONE", "TOGETHER", "WHY"], rows);
  const nowhere =
    cordoned && lines.length > 0
      ? "Every other node is cordoned: replacements stay Pending, so pods that wait do so until you uncordon a node.\n"
      : "";
  const pods = lines.length === 0 ? "" : `${head}\n`;
  return `${unprotectedText(unheld, flags)}${pods}Node ${node}: ${sum.join(", ")}.\n${nowhere}`;
}

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  const node = objectName(args, "node");
  const named = context.cell;
  const [cluster, core] = await Promise.all([context.cluster(), context.core()]);
  if ((await cluster.find(`/api/v1/nodes/${encodeURIComponent(node)}`)) === undefined) {
    throw new CommandError(`there is no node ${node} in ${cluster.name}; see --context`);
  }
  const raw = await cluster.list("/api/v1/pods", { fieldSelector: `spec.nodeName=${node}` });
  const found = raw.map(nodePod);
  const leaving = found.filter(({ stays }) => !stays).map(({ pod }) => pod);
  const [protectors, configuration, nodes] = await Promise.all([
    core.protectors(undefined),
    webhookConfigurationOf(cluster),
    // A user may lack the permission to list nodes.
    cluster.list("/api/v1/nodes").catch(orElse(() => [])),
  ]);
  const cordoned = othersCordoned(node, nodes);
  const answers = await mapAtOnce(context, `asking about the pods of ${node}`, leaving, async (pod) => ({
    pod,
    answer: await ask(cluster, "evict", pod),
  }));
  const cell = cellOfWebhookConfiguration(configuration) ?? named;
  const plan = planDrain(answers, protectors, cell, core.nowMs());
  const namespaces = new Set(plan.filter(isAdmitted).map(({ namespace }) => namespace));
  const warned = answers.some(({ answer }) => answer.warnings.some((text) => text.startsWith("dry run: ")));
  const unheld = await context.progress.during("asking whether anybody holds them back", async (): Promise<Unheld> => {
    if (warned || (namespaces.size > 0 && (await runsDry(cluster, core, context.systemNamespace))))
      return { why: "the webhook only warns", namespaces };
    return { why: "the webhook is not called", namespaces: await unasked(cluster, configuration, namespaces) };
  });
  const unprotected = unheld.namespaces.size > 0;
  const lines = unheldLines(plan, unheld);
  const staying = found.length - leaving.length;
  const [flags] = await context.flagsFor(cluster);
  context.print(
    { node, pods: lines, staying, othersCordoned: cordoned, isUnprotected: unprotected },
    drainText(node, lines, staying, cordoned, unheld, flags),
  );
  const isStuck = ({ together }: DrainLine): boolean => together === "never" || (together === "waits" && cordoned);
  if (unprotected || lines.some(isStuck)) return EXIT.no;
  return lines.some(({ together }) => together === "unknown") ? EXIT.unknown : EXIT.yes;
}

/** The namespaces in which the cluster does not ask the webhook. */
async function unasked(
  cluster: ClusterClient,
  configuration: unknown,
  namespaces: Iterable<string>,
): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  for (const namespace of namespaces) if (await isUnprotected(cluster, configuration, namespace)) found.add(namespace);
  return found;
}

export const drainCheck: Command = {
  name: "drain-check",
  usage: "NODE",
  summary: "What kubectl drain of the node would meet now.",
  doing: "reading the pods of the node and the protectors",
  description:
    "ALONE is the webhook's answer to the eviction of only this pod (a dry run). TOGETHER is what happens to the " +
    "pod when all pods of the node are evicted one after the other: goes, waits (until others have taken over), " +
    "or never (as things are). The last line says when every other node is cordoned. Exit code 0: the drain can " +
    "complete. 1: some pods can't go. 2: for some pods it is not known.",
  flags: CELL,
  arity: [1, 1],
  completes: "nodes",
  run,
};
