/**
 * Applies R1 to R3 (`settle.ts`) to every reservation of a cell's history, and gives those that stay the weight that the snapshot
 * says (design 5.2). Under upstream's algorithms the time of the last event settles instead (design 5.6).
 */
import type { Pod } from "../../schema/pod.ts";
import type { Operation } from "../../schema/podprotector.ts";
import { isComparableVersion } from "../../schema/resource-version.ts";
import { Ledger } from "../ledger/ledger.ts";
import { rangeKey } from "../ledger/range-bucket.ts";
import { orderedRecords, type Reservation } from "../ledger/reservation.ts";
import { hashUid } from "../ledger/uid-hash.ts";
import type { AccountInput } from "./account-input.ts";
import {
  type CellSnapshot,
  type FirstSeen,
  isHeardSince,
  isSettledByR1,
  isSettledByR2,
  isSettledByR3,
  isUpdateDone,
  reaches,
  type SettleInput,
  settledAtMs,
  sightOf,
} from "./settle.ts";

export type SettleRule =
  | "R1"
  | "R2"
  | "R3"
  /** A committed update is over. */
  | "UpdateDone"
  /** Upstream's: older than the last event. */
  | "Clock";

export interface Dropped {
  readonly uid: string | undefined;
  readonly podName: string | undefined;
  /** Undefined for a time-ranged bucket. */
  readonly operation: Operation | undefined;
  readonly rule: SettleRule;
}

/** A record that stays, and what would settle it. */
export interface Pending {
  readonly uid: string | undefined;
  readonly podName: string | undefined;
  readonly operation: Operation;
  readonly firstSeenMs: number;
  /** Monotonic time from which on a read settles it. */
  readonly dueMs: number;
  /** Only a LIST helps: the pod is absent, or the record is an UPDATE. */
  readonly needsList: boolean;
}

/** Evidence that is wanted, in monotonic milliseconds; the past means now. */
export interface Wants {
  /** The earliest of all times below; undefined when nothing waits for evidence. */
  readonly evidenceAtMs: number | undefined;
  /** From when on a LIST is needed because no GET would do. */
  readonly listAtMs: number | undefined;
  readonly records: readonly Pending[];
}

export interface Settlement {
  readonly ledger: Ledger;
  readonly dropped: readonly Dropped[];
  /** A weight has changed. */
  readonly isReweighed: boolean;
  readonly wants: Wants;
  /** The hold that is left. */
  readonly hold: string | undefined;
}

/** Settles the stored history against the snapshot. `available` is `AV`. */
export function settle(input: AccountInput, available: ReadonlySet<string>): Settlement {
  const pass = new SettlePass(input, available);
  for (const reservation of [...pass.ledger.reservations()]) {
    if (input.algorithm === "exact") pass.settleExactly(reservation);
    else pass.settleByClock(reservation);
  }
  for (const range of [...pass.ledger.ranges]) pass.settleRange(range);
  const hold = pass.holdLeft();
  input.seen.retain(pass.touched);
  return { ledger: pass.ledger, dropped: pass.dropped, isReweighed: pass.isReweighed, wants: pass.wants(), hold };
}

class SettlePass {
  readonly ledger: Ledger;
  readonly dropped: Dropped[] = [];
  /** Keys of everything that was met, settled or not: the write may fail, and then it is met again. */
  readonly touched = new Set<string>();
  isReweighed = false;
  readonly #input: AccountInput;
  readonly #available: ReadonlySet<string>;
  readonly #pending: Pending[] = [];
  readonly #listDueMs: number[] = [];

  constructor(input: AccountInput, available: ReadonlySet<string>) {
    this.#input = input;
    this.#available = available;
    this.ledger = Ledger.parse(input.stored?.admissionHistory?.buckets);
  }

  settleExactly(reservation: Reservation): void {
    const subject = this.#caseOf(reservation);
    const sights = this.#sightsOf(reservation);
    const firstMs = Math.min(...[...sights.values()].map((sight) => sight.firstMs));
    const lastMs = Math.max(...[...sights.values()].map((sight) => sight.lastMs));
    if (isSettledByR1(subject, firstMs) && this.#isHeardSince(subject, lastMs)) {
      for (const operation of reservation.records.keys()) this.#note(reservation, operation, "R1");
      this.ledger.drop(reservation);
      return;
    }
    let rest: Reservation | undefined = reservation;
    for (const [operation, sight] of sights) {
      const rule = this.#ruleFor(subject, operation, sight);
      if (rule === undefined) this.#pending.push(pendingOf(subject, operation, sight));
      else {
        this.#note(reservation, operation, rule);
        rest = rest && this.ledger.dropRecord(rest, operation);
      }
    }
    if (rest !== undefined) this.#reweigh(rest, subject.isAvailable);
  }

