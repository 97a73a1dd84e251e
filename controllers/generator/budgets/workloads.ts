/**
 * How many pods a workload should have, as the disruption controller finds it: Deployments, ReplicaSets, StatefulSets and
 * ReplicationControllers from what is watched anyway, every other kind by its scale subresource.
 */
import { isDeepStrictEqual } from "node:util";
import * as v from "valibot";
import type { Labels } from "../../../shared/decide/availability/selector.ts";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiFailure } from "../../../shared/kube/client/api-result.ts";
import { checker } from "../../../shared/schema/check.ts";
import type { LabelSelector } from "../../../shared/schema/podprotector.ts";
import type { Discovery } from "../sources/discovery.ts";
import type { KindWatch } from "../sources/kind-watch.ts";
import {
  collectionPath,
  groupOf,
  type ProtectionSource,
  type Scale,
  type SourceKind,
  sourceKey,
  type WorkloadRef,
} from "../sources/protection-source.ts";
import { parseSelectorText } from "../sources/selector-text.ts";

export type WorkloadLookup =
  | {
      readonly kind: "found";
      readonly uid: string;
      /** For people: `Deployment web`. */
      readonly what: string;
      readonly replicas: number;
      readonly selector: LabelSelector | undefined;
      /** It is not watched, so that it has to be asked for again. */
      readonly isPolled: boolean;
    }
  /** `isPolled`: whether it comes to be there is not watched. */
  | { readonly kind: "missing"; readonly why: string; readonly isPolled: boolean }
  /** Its kind has not been listed yet; whoever waits is told. */
  | { readonly kind: "waiting" }
  | { readonly kind: "failed"; readonly failure: ApiFailure };

const NOBODY: ReadonlySet<string> = new Set();

const parseScale = checker(
  v.looseObject({
    metadata: v.looseObject({ uid: v.optional(v.string()) }),
    spec: v.optional(v.nullable(v.looseObject({ replicas: v.optional(v.number()) }))),
    status: v.optional(v.nullable(v.looseObject({ selector: v.optional(v.string()) }))),
  }),
);

/** Kinds with their plugins; the groups are those under which they were served over the years. */
const WATCHED: readonly { readonly kind: string; readonly groups: readonly string[]; readonly plugin: string }[] = [
  { kind: "Deployment", groups: ["apps", "extensions"], plugin: "deployment" },
  { kind: "ReplicaSet", groups: ["apps", "extensions"], plugin: "replicaset" },
  { kind: "StatefulSet", groups: ["apps"], plugin: "statefulset" },
  { kind: "ReplicationController", groups: [""], plugin: "replicationcontroller" },
];

export interface WorkloadsOptions {
  readonly api: ApiClient;
  readonly discovery: Discovery;
  readonly kinds: ReadonlyMap<string, Pick<KindWatch, "ready" | "get">>;
  readonly timeoutMs: number;
}

export class Workloads {
  readonly #options: WorkloadsOptions;
  /** Keys of budgets by key of the workload that they were resolved over; and the other way round. */
  readonly #dependents = new Map<string, Set<string>>();
  readonly #dependencies = new Map<string, Set<string>>();
  /** Workloads that nothing controls, by namespace and then by key. */
  readonly #byNamespace = new Map<string, Map<string, ProtectionSource>>();

  constructor(options: WorkloadsOptions) {
    this.#options = options;
  }

