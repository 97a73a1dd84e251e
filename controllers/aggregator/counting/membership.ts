/**
 * Which protectors count which pods. A change of a pod costs time for each matching protector, a change of a protector
 * for each matching pod; neither depends on the size of the cell. A relist of 100,000 pods would block the event loop
 * for a second, so it is applied in slices.
 */

import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import type { Informer } from "../../../shared/kube/informer/informer.ts";
import { LabelIndex, sameLabels } from "../../../shared/kube/selectors/label-index.ts";
import { SelectorIndex } from "../../../shared/kube/selectors/set-trie.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import {
  type LabelSelector,
  namespacedName,
  type PodProtector,
  type ProtectorId,
} from "../../../shared/schema/podprotector.ts";
import type { CellPods } from "./cell-pods.ts";

/**
 * A protector of a core, with the pods of this cell that it counts. {@link Membership} keeps it current for as long as
 * the protector exists; queues and indexes use the object itself as their key.
 */
export interface TrackedProtector {
  readonly id: ProtectorId;
  /** The version in the informer. */
  protector: PodProtector;
  /** By UID: all pods that match the counted selector, available or not. */
  readonly pods: Map<string, Pod>;
  /** What is wrong with the counted selector. A protector with a problem counts no pods. */
  problems: readonly string[];
}

export interface MembershipListener {
  /** A pod of the protector was added, changed or removed. */
  podChanged(tracked: TrackedProtector): void;
  /** The protector was added or changed; `isSelectorNew`: it may count other pods than before. */
  protectorChanged(tracked: TrackedProtector, isSelectorNew: boolean): void;
  protectorGone(tracked: TrackedProtector): void;
  /** Any pod was added, changed or removed, counted or not. Called after `podChanged` of its protectors. */
  podSeen(pod: Pod): void;
  /** The watch says that a pod of the protector is gone; `pod` is its state before. Called before `podChanged`. */
  podGone?(tracked: TrackedProtector, pod: Pod): void;
}

interface Sharers {
  readonly selectorChanges: number;
  readonly others: ReadonlySet<TrackedProtector>;
}

interface CountedBy {
  readonly selectorChanges: number;
  readonly protectors: readonly TrackedProtector[];
}

/** More changes than this in one turn of the event loop come from a list; the others are applied in slices. */
const MAX_PROMPT_CHANGES = 100;
const SLICE_MS = 8;
const SLICE_MAX_CHANGES = 2_000;

type MemberSource = Pick<CellPods, "podByUid"> & { readonly pods: Pick<Informer<Pod>, "subscribe"> };
type PodChange = readonly [before: Pod | undefined, after: Pod | undefined, isListed: boolean];

export class Membership {
  readonly #selectors = new SelectorIndex<TrackedProtector>();
  /**
   * Pods by labels. The objects may be outdated. Keyed by UID, because two shards may each have a pod of the same name.
   */
  readonly #labels = new LabelIndex<Pod>("fails", ({ uid }) => uid);
  readonly #cell: MemberSource;
  readonly #ports: Ports;
  /** By core, then `namespace/name`. */
  readonly #protectors = new Map<string, Map<string, TrackedProtector>>();
  readonly #listeners = new Set<MembershipListener>();
  /** Of each namespace with protectors: how many, and the number of their selectors' last change. */
  readonly #namespaces = new Map<string, { readonly protectors: number; readonly selectorChanges: number }>();
  /** Goes up with each change, so that no namespace gets a number again. */
  #selectorChanges = 0;
  readonly #sharers = new WeakMap<TrackedProtector, Sharers>();
  /** For pods that several protectors count: these protectors. */
  readonly #countedBy = new WeakMap<Pod, CountedBy>();
  #lastCountedBy: readonly TrackedProtector[] = [];
  /** Pod changes of a list, oldest first; the first `#applied` of them are applied. */
  #backlog: PodChange[] = [];
  #applied = 0;
  /** Changes that were applied in this turn of the event loop. */
  #appliedNow = 0;
  /** Resolves when the backlog is applied. */
  #current: PromiseWithResolvers<void> | undefined;

