/**
 * Which protectors count which pods, kept current event by event (design 8): a pod's change costs its matching protectors, a
 * protector's change its matching pods, and neither the size of the cell.
 */

import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import type { Informer } from "../../../shared/kube/informer/informer.ts";
import { LabelIndex } from "../../../shared/kube/selectors/label-index.ts";
import { SelectorIndex } from "../../../shared/kube/selectors/set-trie.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { LabelSelector, PodProtector } from "../../../shared/schema/podprotector.ts";
import { namespacedName } from "../../../shared/schema/podprotector.ts";
import type { PodInformer } from "./cell-pods.ts";

/** Which protector of which core cluster. */
export interface ProtectorId {
  readonly core: string;
  readonly namespace: string;
  readonly name: string;
}

/**
 * One protector with the pods of the cell that it counts. Lives as long as the protector is there, whoever leads; its identity is the
 * key of queues and indexes. All of it is kept current by {@link Membership}.
 */
export interface TrackedProtector {
  readonly id: ProtectorId;
  /** As the watch has it. */
  protector: PodProtector;
  /** By UID: the pods that match the counted selector, in whatever state. */
  readonly pods: Map<string, Pod>;
  /** What could not be read of its counted selector; it counts nothing then. */
  problems: readonly string[];
}

export interface MembershipListener {
  /** A pod of the entry came, went or changed. */
  podChanged(entry: TrackedProtector): void;
  /** The protector was added or changed in any way. */
  protectorChanged(entry: TrackedProtector, before: PodProtector | undefined): void;
  protectorGone(entry: TrackedProtector): void;
  /** Any pod at all, after the entries that count it; for those who wait for a pod that no entry counts. */
  podSeen(pod: Pod): void;
}

/** Changes that are worked on at once; more of them in one turn of the event loop are a list, which is worked on in slices. */
const MOST_AT_ONCE = 100;
const SLICE_MS = 8;
/** A slice ends at the latest after so many, whatever the clock says. */
const SLICE_CHANGES = 2_000;

/** The cell's pods; of several shards one finds each pod of a name. */
export type PodLookup = Pick<Informer<Pod>, "get" | "subscribe"> & Pick<PodInformer, "find">;

type Change = readonly [before: Pod | undefined, after: Pod | undefined];

export class Membership {
  readonly #selectors = new SelectorIndex<TrackedProtector>();
  /**
   * Its objects may be older than the cell's: it is only told of new labels. By UID, because two shards may each have a pod of one name
   * (design 5.4).
   */
  readonly #labels = new LabelIndex<Pod>("fails", ({ uid }) => uid);
  readonly #pods: PodLookup;
  /** By core, then `namespace/name`. */
  readonly #entries = new Map<string, Map<string, TrackedProtector>>();
  readonly #listeners = new Set<MembershipListener>();

  readonly #ports: Ports;
  /** Changes of pods that are not worked in yet, oldest first; `#done` of them are. */
  #backlog: Change[] = [];
  #done = 0;
  /** Changes that were worked on in this turn of the event loop. */
  #burst = 0;
  #settled: PromiseWithResolvers<void> | undefined;

