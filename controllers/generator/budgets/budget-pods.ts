/**
 * The pods that budgets are about, by the workloads that control them. All pods are watched, but only from the moment on when a
 * budget needs them: a core cluster without budgets, or without pods, pays nothing.
 */
import * as v from "valibot";
import { compileSelector, type Labels } from "../../../shared/decide/availability/selector.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { checker } from "../../../shared/schema/check.ts";
import { type LabelSelector, ObjectMeta } from "../../../shared/schema/podprotector.ts";
import type { WorkloadRef } from "../sources/protection-source.ts";
import { controllerOf } from "../sources/workload.ts";

interface PodFacts {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly labels: Labels;
  readonly controller: WorkloadRef | undefined;
}

/** The pods of one budget. */
export interface BudgetMembers {
  /** All that match, whatever their phase. */
  readonly total: number;
  /** Their controllers by UID. Pods without a controller have none here. */
  readonly controllers: Iterable<WorkloadRef>;
}

interface Entry {
  readonly namespace: string;
  readonly selector: string;
  readonly matches: (labels: Labels) => boolean;
  readonly counts: Map<string, { readonly ref: WorkloadRef; pods: number }>;
  total: number;
}

export interface BudgetPodsOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  readonly onWatch: (event: ReflectorEvent) => void;
  /** The pods of the budget with this key have changed, or are known at last. */
  readonly onChanged: (key: string) => void;
}

const parsePod = checker(v.looseObject({ metadata: ObjectMeta }));
const NO_LABELS: Labels = {};

function interpretPod(raw: unknown): PodFacts {
  const { metadata } = parsePod(raw);
  const { namespace = "", name, uid, resourceVersion, labels = NO_LABELS } = metadata;
  return { namespace, name, uid, resourceVersion, labels, controller: controllerOf(metadata) };
}

export class BudgetPods {
  readonly #options: BudgetPodsOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #byNamespace = new Map<string, Set<string>>();
  readonly #pods = new Map<string, Map<string, PodFacts>>();
  /** Budgets that asked before the pods were known. */
  readonly #waiting = new Set<string>();
  #watch: Reflector<PodFacts> | undefined;

  constructor(options: BudgetPodsOptions) {
    this.#options = options;
  }

  /** The pods of `namespace` that `selector` selects; undefined while they are not known yet. */
  of(key: string, namespace: string, selector: LabelSelector): BudgetMembers | undefined {
    this.#start();
    if (this.#watch?.synced !== true) {
      this.#waiting.add(key);
      return undefined;
    }
    const text = JSON.stringify(selector);
    let entry = this.#entries.get(key);
    if (entry === undefined || entry.selector !== text || entry.namespace !== namespace) {
      this.forget(key);
      const { matches } = compileSelector(selector, "fails");
      entry = { namespace, selector: text, matches, counts: new Map(), total: 0 };
      for (const pod of this.#pods.get(namespace)?.values() ?? []) count(entry, pod, 1);
      this.#entries.set(key, entry);
      const keys = this.#byNamespace.get(namespace) ?? new Set();
      this.#byNamespace.set(namespace, keys.add(key));
    }
    return { total: entry.total, controllers: [...entry.counts.values()].map(({ ref }) => ref) };
  }

  /** The budget is gone. */
  forget(key: string): void {
    this.#waiting.delete(key);
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    const keys = this.#byNamespace.get(entry.namespace);
    keys?.delete(key);
    if (keys?.size === 0) this.#byNamespace.delete(entry.namespace);
  }

  async stop(): Promise<void> {
    await this.#watch?.stop();
  }

  #start(): void {
    if (this.#watch !== undefined) return;
    const { transport, ports, onWatch } = this.#options;
    this.#watch = new Reflector<PodFacts>({
      name: "pods",
      transport,
      ports,
      path: "/api/v1/pods",
      parse: interpretPod,
      keyOf: ({ namespace, name }) => `${namespace}/${name}`,
      uidOf: ({ uid }) => uid,
      versionOf: ({ resourceVersion }) => resourceVersion,
      unparsable: "keepLast",
      onEvent: onWatch,
    });
    this.#watch.subscribe({
      changed: (before, after) => this.#changed(before, after),
      relisted: () => this.#known(),
    });
    this.#watch.start();
  }

  #known(): void {
    const keys = [...this.#waiting];
    this.#waiting.clear();
    for (const key of keys) this.#options.onChanged(key);
  }

  #changed(before: PodFacts | undefined, after: PodFacts | undefined): void {
    const pod = after ?? before;
    if (pod === undefined) return;
    const pods = this.#pods.get(pod.namespace) ?? new Map<string, PodFacts>();
    if (after === undefined) pods.delete(pod.name);
    else pods.set(pod.name, after);
    if (pods.size > 0) this.#pods.set(pod.namespace, pods);
    else this.#pods.delete(pod.namespace);
    for (const key of this.#byNamespace.get(pod.namespace) ?? []) {
      const entry = this.#entries.get(key);
      if (entry === undefined) continue;
      const had = before !== undefined && count(entry, before, -1);
      const has = after !== undefined && count(entry, after, 1);
      if (had !== has || (had && before?.controller?.uid !== after?.controller?.uid)) this.#options.onChanged(key);
    }
  }
}

/** Counts a pod in or out when the budget selects it; returns whether it does. */
function count(entry: Entry, { labels, controller }: PodFacts, change: 1 | -1): boolean {
  if (!entry.matches(labels)) return false;
  entry.total += change;
  const uid = controller?.uid;
  if (controller === undefined || uid === undefined) return true;
  const known = entry.counts.get(uid) ?? { ref: controller, pods: 0 };
  known.pods += change;
  if (known.pods > 0) entry.counts.set(uid, known);
  else entry.counts.delete(uid);
  return true;
}
