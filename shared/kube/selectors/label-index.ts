import { compileSelector, type Unreadable } from "../../decide/availability/selector.ts";
import type { LabelSelector } from "../../schema/podprotector.ts";

export interface Labelled {
  readonly namespace: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** The ids with one label pair. A single id has no set: many pairs (pod names, indexes) are unique. */
type Posting = string | Set<string>;

interface Namespace<T> {
  readonly objects: Map<string, T>;
  readonly keys: Map<string, Map<string, Posting>>;
}

/**
 * Finds the objects that a selector selects. It checks the smallest posting list that the selector allows, so that the
 * cost of a selector is proportional to its matches. Namespace and name identify an object, or namespace and `idOf`.
 */
export class LabelIndex<T extends Labelled> {
  readonly #unreadable: Unreadable;
  readonly #idOf: (object: T) => string;
  readonly #namespaces = new Map<string, Namespace<T>>();
  #size = 0;

  /** `unreadable` is how an unreadable requirement counts; by default, it does not match. */
  constructor(unreadable: Unreadable = "fails", idOf: (object: T) => string = ({ name }) => name) {
    this.#unreadable = unreadable;
    this.#idOf = idOf;
  }

  get size(): number {
    return this.#size;
  }

  get(namespace: string, id: string): T | undefined {
    return this.#namespaces.get(namespace)?.objects.get(id);
  }

  /** Adds an object, or replaces the object of this id. */
  add(object: T): void {
    let namespace = this.#namespaces.get(object.namespace);
    if (namespace === undefined) {
      namespace = { objects: new Map(), keys: new Map() };
      this.#namespaces.set(object.namespace, namespace);
    }
    const id = this.#idOf(object);
    const before = namespace.objects.get(id);
    namespace.objects.set(id, object);
    if (before === undefined) this.#size += 1;
    else if (sameLabels(before.labels, object.labels)) return;
    else unpost(namespace.keys, id, before);
    post(namespace.keys, id, object);
  }

  /** Removes the object of this namespace and id, even if its labels have changed. */
  remove(object: T): void {
    const namespace = this.#namespaces.get(object.namespace);
    const id = this.#idOf(object);
    const present = namespace?.objects.get(id);
    if (namespace === undefined || present === undefined) return;
    namespace.objects.delete(id);
    this.#size -= 1;
    unpost(namespace.keys, id, present);
    if (namespace.objects.size === 0) this.#namespaces.delete(object.namespace);
  }

  /** Applies a change from an informer: `before` undefined is an addition, `after` undefined a deletion. */
  update(before: T | undefined, after: T | undefined): void {
    if (
      before !== undefined &&
      (after === undefined || this.#idOf(before) !== this.#idOf(after) || before.namespace !== after.namespace)
    )
      this.remove(before);
    if (after !== undefined) this.add(after);
  }

  /** Yields the selected objects in no particular order. The index must not change meanwhile. */
  *select(namespaceName: string, selector: LabelSelector): IterableIterator<T> {
    const namespace = this.#namespaces.get(namespaceName);
    if (namespace === undefined) return;
    const { matches } = compileSelector(selector, this.#unreadable);
    const postings = smallestPostings(namespace.keys, selector, namespace.objects.size);
    const ids = postings === undefined ? namespace.objects.keys() : idsOf(postings);
    for (const id of ids) {
      const object = namespace.objects.get(id);
      if (object !== undefined && matches(object.labels)) yield object;
    }
  }

  /** Label pairs in memory, so that tests see leaks. */
  stats(): { readonly namespaces: number; readonly pairs: number } {
    let pairs = 0;
    for (const { keys } of this.#namespaces.values()) for (const values of keys.values()) pairs += values.size;
    return { namespaces: this.#namespaces.size, pairs };
  }
}

/** Returns the fewest postings that contain all matches; undefined when they are no fewer than all objects. */
function smallestPostings(
  keys: ReadonlyMap<string, ReadonlyMap<string, Posting>>,
  selector: LabelSelector,
  objects: number,
): Iterable<Posting> | undefined {
  let best: Iterable<Posting> | undefined;
  let fewest = objects;
  const offer = (postings: Iterable<Posting>): void => {
    let total = 0;
    for (const posting of postings) {
      total += sizeOf(posting);
      if (total >= fewest) return;
    }
    best = postings;
    fewest = total;
  };
  const among = (key: string, values: Iterable<string>): Posting[] => {
    const known = keys.get(key);
    return known === undefined ? [] : [...new Set(values)].flatMap((value) => known.get(value) ?? []);
  };
  for (const [key, value] of Object.entries(selector.matchLabels ?? {})) offer(among(key, [value]));
  for (const { key, operator, values } of selector.matchExpressions ?? []) {
    if (operator === "In" && values != null && values.length > 0) offer(among(key, values));
    if (operator === "Exists") offer([...(keys.get(key)?.values() ?? [])]);
  }
  return best;
}

function* idsOf(postings: Iterable<Posting>): IterableIterator<string> {
  for (const posting of postings) {
    if (typeof posting === "string") yield posting;
    else yield* posting;
  }
}

function sizeOf(posting: Posting): number {
  return typeof posting === "string" ? 1 : posting.size;
}

function post(keys: Map<string, Map<string, Posting>>, id: string, { labels }: Labelled): void {
  for (const [key, value] of Object.entries(labels)) {
    let values = keys.get(key);
    if (values === undefined) {
      values = new Map();
      keys.set(key, values);
    }
    const posting = values.get(value);
    if (posting === undefined) values.set(value, id);
    else if (typeof posting === "string") values.set(value, new Set([posting, id]));
    else posting.add(id);
  }
}

function unpost(keys: Map<string, Map<string, Posting>>, id: string, { labels }: Labelled): void {
  for (const [key, value] of Object.entries(labels)) {
    const values = keys.get(key);
    const posting = values?.get(value);
    if (values === undefined || posting === undefined) continue;
    if (typeof posting !== "string") {
      posting.delete(id);
      if (posting.size > 0) continue;
    }
    values.delete(value);
    if (values.size === 0) keys.delete(key);
  }
}

/** Cheap for most changes: `pod.ts` shares one labels object between the pods of one owner. */
export function sameLabels(a: Labelled["labels"], b: Labelled["labels"]): boolean {
  if (a === b) return true;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && a[key] === b[key]);
}