  /** Follows `pods` from now on; it must still be empty. */
  constructor(pods: PodLookup, ports: Ports) {
    this.#pods = pods;
    this.#ports = ports;
    pods.subscribe({ changed: (before, after) => this.#podSeen([before, after]) });
  }

  /**
   * Undefined when the entries are as current as the source of pods; otherwise a promise that resolves when they are. What is counted
   * before that is not what there is at the source's position.
   */
  whenCurrent(): Promise<void> | undefined {
    return this.#settled?.promise;
  }

  /** Returns a function that ends it. */
  listen(listener: MembershipListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  protectors(core: string): Iterable<TrackedProtector> {
    return this.#entries.get(core)?.values() ?? [];
  }

  /** The entries of all cores that count a pod with these labels, as far as the protectors are known. */
  protectorsOf({ namespace, labels }: Pick<Pod, "namespace" | "labels">): readonly TrackedProtector[] {
    return this.#selectors.match(namespace, labels);
  }

  count(core: string): number {
    return this.#entries.get(core)?.size ?? 0;
  }

  protector(core: string, key: string): TrackedProtector | undefined {
    return this.#entries.get(core)?.get(key);
  }

  /** Follows the protectors of one more core cluster; the source must still be empty. */
  followProtectors(core: string, source: Informer<PodProtector>): void {
    const entries = new Map<string, TrackedProtector>();
    this.#entries.set(core, entries);
    source.subscribe({
      changed: (before, after) => {
        if (after !== undefined) this.#protectorChanged(core, entries, after);
        else if (before !== undefined) this.#protectorGone(entries, before);
      },
    });
  }

  /** A list of 100,000 pods would keep the event loop busy for a second. */
  #podSeen(change: Change): void {
    if (this.#settled === undefined && this.#burst < MOST_AT_ONCE) {
      if (this.#burst++ === 0) {
        this.#ports.timers.after(0, () => {
          this.#burst = 0;
        });
      }
      this.#podChanged(...change);
      return;
    }
    this.#backlog.push(change);
    if (this.#settled !== undefined) return;
    this.#settled = Promise.withResolvers();
    this.#ports.timers.after(0, () => this.#slice());
  }

  #slice(): void {
    const { clock, timers } = this.#ports;
    const untilMs = clock.monotonicMs() + SLICE_MS;
    for (let count = 0; count < SLICE_CHANGES && clock.monotonicMs() < untilMs; count++) {
      const change = this.#backlog[this.#done++];
      if (change === undefined) {
        this.#backlog = [];
        this.#done = 0;
        this.#settled?.resolve();
        this.#settled = undefined;
        return;
      }
      this.#podChanged(...change);
    }
    timers.after(0, () => this.#slice());
  }

  #podChanged(before: Pod | undefined, after: Pod | undefined): void {
    const moved = before === undefined || after === undefined || !sameLabels(before.labels, after.labels);
    const pod = after ?? before;
    if (pod === undefined) return;
    if (moved) this.#labels.update(before, after);
    const now = after === undefined ? [] : this.#selectors.match(after.namespace, after.labels);
    if (moved && before !== undefined) {
      for (const entry of this.#selectors.match(before.namespace, before.labels)) {
        if (now.includes(entry)) continue;
        entry.pods.delete(before.uid);
        this.#tell((listener) => listener.podChanged(entry));
      }
    }
    for (const entry of now) {
      entry.pods.set(pod.uid, pod);
      this.#tell((listener) => listener.podChanged(entry));
    }
    this.#tell((listener) => listener.podSeen(pod));
  }

  #protectorChanged(core: string, entries: Map<string, TrackedProtector>, after: PodProtector): void {
    const { namespace = "", name } = after.metadata;
    const key = namespacedName({ namespace, name });
    let entry = entries.get(key);
    const before = entry?.protector;
    if (entry === undefined) {
      entry = { id: { core, namespace, name }, protector: after, pods: new Map(), problems: [] };
      entries.set(key, entry);
    }
    entry.protector = after;
    const selector = countedSelector(after);
    if (before === undefined || !sameSelector(countedSelector(before), selector)) this.#select(entry, selector);
    const changed = entry;
    this.#tell((listener) => listener.protectorChanged(changed, before));
  }

  #select(entry: TrackedProtector, selector: LabelSelector): void {
    const { problems, matches } = compileSelector(selector, "fails");
    entry.problems = problems;
    entry.pods.clear();
    if (problems.length > 0) {
      // No pod is counted that should not be (design 8): without a count everything of it is refused.
      this.#selectors.delete(entry);
      return;
    }
    this.#selectors.set(entry, entry.id.namespace, selector);
    for (const indexed of this.#labels.select(entry.id.namespace, selector)) {
      const pod = this.#current(indexed);
      if (pod !== undefined && matches(pod.labels)) entry.pods.set(pod.uid, pod);
    }
  }

  /** As the source has it now. Undefined for one whose removal is not worked in yet, whoever has its name by now. */
  #current({ namespace, name, uid }: Pod): Pod | undefined {
    const key = `${namespace}/${name}`;
    if (this.#pods.find !== undefined) return this.#pods.find(key, (pod) => pod.uid === uid);
    const pod = this.#pods.get(key);
    return pod?.uid === uid ? pod : undefined;
  }

  #protectorGone(entries: Map<string, TrackedProtector>, { metadata }: PodProtector): void {
    const key = namespacedName({ namespace: metadata.namespace ?? "", name: metadata.name });
    const entry = entries.get(key);
    if (entry === undefined) return;
    entries.delete(key);
    this.#selectors.delete(entry);
    this.#tell((listener) => listener.protectorGone(entry));
  }

  #tell(call: (listener: MembershipListener) => void): void {
    for (const listener of this.#listeners) call(listener);
  }
}

/** The selector of the pods that are counted (design 4). */
export function countedSelector({ spec }: PodProtector): LabelSelector {
  return spec.aggregationSelector ?? spec.selector;
}

/** Both match the same pods because they read the same. */
export function sameSelector(a: LabelSelector, b: LabelSelector): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

/** Most changes are of the status; pods of one owner share one labels object (`parse-pod.ts`). */
function sameLabels(a: Pod["labels"], b: Pod["labels"]): boolean {
  if (a === b) return true;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => a[key] === b[key]);
}
