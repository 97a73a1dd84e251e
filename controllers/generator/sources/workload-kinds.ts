/**
 * The kinds of workloads, one row each, and the plugin that all rows share: it reads an object and requires one
 * protector, with the minimum that the workload's own controller keeps. The kinds without a minimum follow below.
 * `scalable-plugin.ts` has the custom resources.
 */
import * as v from "valibot";
import {
  type DerivedMinimum,
  daemonSetMinimum,
  deploymentMinimum,
  type IntOrPercent,
  type Rollout,
  runningMinimum,
  type StatedLimits,
  scaledMinimum,
  statedMinimum,
  statefulSetMinimum,
} from "../../../shared/decide/minimum/workload-minimum.ts";
import {
  MAX_UNAVAILABLE_ANNOTATION,
  MIN_AVAILABLE_ANNOTATION,
  MIN_RUNNING_ANNOTATION,
} from "../../../shared/schema/annotations.ts";
import { checker } from "../../../shared/schema/check.ts";
import { LabelSelector, ObjectMeta } from "../../../shared/schema/podprotector.ts";
import { controllerOf, decide, intOrPercent, isProtected, type PluginContext, sourceOf } from "./interpret.ts";
import { readySeconds, strategyInBatches } from "./kruise-rollouts.ts";
import {
  type PodGroup,
  pluginName,
  type RequiredProtector,
  type Scale,
  type SourceKind,
  type SourcePlugin,
  sourceKind,
  type WorkloadRef,
} from "./protection-source.ts";
import { withRunningFloor } from "./running-floor.ts";

/** A Deployment's default, for kinds whose objects do not state how many of their pods may be unavailable. */
const DEFAULT_MAX_UNAVAILABLE = "25%";
const withoutRollout = ({ replicas = 1 }: Rollout): DerivedMinimum => scaledMinimum(replicas, DEFAULT_MAX_UNAVAILABLE);

interface WorkloadKind {
  readonly kind: SourceKind;
  /** Throws `SchemaError` for an object of another kind. */
  readonly read: (raw: unknown) => Workload;
  readonly minimum: (rollout: Rollout) => DerivedMinimum;
  /** API groups under which owner references name the kind: a budget's expected pods are counted over these kinds. */
  readonly scaleGroups: readonly string[];
  /** The controller of such an object is protected instead. */
  readonly isLeftToController?: true;
}

export const WORKLOAD_KINDS: readonly WorkloadKind[] = [
  {
    kind: sourceKind("apps", "v1", "Deployment"),
    read: readWorkload,
    minimum: deploymentMinimum,
    scaleGroups: ["apps", "extensions"],
  },
  {
    kind: sourceKind("apps", "v1", "StatefulSet"),
    read: readWorkload,
    minimum: statefulSetMinimum,
    scaleGroups: ["apps"],
  },
  {
    kind: sourceKind("apps", "v1", "ReplicaSet"),
    read: readWorkload,
    minimum: withoutRollout,
    scaleGroups: ["apps", "extensions"],
    isLeftToController: true,
  },
  {
    kind: sourceKind("", "v1", "ReplicationController"),
    read: readReplicationController,
    minimum: withoutRollout,
    scaleGroups: [""],
    isLeftToController: true,
  },
  {
    kind: sourceKind("apps", "v1", "DaemonSet"),
    read: readDaemonSet,
    scaleGroups: ["apps", "extensions"],
    minimum(rollout) {
      const { minAvailable, derivation } = daemonSetMinimum(rollout);
      return { minAvailable, derivation: `${derivation} (nodes of this cluster that should run it)` };
    },
  },
];

/**
 * Pods of a Job end by themselves, so these kinds are watched only to explain to a user who asks for protection why
 * there is none.
 */
export const IGNORED_KINDS = [sourceKind("batch", "v1", "Job"), sourceKind("batch", "v1", "CronJob")];
const WHY_IGNORED =
  "pods of a Job end by themselves, so that there is no number of available pods to keep; " +
  "protect single pods of it by a PodDisruptionBudget with minAvailable";

const WHY_EVICTIONS_ONLY =
  "its strategy Recreate deletes all pods at once, so that only evictions of its pods are denied, no deletions; the " +
  `annotation ${MIN_AVAILABLE_ANNOTATION} or ${MAX_UNAVAILABLE_ANNOTATION} holds deletions to a number, too, and its ` +
  "rollouts then wait";

