/**
 * Applies R1 to R3 (`settle-rules.ts`) to every reservation of a cell's history, and gives the remaining ones the
 * weight that the snapshot shows. Under upstream's algorithms, the time of the last event settles records instead
 * (docs/design.md#sync-time-algorithms).
 */
import type { Pod } from "../../schema/pod.ts";
import type { CellStatus, Operation } from "../../schema/podprotector.ts";
import { isComparableVersion } from "../../schema/resource-version.ts";
import { Ledger } from "../ledger/ledger.ts";
import { hashUid, orderedRecords, type RangeBucket, type Reservation, rangeKey } from "../ledger/reservation.ts";
import type { FirstSeenTimes, SeenSpan } from "./first-seen.ts";
import type { HistoryCheck } from "./lost-history.ts";
import {
  type CellSnapshot,
  type Evidence,
  isHeardSince,
  isSettledByR1,
  isSettledByR2,
  isSettledByR3,
  isUpdateDone,
  type ObservedReservation,
  reaches,
  settledAtMs,
} from "./settle-rules.ts";

export const SYNC_TIME_ALGORITHMS = ["exact", "clock", "status"] as const;
/** `--sync-time-algorithm`. */
export type SyncTimeAlgorithm = (typeof SYNC_TIME_ALGORITHMS)[number];

export interface SettleInput {
  readonly stored: CellStatus | undefined;
  readonly snapshot: CellSnapshot;
  /** From `checkHistory`, on the same stored entry. */
  readonly history: HistoryCheck;
  /** Monotonic milliseconds of this process. */
  readonly monotonicMs: number;
  readonly settleMs: number;
  /** First sights for this protector and cell; remembers the admissions of this history. */
  readonly seen: FirstSeenTimes;
  readonly evidence: Evidence;
  readonly algorithm: SyncTimeAlgorithm;
  /**
   * Wall clock time of the last event, Unix milliseconds: when it was received (`exact`, `clock`), or from the pod's
   * own times (`status`).
   */
  readonly lastEventMs: number;
}

export type SettleRule =
  | "R1"
  | "R2"
  | "R3"
  /** A committed UPDATE has ended. */
  | "UpdateDone"
  /** Upstream's rule: the record is older than the last event. */
  | "Clock";

/** A record that was removed, and the rule that allowed it. */
interface SettledRecord {
  /** Undefined for a time range. */
  readonly operation: Operation | undefined;
  readonly rule: SettleRule;
}

/** A record that stays, and the evidence that would settle it. */
export interface UnsettledRecord {
  readonly uid: string | undefined;
  readonly podName: string | undefined;
  readonly operation: Operation;
  readonly firstSeenMs: number;
  /** Monotonic time from which on a quorum read settles the record. */
  readonly dueMs: number;
  /** Only a LIST settles the record, not a GET: the pod is absent, or the record is an UPDATE. */
  readonly needsList: boolean;
}

export interface SettledHistory {
  readonly ledger: Ledger;
  readonly settled: readonly SettledRecord[];
  readonly unsettled: readonly UnsettledRecord[];
  /**
   * Monotonic time from which on a LIST is needed (a past time means now); undefined when a GET of each unsettled
   * record's pod suffices.
   */
  readonly listDueMs: number | undefined;
  /** A weight has changed. */
  readonly isReweighed: boolean;
  /** The hold that remains. */
  readonly hold: string | undefined;
}

/** Settles the stored history against the snapshot. `available` holds the UIDs of the available pods. */
export function settleHistory(input: SettleInput, available: ReadonlySet<string>): SettledHistory {
  const pass = new SettlePass(input, available);
  const { ledger } = pass;
  for (const reservation of [...ledger.reservations()]) {
    if (input.algorithm === "exact") pass.settleExactly(reservation);
    else pass.settleByClock(reservation);
  }
  for (const range of ledger.ranges) pass.settleRange(range);
  const hold = pass.remainingHold();
  // Settled admissions stay known for now: if the write fails, the next reconcile observes them again.
  input.seen.forgetOthers();
  const { settled, unsettled, listDueMs, isReweighed } = pass;
  return { ledger, settled, unsettled, listDueMs, isReweighed, hold };
}

class SettlePass {
  readonly ledger: Ledger;
  readonly settled: SettledRecord[] = [];
  readonly unsettled: UnsettledRecord[] = [];
  listDueMs: number | undefined;
  isReweighed = false;
  readonly #input: SettleInput;
  readonly #available: ReadonlySet<string>;

  constructor(input: SettleInput, available: ReadonlySet<string>) {
    this.#input = input;
    this.#available = available;
    this.ledger = Ledger.parse(input.stored?.admissionHistory?.buckets);
  }

  settleExactly(reservation: Reservation): void {
    const observed = this.#observe(reservation);
    const spans = this.#spansOf(reservation);
    const firstMs = Math.min(...[...spans.values()].map((span) => span.firstMs));
    const lastMs = Math.max(...[...spans.values()].map((span) => span.lastMs));
    if (isSettledByR1(observed, firstMs) && this.#isHeardSince(observed, lastMs)) {
      for (const operation of reservation.records.keys()) this.settled.push({ operation, rule: "R1" });
      this.ledger.drop(reservation);
      return;
    }
    let rest: Reservation | undefined = reservation;
    for (const [operation, span] of spans) {
      const rule = this.#ruleFor(observed, operation, span);
      if (rule === undefined) this.#keep(observed, operation, span);
      else {
        this.settled.push({ operation, rule });
        rest = rest && this.ledger.dropRecord(rest, operation);
      }
    }
    if (rest !== undefined) this.#reweigh(rest, observed.isAvailable);
  }

