import type { Labels } from "../../shared/decide/availability/selector.ts";
import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { LearningInformer } from "../../shared/kube/informer/informer.ts";
import { SelectorIndex } from "../../shared/kube/selectors/set-trie.ts";
import type { BackupTarget, CoreBackup } from "../../shared/recovery/backup/backup-reader.ts";
import { isBehindAny, isBumped } from "../../shared/recovery/backup/core-versions.ts";
import { LostProtectorIndex } from "../../shared/recovery/lost-protector-index.ts";
import type { ReleaseRegister } from "../../shared/recovery/register/release-register.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector, ProtectorId } from "../../shared/schema/podprotector.ts";
import { parseMs } from "../../shared/schema/time.ts";
import type { PendingRequest } from "./pending-queue.ts";
import { ProtectorWriter, type ProtectorWriterOptions } from "./protector-writer.ts";
import { isOlder } from "./version-tracker.ts";

/** The cache must have been confirmed current within this time, or requests get an HTTP error. */
const MAX_CACHE_AGE_MS = 15_000;

/** A protector that covers the pod of a disruption. */
export interface ProtectorMatch extends ProtectorId {
  readonly writer: ProtectorWriter;
  /** The last version, when the protector is lost (docs/design.md#lost-protectors). */
  readonly lost?: ProtectorVersion | undefined;
  /** The last version after a read did not find the protector; undefined when the protector was released. */
  readonly lastVersion?: () => ProtectorVersion | undefined;
}

/** One core cluster, as the pipeline sees it. */
export interface ProtectorLookup {
  readonly name: string;
  /** True when the core has no protector, lost or not. */
  readonly isEmpty?: boolean;
  /** Why no decision can rest on this core's cache now; undefined when it is current. */
  problem(nowMs: number): string | undefined;
  /** The protectors whose selector covers the pod. */
  match(pod: Pod): ProtectorMatch[];
}

export interface ProtectorCacheOptions
  extends Pick<ProtectorWriterOptions, "client" | "ports" | "onEvent" | "tag" | "isRecovering" | "isFailing"> {
  readonly name: string;
  readonly source: LearningInformer<ProtectorVersion>;
  /** Called when the core may have been restored just now, so that no replica reserves until its losses are known. */
  readonly assumeOutage?: () => void;
  /** Default 15 s. */
  readonly maxCacheAgeMs?: number;
  /** Which protectors were released; without it, only the marks on the protectors themselves count. */
  readonly releases?: Pick<ReleaseRegister, "hasEnded"> & Partial<Pick<ReleaseRegister, "inForce">>;
  /**
   * Selects protectors by labels (--protector-selector). The others are cached, but decide nothing. Default: all
   * decide.
   */
  readonly selects?: ((labels: Labels) => boolean) | undefined;
}

function isSame(a: ProtectorVersion, b: ProtectorVersion): boolean {
  return a.version === b.version && JSON.stringify(a.object.status) === JSON.stringify(b.object.status);
}

/** True when `a` was created after `b`. Two of the same name do not exist at the same time. */
function isYounger(a: ProtectorVersion, b: ProtectorVersion): boolean {
  return parseMs(a.object.metadata.creationTimestamp) > parseMs(b.object.metadata.creationTimestamp);
}

/** The protectors of one core: which of them cover a pod, which are lost, and whether the cache is current. */
export class ProtectorCache implements ProtectorLookup, BackupTarget {
  readonly name: string;
  readonly #options: ProtectorCacheOptions;
  readonly #index = new SelectorIndex<string>();
  readonly #lost: LostProtectorIndex;
  readonly #writers = new Map<string, ProtectorWriter>();
  /** True while the watch lists a core that was restored to an older state. */
  #isRestored = false;
  /** Backups of cells that were adopted. */
  #adopted = 0;