/** No annotation says so, but a rollout may take all pods at once, as that of a StatefulSet takes its only pod. */
function whyNone(replicas: number, stated: StatedLimits, derived: DerivedMinimum): string | undefined {
  const isStated = Object.values(stated).some((limit) => limit !== undefined);
  if (isStated || replicas <= 0 || derived.minAvailable > 0) return undefined;
  return (
    `none of its pods is promised (${derived.derivation}); the annotation ${MIN_AVAILABLE_ANNOTATION} promises some, ` +
    "and its rollouts and drains then wait at that number"
  );
}

/** A group of the pods of a custom resource. */
export function podGroup(
  name: string,
  replicas: number,
  selector: LabelSelector,
  stated: StatedLimits,
  maxUnavailable: IntOrPercent = DEFAULT_MAX_UNAVAILABLE,
): PodGroup {
  const minimum = statedMinimum(replicas, stated) ?? scaledMinimum(replicas, maxUnavailable);
  const none = whyNone(replicas, stated, minimum);
  return { name, replicas, selector, minimum, none, running: runningMinimum(replicas, stated) };
}

const Labels = v.nullish(v.record(v.string(), v.string()));
const RollingUpdate = v.looseObject({
  maxSurge: v.optional(v.unknown()),
  maxUnavailable: v.optional(v.unknown()),
  partition: v.nullish(v.number()),
});
const Strategy = v.optional(v.looseObject({ type: v.optional(v.string()), rollingUpdate: v.nullish(RollingUpdate) }));
const Spec = {
  replicas: v.nullish(v.number()),
  minReadySeconds: v.optional(v.number()),
  paused: v.optional(v.unknown()),
  template: v.nullish(v.looseObject({ metadata: v.nullish(v.looseObject({ labels: Labels })) })),
  /** Used by Deployments. */
  strategy: Strategy,
  /** Used by StatefulSets and DaemonSets. */
  updateStrategy: Strategy,
};
const Count = v.optional(v.number());
const parseWorkload = checker(
  v.looseObject({
    metadata: ObjectMeta,
    spec: v.looseObject({ ...Spec, selector: LabelSelector }),
    status: v.optional(v.looseObject({ desiredNumberScheduled: Count, observedGeneration: Count })),
  }),
);
const parseReplicationController = checker(
  v.looseObject({ metadata: ObjectMeta, spec: v.looseObject({ ...Spec, selector: Labels }) }),
);
export const parseMetadata = checker(v.looseObject({ metadata: ObjectMeta, spec: v.optional(v.unknown()) }));

/** The facts that the generator reads from an object of any row. */
interface Workload {
  readonly metadata: ObjectMeta;
  readonly spec: Pick<ReturnType<typeof parseWorkload>["spec"], keyof typeof Spec>;
  /** Undefined selects no pod. */
  readonly selector: LabelSelector | undefined;
  /** The number of pods that the workload asks for. */
  readonly replicas: number;
  /** The status does not have this number yet. */
  readonly isUncounted?: boolean;
}

function readWorkload(raw: unknown): Workload {
  const { metadata, spec } = parseWorkload(raw);
  return { metadata, spec, selector: spec.selector, replicas: spec.replicas ?? 1 };
}

/** A plain map of labels selects the pods. The API's default is the labels of the template. */
function readReplicationController(raw: unknown): Workload {
  const { metadata, spec } = parseReplicationController(raw);
  const matchLabels = spec.selector ?? spec.template?.metadata?.labels ?? {};
  const selector = Object.keys(matchLabels).length === 0 ? undefined : { matchLabels };
  return { metadata, spec, selector, replicas: spec.replicas ?? 1 };
}

/**
 * A DaemonSet asks for one pod on each node that its status counts. So its protector only covers the DaemonSet's own
 * cluster. Where each worker cluster has its own DaemonSet, each cluster runs a generator with itself as the core.
 */
function readDaemonSet(raw: unknown): Workload {
  const { metadata, spec, status } = parseWorkload(raw);
  const { desiredNumberScheduled = 0, observedGeneration = 0 } = status ?? {};
  // The apiserver creates a DaemonSet with 0 in its status, before its controller has counted a node.
  const isUncounted = !(observedGeneration > 0 || desiredNumberScheduled > 0);
  return { metadata, spec, selector: spec.selector, replicas: desiredNumberScheduled, isUncounted };
}

