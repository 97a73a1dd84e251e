/**
 * Reads the XPodDisruptionBudgets of worker clusters (`--budget-cluster`), and maintains budgets in the core that
 * represent them. The generator then treats these like any other budget. Loaded only with this flag.
 */
import * as v from "valibot";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { withQuery } from "../../../shared/kube/client/api-path.ts";
import { type ApiResult, errorOf } from "../../../shared/kube/client/api-result.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent, ReflectorOptions } from "../../../shared/kube/informer/reflector-options.ts";
import { aborted, type Ports } from "../../../shared/runtime/clock.ts";
import { DONE, failed, later, type ReconcileOutcome, runWorkers } from "../../../shared/runtime/reconcile.ts";
import { WorkQueue } from "../../../shared/runtime/work-queue.ts";
import { CLUSTER_BUDGETS_LABEL } from "../../../shared/schema/annotations.ts";
import { checker } from "../../../shared/schema/check.ts";
import {
  alteredBudget,
  type ClusterBudget,
  clusterBudgetOf,
  type MergedBudget,
  mergedBudgetOf,
  unreadableBudget,
} from "./cluster-budget.ts";
import { type MergePlan, planMerge, type WantedBudget } from "./merge.ts";

export const GROUP_VERSION = "x-pdb.form3.tech/v1alpha1";
export const KIND = "XPodDisruptionBudget";
const RESOURCE = "xpoddisruptionbudgets";
const COLLECTION = `/apis/${GROUP_VERSION}/${RESOURCE}`;
const FIELD_MANAGER = "podseidon-generator";
const TIMEOUT_MS = 10_000;
const WORKERS = 4;
/** Of one worker cluster. Its kube-apiserver may be taken over, and name new ones without end. */
export const MAX_BUDGETS = 10_000;
/** In the core, for one worker cluster: what it asks for, and what it asked for a short time ago. */
export const MAX_MERGED = 2 * MAX_BUDGETS;
/** Of these, for one name: a cluster may name other pods again and again. */
const MAX_MERGED_OF_NAME = 10;
/** For so many milliseconds a new budget counts before the watch shows it. Without this it would be created twice. */
const UNSEEN_MS = 10_000;
const Items = checker(v.looseObject({ items: v.array(v.unknown()) }));
/** A budget to create is there already, and counts from now on. */
const EXISTS = new Error("it exists");
/** Others have changed a budget, such as by a finalizer, and the watch has not shown it yet. */
const LATE = new Error("it has changed");
const LATE_RETRY_MS = 2_000;
/** A process that may not write is about to lose its leadership. */
const LEADERLESS_RETRY_MS = 1_000;

export type MergeEvent =
  | { readonly kind: "merged"; readonly step: "created" | "updated" | "deleted"; readonly budget: string }
  | { readonly kind: "mergeFailed"; readonly budget: string; readonly error: Error };

export interface BudgetMergerOptions {
  /** Transport to the core. */
  readonly transport: Transport;
  /** Worker clusters by the ids of their cells, in the order of precedence. */
  readonly clusters: readonly { readonly name: string; readonly transport: Transport }[];
  readonly ports: Ports;
  /** Milliseconds for which a budget still counts after it is gone from its cluster. */
  readonly keepMs: number;
  readonly covers: (namespace: string) => boolean;
  readonly mayWrite: () => boolean;
  readonly onWatch: (resource: string, event: ReflectorEvent) => void;
  readonly onEvent: (event: MergeEvent) => void;
}

/** Why budgets of worker clusters don't protect as they ask, as values of a label. */
export const MERGE_TROUBLES = ["notWritten", "unreadable"] as const;
type MergeTrouble = Readonly<Record<(typeof MERGE_TROUBLES)[number], number>>;

export class BudgetMerger {
  readonly #options: BudgetMergerOptions;
  #term: MergeTerm | undefined;

  constructor(options: BudgetMergerOptions) {
    this.#options = options;
  }

  /** Leads until `signal` aborts; resolves when its last call has ended. */
  async lead(signal: AbortSignal): Promise<void> {
    const mayWrite = (): boolean => !signal.aborted && this.#options.mayWrite();
    this.#term = new MergeTerm({ ...this.#options, mayWrite });
    await this.#term.run(signal);
    this.#term = undefined;
  }

  /** Budgets of each cluster; undefined while they are not known. */
  sizes(): ReadonlyMap<string, number | undefined> {
    return this.#term?.sizes() ?? new Map();
  }

  /** Budgets that ask for protection and don't have it as they ask; none where this process does not lead. */
  get trouble(): MergeTrouble {
    return this.#term?.trouble ?? { notWritten: 0, unreadable: 0 };
  }
}

