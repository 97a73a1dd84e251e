/**
 * The number of pods that a workload asks for, determined like in the disruption controller: from the watches of
 * `sources/` for kinds with `spec.replicas`, from `polled-scales.ts` for every other kind. Remembers which budgets to
 * resolve again when a workload changes.
 */

import { isDeepStrictEqual } from "node:util";
import type { Labels } from "../../../shared/decide/availability/selector.ts";
import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";
import type { KindWatch } from "../sources/kind-watch.ts";
import {
  groupOf,
  isObjectRef,
  type ProtectionSource,
  pluginName,
  type Scale,
  sourceKey,
  type WorkloadRef,
} from "../sources/protection-source.ts";
import { WORKLOAD_KINDS } from "../sources/workload-kinds.ts";
import {
  type FailedLookup,
  type MissingScale,
  missing,
  PolledScales,
  type PolledScalesOptions,
  type PolledWorkload,
} from "./polled-scales.ts";

export interface FoundWorkload extends PolledWorkload {
  /** Set for a watched workload; the others are polled. */
  readonly scale?: Scale;
}

type WorkloadLookup =
  | FoundWorkload
  | MissingScale
  /** The kind is not listed yet. The budget is queued when it is. */
  | { readonly kind: "waiting" }
  | FailedLookup;

const NO_BUDGETS: ReadonlySet<string> = new Set();

/** Kinds whose number of pods a watch of `sources/` knows. */
const COUNTED = WORKLOAD_KINDS.map((row) => {
  return { kind: row.kind.kind, groups: row.scaleGroups, plugin: pluginName(row.kind) };
});
/** Those of them with `spec.replicas`. */
const WATCHED = COUNTED.filter(({ kind }) => kind !== "DaemonSet");
const DAEMON_SETS = COUNTED.filter(({ kind }) => kind === "DaemonSet");

export interface WorkloadScalesOptions extends PolledScalesOptions {
  readonly kinds: ReadonlyMap<string, Pick<KindWatch, "ready" | "get"> & Partial<Pick<KindWatch, "isDenied">>>;
}

/** Polled workloads of one budget that are read concurrently. */
const MAX_AT_ONCE = 8;

export class WorkloadScales {
  readonly polled: PolledScales;
  readonly #options: WorkloadScalesOptions;
  /** Keys of budgets by the key of each workload that they depend on, and the reverse. */
  readonly #dependents = new Map<string, Set<string>>();
  readonly #dependencies = new Map<string, Set<string>>();
  /** Of budgets that depend on any workload of their namespace: the pods that they select. */
  readonly #matches = new Map<string, (labels: Labels) => boolean>();
  /** By namespace, then by key. */
  readonly #byNamespace = new Map<string, Map<string, ProtectionSource>>();

  constructor(options: WorkloadScalesOptions) {
    this.#options = options;
    this.polled = new PolledScales(options);
  }

