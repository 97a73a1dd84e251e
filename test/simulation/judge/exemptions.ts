/**
 * What the design says can't be promised (5.4, 5.9), and for exactly as long: deletions admitted before a protector covered the pod,
 * and reservations that a restored core has lost, until somebody has noticed and put the cell on hold.
 */
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import type { Position } from "../truth/position.ts";

/** A replica may trust its cache for so long (design 5.4), and a little for what is under way. */
const UNCERTAIN_MS = 20_000;

/** A restored core is back by then, and whoever knows what it has lost has spoken. */
const UNNOTICED_MS = 60_000;

/** So long a removal is under way. */
const REMOVAL_MS = 50;

interface OverHistory {
  readonly name: string;
  readonly cell: string;
  readonly from: number;
  readonly to: number;
  readonly epoch: number;
  /** An aggregator of the cell has noticed since. */
  readonly isNoticed: boolean;
}

interface Exemption {
  /** By cell; the UIDs that nobody can know of. */
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
  /** Replicas refuse nothing: what they would refuse goes as by force. */
  forcesAll = false;
  #over: readonly OverHistory[] = [];
  readonly #unknown = new Set<string>();
  /** `name/UID` of what the protector promises nothing of, hold or no hold. */
  readonly #unpromised = new Set<string>();
  /** `name/UID` of pods whose change in place was none of the protector's. */
  readonly #unasked = new Set<string>();
  readonly #removed = new Map<string, number>();
  readonly #lost = new Map<string, LostAdmission>();
  /** `name/cell/UID` of admissions that a core has lost, and for which the cell is on hold. */
  readonly #covered = new Set<string>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** `absentMs`: not before then is it there at all. The protector `name` covers something new, or is not what it was: replicas learn of it within the confirmation window. */
  uncertain(name: string, absentMs = 0): void {
    this.#of(name).uncertainUntilMs = this.#nowMs() + absentMs + UNCERTAIN_MS;
  }

  /** A deletion was admitted: protectors that are not known of for certain could not have a say. */
  admitted(cell: string, uid: string): void {
    for (const [name, { uncertainUntilMs }] of this.#byName)
      if (this.#nowMs() < uncertainUntilMs) this.add(name, cell, uid);
  }

  isUncertain(name: string, sinceMs: number): boolean {
    return sinceMs < this.#of(name).uncertainUntilMs;
  }

  /** The cell's etcd went back: versions in (from, to] are of a history that is over, which whoever writes a higher epoch knows. */
  historyOver(name: string, cell: string, from: number, to: number, epoch: number): void {
    // Whatever of an older history is in this backup, too, is what there is again.
    const isBack = (one: OverHistory): boolean =>
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
   * Somebody who counts at this position has raised the epoch, and knows of the restore no more than before: for another reason, or because of a
   * restore before it, once more, where the answer to the first write was lost.
   */
  raised(name: string, cell: string, position: Position, epoch: number, isForRestore: boolean): void {
    const isMeant = (one: OverHistory): boolean =>
      !(isForRestore && one.isNoticed) && isOf(one, name, cell, position) && epoch > one.epoch;
    this.#over = this.#over.map((one) => (isMeant(one) ? { ...one, epoch } : one));
  }

  isOver(name: string, cell: string, position: Position, epoch: number): boolean {
    return this.#over.some((one) => isOf(one, name, cell, position) && epoch > one.epoch);
  }

  /** The entry of a cell is taken out of the status, with what was reserved there. */
  cellRemoved(name: string, cell: string): void {
    this.#removed.set(`${name}/${cell}`, this.#nowMs() + REMOVAL_MS);
  }

  isRemovedSince(name: string, cell: string, sinceMs: number): boolean {
    return (this.#removed.get(`${name}/${cell}`) ?? Number.NEGATIVE_INFINITY) >= sinceMs;
  }

  /** This pod may go without anybody's knowledge. */
  unknown(uid: string): void {
    this.#unknown.add(uid);
  }

  /** The protector was suspended and let this pod go, so that it promises nothing of it. */
  suspended(name: string, uid: string): void {
    this.unpromised(name, uid);
  }

  /**
   * A change in place that was committed, and is not done when the record of it is lost: a hold ends when nothing can be committed any
   * more, which says nothing of restarts that are still to come.
   */
  unpromised(name: string, uid: string): void {
    this.#unpromised.add(`${name}/${uid}`);
  }

  /** A change in place of this pod was allowed; `isAsked`: the protector covers it. Holds say nothing of it, as above. */
  changed(name: string, uid: string, isAsked: boolean): void {
    if (isAsked) this.#unasked.delete(`${name}/${uid}`);
    else this.#unasked.add(`${name}/${uid}`);
  }

  /** The change that is under way is none of this protector's: what it still has a record of is another one. */
  isUnasked(name: string, uid: string): boolean {
    return this.#unasked.has(`${name}/${uid}`);
  }

  isUnpromised(name: string, uid: string): boolean {
    return this.#unpromised.size > 0 && this.#unpromised.has(`${name}/${uid}`);
  }

  /** Admitted after the backup that a core goes back to, settled or not. */
  lost(name: string, cell: string, uid: string): void {
    this.#lost.set(`${name}/${cell}/${uid}`, { name, cell, uid, untilMs: this.#nowMs() + UNNOTICED_MS });
  }

  /** A replica starts, and has seen no outage (decision 3): what the core has lost it can't know until somebody has noticed. */
  newcomer(): void {
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
    if (this.#unknown.has(uid) || this.isUnpromised(name, uid)) return true;
    return this.#of(name).uids.get(cell)?.has(uid) === true;
  }

  /** Somebody has put the cell on hold: what is decided from here on knows that something may be missing. */
  held({ metadata, status }: PodProtector): void {
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

  /** The core has lost an admission of this pod, and the cell's hold is there for it, whatever an older record of the pod says. */
  isCovered(name: string, cell: string, uid: string): boolean {
    return this.#covered.has(`${name}/${cell}/${uid}`);
  }

  /** The pod carries the annotation that lets it go whatever the count. */
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

/** One shard in a history that is over is enough: its pods are counted as they were there. */
function isOf({ from, to, ...one }: OverHistory, name: string, cell: string, { parts }: Position): boolean {
  return one.name === name && one.cell === cell && parts.some((version) => version > from && version <= to);
}
