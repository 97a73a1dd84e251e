import type { LabelSelector } from "../schema/podprotector.ts";

export interface Labelled {
  readonly namespace: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** Objects by labels: which of them a selector selects. Objects are identified by namespace and name. */
export declare class LabelIndex<T extends Labelled> {
  get size(): number;
  add(object: T): void;
  remove(object: T): void;
  update(before: T | undefined, after: T | undefined): void;
  select(namespace: string, selector: LabelSelector): Iterable<T>;
}