  /** Records a change of one workload, and returns the keys of the budgets that depend on it. */
  changed(key: string, before: ProtectionSource | undefined, after: ProtectionSource | undefined): ReadonlySet<string> {
    const namespace = (after ?? before)?.namespace ?? "";
    if (before?.scale === undefined && after?.scale === undefined) return NO_BUDGETS;
    const workloads = this.#byNamespace.get(namespace) ?? new Map<string, ProtectionSource>();
    if (after?.scale === undefined) workloads.delete(key);
    else workloads.set(key, after);
    if (workloads.size > 0) this.#byNamespace.set(namespace, workloads);
    else this.#byNamespace.delete(namespace);
    if (sameScale(before, after)) return NO_BUDGETS;
    const found = new Set(this.#dependents.get(key));
    const any = this.#dependents.get(anyWorkload(namespace));
    if (any === undefined) return found;
    const concerned = [before, after];
    // One that comes or goes may control others. Most changes are of one that stays, and look at no others.
    if (!(before?.scale && after?.scale && before.uid === after.uid)) {
      const uids = new Set([before?.uid, after?.uid]);
      for (const one of workloads.values())
        if (one.scale?.controller && uids.has(one.scale.controller.uid)) concerned.push(one);
    }
    // Each budget that is resolved again looks at all workloads of the namespace.
    for (const budget of any) {
      const matches = this.#matches.get(budget);
      if (concerned.some((one) => one?.scale !== undefined && matches?.(one.scale.podLabels))) found.add(budget);
    }
    return found;
  }

  /** Keys of the budgets that depend on any workload of a plugin. */
  dependentsOfKind(plugin: string): ReadonlySet<string> {
    const found = new Set<string>();
    for (const [key, budgets] of this.#dependents) {
      if (key.startsWith(`${plugin}/`)) for (const budget of budgets) found.add(budget);
    }
    return found;
  }

  /** Drops the dependencies of a budget, before it is resolved again and when it is gone. */
  forget(budget: string): void {
    for (const key of this.#dependencies.get(budget) ?? []) {
      const budgets = this.#dependents.get(key);
      budgets?.delete(budget);
      if (budgets?.size === 0) this.#dependents.delete(key);
    }
    this.#dependencies.delete(budget);
    this.#matches.delete(budget);
  }

  /**
   * The workload that `ref` names, with the same UID if `ref` has one. For a ReplicaSet of a Deployment, the
   * Deployment, unless it is gone.
   */
  async find(budget: string, ref: WorkloadRef, namespace: string, signal: AbortSignal): Promise<WorkloadLookup> {
    // The text would become part of a path, and of an annotation, whose length is bounded.
    if (!isObjectRef(ref)) return missing("its reference names no object that there can be");
    const watched = this.#watched(budget, ref, namespace);
    if (watched === undefined) return await this.polled.find(ref, namespace, signal);
    const controller = watched.kind === "found" ? watched.scale?.controller : undefined;
    if (controller?.kind !== "Deployment") return watched;
    const owner = this.#watched(budget, controller, namespace);
    return owner === undefined || owner.kind === "missing" ? watched : owner;
  }

  /** A DaemonSet of Kubernetes, with the number of nodes that should run a pod of it; undefined for another kind. */
  findDaemonSet(budget: string, ref: WorkloadRef, namespace: string): WorkloadLookup | undefined {
    return isObjectRef(ref) ? this.#watched(budget, ref, namespace, DAEMON_SETS) : undefined;
  }

  /**
   * Calls {@link find} for each of these, several at a time. Returns the first failure instead if a workload is not
   * found.
   */
  async findAll(
    budget: string,
    refs: Iterable<WorkloadRef>,
    namespace: string,
    signal: AbortSignal,
  ): Promise<readonly FoundWorkload[] | Exclude<WorkloadLookup, FoundWorkload>> {
    const found: FoundWorkload[] = [];
    const problems: Exclude<WorkloadLookup, FoundWorkload>[] = [];
    await eachAtMost(MAX_AT_ONCE, [...refs].entries(), async ([index, ref]) => {
      if (problems.length > 0) return;
      const workload = await this.find(budget, ref, namespace, signal);
      if (workload.kind === "found") found.push(workload);
      else problems[index] = workload;
    });
    // Of those that were asked at once, the same one each time: it is written into the protector.
    return problems.find(Boolean) ?? found;
  }

  /**
   * The workloads of a namespace whose pod template matches, for a core cluster whose pods run in other clusters.
   * Undefined while a kind is not listed yet; missing where the generator may not list it.
   */
  byTemplate(
    budget: string,
    namespace: string,
    matches: (labels: Labels) => boolean,
  ): FoundWorkload[] | MissingScale | undefined {
    this.#depend(budget, anyWorkload(namespace));
    this.#matches.set(budget, matches);
    for (const { plugin, kind } of WATCHED) {
      this.#depend(budget, sourceKey({ plugin, namespace, name: "" }));
      const watch = this.#options.kinds.get(plugin);
      if (watch?.ready !== true) return watch?.isDenied ? missing(unlisted(kind)) : undefined;
    }
    const found: FoundWorkload[] = [];
    const workloads = [...(this.#byNamespace.get(namespace) ?? [])];
    // A Deployment counts instead of its ReplicaSets. A workload that an operator's object controls counts itself.
    const uids = new Set<string | undefined>(workloads.map(([, { uid }]) => uid));
    for (const [key, { name, uid, scale }] of workloads) {
      if (scale === undefined || uids.has(scale.controller?.uid) || !matches(scale.podLabels)) continue;
      const kind = WATCHED.find(({ plugin }) => key.startsWith(`${plugin}/`))?.kind;
      if (kind === undefined) continue;
      found.push(foundBy(scale, uid, `${kind} ${name}`));
    }
    return found;
  }

  /** Undefined for a kind that is not watched, and for one that is not `among` these. */
  #watched(budget: string, ref: WorkloadRef, namespace: string, among = WATCHED): WorkloadLookup | undefined {
    const group = groupOf(ref.apiVersion);
    const plugin = among.find(({ kind, groups }) => kind === ref.kind && groups.includes(group))?.plugin;
    const watch = plugin === undefined ? undefined : this.#options.kinds.get(plugin);
    if (plugin === undefined || watch === undefined) return undefined;
    this.#depend(budget, sourceKey({ plugin, namespace, name: ref.name }));
    const what = `${ref.kind} ${ref.name}`;
    if (!watch.ready)
      return watch.isDenied ? missing(`${what} can't be read: ${unlisted(ref.kind)}`) : { kind: "waiting" };
    const source = watch.get(`${namespace}/${ref.name}`);
    if (source?.scale === undefined || (ref.uid !== undefined && source.uid !== ref.uid)) {
      return missing(`${what} is not there`);
    }
    return foundBy(source.scale, source.uid, what);
  }

  #depend(budget: string, key: string): void {
    this.#dependents.set(key, (this.#dependents.get(key) ?? new Set()).add(budget));
    this.#dependencies.set(budget, (this.#dependencies.get(budget) ?? new Set()).add(key));
  }
}

/** A key for all workloads of a namespace. */
function anyWorkload(namespace: string): string {
  return `*/${namespace}/*`;
}

function unlisted(kind: string): string {
  return `the generator may not list ${kind}s`;
}

function sameScale(before: ProtectionSource | undefined, after: ProtectionSource | undefined): boolean {
  const [a, b] = [before?.scale, after?.scale];
  return (
    before?.uid === after?.uid &&
    a?.replicas === b?.replicas &&
    a?.controller?.uid === b?.controller?.uid &&
    isDeepStrictEqual([a?.selector, a?.podLabels], [b?.selector, b?.podLabels])
  );
}

function foundBy(scale: Scale, uid: string, what: string): FoundWorkload {
  return { kind: "found", uid, what, replicas: scale.replicas, selector: scale.selector, scale };
}
