import { specHash } from "../../../shared/decide/availability/spec-facts.ts";
import { FirstSeenTimes } from "../../../shared/decide/settling/first-seen.ts";
import type { KnownEntry } from "../../../shared/decide/settling/lost-history.ts";
import type { UnsettledRecord } from "../../../shared/decide/settling/settle-history.ts";
import type { VanishedPod } from "../../../shared/decide/settling/vanished-pods.ts";
import { isCounted } from "../../../shared/decide/state/protector-state.ts";
import type { CellStatus, LabelSelector, PodProtector } from "../../../shared/schema/podprotector.ts";
import { isOlderVersion } from "../../../shared/schema/resource-version.ts";

/** Pause after an own write, in times of that write: a webhook farther away can read and write in it. */
const YIELD_WRITES = 2;
/** Of writes that follow each other as soon as they may, each eighth leaves a webhook much farther away its time. */
const LONG_YIELD_WRITES = 20;
const LONG_YIELD_EVERY = 8;
/** Longer than any network takes to bring a version to a webhook and its write back. */
const MAX_LONG_YIELD_MS = 600;
const MAX_YIELD_MS = 3_000;
/** The fractions of its multiples spread evenly. */
const GOLDEN_RATIO = 0.618;

/**
 * What a leader remembers of one protector between reconciles. A new leader starts without it, so every settle period
 * starts again (docs/design.md#lost-history).
 */
export class ReconcileState {
  readonly seen = new FirstSeenTimes();
  /** The cell's entry that this leader last wrote or read. An older or missing entry means lost history. */
  known: KnownEntry | undefined;
  /** The protector's selector when the stored entry was counted under its spec. */
  selector: LabelSelector | undefined;
  /** The snapshot is newer than this epoch. */
  adoptedEpoch = 0;
  /** A stored epoch that is not adopted yet, and when this process first saw it (monotonic). */
  unadoptedEpoch: { readonly epoch: number; readonly sinceMs: number } | undefined;
  /** Since when (monotonic) the stored position is newer than the snapshot. */
  staleSinceMs: number | undefined;
  /** Since when (monotonic) a write waits for the window of the aggregation rate. */
  windowSinceMs: number | undefined;
  /** Monotonic time until which an own write leaves the object to webhooks. */
  yieldsUntilMs = Number.NEGATIVE_INFINITY;
  #yieldFraction = 0;
  /** Writes that began within the time of one write after the pause before them, or in it. */
  #yieldsInARow = 0;
  /** Monotonic time of the next write, even when nothing has changed. */
  heartbeatDueMs: number;
  /** Monotonic time of the oldest pod change that is not published yet. */
  changedSinceMs: number | undefined;
  /** The reservations that the last reconcile left unsettled. */
  pending: readonly UnsettledRecord[] = [];
  /** How many unreadable buckets of the history were reported. */
  unreadableBuckets = 0;
  /** The problems of the selector that were reported. */
  selectorProblems: readonly string[] = [];
  /** UIDs of pods whose resize the kubelet has deferred while it holds a reservation. */
  deferred: ReadonlySet<string> = new Set();
  /**
   * By UID: pods that are gone without a sign of a deletion, until a stored version shows whether the deletion was
   * admitted.
   */
  readonly gone = new Map<string, VanishedPod>();
  /** The stored hold, and the monotonic time since which this leader knows it. */
  hold: { readonly text: string; readonly sinceMs: number } | undefined;
  /** A version from the response to an own write, or to a read after a conflict, while the watch lags behind it. */
  #ahead: PodProtector | undefined;

  constructor(heartbeatDueMs: number) {
    this.heartbeatDueMs = heartbeatDueMs;
  }

  /** The newest version that this process knows; `watched` is the version in the informer. */
  newest(watched: PodProtector): PodProtector {
    const version = this.#ahead?.metadata.resourceVersion;
    if (this.isKnownVersion(watched) || isOlderVersion(version, watched.metadata.resourceVersion))
      this.#ahead = undefined;
    return this.#ahead ?? watched;
  }

  /** The object in the response to a write or a quorum read. Replaces the known version, even a higher one. */
  learned(object: PodProtector): void {
    this.#ahead = object;
  }

  /** True when the watch delivers the version that this process has read or written itself. */
  isKnownVersion(watched: PodProtector): boolean {
    return this.#ahead?.metadata.resourceVersion === watched.metadata.resourceVersion;
  }

  /** The server was restored, so versions do not tell which object is newer. */
  trustWatchOnly(): void {
    this.#ahead = undefined;
  }

  /** Adopts a stored epoch once the snapshot has reached a quorum list that was sent after first sight of it. */
  adoptEpoch(stored: number, reachedSentMs: number | undefined, nowMs: number): void {
    if (stored <= this.adoptedEpoch) {
      this.unadoptedEpoch = undefined;
      return;
    }
    if (this.unadoptedEpoch?.epoch !== stored) this.unadoptedEpoch = { epoch: stored, sinceMs: nowMs };
    if (reachedSentMs === undefined || reachedSentMs < this.unadoptedEpoch.sinceMs) return;
    this.adoptedEpoch = stored;
    this.unadoptedEpoch = undefined;
  }

  /** Remembers the cell's entry as `protector` stores it. */
  rememberEntry(protector: PodProtector, stored: CellStatus | undefined, etcdRestoreID: string | undefined): void {
    const aggregation = stored?.aggregation ?? undefined;
    this.known = {
      protectorUID: protector.metadata.uid,
      protectorVersion: protector.metadata.resourceVersion,
      wasCounted: isCounted(aggregation),
      epoch: aggregation?.epoch ?? 0,
      position: aggregation?.resourceVersion,
      etcdRestoreID,
    };
    if (aggregation?.specHash === specHash(protector.spec)) this.selector = protector.spec.selector;
  }

  /** A write that began at `startedMs` has published the changes before it. Returns the age of the oldest. */
  published(startedMs: number, nowMs: number): number | undefined {
    const sinceMs = this.changedSinceMs;
    if (sinceMs === undefined || sinceMs > startedMs) return undefined;
    this.changedSinceMs = undefined;
    return nowMs - sinceMs;
  }

  /**
   * Where pods change all the time, the next write would begin before that of a webhook arrives. A pause of a fixed
   * number of writes may miss a webhook for ever, so each is of another length.
   */
  yield(nowMs: number, tookMs: number): void {
    this.#yieldFraction = (this.#yieldFraction + GOLDEN_RATIO) % 1;
    this.#yieldsInARow = nowMs - 2 * tookMs < this.yieldsUntilMs ? this.#yieldsInARow + 1 : 0;
    const isLong = this.#yieldsInARow % LONG_YIELD_EVERY === LONG_YIELD_EVERY - 1;
    const longMs = isLong ? Math.min(LONG_YIELD_WRITES * tookMs, MAX_LONG_YIELD_MS) : 0;
    const pauseMs = (YIELD_WRITES + this.#yieldFraction) * tookMs;
    this.yieldsUntilMs = nowMs + Math.min(Math.max(pauseMs, longMs), MAX_YIELD_MS);
  }

  /** Remembers the stored hold. When the hold has ended, returns how long it lasted, in milliseconds. */
  rememberHold(text: string | undefined, nowMs: number): number | undefined {
    const before = this.hold;
    if (text === before?.text) return undefined;
    this.hold = text === undefined ? undefined : { text, sinceMs: nowMs };
    return text === undefined && before !== undefined ? nowMs - before.sinceMs : undefined;
  }
}
