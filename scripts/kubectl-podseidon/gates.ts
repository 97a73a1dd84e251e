/**
 * `gates`: why is this pod not Ready? Shows which readiness gates are closed, who wrote them last, and who should open
 * them.
 */
import * as v from "valibot";
import { podPath } from "../../shared/kube/client/api-path.ts";
import { COUNTED_CONDITION } from "../../shared/schema/annotations.ts";
import { checker, valueAt } from "../../shared/schema/check.ts";
import { parseMs } from "../../shared/schema/time.ts";
import { statusOf } from "./invocation/cluster.ts";
import { type Command, type Context, objectName } from "./invocation/command.ts";
import { CommandError, EXIT, type ExitCode } from "./invocation/errors.ts";
import { age, plural, table } from "./invocation/output.ts";

const Text = v.optional(v.string());
const Condition = v.looseObject({
  ...{ type: v.string(), status: v.string(), reason: Text, message: Text },
  lastTransitionTime: v.nullish(v.string()),
});
const ManagedFields = v.looseObject({ manager: Text, time: Text, fieldsV1: v.optional(v.unknown()) });
const parsePod = checker(
  v.looseObject({
    metadata: v.looseObject({ managedFields: v.optional(v.array(ManagedFields)) }),
    spec: v.looseObject({ readinessGates: v.optional(v.array(v.looseObject({ conditionType: v.string() }))) }),
    status: v.optional(v.looseObject({ conditions: v.optional(v.array(Condition)) })),
  }),
);

/** Who opens a gate, by the prefix of its condition type. Any other gate belongs to the platform. */
const SETTERS: readonly (readonly [string, string])[] = [
  [COUNTED_CONDITION, "podseidon's aggregator of this cell (docs/counted-gate.md)"],
  ["InPlaceUpdateReady", "OpenKruise's manager, when the change in place is done"],
  ["KruisePodReady", "OpenKruise's manager, when lifecycle hooks have run"],
  ["target-health.", "the AWS load balancer controller, when the target is healthy"],
  ["cloud.google.com/load-balancer-neg-ready", "GKE's NEG controller, when the endpoint is healthy"],
];

interface Gate {
  readonly type: string;
  /** `True` is open; `missing` until the condition is written. */
  readonly status: string;
  /** The field manager that last wrote the condition; undefined when none has, or when the server does not show it. */
  readonly writtenBy: string | undefined;
  /** Milliseconds since the last transition. */
  readonly ageMs: number | undefined;
  readonly why: string;
  /** Who should open the gate; undefined for an unknown gate. */
  readonly setter: string | undefined;
}

export interface GateReport {
  readonly gates: readonly Gate[];
  /** The other condition of Ready, which the kubelet sets. */
  readonly containersReady: string;
  readonly ready: string;
}

/** The state of a pod's readiness gates. Throws `SchemaError` for another object. Pure. */
export function gatesOf(raw: unknown, nowMs: number): GateReport {
  const { metadata, spec, status } = parsePod(raw);
  const conditions = new Map((status?.conditions ?? []).map((condition) => [condition.type, condition]));
  const writerOf = (type: string): string | undefined =>
    [...(metadata.managedFields ?? [])]
      .sort((a, b) => parseMs(b.time) - parseMs(a.time))
      .find(({ fieldsV1 }) => ownsCondition(fieldsV1, type))?.manager;
  const gates = (spec.readinessGates ?? []).map(({ conditionType: type }): Gate => {
    const found = conditions.get(type);
    const sinceMs = parseMs(found?.lastTransitionTime);
    return {
      type,
      status: found?.status ?? "missing",
      writtenBy: writerOf(type),
      ageMs: sinceMs > 0 ? nowMs - sinceMs : undefined,
      why: [found?.reason, found?.message].filter((part) => part).join(": "),
      setter: SETTERS.find(([prefix]) => type.startsWith(prefix))?.[1],
    };
  });
  const statusOfType = (type: string): string => conditions.get(type)?.status ?? "missing";
  return { gates, containersReady: statusOfType("ContainersReady"), ready: statusOfType("Ready") };
}

function ownsCondition(fields: unknown, type: string): boolean {
  return valueAt(fields, "f:status", "f:conditions", `k:${JSON.stringify({ type })}`) !== undefined;
}

export function gatesText(pod: string, { gates, containersReady, ready }: GateReport): string {
  if (gates.length === 0) return `Pod ${pod} has no readiness gates; Ready is ${ready}.\n`;
  const rows = gates.map(({ type, status, ageMs, writtenBy = "-", why }) => [
    ...[type, status === "True" ? "open" : "closed", status, age(ageMs), writtenBy, why || "-"],
  ]);
  const closed = gates.filter(({ status }) => status !== "True");
  const advice = closed.map(({ type, status, writtenBy, setter }) => {
    const known = writtenBy === undefined ? "an unknown controller" : `${writtenBy}, which wrote it last`;
    const who =
      setter ?? (status === "missing" ? "an unknown controller of the platform, which has not written it yet" : known);
    return `- ${type}: is to be opened by ${who}\n`;
  });
  const kubelet = containersReady === "True" ? "" : `- its containers: ContainersReady is ${containersReady}\n`;
  const what = `${plural(closed.length, "readiness gate")} closed, of ${gates.length}; Ready is ${ready}`;
  return (
    table(["GATE", "STATE", "CONDITION", "SINCE", "WRITTEN BY", "WHY"], rows) +
    `\nPod ${pod}: ${what}.\n` +
    (advice.length + kubelet.length === 0 ? "" : `\nWaits for:\n${advice.join("")}${kubelet}`)
  );
}

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  const name = objectName(args, "pod");
  const [cluster, namespace] = await Promise.all([context.cluster(), context.namespace()]);
  // Not by `find`, which leaves out the managed fields.
  const response = await context.progress.during(`reading pod ${namespace}/${name} of ${cluster.name}`, () =>
    cluster.raw("GET", podPath(namespace, name)),
  );
  if (response.status === 404)
    throw new CommandError(`there is no pod ${namespace}/${name} in ${cluster.name}; see -n and --context`);
  if (response.status !== 200) throw new CommandError(`${cluster.name}: ${statusOf(response).message}`);
  const report = gatesOf(JSON.parse(response.body), cluster.nowMs());
  context.print({ pod: { namespace, name }, ...report }, gatesText(`${namespace}/${name}`, report));
  return report.gates.every(({ status }) => status === "True") ? EXIT.yes : EXIT.no;
}

export const gates: Command = {
  name: "gates",
  usage: "POD",
  summary: "Which readiness gates does the pod wait for, and who should open them?",
  doing: "looking for the cluster",
  description:
    "Reads only the pod. Exit code 0: every gate is open, or the pod has none. 1: a gate is closed. 2: not known.",
  flags: {},
  arity: [1, 1],
  completes: "pods",
  run,
};
