/**
 * The number of pods that this cell's workloads ask for, for protectors whose minimum is a fraction of the pods of all
 * cells (docs/design.md#expected-pods). Workloads are watched from the first such protector on; without one, this
 * module is not loaded.
 */
import { isDeepStrictEqual } from "node:util";
import * as v from "valibot";
import { compileSelector, type Labels } from "../../../shared/decide/availability/selector.ts";
import { podCount } from "../../../shared/decide/minimum/workload-minimum.ts";
import type { ExpectedReplicas } from "../../../shared/decide/settling/cell-update.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { checker, recordOrEmpty } from "../../../shared/schema/check.ts";
import { ObjectMeta } from "../../../shared/schema/podprotector.ts";
import type { TrackedProtector } from "./membership.ts";

interface Workload {
  readonly key: string;
  readonly namespace: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** Undefined for a DaemonSet whose nodes are not counted yet. */
  readonly replicas: number | undefined;
  /** Has no replicas: its number is that of the nodes that should run a pod of it. */
  readonly isDaemonSet: boolean;
  /** Labels of the pod template. */
  readonly podLabels: Labels;
  /** UID of the controller. If it is a workload that counts, it asks for the pods, and this object does not count. */
  readonly controller: string | undefined;
}

export interface ExpectedPodsOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  /** Custom resources with `spec.replicas` and `spec.template`, as `GROUP/VERSION/RESOURCE`. */
  readonly scalable: readonly string[];
  /** The namespace of a cell that consists of one; empty for all namespaces. */
  readonly namespace: string;
  readonly onWatch: (resource: string, event: ReflectorEvent) => void;
  /** What {@link ExpectedPods.of} returns for this protector may have changed. */
  readonly onChanged: (tracked: TrackedProtector) => void;
}

const BUILT_IN: ReadonlyMap<string, string> = new Map([
  ["apps/v1/deployments", "Deployment"],
  ["apps/v1/statefulsets", "StatefulSet"],
  ["apps/v1/replicasets", "ReplicaSet"],
  ["v1/replicationcontrollers", "ReplicationController"],
  ["apps/v1/daemonsets", "DaemonSet"],
]);
const NO_LABELS: Labels = {};
/**
 * A cell lacks a kind after this many 404s in a row, most of a minute: an apiserver that starts serves no custom
 * resources yet.
 */
const ABSENT_AFTER_404S = 10;

const parseObject = checker(
  v.looseObject({
    metadata: ObjectMeta,
    spec: v.looseObject({
      replicas: v.nullish(v.number()),
      template: v.nullish(
        v.looseObject({
          metadata: v.nullish(v.looseObject({ labels: v.nullish(v.record(v.string(), v.string())) })),
        }),
      ),
    }),
    status: v.optional(v.unknown()),
  }),
);

/** Of a DaemonSet: the status of a custom resource may be anything. It has a 0 before its controller has counted. */
function nodesOf(status: unknown): number | undefined {
  const { desiredNumberScheduled: nodes, observedGeneration } = recordOrEmpty(status);
  if (typeof nodes === "number" && nodes > 0) return nodes;
  return typeof observedGeneration === "number" && observedGeneration > 0 ? 0 : undefined;
}

function workloadOf(resource: string, raw: unknown): Workload {
  const { metadata, spec, status } = parseObject(raw);
  const isDaemonSet = BUILT_IN.get(resource) === "DaemonSet";
  // The API's default is 1. The CRD of a custom resource may allow any number.
  const asked = isDaemonSet ? nodesOf(status) : Math.ceil(spec.replicas ?? 1);
  const { namespace = "", name, uid, resourceVersion, ownerReferences = [] } = metadata;
  return {
    key: `${resource}/${namespace}/${name}`,
    namespace,
    uid,
    resourceVersion,
    replicas: asked && podCount(asked),
    isDaemonSet,
    podLabels: spec.template?.metadata?.labels ?? NO_LABELS,
    controller: ownerReferences.find(({ controller }) => controller === true)?.uid,
  };
}

/** A protector that needs the number, with its selector. */
interface Asker {
  readonly selector: string;
  readonly matches: (labels: Labels) => boolean;
  /** Undefined once a workload has changed. */
  counted?: ExpectedReplicas | undefined;
}

export class ExpectedPods {
  readonly #watches: ReadonlyMap<string, Reflector<Workload>>;
  /** 404s in a row, by resource. */
  readonly #notServed = new Map<string, number>();
  readonly #byNamespace = new Map<string, Map<string, Workload>>();
  readonly #askers = new Map<TrackedProtector, Asker>();
  readonly #onChanged: ExpectedPodsOptions["onChanged"];

