import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { LearningInformer } from "../../shared/kube/informer/informer.ts";
import { SelectorIndex } from "../../shared/kube/selectors/set-trie.ts";
import type { BackupTarget, CoreBackup } from "../../shared/recovery/backup/backup-reader.ts";
import { LostProtectorIndex } from "../../shared/recovery/lost-protector-index.ts";
import type { ReleaseRegister } from "../../shared/recovery/register/release-register.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { compareVersions, isComparableVersion } from "../../shared/schema/resource-version.ts";
import { parseMs } from "../../shared/schema/time.ts";
import { MAX_CACHE_AGE_MS } from "../limits.ts";
import type { PendingRequest } from "./pending.ts";
import type { ProtectorLookup, ProtectorMatch } from "./pipeline.ts";
import type { ProtectorClient } from "./protector-client.ts";
import { ProtectorWriter } from "./protector-writer.ts";
import { isOlder } from "./version-tracker.ts";
import type { WriterObserver } from "./writer-observer.ts";

export interface ProtectorCacheOptions {
  readonly name: string;
  readonly source: LearningInformer<ProtectorVersion>;
  readonly calls: ProtectorClient;
  readonly ports: Ports;
  readonly observer: WriterObserver;
  /** This replica's tag, as its nonces carry it. */
  readonly tag: string;
  readonly recovering?: () => boolean;
  /** The core may have been restored just now, which is for those to say who know what it has lost (docs/decisions 0003). */
  readonly cameBack?: () => void;
  readonly settleMs: number;
  /** Bound of design 5.4; default 15 s. */
  readonly maxCacheAgeMs?: number;
  /** Which protectors were released (design 7); without it only what the protectors themselves say counts. */
  readonly releases?: Pick<ReleaseRegister, "has"> & Partial<Pick<ReleaseRegister, "inForce">>;
  /** Told of each protector that vanished without a release, and of each that is back or released. */
  readonly ghosts?: LostProtectorObserver;
}

export interface LostProtectorObserver {
  /** `isKept` false: there are too many, its pods are not protected any more. */
  vanished(entry: ProtectorVersion, isKept: boolean): void;
  ended(entry: ProtectorVersion, how: "back" | "released"): void;
}

/**
 * A restored etcd should give versions on from a billion more (`etcdutl snapshot restore --bump-revision`). The aggregators note every half
 * minute what they see; as many writes take days.
 */
const LEAST_BUMP = 900_000_000;

/** True when the core's versions were raised, and not by writes, since any aggregator has noted them. */
function isBumped(position: string | undefined, versions: readonly string[]): boolean {
  const known = versions.filter(isComparableVersion).map(Number);
  return isComparableVersion(position) && known.length > 0 && Number(position) - Math.max(...known) >= LEAST_BUMP;
}

function isSame(a: ProtectorVersion, b: ProtectorVersion): boolean {
  return a.version === b.version && JSON.stringify(a.object.status) === JSON.stringify(b.object.status);
}

/** Was `a` made after `b`? Where both have the same name, `b` was over by then. */
function isYounger(a: ProtectorVersion, b: ProtectorVersion): boolean {
  return parseMs(a.object.metadata.creationTimestamp) > parseMs(b.object.metadata.creationTimestamp);
}

/** One core cluster: its protectors, which of them cover a pod, and whether that can be relied on. */
export class ProtectorCache implements ProtectorLookup, BackupTarget {
  readonly name: string;
  readonly #options: ProtectorCacheOptions;
  readonly #index = new SelectorIndex<string>();
  readonly #vanished: LostProtectorIndex;
  #restored = false;
  readonly #slots = new Map<string, ProtectorWriter>();

