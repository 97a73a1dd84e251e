/**
 * The invariants on a cell's count and on removed records (S3 to S6, docs/design.md#invariants): what an aggregator
 * writes, and what a webhook rolls back.
 */
import type { ReservationRecord } from "../../../shared/decide/ledger/reservation.ts";
import type { CellStatus, PodProtector } from "../../../shared/schema/podprotector.ts";
import type { AdmissionRequests } from "../actors/admission-requests.ts";
import type { ContainerRestarts } from "../actors/container-restarts.ts";
import type { PodRead } from "../apiserver/server.ts";
import type { PodTruth, WantedPods } from "../truth/pod-truth.ts";
import { Position } from "../truth/position.ts";
import { ledgerOf, wantedOf } from "../truth/stored-protectors.ts";
import type { SeenRule } from "./coverage.ts";
import type { Exemptions } from "./exemptions.ts";

export interface CellTruth {
  readonly pods: PodTruth;
  readonly admission: AdmissionRequests;
  /** {@link ApiServer.podReads} */
  readonly podReads: ReadonlyMap<string, PodRead>;
  /** Present where pods are changed in place. */
  readonly restarts: Pick<ContainerRestarts, "isInProgress" | "isDown"> | undefined;
}

export interface CheckedWorld {
  readonly exemptions: Exemptions;
  elapsedMs(): number;
  wallMs(): number;
  readonly cells: ReadonlyMap<string, CellTruth>;
  /** Called when a rule was at work. */
  rule(name: SeenRule): void;
  violation(invariant: string, message: string): void;
}

export class CountChecks {
  readonly #world: CheckedWorld;
  /** When each nonce was written first. */
  readonly #nonces: ReadonlyMap<string, number>;

  constructor(world: CheckedWorld, nonces: ReadonlyMap<string, number>) {
    this.#world = world;
    this.#nonces = nonces;
  }

