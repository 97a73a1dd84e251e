/**
 * What the design does not promise (docs/design.md#invariants), and for exactly how long: disruptions admitted before a
 * protector covered the pod, and reservations that a restored core has lost, until a component notices and puts the
 * cell on hold.
 */
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import type { Position } from "../truth/position.ts";

/** How long a replica may trust its cache, and some time for requests in flight. */
const UNCERTAIN_MS = 20_000;

/** By then a restored core is back, and every component that knows what it has lost has written that. */
const UNNOTICED_MS = 60_000;

/** How long the removal of a cell's entry takes. */
const REMOVAL_MS = 50;

interface LostHistory {
  readonly name: string;
  readonly cell: string;
  readonly from: number;
  readonly to: number;
  readonly epoch: number;
  /** An aggregator of the cell has noticed the restore. */
  readonly isNoticed: boolean;
}

interface Exemption {
  /** By cell: the UIDs that no component can know of. */
  readonly uids: Map<string, Set<string>>;
  uncertainUntilMs: number;
}

interface LostAdmission {
  readonly name: string;
  readonly cell: string;
  readonly uid: string;
  readonly untilMs: number;
}

export class Exemptions {
  readonly #byName = new Map<string, Exemption>();
  readonly #forced = new Set<string>();
  /** Replicas in dry-run mode deny nothing, so everything counts as forced. */
  forcesAll = false;
  #over: readonly LostHistory[] = [];
  readonly #unknown = new Set<string>();
  /** `name/UID` of pods of which the protector promises nothing, on hold or not. */
  readonly #unpromised = new Set<string>();
  /** `name/UID` of pods that the protector allowed whatever its counts said, and recorded. */
  readonly #regardless = new Set<string>();
  /** `name/UID` of pods whose change in place the protector did not decide. */
  readonly #unasked = new Set<string>();
  readonly #removed = new Map<string, number>();
  readonly #lost = new Map<string, LostAdmission>();
  /** `name/cell/UID` of admissions that a core has lost, while the cell is on hold because of that. */
  readonly #covered = new Set<string>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /**
   * The protector `name` covers other pods than before, from `absentMs` from now on at the earliest. Replicas learn of
   * it within the confirmation window.
   */
  uncertain(name: string, absentMs = 0): void {
    this.#of(name).uncertainUntilMs = this.#nowMs() + absentMs + UNCERTAIN_MS;
  }

  /** The protector takes the place of one that was lost at `lostMs`: who asked before may have its record there. */
  succeeded(name: string, lostMs: number): void {
    const exemption = this.#of(name);
    exemption.uncertainUntilMs = Math.max(exemption.uncertainUntilMs, lostMs);
  }

