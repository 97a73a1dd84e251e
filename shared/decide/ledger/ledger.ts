/**
 * One cell's admission history in memory (docs/design.md#history-size): reservations by UID, and the time ranges that
 * upstream components leave behind. The sum of weights is kept up to date, so that the webhook's hot path is one
 * addition. Read `reservation.ts` first, then this file; `ledger-parse.ts` and `ledger-encode.ts` implement the wire
 * form, `pack.ts` its packed part.
 */
import type { Bucket, Operation } from "../../schema/podprotector.ts";
import { encodeBuckets, packedBytesAtMost, plainBytes, plainBytesAtMost } from "./ledger-encode.ts";
import { readBuckets } from "./ledger-parse.ts";
import {
  type Admission,
  hashUid,
  mergeRecords,
  type RangeBucket,
  type Reservation,
  type ReservationRecord,
  refreshRecord,
  type Weight,
  withoutNonce,
} from "./reservation.ts";

/** Most pods with the same hash. Only a forged history has more, and each one costs a comparison with all others. */
const MAX_COLLIDING = 8;

export class Ledger {
  /** Reservations whose UID is known. */
  readonly #byUid: Map<string, Reservation>;
  /** Reservations that were read packed, by hash. The pod's name distinguishes colliding hashes. */
  readonly #byHash: Map<string, readonly Reservation[]>;
  /** The reservations of {@link #byUid} by hash: computed on demand, and valid until the next change. */
  #hashed: ReadonlyMap<string, Reservation> | undefined;
  readonly #ranges: Set<RangeBucket>;
  #weight = 0;
  #size = 0;
  /** Bytes of the packed form: counted on first use, and kept up to date afterwards. */
  #bytesAtMost: number | undefined;
  /** Bytes that the plain form would add. */
  #plainBytes = 0;
  #unreadableBuckets = 0;
  #changed = false;

  private constructor(from?: Ledger) {
    this.#byUid = new Map(from === undefined ? [] : from.#byUid);
    this.#byHash = new Map(from === undefined ? [] : from.#byHash);
    this.#ranges = new Set(from === undefined ? [] : from.#ranges);
    if (from === undefined) return;
    this.#weight = from.#weight;
    this.#size = from.#size;
    this.#bytesAtMost = from.#bytesAtMost;
    this.#plainBytes = from.#plainBytes;
    this.#unreadableBuckets = from.#unreadableBuckets;
    this.#changed = from.#changed;
  }

  /** Reads a cell's buckets. Accepts everything that the schema accepts, never throws, and loses no weight. */
  static parse(buckets: readonly Bucket[] | null | undefined): Ledger {
    const ledger = new Ledger();
    if (buckets === undefined || buckets === null || buckets.length === 0) return ledger;
    const named = new Set<string>();
    readBuckets([...buckets].sort(packedFirst), {
      add: (reservation) => {
        if (reservation.uid === undefined && reservation.podName !== undefined) named.add(reservation.podName);
        return ledger.#merge(reservation, reservation.podName === undefined || named.has(reservation.podName));
      },
      addRange: (range) => ledger.addRange(range),
      unreadable: () => ledger.#unreadableBuckets++,
    });
    ledger.#changed = false;
    return ledger;
  }

  /** An independent copy; the reservations themselves are immutable and shared. */
  clone(): Ledger {
    return new Ledger(this);
  }

  /** Sum of weights: one for each UID that weighs 1, and the ranges' counters. */
  get weight(): number {
    return this.#weight;
  }

