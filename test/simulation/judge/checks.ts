/**
 * The invariants of design 5.9 on every change of a protector, against the world's own truth. Each is worded as the design words
 * it; none asks a component what it believes.
 */
import type { CellStatus, PodProtector } from "../../../shared/schema/podprotector.ts";
import type { InFlight, ReviewLog } from "../actors/admission-requests.ts";
import type { Restarts } from "../actors/container-restarts.ts";
import type { EtcdChange, Json, Stored } from "../apiserver/etcd.ts";
import { jsonOf, record, text } from "../apiserver/objects.ts";
import { isCount, newlyPinned, reserved } from "../truth/entry-writes.ts";
import { isTrulyAvailable, type PodTruth } from "../truth/pod-truth.ts";
import { Position } from "../truth/position.ts";
import { ledgerOf, parse, wantedOf } from "../truth/stored-protectors.ts";
import type { SeenRule } from "./coverage.ts";
import type { Exemptions } from "./exemptions.ts";
import { seenInShards } from "./sharded-counts.ts";

/** Objects stay far below what etcd takes (S10). */
const OBJECT_CAP_BYTES = 1024 * 1024;

export interface CellTruth {
  readonly pods: PodTruth;
  readonly reviews: ReviewLog;
  /** Where pods are changed in place. */
  readonly restarts: Pick<Restarts, "isUnderWay" | "isDown"> | undefined;
}

export interface CheckedWorld {
  readonly exemptions: Exemptions;
  elapsedMs(): number;
  readonly cells: ReadonlyMap<string, CellTruth>;
  /** A rule was seen at work. */
  rule(name: SeenRule): void;
  violation(invariant: string, message: string): void;
}

export class Checks {
  readonly #world: CheckedWorld;
  /** Every admission that was ever written, and when first. */
  readonly #nonces = new Map<string, number>();

  constructor(world: CheckedWorld) {
    this.#world = world;
  }