export function workloadPlugin(row: WorkloadKind, context: PluginContext): SourcePlugin {
  return {
    name: pluginName(row.kind),
    kind: row.kind,
    interpret(raw) {
      const workload = row.read(raw);
      const { metadata, replicas } = workload;
      const controller = controllerOf(metadata);
      // Not counted yet is not 0.
      const own = decide(context, metadata, workload.isUncounted === true ? 1 : replicas);
      const isLeft = row.isLeftToController === true && controller !== undefined && own !== "OutOfScope";
      const decision = isLeft ? "Controlled" : own;
      const scale = workload.isUncounted === true ? {} : { scale: scaleOf(workload, controller, isLeft) };
      const required = isProtected(decision) ? requiredProtector(row, workload) : undefined;
      if (required === undefined) return sourceOf(metadata, decision, scale);
      const protectors = withRunningFloor(required, runningMinimum(replicas, statedLimits(metadata)));
      if (workload.isUncounted === true)
        return sourceOf(metadata, decision, { need: { kind: "status", required: protectors } });
      const why = required.spec.protectedOperations === undefined ? {} : { why: WHY_EVICTIONS_ONLY };
      return sourceOf(metadata, decision, { protectors, ...scale, ...why });
    },
  };
}

function requiredProtector(row: WorkloadKind, workload: Workload): RequiredProtector | undefined {
  const { metadata, spec, selector, replicas } = workload;
  if (selector === undefined) return undefined;
  const { type: strategy, rollingUpdate } = strategyOf(workload);
  const stated = statedMinimum(replicas, statedLimits(metadata));
  // A rollout with Recreate deletes all pods, and would wait for ever.
  const spared = strategy === "Recreate" && stated === undefined ? { protectedOperations: ["EVICT"] } : {};
  const { minAvailable, derivation } =
    stated ??
    row.minimum({
      replicas,
      strategy,
      maxSurge: intOrPercent(rollingUpdate?.maxSurge),
      maxUnavailable: intOrPercent(rollingUpdate?.maxUnavailable),
      partition: rollingUpdate?.partition ?? undefined,
    });
  return {
    name: `${pluginName(row.kind)}-${metadata.name}`,
    spec: { minAvailable, minReadySeconds: readySeconds(metadata, spec.minReadySeconds ?? 0), selector, ...spared },
    derivation,
    none: whyNone(replicas, statedLimits(metadata), { minAvailable, derivation }),
  };
}

function strategyOf({ metadata, spec }: Workload): NonNullable<v.InferOutput<typeof Strategy>> {
  const stated = spec.strategy ?? spec.updateStrategy ?? {};
  if (stated.type !== "Recreate" || spec.paused !== true) return stated;
  const inBatches = v.safeParse(RollingUpdate, strategyInBatches(metadata));
  return inBatches.success ? { rollingUpdate: inBatches.output } : stated;
}

/** The limits that the annotations of a workload of any kind state. */
export function statedLimits({ annotations }: ObjectMeta): StatedLimits {
  return {
    minAvailable: annotations?.[MIN_AVAILABLE_ANNOTATION],
    maxUnavailable: annotations?.[MAX_UNAVAILABLE_ANNOTATION],
    minRunning: annotations?.[MIN_RUNNING_ANNOTATION],
  };
}

const NO_LABELS: Scale["podLabels"] = {};

function scaleOf({ spec, replicas, selector }: Workload, controller: WorkloadRef | undefined, isLeft: boolean): Scale {
  // Budgets never look for the many ReplicaSets of Deployments by their pod labels.
  const podLabels = isLeft ? NO_LABELS : (spec.template?.metadata?.labels ?? NO_LABELS);
  return { replicas, selector, controller, podLabels };
}

export function ignoredPlugin(kind: SourceKind, context: PluginContext): SourcePlugin {
  return {
    name: pluginName(kind),
    kind,
    interpret(raw) {
      const { metadata } = parseMetadata(raw);
      const selection = context.select(metadata);
      if (selection !== "Selected") return sourceOf(metadata, selection);
      return sourceOf(metadata, "Ignored", { why: WHY_IGNORED });
    },
  };
}
