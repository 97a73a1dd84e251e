import type { LabelSelector } from "../schema/podprotector.ts";

/** Protectors by selector: which of them select a set of labels. */
export declare class SelectorIndex<K> {
  get size(): number;
  /** Adds or replaces; returns what could not be read of the selector (that part matches everything). */
  set(key: K, namespace: string, selector: LabelSelector): readonly string[];
  delete(key: K): void;
  /** Keys whose selector matches, in no particular order. */
  match(namespace: string, labels: Readonly<Record<string, string>>): K[];
}