/** One term of leadership. */
class MergeTerm {
  readonly #options: BudgetMergerOptions;
  readonly #api: ApiClient;
  readonly #merged: Reflector<MergedBudget>;
  readonly #clusters: readonly { readonly name: string; readonly watch: Reflector<ClusterBudget> }[];
  /** Merged budgets by namespace and the name in their clusters, by their own name. */
  readonly #byKey = new Map<string, Map<string, MergedBudget>>();
  /** Created and not yet seen by the watch: also by the name in their clusters, and until which monotonic time. */
  readonly #unseen = new Map<string, Map<string, { readonly merged: MergedBudget; readonly untilMs: number }>>();
  /** Merged budgets by the clusters that they are for. Users of the core may write any other names in a budget. */
  readonly #mergedFor = new Map<string, number>();
  readonly #queue: WorkQueue<string>;
  /** By key of the merged budgets: the monotonic time since which a cluster no longer asks for its part. */
  readonly #goneSince = new Map<string, Map<string, number>>();

  constructor(options: BudgetMergerOptions) {
    const { transport, ports } = options;
    this.#options = options;
    this.#api = new ApiClient(transport);
    const maxKeys = options.clusters.length * (MAX_BUDGETS + 1 + MAX_MERGED) + WORKERS;
    this.#queue = new WorkQueue({ name: "cluster budgets", ports, maxKeys });
    this.#merged = this.#watch("merged budgets", transport, mergedBudgetOf, {
      query: { labelSelector: `${CLUSTER_BUDGETS_LABEL}=true` },
      stub: (raw) => alteredBudget(raw, (key) => this.#merged.get(key)),
    });
    this.#merged.subscribe({ changed: (before, after) => this.#changed(before, after) });
    this.#clusters = options.clusters.map((cluster) => {
      const stub = (raw: unknown) => unreadableBudget(raw, (key) => watch.get(key));
      const watch: Reflector<ClusterBudget> = this.#watch(
        `budgets of ${cluster.name}`,
        cluster.transport,
        clusterBudgetOf,
        { stub, maxObjects: MAX_BUDGETS },
      );
      watch.subscribe({
        changed: (before, after) => {
          if (after !== undefined) this.#add(after);
          else if (before !== undefined) this.#removed(before);
          // A list fails then, and nothing is added until one succeeds.
          if (watch.size > MAX_BUDGETS) watch.distrustHistory();
        },
        relisted: () => this.#addAll(),
      });
      return { name: cluster.name, watch };
    });
  }

  sizes(): ReadonlyMap<string, number | undefined> {
    return new Map(this.#clusters.map(({ name, watch }) => [name, watch.synced ? watch.size : undefined]));
  }

  get trouble(): MergeTrouble {
    const budgets = this.#clusters.flatMap(({ watch }) => [...watch.values()]);
    return {
      notWritten: this.#queue.failing,
      unreadable: budgets.filter((one) => one.isUnreadable === true && this.#options.covers(one.namespace)).length,
    };
  }

  async run(signal: AbortSignal): Promise<void> {
    const { ports } = this.#options;
    this.#merged.start();
    for (const { watch } of this.#clusters) watch.start();
    // Before the stored budgets are known, a budget would be created a second time.
    await this.#merged.whenSynced(signal);
    const workers = runWorkers(this.#queue, (key, { signal: ends }) => this.#reconcile(key, ends), {
      workers: WORKERS,
      ports,
    });
    this.#addAll();
    await aborted(signal);
    await workers.stop({ abort: true });
    await Promise.all([this.#merged, ...this.#clusters.map(({ watch }) => watch)].map((watch) => watch.stop()));
  }

  async #reconcile(key: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const [namespace = "", name = ""] = key.split("/");
    const { covers, mayWrite, keepMs } = this.#options;
    if (!covers(namespace)) return DONE;
    if (!mayWrite()) return later(LEADERLESS_RETRY_MS);
    const clusters = this.#clusters.map(({ name: cluster, watch }) => {
      const budget = watch.get(key);
      return { name: cluster, isListed: watch.synced && budget?.isUnreadable !== true, budget };
    });
    const stored = this.#storedFor(key);
    const before = this.#goneSince.get(key);
    const goneSince = new Map<string, number>();
    const goneForMs = (cluster: string, selector: string): number => {
      const gone = `${cluster} ${selector}`;
      const nowMs = this.#options.ports.clock.monotonicMs();
      const sinceMs = before?.get(gone) ?? nowMs;
      goneSince.set(gone, sinceMs);
      return nowMs - sinceMs;
    };
    const input = { namespace, name, clusters, stored, goneForMs, keepMs };
    const { plan, surplus } = this.#bounded(planMerge(input), stored);
    if (goneSince.size > 0) this.#goneSince.set(key, goneSince);
    else this.#goneSince.delete(key);
    // Creates new budgets first, so that no pod is protected less meanwhile.
    const refused = await this.#createAll(namespace, plan, signal);
    // A part whose new budget was not created stays in the old one. The parts of other clusters are updated.
    const rest = refused === undefined ? plan : { ...planMerge({ ...input, keepMs: Infinity }), deletes: [] };
    const failure = (await this.#change(namespace, rest, signal)) ?? refused ?? surplus;
    if (failure === EXISTS) return later(1);
    if (failure === LATE) return later(LATE_RETRY_MS);
    if (failure !== undefined) {
      this.#options.onEvent({ kind: "mergeFailed", budget: key, error: failure });
      return failed(failure, true);
    }
    const againMs = Math.min(plan.againMs ?? Infinity, this.#unseen.has(key) ? UNSEEN_MS : Infinity);
    return againMs === Infinity ? DONE : later(againMs);
  }

  #storedFor(key: string): readonly MergedBudget[] {
    const seen = this.#byKey.get(key)?.values() ?? [];
    const nowMs = this.#options.ports.clock.monotonicMs();
    for (const [name, { untilMs }] of this.#unseen.get(key) ?? []) if (untilMs <= nowMs) this.#forgetUnseen(key, name);
    return [...seen, ...[...(this.#unseen.get(key)?.values() ?? [])].map(({ merged }) => merged)];
  }

  #rememberUnseen(raw: unknown): void {
    let merged: MergedBudget;
    try {
      merged = mergedBudgetOf(raw);
    } catch {
      return; // The watch reports a budget that can't be read.
    }
    const key = keyOf(merged);
    if (this.#byKey.get(key)?.get(merged.name)?.uid === merged.uid) return;
    const untilMs = this.#options.ports.clock.monotonicMs() + UNSEEN_MS;
    this.#unseen.set(key, (this.#unseen.get(key) ?? new Map()).set(merged.name, { merged, untilMs }));
  }

  #forgetUnseen(key: string, name: string): void {
    this.#unseen.get(key)?.delete(name);
    if (this.#unseen.get(key)?.size === 0) this.#unseen.delete(key);
  }

  /** Leaves out what a cluster has too many of. What it asked for before ends in its time, which makes room. */
  #bounded(plan: MergePlan, stored: readonly MergedBudget[]) {
    const isFull = (cluster: string): boolean =>
      (this.#mergedFor.get(cluster) ?? 0) >= MAX_MERGED ||
      stored.filter(({ parts }) => cluster in parts).length >= MAX_MERGED_OF_NAME;
    const creates = plan.creates.filter(({ clusters }) => !clusters.every(isFull));
    const surplus = plan.creates.find(({ clusters }) => clusters.every(isFull));
    const message = `${surplus?.clusters.join()} asked for too many budgets lately`;
    return { plan: { ...plan, creates }, surplus: surplus === undefined ? undefined : new Error(message) };
  }

  /** Tries all creations, and returns the first failure. */
  async #createAll(namespace: string, plan: MergePlan, signal: AbortSignal): Promise<Error | undefined> {
    let refused: Error | undefined;
    for (const { names, wanted } of plan.creates) {
      const failure = await this.#create(namespace, names, wanted, signal);
      refused ??= failure;
    }
    return refused;
  }

  async #change(namespace: string, plan: MergePlan, signal: AbortSignal): Promise<Error | undefined> {
    for (const { stored, wanted } of plan.updates) {
      const { uid, resourceVersion, name } = stored;
      const { labels, annotations, spec } = wanted;
      const body = { metadata: { uid, resourceVersion, labels, annotations }, spec };
      const type = "application/merge-patch+json";
      const options = { timeoutMs: TIMEOUT_MS, signal, fieldManager: FIELD_MANAGER };
      const result = await this.#api.patch(budgetPath(namespace, name), type, body, (raw) => raw, options);
      if (result.kind === "conflict") return LATE;
      const failure = this.#done("updated", `${namespace}/${name}`, result);
      if (result.kind === "ok" && this.#unseen.get(keyOf(stored))?.has(name)) this.#rememberUnseen(result.object);
      if (failure !== undefined) return failure;
    }
    for (const { uid, name } of plan.deletes) {
      const options = { timeoutMs: TIMEOUT_MS, signal, preconditions: { uid } };
      const result = await this.#api.delete(budgetPath(namespace, name), options);
      if (result.kind === "conflict") return LATE;
      const failure = result.kind === "gone" ? undefined : this.#done("deleted", `${namespace}/${name}`, result);
      if (failure !== undefined) return failure;
    }
    return undefined;
  }

  /** Uses the first free name, because the core may have its own budget of the same name. */
  async #create(
    namespace: string,
    names: readonly string[],
    { labels, annotations, spec }: WantedBudget,
    signal: AbortSignal,
  ): Promise<Error | undefined> {
    let failure: Error | undefined;
    for (const name of names) {
      const metadata = { name, namespace, labels, annotations: withoutNulls(annotations) };
      const body = { apiVersion: GROUP_VERSION, kind: KIND, metadata, spec: withoutNulls(spec) };
      const options = { timeoutMs: TIMEOUT_MS, signal, fieldManager: FIELD_MANAGER };
      const result = await this.#api.create(budgetPath(namespace), body, (raw) => raw, options);
      failure = this.#done("created", `${namespace}/${name}`, result);
      if (result.kind === "ok") this.#rememberUnseen(result.object);
      if (result.kind !== "conflict") return failure;
      const found = await this.#find(namespace, name, names, signal);
      if (found !== undefined) return found;
    }
    return failure;
  }

  /** After a creation without an answer, or where the watch is very late, this process does not know its own budget. */
  async #find(
    namespace: string,
    name: string,
    [of]: readonly string[],
    signal: AbortSignal,
  ): Promise<Error | undefined> {
    // A list, because its role is not to get them.
    const path = withQuery(budgetPath(namespace), { fieldSelector: `metadata.name=${name}` });
    const read = await this.#api.get(path, Items, { timeoutMs: TIMEOUT_MS, signal });
    if (read.kind !== "ok") return errorOf(read);
    const uids = (): string[] => this.#storedFor(`${namespace}/${of}`).map(({ uid }) => uid);
    const known = uids();
    for (const item of read.object.items) this.#rememberUnseen(item);
    return uids().some((uid) => !known.includes(uid)) ? EXISTS : undefined;
  }

  #done(
    step: Extract<MergeEvent, { kind: "merged" }>["step"],
    budget: string,
    result: ApiResult<unknown>,
  ): Error | undefined {
    if (result.kind !== "ok") return errorOf(result, `the namespace or the kind ${KIND} is not in the core`);
    this.#options.onEvent({ kind: "merged", step, budget });
    return undefined;
  }

  #watch<T extends Pick<ClusterBudget, "namespace" | "name" | "uid" | "resourceVersion">>(
    name: string,
    transport: Transport,
    parse: (raw: unknown) => T,
    more: Pick<ReflectorOptions<T>, "query" | "stub" | "maxObjects">,
  ): Reflector<T> {
    const { ports, onWatch } = this.#options;
    return new Reflector<T>({
      ...{ name, transport, ports, parse, ...more },
      path: COLLECTION,
      kind: KIND,
      uidOf: ({ uid }) => uid,
      versionOf: ({ resourceVersion }) => resourceVersion,
      unparsable: "keepLast",
      onEvent: (event) => onWatch(name, event),
    });
  }

  #changed(before: MergedBudget | undefined, after: MergedBudget | undefined): void {
    for (const [merged, by] of [[before, -1] as const, [after, 1] as const])
      for (const { name } of this.#clusters)
        if (merged?.parts[name] !== undefined) this.#mergedFor.set(name, (this.#mergedFor.get(name) ?? 0) + by);
    for (const merged of [before, after]) if (merged !== undefined) this.#forgetUnseen(keyOf(merged), merged.name);
    if (before !== undefined) {
      const key = keyOf(before);
      this.#byKey.get(key)?.delete(before.name);
      if (this.#byKey.get(key)?.size === 0) this.#byKey.delete(key);
      this.#queue.add(key);
    }
    if (after === undefined) return;
    const key = keyOf(after);
    this.#byKey.set(key, (this.#byKey.get(key) ?? new Map<string, MergedBudget>()).set(after.name, after));
    this.#queue.add(key);
  }

  #addAll(): void {
    for (const merged of this.#merged.values()) this.#queue.add(keyOf(merged));
    for (const { watch } of this.#clusters) for (const budget of watch.values()) this.#add(budget);
  }

  #add(budget: ClusterBudget): void {
    this.#queue.add(`${budget.namespace}/${budget.name}`);
  }

  /**
   * A budget that was never merged leaves nothing to do. Otherwise a cluster that is taken over could fill the queue by
   * names that are gone again, while the core does not answer.
   */
  #removed(budget: ClusterBudget): void {
    const key = `${budget.namespace}/${budget.name}`;
    const isNeeded = this.#byKey.has(key) || this.#clusters.some(({ watch }) => watch.get(key) !== undefined);
    if (isNeeded || !this.#queue.drop(key)) this.#queue.add(key);
  }
}

function keyOf({ namespace, of }: MergedBudget): string {
  return `${namespace}/${of}`;
}

function budgetPath(namespace: string, name?: string): string {
  const path = `/apis/${GROUP_VERSION}/namespaces/${namespace}/${RESOURCE}`;
  return name === undefined ? path : `${path}/${name}`;
}

function withoutNulls(record: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(record).filter(([, value]) => value !== null));
}