  /** Subscribes to the pods of `cell`, which must still be empty. */
  constructor(cell: MemberSource, ports: Ports) {
    this.#cell = cell;
    this.#ports = ports;
    cell.pods.subscribe({ changed: (...change) => this.#podEvent(change) });
  }

  /** Undefined when the members match the informer's position and may be counted; else a promise that resolves then. */
  whenCurrent(): Promise<void> | undefined {
    return this.#current?.promise;
  }

  /** Returns a function that ends the subscription. */
  listen(listener: MembershipListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  protectors(core: string): Iterable<TrackedProtector> {
    return this.#protectors.get(core)?.values() ?? [];
  }

  /** The protectors of all listed cores that count a pod with these labels. */
  protectorsOf({ namespace, labels }: Pick<Pod, "namespace" | "labels">): readonly TrackedProtector[] {
    return this.#selectors.match(namespace, labels);
  }

  /**
   * The other protectors that count a pod of this one. The last result is reused until a selector of the namespace or a
   * shared pod changes, so that a protector without shared pods costs nothing when its pods come and go.
   */
  sharersOf(tracked: TrackedProtector): ReadonlySet<TrackedProtector> {
    const selectorChanges = this.#namespaces.get(tracked.id.namespace)?.selectorChanges ?? 0;
    const known = this.#sharers.get(tracked);
    if (known?.selectorChanges === selectorChanges) return known.others;
    const others = new Set<TrackedProtector>();
    // Many pods share one labels object, or the same protectors.
    const seen = new Set<Pod["labels"] | readonly TrackedProtector[]>();
    for (const pod of tracked.pods.values()) {
      if (seen.has(pod.labels)) continue;
      seen.add(pod.labels);
      const protectors = this.#countedByOf(pod, selectorChanges);
      if (seen.has(protectors)) continue;
      seen.add(protectors);
      for (const other of protectors) if (other !== tracked) others.add(other);
    }
    this.#sharers.set(tracked, { selectorChanges, others });
    return others;
  }

  /**
   * The protectors that count this pod. Several protectors of one pod would each look them up whenever a pod comes or
   * goes. So they are found once, and pods with the same protectors share one list.
   */
  #countedByOf(pod: Pod, selectorChanges: number): readonly TrackedProtector[] {
    const known = this.#countedBy.get(pod);
    if (known?.selectorChanges === selectorChanges) return known.protectors;
    const found = this.protectorsOf(pod);
    if (found.length < 2) return found;
    const last = this.#lastCountedBy;
    const isAsLast = found.length === last.length && found.every((one, index) => one === last[index]);
    this.#lastCountedBy = isAsLast ? last : found;
    this.#countedBy.set(pod, { selectorChanges, protectors: this.#lastCountedBy });
    return this.#lastCountedBy;
  }

  count(core: string): number {
    return this.#protectors.get(core)?.size ?? 0;
  }

  protector(core: string, key: string): TrackedProtector | undefined {
    return this.#protectors.get(core)?.get(key);
  }

  /** True where a core has a protector in the namespace. */
  hasProtectors(namespace: string): boolean {
    return this.#namespaces.has(namespace);
  }

  /** Subscribes to the protectors of one more core; the informer must still be empty. */
  followProtectors(core: string, informer: Informer<PodProtector>): void {
    const ofCore = new Map<string, TrackedProtector>();
    this.#protectors.set(core, ofCore);
    informer.subscribe({
      changed: (before, after) => {
        if (after !== undefined) this.#protectorChanged(core, ofCore, after);
        else if (before !== undefined) this.#protectorGone(ofCore, before);
      },
    });
  }

  #podEvent(change: PodChange): void {
    const { timers } = this.#ports;
    if (this.#current === undefined && this.#appliedNow < MAX_PROMPT_CHANGES) {
      if (this.#appliedNow++ === 0) {
        timers.after(0, () => {
          this.#appliedNow = 0;
        });
      }
      this.#podChanged(...change);
      return;
    }
    this.#backlog.push(change);
    if (this.#current !== undefined) return;
    this.#current = Promise.withResolvers();
    timers.after(0, () => this.#applySlice());
  }

  #applySlice(): void {
    const { clock, timers } = this.#ports;
    const untilMs = clock.monotonicMs() + SLICE_MS;
    for (let count = 0; count < SLICE_MAX_CHANGES && clock.monotonicMs() < untilMs; count++) {
      const change = this.#backlog[this.#applied++];
      if (change === undefined) {
        this.#backlog = [];
        this.#applied = 0;
        this.#current?.resolve();
        this.#current = undefined;
        return;
      }
      this.#podChanged(...change);
    }
    timers.after(0, () => this.#applySlice());
  }

  #podChanged(...[before, after, isListed]: PodChange): void {
    const pod = after ?? before;
    if (pod === undefined) return;
    const isRelabelled = before === undefined || after === undefined || !sameLabels(before.labels, after.labels);
    if (isRelabelled) this.#labels.update(before, after);
    const countedBy = after === undefined ? [] : this.protectorsOf(after);
    if (isRelabelled) this.#forgetSharers(countedBy);
    if (isRelabelled && before !== undefined) {
      const earlier = this.protectorsOf(before);
      this.#forgetSharers(earlier);
      for (const tracked of earlier) {
        tracked.pods.delete(before.uid);
        if (after === undefined && !isListed)
          for (const listener of this.#listeners) listener.podGone?.(tracked, before);
        for (const listener of this.#listeners) listener.podChanged(tracked);
      }
    }
    for (const tracked of countedBy) {
      tracked.pods.set(pod.uid, pod);
      for (const listener of this.#listeners) listener.podChanged(tracked);
    }
    for (const listener of this.#listeners) listener.podSeen(pod);
  }

  /** A pod that all of `countedBy` count has come or gone. */
  #forgetSharers(countedBy: readonly TrackedProtector[]): void {
    if (countedBy.length > 1) for (const tracked of countedBy) this.#sharers.delete(tracked);
  }

  #selectorChanged({ id: { namespace } }: TrackedProtector, more: -1 | 0 | 1): void {
    const protectors = (this.#namespaces.get(namespace)?.protectors ?? 0) + more;
    if (protectors === 0) this.#namespaces.delete(namespace);
    else this.#namespaces.set(namespace, { protectors, selectorChanges: ++this.#selectorChanges });
  }

  #protectorChanged(core: string, ofCore: Map<string, TrackedProtector>, protector: PodProtector): void {
    const { namespace = "", name } = protector.metadata;
    const key = namespacedName({ namespace, name });
    const known = ofCore.get(key);
    const tracked = known ?? { id: { core, namespace, name }, protector, pods: new Map(), problems: [] };
    const selector = countedSelector(protector);
    const isSelectorNew = known === undefined || !sameSelector(countedSelector(known.protector), selector);
    if (known === undefined) ofCore.set(key, tracked);
    tracked.protector = protector;
    if (isSelectorNew) {
      this.#selectorChanged(tracked, known === undefined ? 1 : 0);
      this.#select(tracked, selector);
    }
    for (const listener of this.#listeners) listener.protectorChanged(tracked, isSelectorNew);
  }

  #select(tracked: TrackedProtector, selector: LabelSelector): void {
    const { problems, matches } = compileSelector(selector, "fails");
    tracked.problems = problems;
    tracked.pods.clear();
    if (problems.length > 0) {
      // Without a count, the webhook denies the disruption of the pods that the readable part of the selector matches.
      this.#selectors.delete(tracked);
      return;
    }
    this.#selectors.set(tracked, tracked.id.namespace, selector);
    for (const { uid } of this.#labels.select(tracked.id.namespace, selector)) {
      // Undefined for a pod whose removal is still in the backlog.
      const pod = this.#cell.podByUid(uid);
      if (pod !== undefined && matches(pod.labels)) tracked.pods.set(pod.uid, pod);
    }
  }

  #protectorGone(ofCore: Map<string, TrackedProtector>, { metadata }: PodProtector): void {
    const key = namespacedName(metadata);
    const tracked = ofCore.get(key);
    if (tracked === undefined) return;
    ofCore.delete(key);
    this.#selectors.delete(tracked);
    this.#selectorChanged(tracked, -1);
    for (const listener of this.#listeners) listener.protectorGone(tracked);
  }
}

/** The selector of the pods that are counted, a superset of the protected pods. */
export function countedSelector({ spec }: PodProtector): LabelSelector {
  return spec.aggregationSelector ?? spec.selector;
}

/** True for equal texts. Selectors with different texts may still match the same pods. */
export function sameSelector(a: LabelSelector, b: LabelSelector): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}