  constructor(options: ProtectorCacheOptions) {
    this.name = options.name;
    this.#options = options;
    this.#lost = new LostProtectorIndex({
      isRecorded: (protector) => options.releases?.hasEnded(protector) ?? false,
      onOverflow: (protector) => {
        this.#leave(protector.key);
        options.onEvent({ kind: "lost", protector, isKept: false });
      },
    });
    for (const version of options.source.values()) this.#changed(undefined, version, true);
    options.source.subscribe({ changed: (...change) => this.#changed(...change) });
  }

  /** The first `max` lost protectors. */
  *lost(max: number): Iterable<{ readonly namespace: string; readonly name: string }> {
    let left = max;
    for (const { object } of this.#lost.values()) {
      if (left-- <= 0) return;
      const { namespace = "", name } = object.metadata;
      yield { namespace, name };
    }
  }

  get lostCount(): number {
    return this.#lost.size;
  }

  get size(): number {
    return this.#options.source.size;
  }

  get isEmpty(): boolean {
    return this.size + this.lostCount === 0;
  }

  /** Number of protectors that decide nothing, because --protector-selector leaves them out. */
  get leftOut(): number {
    return this.#count((version) => !this.#isSelected(version));
  }

  /** Number of protectors that are suspended at this wall clock time. */
  suspended(nowMs: number): number {
    return this.#count(({ state }) => nowMs < state.spec.suspendedUntilMs);
  }

  #count(isCounted: (version: ProtectorVersion) => boolean): number {
    let count = 0;
    for (const version of this.#options.source.values()) if (isCounted(version)) count++;
    return count;
  }

  /** Milliseconds since the cache was last known to be current; infinite if it never was. */
  cacheAgeMs(nowMs: number): number {
    const { confirmedSentMs } = this.#options.source;
    return confirmedSentMs === undefined ? Number.POSITIVE_INFINITY : nowMs - confirmedSentMs;
  }

  problem(nowMs: number): string | undefined {
    if (!this.#options.source.synced) return `the protectors of core cluster ${this.name} have not been read yet`;
    const ageMs = this.cacheAgeMs(nowMs);
    if (ageMs < (this.#options.maxCacheAgeMs ?? MAX_CACHE_AGE_MS)) return undefined;
    const since = Number.isFinite(ageMs) ? `for ${Math.round(ageMs / 1000)} s` : "yet";
    return (
      `core cluster ${this.name} has not confirmed its protectors ` +
      `${since}: it is unreachable, or its watch is stalled`
    );
  }

  match({ namespace, labels }: Pod): ProtectorMatch[] {
    const matches: ProtectorMatch[] = [];
    for (const match of this.#index.match(namespace, labels)) {
      const lost = this.#lost.get(match);
      const key = lost?.key ?? match;
      const name = key.slice(namespace.length + 1);
      if (!this.#isSelected(lost ?? this.#options.source.get(key))) continue;
      const lastVersion = (): ProtectorVersion | undefined => this.#lastVersion(key);
      matches.push({ core: this.name, namespace, name, writer: this.#writer(namespace, name), lost, lastVersion });
    }
    return matches;
  }

  /** The protectors whose selector covers a pod with these labels, as the watch shows them. */
  covering(namespace: string, labels: Pod["labels"]): readonly PodProtector[] {
    return this.#index.match(namespace, labels).flatMap((key) => {
      const version = this.#options.source.get(key);
      return version === undefined || !this.#isSelected(version) ? [] : version.object;
    });
  }

  /** UID of a protector that is cached or lost, by `namespace/name`. */
  uidOf(key: string): string | undefined {
    return this.#known(key)?.uid;
  }

  #known(key: string): ProtectorVersion | undefined {
    return this.#options.source.get(key) ?? this.#lost.get(key);
  }

  /** The last version of a protector that a read found gone before the watch did; undefined when it was released. */
  #lastVersion(key: string): ProtectorVersion | undefined {
    const last = this.#known(key);
    // A core that has just come back may have been restored without the watch having noticed.
    const isRestored = this.#isRestored || this.#options.isRecovering?.() === true;
    return last === undefined || this.#lost.isReleased(last, isRestored) ? undefined : last;
  }

  /** To be called when the release register has new entries: drops the lost protectors that they release. */
  dropReleased(): void {
    for (const version of this.#lost.dropReleased()) {
      this.#leave(version.key);
      this.#options.onEvent({ kind: "lostEnded", protector: version, how: "released" });
    }
  }

  /**
   * Compares a cell's backup of this core with the first list. A protector that is neither in the core nor in its
   * release register is lost. A core that is older than the backup, or has an older protector, has lost history; so has
   * the successor of a protector that was not released.
   */
  adopt({ entries, versions, lost }: CoreBackup): void {
    const { source, onEvent, assumeOutage } = this.#options;
    const isRaised = isBumped(source.position, versions);
    if (isRaised) assumeOutage?.();
    // Of this cell alone.
    const group = `#${this.#adopted++}`;
    const isOlder = isBehindAny(source.serverVersion ?? source.position, versions);
    const historyLost = (finding: "wentBack" | "replaced", before: ProtectorVersion, now: ProtectorVersion): void =>
      onEvent({ kind: "historyLost", finding, before, now });
    for (const version of entries) {
      const isRestored = isOlder || isRaised || lost?.has(version.uid) === true;
      const { key } = version;
      const known = this.#lost.get(key);
      const present = source.get(key);
      if (present !== undefined) {
        // A core that has the predecessor of what was backed up was restored, whatever its version says.
        if (isYounger(version, present)) historyLost("wentBack", version, present);
        else if (version.uid !== present.uid && !this.#lost.isReleased(version, isRestored))
          historyLost("replaced", version, present);
        continue;
      }
      if (known?.uid === version.uid) {
        this.#place(version, this.#lost.addVariant(version, isRestored));
        continue;
      }
      if ((known !== undefined && !isYounger(version, known)) || !this.#lost.add(version, isRestored, group)) continue;
      this.#endVariants(key);
      this.#place(version, key);
      onEvent({ kind: "lost", protector: version, isKept: true });
    }
    if (isOlder) for (const version of source.values()) historyLost("wentBack", version, version);
  }

  /**
   * The watch found that the core was restored to an older state, and reads a new list (`true`), or has read it
   * (`false`). Writes since the restore may have reused the resourceVersion of a lost version, so every difference in
   * this one list counts as lost history.
   */
  restored(isListing: boolean): void {
    this.#isRestored = isListing;
  }

  /** Queues a re-assertion after lost history. */
  submit(key: string, pending: PendingRequest): void {
    const [namespace = "", name = ""] = key.split("/");
    this.#writer(namespace, name).submit(pending);
  }

  /**
   * Checked at each decision: to the watch, a protector whose labels change stays the same protector, and is never
   * lost.
   */
  #isSelected(version: ProtectorVersion | undefined): boolean {
    const { selects } = this.#options;
    return selects === undefined || version === undefined || selects(version.object.metadata.labels ?? {});
  }

  #writer(namespace: string, name: string): ProtectorWriter {
    const key = `${namespace}/${name}`;
    const existing = this.#writers.get(key);
    if (existing !== undefined) return existing;
    const { source, ...shared } = this.#options;
    const writer = new ProtectorWriter({
      ...{ ...shared, namespace, name },
      watched: () => source.get(key),
      learned: (version) => source.learned(key, version),
      onIdle: () => this.#forget(key),
    });
    this.#writers.set(key, writer);
    return writer;
  }

  #changed(before: ProtectorVersion | undefined, after: ProtectorVersion | undefined, isListed: boolean): void {
    if (after === undefined) {
      if (before !== undefined) this.#removed(before, isListed);
      return;
    }
    this.#options.releases?.inForce?.(after.object);
    const lost = before === undefined ? this.#lost.take(after.key) : undefined;
    if (lost !== undefined) {
      this.#endVariants(after.key);
      this.#options.onEvent({ kind: "lostEnded", protector: lost, how: "back" });
    }
    // Even for an equal generation, because a restored core may reuse it for another spec. Cheap for an unchanged
    // selector.
    this.#place(after, after.key);
    this.#checkHistory(before ?? lost, after);
    this.#writers.get(after.key)?.watchChanged();
  }

  #place({ object: { metadata, spec } }: ProtectorVersion, key: string | undefined): void {
    if (key !== undefined) this.#index.set(key, metadata.namespace ?? "", spec.selector, spec.ignoredPodSelector);
  }

  #endVariants(key: string): void {
    for (const variant of this.#lost.takeVariants(key)) this.#index.delete(variant);
  }

  /** A lost protector is in force no longer. */
  #leave(key: string): void {
    this.#endVariants(key);
    if (this.#options.source.get(key) === undefined) this.#index.delete(key);
    // A request for its pods has made a writer, which no request waits for.
    this.#forget(key);
  }

  #removed(before: ProtectorVersion, isListed: boolean): void {
    this.#forget(before.key);
    // Each protector is written every two minutes, so only a restore adds so many versions to its last one.
    const isRaised = isListed && isBumped(this.#options.source.position, [before.object.metadata.resourceVersion]);
    if (this.#lost.add(before, isRaised || this.#isRestored))
      this.#options.onEvent({ kind: "lost", protector: before, isKept: true });
    else this.#index.delete(before.key);
  }

  /** Keeps a writer until its waiting requests are answered, so that one protector never has two writers. */
  #forget(key: string): void {
    const isGone = this.#options.source.get(key) === undefined;
    if (isGone && this.#writers.get(key)?.idle) this.#writers.delete(key);
  }

  /** A protector whose version goes back, or that is another object by the same name, may have lost reservations. */
  #checkHistory(before: ProtectorVersion | undefined, after: ProtectorVersion): void {
    // After a restore, the newest version known counts: an own write may have been lost before the watch showed it.
    const known = (this.#isRestored ? this.#writers.get(after.key)?.versions.newest : undefined) ?? before;
    if (known === undefined) return;
    const isReplaced = known.uid !== after.uid;
    if (!isReplaced && !isOlder(after, known) && (!this.#isRestored || isSame(known, after))) return;
    this.#writers.get(after.key)?.versions.restart(after);
    const finding = isReplaced ? "replaced" : "wentBack";
    this.#options.onEvent({ kind: "historyLost", finding, before: known, now: after });
  }
}
