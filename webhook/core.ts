import { SelectorIndex } from "../shared/kube/set-trie.ts";
import type { ConfirmedSource } from "../shared/kube/source.ts";
import type { Ports } from "../shared/runtime/clock.ts";
import type { Pod } from "../shared/schema/pod.ts";
import type { Entry } from "./entry.ts";
import { isOlder } from "./known.ts";
import { MAX_CACHE_AGE_MS } from "./limits.ts";
import type { Match, ProtectorSource } from "./pipeline.ts";
import type { ProtectorCalls } from "./protector-calls.ts";
import { ProtectorSlot } from "./slot.ts";
import type { SlotObserver } from "./slot-observer.ts";
import { Vanished } from "./vanished.ts";
import type { Work } from "./work.ts";

export interface CoreOptions {
  readonly name: string;
  readonly source: ConfirmedSource<Entry>;
  readonly calls: ProtectorCalls;
  readonly ports: Ports;
  readonly observer: SlotObserver;
  /** This replica's tag, as its nonces carry it. */
  readonly tag: string;
  readonly recovering?: () => boolean;
  readonly settleMs: number;
  /** Bound of design 5.4; default 15 s. */
  readonly maxCacheAgeMs?: number;
}

function isSame(a: Entry, b: Entry): boolean {
  return a.version === b.version && JSON.stringify(a.object.status) === JSON.stringify(b.object.status);
}

/** One core cluster: its protectors, which of them cover a pod, and whether that can be relied on. */
export class Core implements ProtectorSource {
  readonly name: string;
  readonly #options: CoreOptions;
  readonly #index = new SelectorIndex<string>();
  readonly #vanished: Vanished;
  #restored = false;
  readonly #slots = new Map<string, ProtectorSlot>();

  constructor(options: CoreOptions) {
    this.name = options.name;
    this.#options = options;
    this.#vanished = new Vanished(2 * options.settleMs);
    for (const entry of options.source.values()) this.#changed(undefined, entry);
    options.source.subscribe({ changed: (before, after) => this.#changed(before, after) });
  }

  /** Protectors known. */
  get size(): number {
    return this.#options.source.size;
  }

  /** Milliseconds since the cache was last known to be current; infinite before the first time. */
  cacheAgeMs(nowMs: number): number {
    const { confirmedSentMs } = this.#options.source;
    return confirmedSentMs === undefined ? Number.POSITIVE_INFINITY : nowMs - confirmedSentMs;
  }

  problem(nowMs: number): string | undefined {
    if (!this.#options.source.synced) return `the protectors of core cluster ${this.name} have not been read yet`;
    const ageMs = this.cacheAgeMs(nowMs);
    if (ageMs < (this.#options.maxCacheAgeMs ?? MAX_CACHE_AGE_MS)) return undefined;
    const since = Number.isFinite(ageMs) ? `for ${Math.round(ageMs / 1000)} s` : "yet";
    return `core cluster ${this.name} has not confirmed its protectors ${since}: it is unreachable, or its watch is stalled`;
  }

  match({ namespace, labels }: Pod): Match[] {
    const matches: Match[] = [];
    for (const key of this.#index.match(namespace, labels)) {
      const name = key.slice(namespace.length + 1);
      matches.push({ core: this.name, namespace, name, slot: this.#slot(namespace, name) });
    }
    return matches;
  }

  /**
   * The watch found that the whole core went back in time, and lists it anew (`true`), or has done so (`false`). Writes since then
   * may have given a lost version's number to another state, so in this one list every difference counts as lost history.
   */
  restored(isListing: boolean): void {
    this.#restored = isListing;
  }

  /** Work that is no review: a re-assertion after lost history. */
  submit(key: string, work: Work): void {
    const slash = key.indexOf("/");
    this.#slot(key.slice(0, slash), key.slice(slash + 1)).submit(work);
  }

  /** The requests for one protector; made when it is first needed. */
  #slot(namespace: string, name: string): ProtectorSlot {
    const key = `${namespace}/${name}`;
    const existing = this.#slots.get(key);
    if (existing !== undefined) return existing;
    const { source, ...shared } = this.#options;
    const slot = new ProtectorSlot({ ...shared, namespace, name, watched: () => source.get(key) });
    this.#slots.set(key, slot);
    return slot;
  }

  #changed(before: Entry | undefined, after: Entry | undefined): void {
    if (after === undefined) {
      if (before !== undefined) this.#removed(before);
      return;
    }
    if (before === undefined || before.object.metadata.generation !== after.object.metadata.generation) {
      this.#index.set(after.key, after.object.metadata.namespace ?? "", after.object.spec.selector);
    }
    this.#judge(before, after);
    this.#slots.get(after.key)?.watchChanged();
  }

  #removed(before: Entry): void {
    this.#index.delete(before.key);
    if (this.#slots.get(before.key)?.idle) this.#slots.delete(before.key);
    this.#vanished.remember(before, this.#options.ports.clock.monotonicMs());
  }

  /** A protector whose version goes back, or that comes back as another object, may have lost admissions (design 5.4). */
  #judge(before: Entry | undefined, after: Entry): void {
    const known = before ?? this.#vanished.take(after.key);
    if (known === undefined) return;
    const isReplaced = known.uid !== after.uid;
    if (!isReplaced && !isOlder(after, known) && (!this.#restored || isSame(known, after))) return;
    this.#slots.get(after.key)?.restart(after);
    this.#options.observer.historyLost(isReplaced ? "replaced" : "wentBack", known, after);
  }
}