  /** A disruption was admitted. Protectors that replicas may not know yet had no say in it. */
  admitted(cell: string, uid: string): void {
    for (const [name, { uncertainUntilMs }] of this.#byName)
      if (this.#nowMs() < uncertainUntilMs) this.add(name, cell, uid);
  }

  isUncertain(name: string, sinceMs: number): boolean {
    return sinceMs < this.#of(name).uncertainUntilMs;
  }

  /**
   * The cell's etcd was restored: versions in (from, to] belong to a lost history. A writer with a higher epoch knows
   * that.
   */
  historyLost(name: string, cell: string, from: number, to: number, epoch: number): void {
    // The part of an older lost history that this backup contains exists again.
    const isBack = (one: LostHistory): boolean =>
      one.name === name && one.cell === cell && one.from < from && from <= one.to;
    this.#over = [
      ...this.#over.map((one) => (isBack(one) ? { ...one, from } : one)),
      { name, cell, from, to, epoch, isNoticed: false },
    ];
  }

  restoreNoticed(cell: string): void {
    this.#over = this.#over.map((one) => (one.cell === cell ? { ...one, isNoticed: true } : one));
  }

  /**
   * An aggregator that counts at this position has raised the epoch without learning of the restore: for another
   * reason, or once more for a restore before it, because the response to its first write was lost.
   */
  epochRaised(name: string, cell: string, position: Position, epoch: number, isForRestore: boolean): void {
    const isMeant = (one: LostHistory): boolean =>
      !(isForRestore && one.isNoticed) && isOf(one, name, cell, position) && epoch > one.epoch;
    this.#over = this.#over.map((one) => (isMeant(one) ? { ...one, epoch } : one));
  }

  /** True for a count of a lost history by a writer that knows of the loss. */
  isOfLostHistory(name: string, cell: string, position: Position, epoch: number): boolean {
    return this.#over.some((one) => isOf(one, name, cell, position) && epoch > one.epoch);
  }

  /** True when some shards have listed since the cell was restored, and others count the lost history still. */
  isPartlyListed(name: string, cell: string, position: Position): boolean {
    return this.#over.some((one) => isOf(one, name, cell, position) && position.newest > one.to);
  }

  /** A cell's entry is removed from the status, with its reservations. */
  cellRemoved(name: string, cell: string): void {
    this.#removed.set(`${name}/${cell}`, this.#nowMs() + REMOVAL_MS);
  }

  isRemovedSince(name: string, cell: string, sinceMs: number): boolean {
    return (this.#removed.get(`${name}/${cell}`) ?? Number.NEGATIVE_INFINITY) >= sinceMs;
  }

  /** Nothing is promised of this pod by any protector. */
  unknown(uid: string): void {
    this.#unknown.add(uid);
  }

  /** The protector allowed this pod whatever its counts said. Without a record it promises nothing of the pod. */
  allowedRegardless(name: string, uid: string, isRecorded: boolean): void {
    if (isRecorded) this.#regardless.add(`${name}/${uid}`);
    else this.notPromised(name, uid);
  }

  isRegardless(name: string, uid: string): boolean {
    return this.#regardless.has(`${name}/${uid}`);
  }

  /**
   * The record of a committed change in place may be lost before the restart is done. A hold does not help: it ends
   * when no request can commit any more, and restarts may still come.
   */
  notPromised(name: string, uid: string): void {
    this.#unpromised.add(`${name}/${uid}`);
  }

  /** A change in place of this pod was allowed; `isAsked`: the protector covers the pod. Holds do not change this. */
  changedInPlace(name: string, uid: string, isAsked: boolean): void {
    if (isAsked) this.#unasked.delete(`${name}/${uid}`);
    else this.#unasked.add(`${name}/${uid}`);
  }

  /**
   * True when this protector did not decide the change that is in progress. Its record of the pod belongs to another
   * change.
   */
  isUnasked(name: string, uid: string): boolean {
    return this.#unasked.has(`${name}/${uid}`);
  }

  isNotPromised(name: string, uid: string): boolean {
    return this.#unpromised.size > 0 && this.#unpromised.has(`${name}/${uid}`);
  }

  /** The pod was admitted after the backup from which a core is restored, settled since or not. */
  admissionLost(name: string, cell: string, uid: string): void {
    this.#lost.set(`${name}/${cell}/${uid}`, { name, cell, uid, untilMs: this.#nowMs() + UNNOTICED_MS });
  }

  /**
   * A replica starts and has not seen the outage of the core, so it can't know what the core has lost
   * (docs/decisions/0003-quiet-after-an-outage.md).
   */
  replicaStarted(): void {
    for (const { name, cell, uid, untilMs } of this.#lost.values())
      if (this.#nowMs() < untilMs) this.add(name, cell, uid);
  }

  add(name: string, cell: string, uid: string): void {
    const { uids } = this.#of(name);
    const ofCell = uids.get(cell) ?? new Set<string>();
    ofCell.add(uid);
    uids.set(cell, ofCell);
  }

  has(name: string, cell: string, uid: string): boolean {
    if (this.#unknown.has(uid) || this.isNotPromised(name, uid)) return true;
    return this.#of(name).uids.get(cell)?.has(uid) === true;
  }

  /**
   * Ends exemptions of cells that are on hold: from here on decisions take into account that reservations may be
   * missing.
   */
  endOnHold({ metadata, status }: PodProtector): void {
    for (const { cellID, aggregation } of status?.cells ?? []) {
      if (aggregation?.hold === undefined) {
        this.#uncover(`${metadata.name}/${cellID}/`);
        continue;
      }
      this.#of(metadata.name).uids.delete(cellID);
      for (const [key, { name, cell }] of this.#lost)
        if (name === metadata.name && cell === cellID) {
          this.#lost.delete(key);
          this.#covered.add(key);
        }
    }
  }

  #uncover(prefix: string): void {
    for (const key of this.#covered) if (key.startsWith(prefix)) this.#covered.delete(key);
  }

  /**
   * True while the cell is on hold because the core has lost an admission of this pod, whatever an older record of the
   * pod says.
   */
  isCovered(name: string, cell: string, uid: string): boolean {
    return this.#covered.has(`${name}/${cell}/${uid}`);
  }

  /** The pod has the force-delete annotation. */
  force(uid: string): void {
    this.#forced.add(uid);
  }

  isForced(uid: string): boolean {
    return this.forcesAll || this.#forced.has(uid);
  }

  #of(name: string): Exemption {
    const known = this.#byName.get(name) ?? { uids: new Map<string, Set<string>>(), uncertainUntilMs: 0 };
    this.#byName.set(name, known);
    return known;
  }
}

/** One shard at a version of the lost history is enough: the pods of that shard are counted as they were then. */
function isOf({ from, to, ...one }: LostHistory, name: string, cell: string, { parts }: Position): boolean {
  return one.name === name && one.cell === cell && parts.some((version) => version > from && version <= to);
}
