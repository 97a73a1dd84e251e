/**
 * S2 (docs/design.md#invariants): with a constant spec, fewer than minAvailable pods are truly available, and Ready
 * where they have the counted gate, only by as many as became unavailable by themselves. A loss counts until it is
 * published and the protector has had enough pods again. Until then a decision may not have known of it. The loss of a
 * pod that is ready again while its eviction is decided counts until that eviction has ended (undecided-evictions.ts).
 * So does the loss of another one that this pod has made good.
 *
 * Checked in the worlds where S2 is promised: specs stay constant, clocks decide nothing, nobody forces a deletion, and
 * no history is lost.
 */

import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import type { EtcdChange } from "../apiserver/etcd.ts";
import { metadataOf, text } from "../apiserver/objects.ts";
import { isGateClosed } from "../apiserver/pod-conditions.ts";
import type { Scenario } from "../scenario/scenario.ts";
import { Position } from "../truth/position.ts";
import { ledgerOf, parseStored, wantedOf } from "../truth/stored-protectors.ts";
import type { CellTruth } from "./count-checks.ts";
import type { Exemptions } from "./exemptions.ts";
import { UndecidedEvictions } from "./undecided-evictions.ts";

interface Watched {
  readonly shortfall: Shortfall;
  readonly labels: Readonly<Record<string, string>>;
}

export class Shortfalls {
  readonly #cells: ReadonlyMap<string, CellTruth>;
  readonly #violation: (invariant: string, message: string) => void;
  readonly #exemptions: Exemptions;
  readonly #nowMs: () => number;
  readonly #protectors = new Map<string, Watched>();

  constructor(
    cells: ReadonlyMap<string, CellTruth>,
    exemptions: Exemptions,
    nowMs: () => number,
    violation: (invariant: string, message: string) => void,
  ) {
    this.#cells = cells;
    this.#exemptions = exemptions;
    this.#nowMs = nowMs;
    this.#violation = violation;
  }

  static applies({ faults, features, protectors }: Scenario): boolean {
    if (features.generatorEveryMs > 0 || features.backupsEveryMs > 0) return false;
    if (features.accidentsEveryMs > 0 && !features.isSteady) return false;
    if (features.isDryRunMode || features.terminateEveryMs > 0 || features.conditionEveryMs > 0) return false;
    // The losses are those of Ready pods.
    if (features.criteria.length > 0) return false;
    const isConstant = faults.editSpecEveryMs + faults.restoreCoreEveryMs + faults.recreateProtectorEveryMs === 0;
    const isKnown = faults.restoreCellEveryMs + faults.failOpenRate === 0;
    return (
      isConstant && isKnown && faults.forceDeleteEveryMs === 0 && protectors.every((one) => one.minReadySeconds === 0)
    );
  }

  protectorChanged({ key, after }: EtcdChange): void {
    if (after === undefined) return;
    const protector = parseStored(after);
    const known = this.#protectors.get(key) ?? this.#watch(wantedOf(protector).labels);
    this.#protectors.set(key, known);
    known.shortfall.written(protector, () => this.#availableNow(known.labels));
  }

  podChanged(cell: string, change: EtcdChange): void {
    if (!change.key.startsWith("pods/")) return;
    const truth = this.#cells.get(cell);
    const lost = truth?.pods.lossAt(change);
    const isChange = truth?.restarts?.isDown(uidOf(change)) === true || isGateClosed(change.after?.value ?? {});
    const loss = lost === "own" && isChange ? "taken" : lost;
    for (const [key, { shortfall, labels }] of this.#protectors) {
      const isRelabelled = truth?.pods.isRelabelledAt(change, labels) === true;
      if (loss === "own" || isRelabelled || this.#isExempt(nameOf(key), cell, uidOf(change)))
        shortfall.lost(cell, uidOf(change), change.revision);
      const available = this.#availableNow(labels);
      const unexplained = shortfall.unexplained(available);
      if (unexplained > 0 && loss === "taken")
        this.#violation(
          "S2",
          `${key}: ${available} pods are available, ${unexplained} too few, after ${change.key} was taken`,
        );
    }
  }

  #availableNow(labels: Watched["labels"]): number {
    let available = 0;
    for (const { pods } of this.#cells.values())
      available += pods.countNow({ labels, minReadySeconds: 0, areReady: true });
    return available;
  }

  #watch(labels: Watched["labels"]): Watched {
    const wanted = { labels, minReadySeconds: 0 };
    const isAvailable = ({ cell, uid }: Pin): boolean =>
      this.#cells.get(cell)?.pods.isAvailableNow(uid, wanted, Number.POSITIVE_INFINITY) === true;
    const evictions = new UndecidedEvictions(this.#cells, labels, this.#nowMs);
    return { shortfall: new Shortfall(evictions, isAvailable), labels };
  }

  #isExempt(name: string, cell: string, uid: string): boolean {
    return this.#exemptions.has(name, cell, uid) || this.#exemptions.isRegardless(name, uid);
  }
}

function nameOf(key: string): string {
  return key.slice(key.lastIndexOf("/") + 1);
}