  /** Upstream's rule: assumes that the last event shows every earlier admission. */
  settleByClock(reservation: Reservation): void {
    let rest: Reservation | undefined = reservation;
    for (const [operation, record] of reservation.records) {
      if (record.startMicros >= this.#input.lastEventMs * 1000) continue;
      this.settled.push({ operation, rule: "Clock" });
      rest = rest && this.ledger.dropRecord(rest, operation);
    }
  }

  /**
   * Members of a range have no identity. So only a LIST settles it, a settle period after its newest member was first
   * seen.
   */
  settleRange(range: RangeBucket): void {
    const { algorithm, lastEventMs } = this.#input;
    let rule: SettleRule | undefined;
    if (algorithm === "exact") rule = this.#isListedAfterSettle(rangeKey(range)) ? "R3" : undefined;
    else rule = range.endMicros < lastEventMs * 1000 ? "Clock" : undefined;
    if (rule === undefined) return;
    this.ledger.removeRange(range);
    this.settled.push({ operation: undefined, rule });
  }

  /** A LIST from a settle period after the first sight of the hold ends it (docs/design.md#lost-history). */
  remainingHold(): string | undefined {
    const { hold } = this.#input.history;
    return hold !== undefined && this.#isListedAfterSettle(`hold/${hold}`) ? undefined : hold;
  }

  #observe(reservation: Reservation): ObservedReservation {
    const { snapshot, evidence, settleMs, seen } = this.#input;
    const pod = podOf(snapshot, reservation);
    const uid = reservation.uid ?? seen.uidOf(identityOf(reservation), pod?.uid);
    const isAvailable = uid !== undefined && this.#available.has(uid);
    return { reservation, pod, uid, snapshot, evidence, isAvailable, settleMs };
  }

  #spansOf(reservation: Reservation): ReadonlyMap<Operation, SeenSpan> {
    const { seen, monotonicMs } = this.#input;
    const identity = identityOf(reservation);
    const spans = new Map<Operation, SeenSpan>();
    for (const [operation, record] of orderedRecords(reservation)) {
      spans.set(operation, seen.observeRecord(record, operation, identity, monotonicMs));
    }
    return spans;
  }

  #ruleFor(observed: ObservedReservation, operation: Operation, span: SeenSpan): SettleRule | undefined {
    const record = observed.reservation.records.get(operation);
    if (record === undefined) return undefined;
    if (isSettledByR2(observed, operation, record) && this.#isHeardSince(observed, span.lastMs)) return "R2";
    if (isUpdateDone(observed, operation, record) && this.#isHeardSince(observed, span.lastMs)) return "UpdateDone";
    return isSettledByR3(observed, operation, span) ? "R3" : undefined;
  }

  #keep({ reservation, pod, uid, settleMs }: ObservedReservation, operation: Operation, span: SeenSpan): void {
    const isVersioned = reservation.records.values().some((record) => isComparableVersion(record.podResourceVersion));
    // Where the pod is absent and no version is known, any LIST after first sight shows whether the pod is dead.
    const dueMs = pod === undefined && !isVersioned ? span.firstMs + 1 : settledAtMs(settleMs, span.lastMs);
    const needsList = pod === undefined || operation === "UPDATE";
    if (needsList) this.#needList(dueMs);
    const podName = pod?.name ?? reservation.podName;
    this.unsettled.push({ uid, podName, operation, firstSeenMs: span.firstMs, dueMs, needsList });
  }

  #reweigh(reservation: Reservation, isAvailable: boolean): void {
    const weight = isAvailable ? 1 : 0;
    if (reservation.weight === weight) return;
    this.ledger.setWeight(reservation, weight);
    this.isReweighed = true;
  }

  #isHeardSince(observed: ObservedReservation, seenMs: number): boolean {
    if (isHeardSince(observed, seenMs)) return true;
    this.#needList(seenMs + 1);
    return false;
  }

  #isListedAfterSettle(key: string): boolean {
    const { seen, monotonicMs, settleMs, evidence } = this.#input;
    const dueMs = settledAtMs(settleMs, seen.observe(key, monotonicMs));
    if (reaches(evidence.reachedSentMs, dueMs)) return true;
    this.#needList(dueMs);
    return false;
  }

  #needList(dueMs: number): void {
    this.listDueMs = Math.min(this.listDueMs ?? dueMs, dueMs);
  }
}

function identityOf({ uid, podName, uidHash }: Reservation): string {
  return uid ?? `${podName}/${uidHash}`;
}

/** The reservation's pod in the snapshot; by name and hash when the UID was packed. */
function podOf(snapshot: CellSnapshot, { uid, podName, uidHash }: Reservation): Pod | undefined {
  if (uid !== undefined) return snapshot.podByUID(uid);
  return podName === undefined ? undefined : snapshot.podByName(podName, (pod) => hashUid(pod.uid) === uidHash);
}
