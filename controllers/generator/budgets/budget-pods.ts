/**
 * The pods that each budget selects, and the workloads that control them. Pods are watched from the first call on, so a
 * core cluster without budgets watches no pods.
 */
import * as v from "valibot";
import { compileSelector, type Labels } from "../../../shared/decide/availability/selector.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import { checker } from "../../../shared/schema/check.ts";
import { type LabelSelector, ObjectMeta } from "../../../shared/schema/podprotector.ts";
import { controllerOf } from "../sources/interpret.ts";
import type { KindWatchOptions } from "../sources/kind-watch.ts";
import { groupOf, type WorkloadRef } from "../sources/protection-source.ts";

interface WatchedPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly labels: Labels;
  readonly controller: WorkloadRef | undefined;
  /** The phase is Succeeded or Failed. */
  readonly isFinished: boolean;
}

export interface SelectedPods {
  /** Matching pods in any phase, or only unfinished ones. */
  readonly total: number;
  /** The controllers of these pods, each once. */
  readonly controllers: readonly WorkloadRef[];
  /** The unfinished ones of these pods that a Job controls. */
  readonly jobPods: number;
}

/** Pods of a Job end by themselves. */
export function isJob({ apiVersion, kind }: WorkloadRef): boolean {
  return kind === "Job" && groupOf(apiVersion) === "batch";
}

/** The count of one budget's pods. */
interface Count {
  readonly namespace: string;
  /** The selector and the other arguments of the call, as JSON. */
  readonly asked: string;
  readonly matches: (pod: WatchedPod) => boolean;
  /** By the controller's UID and version: its pods may name several after each other, of which one ends. */
  readonly controllers: Map<string, { readonly ref: WorkloadRef; pods: number }>;
  total: number;
  jobPods: number;
}

export interface BudgetPodsOptions extends Pick<KindWatchOptions, "transport" | "ports" | "onWatch"> {
  /** The pods of the budget with this key have changed, or were listed for the first time. */
  readonly onChanged: (key: string) => void;
}

const parsePod = checker(
  v.looseObject({ metadata: ObjectMeta, status: v.nullish(v.looseObject({ phase: v.optional(v.unknown()) })) }),
);
const NO_LABELS: Labels = {};

function watchedPod(raw: unknown): WatchedPod {
  const { metadata, status } = parsePod(raw);
  const { namespace = "", name, uid, resourceVersion, labels = NO_LABELS } = metadata;
  const isFinished = status?.phase === "Succeeded" || status?.phase === "Failed";
  return { namespace, name, uid, resourceVersion, labels, controller: controllerOf(metadata), isFinished };
}

export class BudgetPods {
  readonly #options: BudgetPodsOptions;
  /** By the budget's key. */
  readonly #counts = new Map<string, Count>();
  readonly #budgetsByNamespace = new Map<string, Set<string>>();
  readonly #podsByNamespace = new Map<string, Map<string, WatchedPod>>();
  /** Keys of budgets that were looked up before the pods were listed. */
  readonly #waiting = new Set<string>();
  #watch: Reflector<WatchedPod> | undefined;

  constructor(options: BudgetPodsOptions) {
    this.#options = options;
  }

  /** The pods of `namespace` that `selector` selects; undefined until pods are listed. */
  of(key: string, namespace: string, selector: LabelSelector, withoutFinished = false): SelectedPods | undefined {
    this.#start();
    if (this.#watch?.synced !== true) {
      this.#waiting.add(key);
      return undefined;
    }
    const asked = JSON.stringify([selector, withoutFinished]);
    let count = this.#counts.get(key);
    if (count === undefined || count.asked !== asked || count.namespace !== namespace) {
      this.forget(key);
      const { matches: selects } = compileSelector(selector, "fails");
      const matches = ({ labels, isFinished }: WatchedPod): boolean =>
        !(withoutFinished && isFinished) && selects(labels);
      count = { namespace, asked, matches, controllers: new Map(), total: 0, jobPods: 0 };
      for (const pod of this.#podsByNamespace.get(namespace)?.values() ?? []) add(count, pod, 1);
      this.#counts.set(key, count);
      const keys = this.#budgetsByNamespace.get(namespace) ?? new Set();
      this.#budgetsByNamespace.set(namespace, keys.add(key));
    }
    const { total, jobPods, controllers } = count;
    return { total, jobPods, controllers: [...controllers.values()].map(({ ref }) => ref) };
  }

  /** The budget is gone. */
  forget(key: string): void {
    this.#waiting.delete(key);
    const count = this.#counts.get(key);
    if (count === undefined) return;
    this.#counts.delete(key);
    const keys = this.#budgetsByNamespace.get(count.namespace);
    keys?.delete(key);
    if (keys?.size === 0) this.#budgetsByNamespace.delete(count.namespace);
  }

  async stop(): Promise<void> {
    await this.#watch?.stop();
  }

  #start(): void {
    if (this.#watch !== undefined) return;
    const { transport, ports, onWatch } = this.#options;
    this.#watch = new Reflector<WatchedPod>({
      name: "pods",
      transport,
      ports,
      path: "/api/v1/pods",
      kind: "Pod",
      parse: watchedPod,
      uidOf: ({ uid }) => uid,
      versionOf: ({ resourceVersion }) => resourceVersion,
      unparsable: "keepLast",
      onEvent: onWatch,
    });
    this.#watch.subscribe({
      changed: (before, after) => this.#changed(before, after),
      relisted: () => this.#listed(),
    });
    this.#watch.start();
  }

  #listed(): void {
    const keys = [...this.#waiting];
    this.#waiting.clear();
    for (const key of keys) this.#options.onChanged(key);
  }

  #changed(before: WatchedPod | undefined, after: WatchedPod | undefined): void {
    const pod = after ?? before;
    if (pod === undefined) return;
    const pods = this.#podsByNamespace.get(pod.namespace) ?? new Map<string, WatchedPod>();
    if (after === undefined) pods.delete(pod.name);
    else pods.set(pod.name, after);
    if (pods.size > 0) this.#podsByNamespace.set(pod.namespace, pods);
    else this.#podsByNamespace.delete(pod.namespace);
    for (const key of this.#budgetsByNamespace.get(pod.namespace) ?? []) {
      const count = this.#counts.get(key);
      if (count === undefined) continue;
      const { jobPods } = count;
      const matched = before !== undefined && add(count, before, -1);
      const matches = after !== undefined && add(count, after, 1);
      const hasMoved = matched && before?.controller?.uid !== after?.controller?.uid;
      if (matched !== matches || hasMoved || jobPods !== count.jobPods) this.#options.onChanged(key);
    }
  }
}

/** Adds a pod to the count, or removes it, if the budget selects it. Returns whether the budget selects it. */
function add(count: Count, pod: WatchedPod, change: 1 | -1): boolean {
  if (!count.matches(pod)) return false;
  const { controller } = pod;
  count.total += change;
  const uid = controller?.uid;
  if (controller === undefined || uid === undefined) return true;
  if (!pod.isFinished && isJob(controller)) count.jobPods += change;
  const key = `${uid} ${controller.apiVersion}`;
  const entry = count.controllers.get(key) ?? { ref: controller, pods: 0 };
  entry.pods += change;
  if (entry.pods > 0) count.controllers.set(key, entry);
  else count.controllers.delete(key);
  return true;
}