function uidOf({ before, after }: EtcdChange): string {
  return text(metadataOf((after ?? before)?.value ?? {}).uid) ?? "";
}

/** An admission that uses no quota, because its pod is not available. */
interface Pin {
  readonly cell: string;
  readonly uid: string;
}

interface Loss extends Pin {
  readonly revision: number;
}

/** The losses of one protector that are not yet explained. */
class Shortfall {
  #losses: Loss[] = [];
  /** Losses that count on for an eviction alone, and the pod that is evicted. */
  readonly #undecided = new Map<Loss, Pin>();
  /** Pods that became unavailable by themselves, until they are available and no eviction may rest on an older read. */
  readonly #recovering = new Map<string, Loss>();
  #published: PodProtector | undefined;
  #reserved = 0;
  #pins: Pin[] = [];
  /** In a cell on hold, or without an entry, admitted disruptions are unknown and may still commit. */
  #isUnknown = false;
  readonly #evictions: UndecidedEvictions;
  readonly #isAvailable: (pin: Pin) => boolean;

  constructor(evictions: UndecidedEvictions, isAvailable: (pin: Pin) => boolean) {
    this.#evictions = evictions;
    this.#isAvailable = isAvailable;
  }

  /** The protector was written. Its counts say which losses are known, and its reservations say what may still go. */
  written(protector: PodProtector, availableNow: () => number): void {
    const { minAvailable } = protector.spec;
    // A selector that covers more pods comes with a greater number: nobody took what is missing then.
    if (minAvailable > (this.#published?.spec.minAvailable ?? minAvailable)) {
      const missing = minAvailable - availableNow() - this.#losses.length;
      for (let loss = 0; loss < missing; loss++) this.lost("", "", 0);
    }
    this.#published = protector;
    this.#reserved = 0;
    this.#pins = [];
    this.#isUnknown = false;
    for (const cell of protector.status?.cells ?? []) {
      const { aggregation } = cell;
      this.#evictions.written(
        cell,
        [...this.#losses, ...this.#recovering.values()].filter((loss) => loss.cell === cell.cellID),
      );
      if (aggregation?.hold !== undefined || aggregation?.resourceVersion === undefined) this.#isUnknown = true;
      // A pod that is not available now may be available again before its disruption is committed.
      for (const { uid, weight, records } of ledgerOf(cell).reservations())
        if (weight === 1 || [...records.values()].some(({ paid }) => paid)) this.#reserved += 1;
        else if (uid !== undefined) this.#pins.push({ cell: cell.cellID, uid });
      for (const { weight } of ledgerOf(cell).ranges) this.#reserved += weight;
    }
  }

  /** A pod became unavailable, and nobody had deleted it. */
  lost(cell: string, uid: string, revision: number): void {
    const loss = { cell, uid, revision };
    this.#losses.push(loss);
    if (uid !== "") this.#recovering.set(uid, loss);
  }

  /** How many pods are missing without an explanation; `available` is the truth of all cells at this moment. */
  unexplained(available: number): number {
    for (const pin of this.#recovering.values())
      if (this.#isAvailable(pin) && !this.#evictions.has(pin.cell, pin.uid)) this.#recovering.delete(pin.uid);
    if (this.#published === undefined) return 0;
    const missing = this.#published.spec.minAvailable - available;
    // A disruption that was admitted before the loss may still commit, and then the loss shows.
    if (missing + this.#reserved <= 0 && !this.#isUnknown) this.#forgetPublished(missing);
    for (const [loss, { cell, uid }] of this.#undecided) if (this.#evictions.mustKnow(cell, uid)) this.#forget(loss);
    return missing - this.#losses.length;
  }

  #forgetPublished(missing: number): void {
    if (this.#losses.length === 0) return;
    const pins = this.#pins.filter(this.#isAvailable);
    const positions = new Map(
      (this.#published?.status?.cells ?? []).map(({ cellID, aggregation }) => [
        cellID,
        new Position(aggregation?.resourceVersion ?? "0"),
      ]),
    );
    for (const loss of this.#losses) {
      // Its own pin has to know that the pod is available again.
      const others = pins.filter(({ uid }) => uid !== loss.uid).length;
      if (missing + this.#reserved + others > 0) continue;
      if (loss.revision > (positions.get(loss.cell)?.of(loss.uid) ?? 0)) continue;
      const evicted = this.#evictions.has(loss.cell, loss.uid) ? loss : this.#madeGoodBy(loss);
      if (evicted === undefined) this.#forget(loss);
      else this.#undecided.set(loss, evicted);
    }
  }

  /** A pod that is available again in place of the lost one, and of which an eviction may rest on an older read. */
  #madeGoodBy(loss: Loss): Pin | undefined {
    const known = this.#undecided.get(loss);
    if (known !== undefined && this.#evictions.has(known.cell, known.uid)) return known;
    const taken = new Set([...this.#undecided.values()].map(({ uid }) => uid));
    return [...this.#recovering.values()].find((pin) => this.#isAvailable(pin) && !taken.has(pin.uid));
  }

  #forget(loss: Loss): void {
    this.#undecided.delete(loss);
    this.#losses = this.#losses.filter((one) => one !== loss);
  }
}
