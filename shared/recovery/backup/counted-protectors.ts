import type { PodProtector } from "../../schema/podprotector.ts";

/** A protector of a core, with the pods that this cell counts for it. */
export interface CountedProtector {
  readonly id: { readonly core: string; readonly namespace: string; readonly name: string };
  readonly protector: PodProtector;
  readonly pods: { readonly size: number };
}

/** The protectors that this cell counts, as the aggregator's membership knows them. */
export interface CountedProtectors {
  /** Returns what ends the subscription. */
  listen(listener: {
    podChanged(entry: CountedProtector): void;
    protectorChanged(entry: CountedProtector): void;
    protectorGone(entry: CountedProtector): void;
    podSeen(): void;
  }): () => void;
  /** By core and `namespace/name`. */
  protector(core: string, key: string): CountedProtector | undefined;
  protectors(core: string): Iterable<CountedProtector>;
}