  /** Looks at one change of a protector in the core's storage. */
  changed(change: EtcdChange): void {
    if (change.after === undefined) return;
    const after = parse(change.after);
    const before = change.before === undefined ? undefined : parse(change.before);
    const sameObject = before !== undefined && before.metadata.uid === after.metadata.uid;
    const old = new Map((sameObject ? (before.status?.cells ?? []) : []).map((cell) => [cell.cellID, cell]));
    this.#world.exemptions.held(after);
    const admitted: string[] = [];
    let pinned = 0;
    for (const cell of after.status?.cells ?? []) {
      const previous = old.get(cell.cellID);
      if (isCount(previous, cell)) this.#counted(after, previous, cell);
      else this.#rolledBack(after, previous, cell);
      const uids = reserved(previous, cell, this.#nonces);
      admitted.push(...uids.filter((uid) => this.#takesQuota(after, cell.cellID, uid)));
      pinned += newlyPinned(previous, cell);
      this.#onHold(after, previous, cell);
      this.#asked(after, previous, cell);
      this.#weights(after, cell);
    }
    const forced = admitted.filter((uid) => this.#world.exemptions.isForced(uid));
    if (admitted.length > forced.length) this.#quota(after, forced.length + pinned);
    const bytes = jsonOf(change.after.value).length;
    if (bytes > OBJECT_CAP_BYTES) this.#world.violation("S10", `${after.metadata.name} has ${bytes} bytes`);
  }

  /** What is not available when it is admitted is recorded again, and costs nothing, whatever was paid for it before. */
  #takesQuota(protector: PodProtector, cell: string, uid: string): boolean {
    const pods = this.#world.cells.get(cell)?.pods;
    return pods?.isAvailableNow(uid, wantedOf(protector), Number.POSITIVE_INFINITY) !== false;
  }

  /** S8: a deletion of an available pod is allowed only with a record of it in every protector that covers it. */
  allowed(protectors: readonly Stored[], cell: string, flight: InFlight, request: Json): void {
    const truth = this.#world.cells.get(cell);
    const stored = truth?.reviews.stored(flight);
    if (flight.operation === "EVICT" && !isBound(request))
      this.#world.violation("S12", `${flight.key}: an eviction was allowed that is bound to no UID`);
    if (truth === undefined || stored === undefined || flight.forced) return;
    if (flight.revision !== undefined && stored.revision !== flight.revision) return;
    const pod =
      request.oldObject === null || request.oldObject === undefined ? stored.value : record(request.oldObject);
    for (const stored of protectors) {
      const protector = parse(stored);
      const { name } = protector.metadata;
      const { exemptions } = this.#world;
      if (exemptions.isUncertain(name, flight.askedMs) || exemptions.isRemovedSince(name, cell, flight.askedMs))
        continue;
      if (exemptions.isUnpromised(name, flight.uid)) continue;
      const aggregation = protector.status?.cells.find((one) => one.cellID === cell)?.aggregation;
      const cutoffMs = Date.parse(aggregation?.maturityCutoff ?? "");
      if (!isTrulyAvailable(pod, wantedOf(protector), cutoffMs) || truth.pods.deadAt(flight.uid) !== undefined)
        continue;
      const entry = protector.status?.cells.find((one) => one.cellID === cell);
      const records = ledgerOf(entry).get(flight.uid)?.records;
      // A change's record is its own; deletion and eviction stand in for each other.
      if (records === undefined || (flight.operation === "UPDATE" && !records.has("UPDATE"))) {
        this.#violate("S8", protector, `${flight.key} (${flight.operation}) was allowed without a record`);
      }
    }
  }

  /** An aggregator's write: S3, S4, S5. */
  #counted(protector: PodProtector, before: CellStatus | undefined, after: CellStatus): void {
    const truth = this.#world.cells.get(after.cellID);
    const aggregation = after.aggregation;
    if (truth === undefined || aggregation?.resourceVersion === undefined) return;
    const position = new Position(aggregation.resourceVersion);
    const available = truth.pods.availableAt(
      position,
      wantedOf(protector),
      Date.parse(aggregation.maturityCutoff ?? ""),
    );
    const { exemptions } = this.#world;
    const { name } = protector.metadata;
    const { hold, epoch = 0 } = aggregation;
    if (hold !== undefined && hold !== before?.aggregation?.hold)
      exemptions.raised(name, after.cellID, position, epoch, hold.startsWith("CellRestored"));
    // A hold does not wait for long for the list of what there is now, and nobody uses what is counted on hold.
    const isOnHold =
      aggregation.hold !== undefined &&
      aggregation.hold !== before?.aggregation?.hold &&
      exemptions.isOver(name, after.cellID, position, Number.POSITIVE_INFINITY);
    if (available.size !== aggregation.availableReplicas && !isOnHold) {
      this.#violate(
        "S3",
        protector,
        `cell ${after.cellID} counts ${aggregation.availableReplicas} at ${position.text}, it was ${available.size}`,
      );
    }
    if (!isOnHold && exemptions.isOver(name, after.cellID, position, aggregation.epoch ?? 0))
      this.#violate(
        "S3",
        protector,
        `cell ${after.cellID} counts at ${position.text}, of a history that is known to be over`,
      );
    const old = before?.aggregation;
    const sameEpoch = (old?.epoch ?? 0) === (aggregation.epoch ?? 0);
    const stored = old?.resourceVersion === undefined ? undefined : new Position(old.resourceVersion);
    for (const rule of seenInShards(truth.pods, wantedOf(protector), after, position, stored)) this.#world.rule(rule);
    if (stored !== undefined && sameEpoch && position.isBehind(stored))
      this.#violate("S4", protector, `cell ${after.cellID} went back from ${stored.text} to ${position.text}`);
    this.#removed(protector, truth, position, before, after);
    if (!isOnHold) this.#subtraction(protector, after, available);
  }