  /** Upstream's rule: an admission from before the last event is taken for seen. */
  settleByClock(reservation: Reservation): void {
    let rest: Reservation | undefined = reservation;
    for (const [operation, record] of reservation.records) {
      if (record.startMicros >= this.#input.lastEventMs * 1000) continue;
      this.#note(reservation, operation, "Clock");
      rest = rest && this.ledger.dropRecord(rest, operation);
    }
  }

  /** Members of a range have no identity: it goes when its newest one is settled, which only a LIST can show (design 5.5). */
  settleRange(range: Ledger["ranges"][number]): void {
    const { algorithm, lastEventMs } = this.#input;
    let rule: SettleRule | undefined;
    if (algorithm === "exact") rule = this.#listAfterSettle(rangeKey(range)) ? "R3" : undefined;
    else rule = range.endMicros < lastEventMs * 1000 ? "Clock" : undefined;
    if (rule === undefined) return;
    this.ledger.removeRange(range);
    this.dropped.push({ uid: undefined, podName: undefined, operation: undefined, rule });
  }

  /** The hold, unless evidence taken a settle period after its first sight has ended it (design 5.4). */
  holdLeft(): string | undefined {
    const { hold } = this.#input.history;
    return hold !== undefined && this.#listAfterSettle(`hold/${hold}`) ? undefined : hold;
  }

  wants(): Wants {
    const listAtMs = earliest([
      ...this.#listDueMs,
      ...this.#pending.filter(({ needsList }) => needsList).map(({ dueMs }) => dueMs),
    ]);
    const evidenceAtMs = earliest([
      ...(listAtMs === undefined ? [] : [listAtMs]),
      ...this.#pending.map(({ dueMs }) => dueMs),
    ]);
    return { evidenceAtMs, listAtMs, records: this.#pending };
  }

  #caseOf(reservation: Reservation): SettleInput {
    const { snapshot, evidence, settleMs } = this.#input;
    const { podName } = reservation;
    const pod =
      reservation.uid !== undefined
        ? snapshot.podByUID(reservation.uid)
        : podByHash(snapshot, podName, reservation.uidHash);
    const uid = reservation.uid ?? pod?.uid;
    const isAvailable = uid !== undefined && this.#available.has(uid);
    return { reservation, pod, uid, snapshot, evidence, isAvailable, settleMs };
  }

  #sightsOf(reservation: Reservation): ReadonlyMap<Operation, FirstSeen> {
    const { seen, monotonicMs } = this.#input;
    const identity = reservation.uid ?? `${reservation.podName}/${reservation.uidHash}`;
    const sights = new Map<Operation, FirstSeen>();
    for (const [operation, record] of orderedRecords(reservation)) {
      sights.set(operation, sightOf(seen, this.touched, monotonicMs, identity, operation, record));
    }
    return sights;
  }

  #ruleFor(subject: SettleInput, operation: Operation, sight: FirstSeen): SettleRule | undefined {
    const record = subject.reservation.records.get(operation);
    if (record === undefined) return undefined;
    if (isSettledByR2(subject, operation, record) && this.#isHeardSince(subject, sight.lastMs)) return "R2";
    if (isUpdateDone(subject, operation, record) && this.#isHeardSince(subject, sight.lastMs)) return "UpdateDone";
    return isSettledByR3(subject, operation, sight) ? "R3" : undefined;
  }

  #reweigh(reservation: Reservation, isAvailable: boolean): void {
    const weight = isAvailable ? 1 : 0;
    if (reservation.weight === weight) return;
    this.ledger.setWeight(reservation, weight);
    this.isReweighed = true;
  }

  #isHeardSince(subject: SettleInput, seenMs: number): boolean {
    if (isHeardSince(subject, seenMs)) return true;
    this.#listDueMs.push(seenMs + 1);
    return false;
  }

  #listAfterSettle(key: string): boolean {
    const { seen, monotonicMs, settleMs, evidence } = this.#input;
    this.touched.add(key);
    const dueMs = settledAtMs({ settleMs }, seen.observe(key, monotonicMs));
    if (reaches(evidence.reachedSentMs, dueMs)) return true;
    this.#listDueMs.push(dueMs);
    return false;
  }

  #note({ uid, podName }: Reservation, operation: Operation, rule: SettleRule): void {
    this.dropped.push({ uid, podName, operation, rule });
  }
}

function pendingOf({ reservation, pod, uid, settleMs }: SettleInput, operation: Operation, sight: FirstSeen): Pending {
  const isVersioned = [...reservation.records.values()].some((record) =>
    isComparableVersion(record.podResourceVersion),
  );
  return {
    uid,
    podName: pod?.name ?? reservation.podName,
    operation,
    firstSeenMs: sight.firstMs,
    // Absent and without a version: any LIST after first sight tells whether it is dead.
    dueMs: pod === undefined && !isVersioned ? sight.firstMs + 1 : settledAtMs({ settleMs }, sight.lastMs),
    needsList: pod === undefined || operation === "UPDATE",
  };
}

/** The pod that was packed. */
function podByHash(snapshot: CellSnapshot, podName: string | undefined, uidHash: string | undefined): Pod | undefined {
  return podName === undefined ? undefined : snapshot.podByName(podName, ({ uid }) => hashUid(uid) === uidHash);
}

function earliest(times: readonly number[]): number | undefined {
  return times.length === 0 ? undefined : Math.min(...times);
}
