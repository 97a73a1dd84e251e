/**
 * Which protectors count which pods, kept current event by event (design 8): a pod's change costs its matching protectors, a
 * protector's change its matching pods, and neither the size of the cell.
 */
import { compileSelector } from "../../shared/decide/selector.ts";
import { LabelIndex } from "../../shared/kube/pod-index.ts";
import { SelectorIndex } from "../../shared/kube/set-trie.ts";
import type { Source } from "../../shared/kube/source.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { LabelSelector, PodProtector } from "../../shared/schema/podprotector.ts";
import { type Entry, entryKey } from "./entry.ts";

export interface MembershipListener {
  /** A pod of the entry came, went or changed. */
  podChanged(entry: Entry): void;
  /** The protector was added or changed in any way. */
  protectorChanged(entry: Entry, before: PodProtector | undefined): void;
  protectorGone(entry: Entry): void;
  /** Any pod at all, after the entries that count it; for those who wait for a pod that no entry counts. */
  podSeen(pod: Pod): void;
}

export class Membership {
  readonly #selectors = new SelectorIndex<Entry>();
  /** Its objects may be older than the cell's: it is only told of new labels. */
  readonly #labels = new LabelIndex<Pod>();
  readonly #pods: Source<Pod>;
  /** By core, then `namespace/name`. */
  readonly #entries = new Map<string, Map<string, Entry>>();
  readonly #listeners = new Set<MembershipListener>();

  /** Follows `pods` from now on; it must still be empty. */
  constructor(pods: Source<Pod>) {
    this.#pods = pods;
    pods.subscribe({ changed: (before, after) => this.#podChanged(before, after) });
  }

  /** Returns a function that ends it. */
  listen(listener: MembershipListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  entries(core: string): Iterable<Entry> {
    return this.#entries.get(core)?.values() ?? [];
  }

  count(core: string): number {
    return this.#entries.get(core)?.size ?? 0;
  }

  entry(core: string, key: string): Entry | undefined {
    return this.#entries.get(core)?.get(key);
  }

  /** Follows the protectors of one more core cluster; the source must still be empty. */
  followProtectors(core: string, source: Source<PodProtector>): void {
    const entries = new Map<string, Entry>();
    this.#entries.set(core, entries);
    source.subscribe({
      changed: (before, after) => {
        if (after !== undefined) this.#protectorChanged(core, entries, after);
        else if (before !== undefined) this.#protectorGone(entries, before);
      },
    });
  }

  #podChanged(before: Pod | undefined, after: Pod | undefined): void {
    const moved = before === undefined || after === undefined || !sameLabels(before.labels, after.labels);
    const pod = after ?? before;
    if (pod === undefined) return;
    // In another shard the name may already belong to the pod's successor (design 5.4).
    if (moved) this.#labels.update(before, after ?? this.#pods.get(`${pod.namespace}/${pod.name}`));
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

  #protectorChanged(core: string, entries: Map<string, Entry>, after: PodProtector): void {
    const { namespace = "", name } = after.metadata;
    const key = entryKey({ namespace, name });
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

  #select(entry: Entry, selector: LabelSelector): void {
    const { problems } = compileSelector(selector, "fails");
    entry.problems = problems;
    entry.pods.clear();
    if (problems.length > 0) {
      // No pod is counted that should not be (design 8): without a count everything of it is refused.
      this.#selectors.delete(entry);
      return;
    }
    this.#selectors.set(entry, entry.id.namespace, selector);
    for (const { namespace, name } of this.#labels.select(entry.id.namespace, selector)) {
      const pod = this.#pods.get(`${namespace}/${name}`);
      if (pod !== undefined) entry.pods.set(pod.uid, pod);
    }
  }

  #protectorGone(entries: Map<string, Entry>, { metadata }: PodProtector): void {
    const key = entryKey({ namespace: metadata.namespace ?? "", name: metadata.name });
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