  /** Starts to watch. */
  constructor(options: ExpectedPodsOptions) {
    this.#onChanged = options.onChanged;
    const watched = [...BUILT_IN.keys(), ...options.scalable].map((resource) => {
      const onEvent = (event: ReflectorEvent): void => this.#observe(resource, event);
      return [resource, watchOf(resource, options, onEvent)] as const;
    });
    this.#watches = new Map(watched);
    for (const watch of this.#watches.values()) {
      watch.subscribe({ changed: (before, after) => this.#changed(before, after), relisted: () => this.#listed() });
      watch.start();
    }
  }

  /** The pods that workloads ask for whose pod template the protector selects; "Unknown" until all of them say it. */
  of(tracked: TrackedProtector): ExpectedReplicas {
    const asker = this.#asker(tracked);
    for (const [resource, { synced }] of this.#watches) if (!synced && !this.#isAbsent(resource)) return "Unknown";
    asker.counted ??= this.#count(tracked, asker);
    return asker.counted;
  }

  #count(tracked: TrackedProtector, { matches }: Asker): ExpectedReplicas {
    const workloads = [...(this.#byNamespace.get(tracked.id.namespace)?.values() ?? [])];
    const matching = workloads.filter(({ podLabels }) => matches(podLabels));
    // Leaves out the ReplicaSets of Deployments, but not workloads whose controller does not count: an operator's
    // object, or one without such a template, as an Argo Rollout with a workloadRef. Nothing else asks for their pods.
    const uids = new Set<string | undefined>(matching.map(({ uid }) => uid));
    const all = matching.filter(({ controller }) => !uids.has(controller));
    // As in the core, a DaemonSet alone has no number.
    const found = all.every(({ isDaemonSet }) => isDaemonSet) ? [] : all;
    let sum = 0;
    for (const { replicas } of found) {
      if (replicas === undefined) return "Unknown";
      sum += replicas;
    }
    // An apiserver rejects the whole status for a greater number.
    return { workloads: found.length, replicas: podCount(sum) };
  }

  /** The protector is gone, or no longer needs the number. */
  forget(tracked: TrackedProtector): void {
    this.#askers.delete(tracked);
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#watches.values()].map((watch) => watch.stop()));
  }

  #isAbsent(resource: string): boolean {
    return (this.#notServed.get(resource) ?? 0) >= ABSENT_AFTER_404S;
  }

  #observe(resource: string, event: ReflectorEvent): void {
    if (event.kind !== "failed") return;
    const wasAbsent = this.#isAbsent(resource);
    // A role from before DaemonSets counted does not allow to list them.
    const isOld = event.tag === "forbidden" && BUILT_IN.get(resource) === "DaemonSet";
    const isLacking = event.tag === "not-served" || isOld;
    this.#notServed.set(resource, isLacking ? (this.#notServed.get(resource) ?? 0) + 1 : 0);
    if (this.#isAbsent(resource) !== wasAbsent) this.#listed();
  }

  #asker(tracked: TrackedProtector): Asker {
    const selector = JSON.stringify(tracked.protector.spec.selector);
    const known = this.#askers.get(tracked);
    if (known?.selector === selector) return known;
    const { matches } = compileSelector(tracked.protector.spec.selector, "fails");
    const asker = { selector, matches };
    this.#askers.set(tracked, asker);
    return asker;
  }

  #listed(): void {
    for (const tracked of this.#askers.keys()) this.#onChanged(tracked);
  }

  #changed(before: Workload | undefined, after: Workload | undefined): void {
    const workload = after ?? before;
    if (workload === undefined) return;
    const { namespace, key } = workload;
    const workloads = this.#byNamespace.get(namespace) ?? new Map<string, Workload>();
    if (after === undefined) workloads.delete(key);
    else workloads.set(key, after);
    if (workloads.size > 0) this.#byNamespace.set(namespace, workloads);
    else this.#byNamespace.delete(namespace);
    // Most changes only concern a status.
    if (before !== undefined && after !== undefined && asksTheSame(before, after)) return;
    for (const [tracked, asker] of this.#askers) {
      if (tracked.id.namespace !== namespace) continue;
      if (![before, after].some((one) => one !== undefined && asker.matches(one.podLabels))) continue;
      asker.counted = undefined;
      this.#onChanged(tracked);
    }
  }
}

function asksTheSame(one: Workload, other: Workload): boolean {
  return (
    one.replicas === other.replicas &&
    one.controller === other.controller &&
    isDeepStrictEqual(one.podLabels, other.podLabels)
  );
}

function watchOf(
  resource: string,
  options: ExpectedPodsOptions,
  observe: (event: ReflectorEvent) => void,
): Reflector<Workload> {
  const { transport, ports, namespace, onWatch } = options;
  const parts = resource.split("/");
  const plural = parts.at(-1) ?? "";
  const kind = BUILT_IN.get(resource);
  const version = [parts.length === 2 ? "/api" : "/apis", ...parts.slice(0, -1)].join("/");
  return new Reflector<Workload>({
    name: plural,
    transport,
    ports,
    path: `${version}${namespace === "" ? "" : `/namespaces/${namespace}`}/${plural}`,
    ...(kind === undefined ? {} : { kind }),
    parse: (raw) => workloadOf(resource, raw),
    uidOf: ({ uid }) => uid,
    versionOf: ({ resourceVersion }) => resourceVersion,
    unparsable: "keepLast",
    onEvent(event) {
      observe(event);
      onWatch(plural, event);
    },
  });
}