  constructor(options: ProtectorCacheOptions) {
    this.name = options.name;
    this.#options = options;
    this.#vanished = new LostProtectorIndex({
      isRecorded: (uid) => options.releases?.has(uid) ?? false,
      onOverflow: (entry) => options.ghosts?.vanished(entry, false),
    });
    for (const entry of options.source.values()) this.#changed(undefined, entry);
    options.source.subscribe({ changed: (before, after) => this.#changed(before, after) });
  }

  /** Protectors that vanished without a release and are still in force. */
  get ghosts(): number {
    return this.#vanished.size;
  }

  /** Protectors known. */
  get size(): number {
    return this.#options.source.size;
  }

  /** Protectors that let everything pass at the moment, by the wall clock. */
  suspended(nowMs: number): number {
    let count = 0;
    for (const { state } of this.#options.source.values()) if (nowMs < state.spec.suspendedUntilMs) count++;
    return count;
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

  match({ namespace, labels }: Pod): ProtectorMatch[] {
    const matches: ProtectorMatch[] = [];
    for (const key of this.#index.match(namespace, labels)) {
      const name = key.slice(namespace.length + 1);
      const ghost = this.#vanished.get(key);
      const absent = (): ProtectorVersion | undefined => ghost ?? this.#lost(key);
      matches.push({ core: this.name, namespace, name, slot: this.#slot(namespace, name), ghost, absent });
    }
    return matches;
  }

  /** The protectors whose selector covers a pod with these labels, as the watch shows them. */
  covering(namespace: string, labels: Pod["labels"]): readonly PodProtector[] {
    return this.#index.match(namespace, labels).flatMap((key) => this.#options.source.get(key)?.object ?? []);
  }

  /** UID of a protector that is known or in force, by `namespace/name`. */
  uidOf(key: string): string | undefined {
    return (this.#options.source.get(key) ?? this.#vanished.get(key))?.uid;
  }

  /** What a read found to be gone before the watch did; undefined when its end was meant. */
  #lost(key: string): ProtectorVersion | undefined {
    const last = this.#options.source.get(key) ?? this.#vanished.get(key);
    // A core that has just come back may have been restored, which the watch is about to find out.
    const isRestored = this.#restored || this.#options.recovering?.() === true;
    return last === undefined || this.#vanished.isReleased(last, isRestored) ? undefined : last;
  }

  /** The register has more entries: ghosts that were released are over. */
  released(): void {
    for (const entry of this.#vanished.dropReleased()) {
      if (this.#options.source.get(entry.key) === undefined) this.#index.delete(entry.key);
      this.#options.ghosts?.ended(entry, "released");
    }
  }

  /**
   * What a cell has kept of this core, compared with the first list (design 5.4, 7): what is in neither the core nor its register is
   * a ghost, and a core that is older than it was seen has lost history everywhere.
   */
  adopt({ entries, versions }: CoreBackup): void {
    const { source, observer, ghosts, cameBack } = this.#options;
    const { position } = source;
    if (isBumped(position, versions)) cameBack?.();
    const isRestored = versions.some(
      (seen) => isComparableVersion(position) && isComparableVersion(seen) && compareVersions(position, seen) < 0,
    );
    for (const entry of entries) {
      const known = this.#vanished.get(entry.key);
      if (source.get(entry.key) !== undefined || (known !== undefined && !isYounger(entry, known))) continue;
      if (!this.#vanished.add(entry, isRestored)) continue;
      this.#index.set(entry.key, entry.object.metadata.namespace ?? "", entry.object.spec.selector);
      ghosts?.vanished(entry, true);
    }
    if (isRestored) for (const entry of source.values()) observer.historyLost("wentBack", entry, entry);
  }

  /**
   * The watch found that the whole core went back in time, and lists it anew (`true`), or has done so (`false`). Writes since then
   * may have given a lost version's number to another state, so in this one list every difference counts as lost history.
   */
  restored(isListing: boolean): void {
    this.#restored = isListing;
  }

  /** Work that is no review: a re-assertion after lost history. */
  submit(key: string, work: PendingRequest): void {
    const slash = key.indexOf("/");
    this.#slot(key.slice(0, slash), key.slice(slash + 1)).submit(work);
  }

  /** The requests for one protector; made when it is first needed. */
  #slot(namespace: string, name: string): ProtectorWriter {
    const key = `${namespace}/${name}`;
    const existing = this.#slots.get(key);
    if (existing !== undefined) return existing;
    const { source, ...shared } = this.#options;
    const slot = new ProtectorWriter({
      ...{ ...shared, namespace, name },
      watched: () => source.get(key),
      learned: (version) => source.learned(key, version),
    });
    this.#slots.set(key, slot);
    return slot;
  }

  #changed(before: ProtectorVersion | undefined, after: ProtectorVersion | undefined): void {
    if (after === undefined) {
      if (before !== undefined) this.#removed(before);
      return;
    }
    this.#options.releases?.inForce?.(after.object);
    const ghost = before === undefined ? this.#vanished.take(after.key) : undefined;
    if (ghost !== undefined) this.#options.ghosts?.ended(ghost, "back");
    // Not by the generation: a restored core gives one that was lost to another spec. Costs little when the selector is what it was.
    this.#index.set(after.key, after.object.metadata.namespace ?? "", after.object.spec.selector);
    this.#judge(before ?? ghost, after);
    this.#slots.get(after.key)?.watchChanged();
  }

  #removed(before: ProtectorVersion): void {
    if (this.#slots.get(before.key)?.idle) this.#slots.delete(before.key);
    if (this.#vanished.add(before, this.#restored)) this.#options.ghosts?.vanished(before, true);
    else this.#index.delete(before.key);
  }

  /** A protector whose version goes back, or that comes back as another object, may have lost admissions (design 5.4). */
  #judge(before: ProtectorVersion | undefined, after: ProtectorVersion): void {
    // In the list after a restore, what counts is the newest that was known: an own write may have been lost before the watch showed it.
    const known = (this.#restored ? this.#slots.get(after.key)?.known : undefined) ?? before;
    if (known === undefined) return;
    const isReplaced = known.uid !== after.uid;
    if (!isReplaced && !isOlder(after, known) && (!this.#restored || isSame(known, after))) return;
    this.#slots.get(after.key)?.restart(after);
    this.#options.observer.historyLost(isReplaced ? "replaced" : "wentBack", known, after);
  }
}