  /** S9: every record belongs to a review that was meant. */
  #asked(protector: PodProtector, before: CellStatus | undefined, after: CellStatus): void {
    const reviews = this.#world.cells.get(after.cellID)?.reviews;
    for (const { uid, podName, records } of ledgerOf(after).reservations()) {
      if (uid === undefined || ledgerOf(before).get(uid, podName) !== undefined) continue;
      for (const operation of records.keys())
        if (reviews?.wasMeant(uid, operation) === false)
          this.#violate(
            "S9",
            protector,
            `the ${operation} of ${podName ?? uid} was recorded, and only dry runs were asked for`,
          );
    }
  }

  /** S5: what an aggregator removes is dead at its position, or can't be committed any more. */
  #removed(
    protector: PodProtector,
    truth: CellTruth,
    position: Position,
    before: CellStatus | undefined,
    after: CellStatus,
  ): void {
    const left = ledgerOf(after);
    for (const reservation of ledgerOf(before).reservations()) {
      const { uid, podName } = reservation;
      if (uid === undefined) continue;
      const kept = left.get(uid, podName);
      if (kept !== undefined && kept.weight !== reservation.weight) this.#world.rule("weight follows availability");
      for (const operation of reservation.records.keys()) {
        if (kept?.records.has(operation)) continue;
        const dead = truth.pods.deadAt(uid);
        if (dead !== undefined && dead <= position.of(uid)) continue;
        const { exemptions } = this.#world;
        const { name } = protector.metadata;
        const restarts = operation === "UPDATE" && truth.restarts?.isUnderWay(uid) === true;
        if (restarts && !exemptions.has(name, after.cellID, uid) && !exemptions.isUnasked(name, uid))
          this.#violate(
            "S5",
            protector,
            `the change of ${podName ?? uid} was forgotten at ${position.text}, and its restart is under way`,
          );
        if (!exemptions.isCovered(name, after.cellID, uid) && this.#isPending(protector, truth, uid, operation)) {
          this.#violate(
            "S5",
            protector,
            `the ${operation} of ${podName ?? uid} was forgotten at ${position.text} and can still be committed`,
          );
        }
      }
    }
  }

  /** It can still be committed, and somebody allowed it who should have a record of it. */
  #isPending(
    { metadata: { name } }: PodProtector,
    { reviews }: CellTruth,
    uid: string,
    operation: string,
    recordedMs?: number,
  ): boolean {
    return !this.#world.exemptions.isUnpromised(name, uid) && reviews.pending(name, uid, operation, recordedMs);
  }

  /** S5: what a webhook takes back belongs to a request that it refused, and to no other. */
  #rolledBack(protector: PodProtector, before: CellStatus | undefined, after: CellStatus): void {
    const truth = this.#world.cells.get(after.cellID);
    // Without a position it was no webhook: the entry was removed.
    if (truth === undefined || before === undefined || after.aggregation?.resourceVersion === undefined) return;
    const left = ledgerOf(after);
    for (const { uid, podName, records } of ledgerOf(before).reservations()) {
      if (uid === undefined) continue;
      if (left.get(uid, podName) === undefined) this.#world.rule("rolled back");
      if (truth.pods.deadAt(uid) !== undefined) continue;
      for (const [operation, { nonces }] of records) {
        if (left.get(uid, podName)?.records.has(operation)) continue;
        const recordedMs = Math.max(...nonces.map((nonce) => this.#nonces.get(nonce) ?? Number.POSITIVE_INFINITY));
        if (this.#isPending(protector, truth, uid, operation, recordedMs))
          this.#violate(
            "S5",
            protector,
            `the ${operation} of ${podName ?? uid} was taken back and can still be committed`,
          );
      }
    }
  }

  /** After an aggregator's write `A - sum(w) = |AV \ UIDs of buckets|` (design 5.2), which is S6, too. */
  #subtraction(protector: PodProtector, cell: CellStatus, available: ReadonlySet<string>): void {
    const ledger = ledgerOf(cell);
    if (ledger.ranges.length > 0) return;
    const rest = new Set(available);
    const strangers: string[] = [];
    for (const { uid } of ledger.reservations()) {
      // Packed: only the hash is known.
      if (uid === undefined) return;
      if (!rest.delete(uid)) strangers.push(uid);
    }
    const difference = (cell.aggregation?.availableReplicas ?? 0) - ledger.weight;
    if (difference !== rest.size)
      this.#violate(
        "S6",
        protector,
        `cell ${cell.cellID}: A - sum(w) is ${difference}, |AV \\ UIDs| is ${rest.size} (not available: ${strangers.join(" ")})`,
      );
  }

  /** S1, 5.4: a cell on hold admits nothing; what is written there was admitted before, and is written again. */
  #onHold(protector: PodProtector, before: CellStatus | undefined, after: CellStatus): void {
    const wasHeld = before?.aggregation?.hold !== undefined && after.aggregation?.hold !== undefined;
    for (const { uid, podName, records } of ledgerOf(after).reservations())
      for (const [operation, { nonces, paid }] of records)
        for (const nonce of nonces) {
          const isKnown = this.#nonces.has(nonce);
          if (!isKnown) this.#nonces.set(nonce, this.#world.elapsedMs());
          if (!isKnown && wasHeld && paid && uid !== undefined && !this.#world.exemptions.isForced(uid))
            this.#violate("S1", protector, `the ${operation} of ${podName ?? uid} was admitted in a cell on hold`);
        }
  }

  /** S7: the counters on the wire add up to the weights. */
  #weights(protector: PodProtector, cell: CellStatus): void {
    const buckets = cell.admissionHistory?.buckets ?? [];
    const counters = buckets.reduce((sum, bucket) => sum + (bucket.counter ?? 1), 0);
    const { weight } = ledgerOf(cell);
    if (counters !== weight)
      this.#violate("S7", protector, `cell ${cell.cellID}: counters say ${counters}, weights ${weight}`);
  }

  /** S1: what is counted and neither possibly deleted nor deleted since the snapshot is at least the minimum. */
  #quota(protector: PodProtector, free: number): void {
    const { exemptions } = this.#world;
    const wanted = wantedOf(protector);
    const { name } = protector.metadata;
    // What goes by force in the same write, or is pinned, is not what this admission was decided on.
    let left = free;
    const gone: string[] = [];
    for (const cell of protector.status?.cells ?? []) {
      const truth = this.#world.cells.get(cell.cellID);
      const { resourceVersion, maturityCutoff } = cell.aggregation ?? {};
      if (truth === undefined || resourceVersion === undefined) continue;
      const cutoffMs = Date.parse(maturityCutoff ?? "");
      const possible = truth.pods.availableAt(new Position(resourceVersion), wanted, cutoffMs);
      for (const { uid, weight } of ledgerOf(cell).reservations())
        if (uid !== undefined && weight === 1) possible.delete(uid);
      // Exempt are pods that became unavailable by themselves since the snapshot, whoever deletes them then. One that is Ready again was
      // counted, and has to mature anew only because of that.
      for (const { uid } of truth.reviews.committable())
        if (
          truth.pods.isAvailableNow(uid, wanted, Number.POSITIVE_INFINITY) &&
          !exemptions.has(name, cell.cellID, uid) &&
          possible.delete(uid)
        )
          gone.push(`${uid} (may go)`);
      for (const uid of [...possible]) {
        if (exemptions.has(name, cell.cellID, uid)) continue;
        const isTaken = truth.pods.wasTaken(uid, wanted, Number.POSITIVE_INFINITY);
        if (!isTaken && truth.restarts?.isUnderWay(uid) !== true) continue;
        possible.delete(uid);
        gone.push(uid);
      }
      left += possible.size;
    }
    if (left < protector.spec.minAvailable) {
      this.#violate(
        "S1",
        protector,
        `only ${left} of ${protector.spec.minAvailable} are safe (gone since the snapshots: ${gone.join(" ") || "none"})`,
      );
    }
  }

  #violate(invariant: string, protector: PodProtector, message: string): void {
    this.#world.violation(invariant, `${protector.metadata.name}@${protector.metadata.resourceVersion}: ${message}`);
  }
}

function isBound(request: Json): boolean {
  return text(record(record(record(request.object).deleteOptions).preconditions).uid) !== undefined;
}