  /** S3, S4 and S5, for an aggregator's write. */
  counted(protector: PodProtector, before: CellStatus | undefined, after: CellStatus): void {
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
      exemptions.epochRaised(name, after.cellID, position, epoch, hold.startsWith("CellRestored"));
    // A cell on hold may be counted before the lists after the restore are in. Nobody uses such a count.
    const isOnHold =
      aggregation.hold !== undefined &&
      (aggregation.hold !== before?.aggregation?.hold || exemptions.isPartlyListed(name, after.cellID, position)) &&
      exemptions.isOfLostHistory(name, after.cellID, position, Number.POSITIVE_INFINITY);
    if (available.size !== aggregation.availableReplicas && !isOnHold) {
      this.#violation(
        "S3",
        protector,
        `cell ${after.cellID} counts ${aggregation.availableReplicas} at ${position.text}, it was ${available.size}`,
      );
    }
    if (!isOnHold && exemptions.isOfLostHistory(name, after.cellID, position, aggregation.epoch ?? 0))
      this.#violation(
        "S3",
        protector,
        `cell ${after.cellID} counts at ${position.text}, of a history that is known to be lost`,
      );
    const old = before?.aggregation;
    const sameEpoch = (old?.epoch ?? 0) === (aggregation.epoch ?? 0);
    const stored = old?.resourceVersion === undefined ? undefined : new Position(old.resourceVersion);
    for (const rule of seenInShards(truth.pods, wantedOf(protector), after, position, stored)) this.#world.rule(rule);
    if (stored !== undefined && sameEpoch && position.isBehind(stored))
      this.#violation("S4", protector, `cell ${after.cellID} went back from ${stored.text} to ${position.text}`);
    this.#removed(protector, truth, position, before, after);
    if (!isOnHold) this.#subtraction(protector, after, available);
  }

  /** S5: what an aggregator removes is dead at its position, or can no longer commit. */
  #removed(
    protector: PodProtector,
    truth: CellTruth,
    position: Position,
    before: CellStatus | undefined,
    after: CellStatus,
  ): void {
    const left = ledgerOf(after);
    const isHeld = after.aggregation?.hold !== undefined;
    for (const reservation of ledgerOf(before).reservations()) {
      const { uid, podName } = reservation;
      if (uid === undefined) continue;
      const kept = left.get(uid);
      if (kept !== undefined && kept.weight !== reservation.weight) this.#world.rule("weight follows availability");
      for (const [operation, removed] of reservation.records) {
        if (kept?.records.has(operation)) continue;
        const dead = truth.pods.deadAt(uid);
        if (dead !== undefined && dead <= position.of(uid)) continue;
        const { exemptions } = this.#world;
        const { name } = protector.metadata;
        const restarts = operation === "UPDATE" && truth.restarts?.isInProgress(uid) === true;
        if (restarts && !exemptions.has(name, after.cellID, uid) && !exemptions.isUnasked(name, uid))
          this.#violation(
            "S5",
            protector,
            `the record of the change of ${podName ?? uid} was removed at ${position.text} during its restart`,
          );
        // Replicas write again what a lost protector had recorded, one after the other: the older admission may come
        // first, and settle before the newer one is there.
        const lostAfter = isHeld ? Number(removed.podResourceVersion ?? Infinity) : Infinity;
        const recordedMs = this.#recordedMs(removed);
        if (
          !exemptions.isCovered(name, after.cellID, uid) &&
          this.#isPending(protector, truth, uid, operation, recordedMs, lostAfter)
        ) {
          this.#violation(
            "S5",
            protector,
            `the ${operation} of ${podName ?? uid} was removed at ${position.text} and can still commit`,
          );
        }
      }
    }
  }

  /** True when the request can still commit and the protector that allowed it should have a record. */
  #isPending(
    { metadata: { name } }: PodProtector,
    { admission }: CellTruth,
    uid: string,
    operation: string,
    recordedMs: number,
    lostAfter?: number,
  ): boolean {
    if (this.#world.exemptions.isNotPromised(name, uid)) return false;
    return admission.isPending(name, uid, operation, recordedMs, lostAfter);
  }

  /** S5: what a webhook rolls back belongs to a request that it denied, and to no other. */
  rolledBack(protector: PodProtector, before: CellStatus | undefined, after: CellStatus): void {
    const truth = this.#world.cells.get(after.cellID);
    // Without a position this was no webhook: the entry was removed.
    if (truth === undefined || before === undefined || after.aggregation?.resourceVersion === undefined) return;
    const left = ledgerOf(after);
    for (const { uid, podName, records } of ledgerOf(before).reservations()) {
      if (uid === undefined) continue;
      if (left.get(uid) === undefined) this.#world.rule("rolled back");
      if (truth.pods.deadAt(uid) !== undefined) continue;
      for (const [operation, removed] of records) {
        if (left.get(uid)?.records.has(operation)) continue;
        if (this.#isPending(protector, truth, uid, operation, this.#recordedMs(removed)))
          this.#violation(
            "S5",
            protector,
            `the ${operation} of ${podName ?? uid} was rolled back and can still commit`,
          );
      }
    }
  }

  /** When the newest admission of this record was written first, before any restore brought it back. */
  #recordedMs({ nonces }: ReservationRecord): number {
    return Math.max(...nonces.map((nonce) => this.#nonces.get(nonce) ?? Number.POSITIVE_INFINITY));
  }

  /** S6: after an aggregator's write `A - sum(w) = |AV \ UIDs of buckets|` (docs/design.md#settling). */
  #subtraction(protector: PodProtector, cell: CellStatus, available: ReadonlySet<string>): void {
    const ledger = ledgerOf(cell);
    if (ledger.ranges.size > 0) return;
    const rest = new Set(available);
    const strangers: string[] = [];
    for (const { uid } of ledger.reservations()) {
      if (uid === undefined) return;
      if (!rest.delete(uid)) strangers.push(uid);
    }
    const difference = (cell.aggregation?.availableReplicas ?? 0) - ledger.weight;
    if (difference !== rest.size)
      this.#violation(
        "S6",
        protector,
        `cell ${cell.cellID}: A - sum(w) is ${difference}, |AV \\ UIDs| is ${rest.size} ` +
          `(not available: ${strangers.join(" ")})`,
      );
  }

  #violation(invariant: string, { metadata }: PodProtector, message: string): void {
    this.#world.violation(invariant, `${metadata.name}@${metadata.resourceVersion}: ${message}`);
  }
}

/** Coverage of counts in shards: cases in which it mattered at which version each shard was. */
function* seenInShards(
  pods: PodTruth,
  wanted: WantedPods,
  { aggregation, ...entry }: CellStatus,
  position: Position,
  stored: Position | undefined,
): Iterable<SeenRule> {
  if (stored !== undefined && stored.parts.length !== position.parts.length)
    yield "shards: counted in another number of them";
  if (position.parts.length === 1) return;
  const { newest } = position;
  const cutoffMs = Date.parse(aggregation?.maturityCutoff ?? "");
  const counted = pods.availableAt(position, wanted, cutoffMs);
  const now = pods.availableAt(new Position(String(newest)), wanted, cutoffMs);
  if (counted.size !== now.size || [...counted].some((uid) => !now.has(uid)))
    yield "shards: counted while one is behind";
  for (const { uid } of ledgerOf(entry).reservations()) {
    const dead = uid === undefined ? undefined : pods.deadAt(uid);
    if (uid === undefined || dead === undefined || dead > newest || dead <= position.of(uid)) continue;
    yield "shards: a reservation in one that is behind";
    return;
  }
}