  /** Keeps what was told of one workload; returns the budgets to look at again. */
  changed(key: string, before: ProtectionSource | undefined, after: ProtectionSource | undefined): ReadonlySet<string> {
    const namespace = (after ?? before)?.namespace ?? "";
    if (before?.scale === undefined && after?.scale === undefined) return NOBODY;
    const workloads = this.#byNamespace.get(namespace) ?? new Map<string, ProtectionSource>();
    if (after?.scale === undefined || after.scale.controller !== undefined) workloads.delete(key);
    else workloads.set(key, after);
    if (workloads.size > 0) this.#byNamespace.set(namespace, workloads);
    else this.#byNamespace.delete(namespace);
    if (sameScale(before, after)) return NOBODY;
    return new Set([...(this.#dependents.get(key) ?? []), ...(this.#dependents.get(anyOf(namespace)) ?? [])]);
  }

  /** The same for all workloads of one plugin. */
  dependentsOfKind(plugin: string): ReadonlySet<string> {
    const found = new Set<string>();
    for (const [key, budgets] of this.#dependents) {
      if (key.startsWith(`${plugin}/`)) for (const budget of budgets) found.add(budget);
    }
    return found;
  }

  /** What `budget` was resolved over is forgotten: before it is resolved again, and when it is gone. */
  forget(budget: string): void {
    for (const key of this.#dependencies.get(budget) ?? []) {
      const budgets = this.#dependents.get(key);
      budgets?.delete(budget);
      if (budgets?.size === 0) this.#dependents.delete(key);
    }
    this.#dependencies.delete(budget);
  }

  /**
   * The workload that `ref` names; for a ReplicaSet of a Deployment, that Deployment, or the ReplicaSet alone where the Deployment is
   * gone. A reference with a UID is to that very object.
   */
  async find(budget: string, ref: WorkloadRef, namespace: string, signal: AbortSignal): Promise<WorkloadLookup> {
    const known = this.#watched(budget, ref, namespace);
    if (known === undefined) return await this.#byScale(ref, namespace, signal);
    if (known.kind !== "found" || known.scale.controller?.kind !== "Deployment") return plain(known);
    const owner = this.#watched(budget, known.scale.controller, namespace);
    return plain(owner === undefined || owner.kind === "missing" ? known : owner);
  }

  /**
   * The workloads of a namespace whose pods would match, by their templates; undefined while a kind is not known yet. What counts
   * where none of their pods is in this cluster: in a core cluster whose workloads run elsewhere.
   */
  byTemplate(budget: string, namespace: string, matches: (labels: Labels) => boolean): WorkloadLookup[] | undefined {
    this.#depend(budget, anyOf(namespace));
    for (const { plugin } of WATCHED) {
      this.#depend(budget, sourceKey({ plugin, namespace, name: "" }));
      if (this.#options.kinds.get(plugin)?.ready !== true) return undefined;
    }
    const found: WorkloadLookup[] = [];
    for (const [key, { name, uid, scale }] of this.#byNamespace.get(namespace) ?? []) {
      if (scale === undefined || !matches(scale.podLabels)) continue;
      const kind = WATCHED.find(({ plugin }) => key.startsWith(`${plugin}/`))?.kind ?? "";
      found.push(plain({ kind: "found", uid, what: `${kind} ${name}`, scale }));
    }
    return found;
  }

  /** Replicas and selector of one object's scale subresource. */
  async scale(kind: SourceKind, namespace: string, name: string, signal: AbortSignal): Promise<WorkloadLookup> {
    const { api, timeoutMs } = this.#options;
    const path = `${collectionPath(kind, namespace)}/${name}/scale`;
    const result = await api.get(path, parseScale, { timeoutMs, signal });
    const what = `${kind.kind} ${name}`;
    if (result.kind === "gone") return { kind: "missing", why: `${what} is not there`, isPolled: true };
    if (result.kind !== "ok") return { kind: "failed", failure: result };
    const { metadata, spec, status } = result.object;
    const text = status?.selector ?? "";
    const selector = text === "" ? undefined : parseSelectorText(text);
    return { kind: "found", uid: metadata.uid ?? "", what, replicas: spec?.replicas ?? 0, selector, isPolled: true };
  }

  #watched(budget: string, ref: WorkloadRef, namespace: string): WatchedFound | undefined {
    const group = groupOf(ref.apiVersion);
    const plugin = WATCHED.find(({ kind, groups }) => kind === ref.kind && groups.includes(group))?.plugin;
    const watch = plugin === undefined ? undefined : this.#options.kinds.get(plugin);
    if (plugin === undefined || watch === undefined) return undefined;
    this.#depend(budget, sourceKey({ plugin, namespace, name: ref.name }));
    if (!watch.ready) return { kind: "waiting" };
    const source = watch.get(`${namespace}/${ref.name}`);
    const what = `${ref.kind} ${ref.name}`;
    if (source?.scale === undefined || (ref.uid !== undefined && source.uid !== ref.uid)) {
      return { kind: "missing", why: `${what} is not there`, isPolled: false };
    }
    return { kind: "found", uid: source.uid, what, scale: source.scale };
  }

  async #byScale(ref: WorkloadRef, namespace: string, signal: AbortSignal): Promise<WorkloadLookup> {
    const group = groupOf(ref.apiVersion);
    const version = group === "" ? ref.apiVersion : ref.apiVersion.slice(group.length + 1);
    const served = await this.#options.discovery.read(group, version, signal);
    if (served.kind === "failed") return served;
    const resource = served.resources.find(({ kind }) => kind === ref.kind);
    if (resource === undefined)
      return { kind: "missing", why: `${ref.apiVersion} ${ref.kind} is not served`, isPolled: true };
    if (!resource.hasScale) {
      return { kind: "missing", why: `${ref.kind} does not implement the scale subresource`, isPolled: true };
    }
    const kind = { group, version, kind: ref.kind, resource: resource.resource };
    const found = await this.scale(kind, namespace, ref.name, signal);
    if (found.kind !== "found" || ref.uid === undefined || found.uid === ref.uid) return found;
    return { kind: "missing", why: `${found.what} is another one`, isPolled: true };
  }

  #depend(budget: string, key: string): void {
    this.#dependents.set(key, (this.#dependents.get(key) ?? new Set()).add(budget));
    this.#dependencies.set(budget, (this.#dependencies.get(budget) ?? new Set()).add(key));
  }
}

/** Stands for all workloads of a namespace. */
function anyOf(namespace: string): string {
  return `*/${namespace}/*`;
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

type WatchedFound =
  | { readonly kind: "found"; readonly uid: string; readonly what: string; readonly scale: Scale }
  | Exclude<WorkloadLookup, { readonly kind: "found" }>;

function plain(found: WatchedFound): WorkloadLookup {
  if (found.kind !== "found") return found;
  const { uid, what, scale } = found;
  return { kind: "found", uid, what, replicas: scale.replicas, selector: scale.selector, isPolled: false };
}