  /** Number of reservations plus the ranges' counters, which the other health criteria subtract. */
  get size(): number {
    let size = this.#size;
    for (const { weight } of this.#ranges) size += weight;
    return size;
  }

  get ranges(): ReadonlySet<RangeBucket> {
    return this.#ranges;
  }

  /** Packed texts that could not be read, or that contradict their counter. */
  get unreadableBuckets(): number {
    return this.#unreadableBuckets;
  }

  /** True when the ledger differs from the buckets that it was read from. */
  get changed(): boolean {
    return this.#changed;
  }

  *reservations(): IterableIterator<Reservation> {
    yield* this.#byUid.values();
    for (const same of this.#byHash.values()) yield* same;
  }

  /** The reservation of `uid`. Without the name, any reservation with the same hash. */
  get(uid: string, podName?: string): Reservation | undefined {
    return this.#byUid.get(uid) ?? this.#packed(uid).find((reservation) => isNamed(reservation, podName));
  }

  /** The reservation of the same pod, even if one of the two is packed. */
  find({ uid, uidHash, podName }: Reservation): Reservation | undefined {
    if (uid !== undefined) return this.get(uid, podName);
    if (uidHash === undefined) return undefined;
    const packed = this.#byHash.get(uidHash)?.find((other) => isNamed(other, podName));
    if (packed !== undefined) return packed;
    this.#hashed ??= new Map([...this.#byUid].map(([known, other]) => [hashUid(known), other]));
    const other = this.#hashed.get(uidHash);
    return other !== undefined && isNamed(other, podName) ? other : undefined;
  }

  /** True when the ledger has this admission. */
  holdsNonce(uid: string, operation: Operation, nonce: string): boolean {
    return this.#holder(uid, operation, nonce) !== undefined;
  }

  /** Adds an admission of `uid` to its reservation, and raises its weight to at least `weight`. */
  admit(uid: string, podName: string | undefined, admission: Admission, weight: Weight): Reservation {
    const before = this.get(uid, podName);
    const records = new Map(before?.records);
    records.set(admission.operation, refreshRecord(records.get(admission.operation), admission));
    const after: Reservation = {
      uid,
      uidHash: before?.uidHash,
      podName: before === undefined ? podName : commonName(before.podName, podName),
      weight: before?.weight === 1 ? 1 : weight,
      records,
    };
    this.#replace(before, after);
    return after;
  }

  /** Removes one admission. Its record ends with the last nonce, its reservation with the last record. */
  removeNonce(uid: string, operation: Operation, nonce: string, hasPaid = false): void {
    const before = this.#holder(uid, operation, nonce);
    const record = before?.records.get(operation);
    if (before !== undefined && record !== undefined)
      this.#setRecord(before, operation, withoutNonce(record, nonce, hasPaid));
  }

  /** Drops one record, and the reservation with its last record. */
  dropRecord(reservation: Reservation, operation: Operation): Reservation | undefined {
    return this.#setRecord(reservation, operation, undefined);
  }

  /** Drops all records of a pod. */
  drop(reservation: Reservation): void {
    this.#replace(reservation, undefined);
  }

  setWeight(reservation: Reservation, weight: Weight): Reservation {
    if (reservation.weight === weight) return reservation;
    const after = { ...reservation, weight };
    this.#replace(reservation, after);
    return after;
  }

  addRange(range: RangeBucket): void {
    this.#ranges.add(range);
    this.#weight += range.weight;
    if (this.#bytesAtMost !== undefined) this.#bytesAtMost += rangeBytes(range);
    this.#changed = true;
  }

  removeRange(range: RangeBucket): void {
    if (!this.#ranges.delete(range)) return;
    this.#weight -= range.weight;
    if (this.#bytesAtMost !== undefined) this.#bytesAtMost -= rangeBytes(range);
    this.#changed = true;
  }

  /** The wire form. */
  encode(compactThreshold: number): Bucket[] {
    return encodeBuckets({ reservations: [...this.reservations()], ranges: [...this.#ranges] }, compactThreshold);
  }

  /** Upper bound of the bytes of {@link encode}. */
  get bytesAtMost(): number {
    if (this.#bytesAtMost === undefined) {
      this.#bytesAtMost = 0;
      for (const reservation of this.reservations()) this.#reckon(reservation, 1);
      for (const range of this.#ranges) this.#bytesAtMost += rangeBytes(range);
    }
    return this.#bytesAtMost + plainBytesAtMost(this.#plainBytes);
  }

  #packed(uid: string): readonly Reservation[] {
    return this.#byHash.size === 0 ? [] : (this.#byHash.get(hashUid(uid)) ?? []);
  }

  #holder(uid: string, operation: Operation, nonce: string): Reservation | undefined {
    const known = this.#byUid.get(uid);
    const candidates = [...(known === undefined ? [] : [known]), ...this.#packed(uid)];
    return candidates.find((reservation) => reservation.records.get(operation)?.nonces.includes(nonce));
  }

  #setRecord(
    before: Reservation,
    operation: Operation,
    record: ReservationRecord | undefined,
  ): Reservation | undefined {
    if (before.records.get(operation) === record) return before;
    const records = new Map(before.records);
    if (record === undefined) records.delete(operation);
    else records.set(operation, record);
    const after = records.size === 0 ? undefined : { ...before, records };
    this.#replace(before, after);
    return after;
  }

  /**
   * Adds a part that was read to its pod's reservation. Compares hashes only where a packed one may match. False for a
   * part without room.
   */
  #merge(part: Reservation, mayBePacked: boolean): boolean {
    const { uid, uidHash = "", podName } = part;
    let before: Reservation | undefined;
    if (uid === undefined) {
      const same = this.#byHash.get(uidHash) ?? [];
      before = same.find((other) => isNamed(other, podName));
      if (before === undefined && same.length >= MAX_COLLIDING) return false;
    } else before = mayBePacked ? this.get(uid, podName) : this.#byUid.get(uid);
    if (before === undefined) {
      this.#replace(undefined, part);
      return true;
    }
    const records = new Map(before.records);
    for (const [operation, record] of part.records) {
      const other = records.get(operation);
      records.set(operation, other === undefined ? record : mergeRecords(other, record));
    }
    const weight = before.weight === 1 || part.weight === 1 ? 1 : 0;
    const name = commonName(before.podName, podName);
    this.#replace(before, { ...before, uid: before.uid ?? uid, podName: name, weight, records });
    return true;
  }

  /** The only place that adds and removes reservations, so that the sums stay right. */
  #replace(before: Reservation | undefined, after: Reservation | undefined): void {
    if (before !== undefined) this.#remove(before);
    if (after !== undefined) this.#insert(after);
    this.#hashed = undefined;
    this.#changed = true;
  }

  #insert(reservation: Reservation): void {
    const { uid, uidHash = "" } = reservation;
    if (uid !== undefined) this.#byUid.set(uid, reservation);
    else this.#byHash.set(uidHash, [...(this.#byHash.get(uidHash) ?? []), reservation]);
    this.#weight += reservation.weight;
    this.#size++;
    this.#reckon(reservation, 1);
  }

  #reckon(reservation: Reservation, sign: 1 | -1): void {
    if (this.#bytesAtMost === undefined) return;
    this.#bytesAtMost += sign * packedBytesAtMost(reservation);
    this.#plainBytes += sign * plainBytes(reservation);
  }

  #remove(reservation: Reservation): void {
    const { uid, uidHash = "" } = reservation;
    const current =
      uid === undefined ? this.#byHash.get(uidHash)?.includes(reservation) : this.#byUid.get(uid) === reservation;
    // Removing a version that has been replaced would subtract its weight twice.
    if (current !== true) throw new Error("the ledger was given a reservation that it does not hold");
    if (uid !== undefined) this.#byUid.delete(uid);
    else {
      const rest = (this.#byHash.get(uidHash) ?? []).filter((other) => other !== reservation);
      if (rest.length === 0) this.#byHash.delete(uidHash);
      else this.#byHash.set(uidHash, rest);
    }
    this.#weight -= reservation.weight;
    this.#size--;
    this.#reckon(reservation, -1);
  }
}

/** Reads packed buckets first, so that a plain bucket of the same pod is merged. */
function packedFirst(a: Bucket, b: Bucket): number {
  return Number(a.packed === undefined) - Number(b.packed === undefined);
}

function isNamed(reservation: Reservation, podName: string | undefined): boolean {
  return podName === undefined || reservation.podName === undefined || reservation.podName === podName;
}

/**
 * The name that a packed reservation is found by; undefined where it keeps its UID instead. A client of the
 * webhook's port may give a pod another name, and the reservation would be that of a pod that is gone.
 */
function commonName(a: string | undefined, b: string | undefined): string | undefined {
  return a === b ? a : undefined;
}

function rangeBytes({ bucket }: RangeBucket): number {
  return JSON.stringify(bucket).length + 1;
}
