/**
 * The invariants of docs/design.md#invariants on every change of a protector, checked against the truth of the pods. No
 * check asks a component what it believes.
 */
import { EARLIER } from "../../../shared/decide/ledger/reservation.ts";
import { RELEASED_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { CellStatus, PodProtector } from "../../../shared/schema/podprotector.ts";
import type { InFlightRequest } from "../actors/admission-requests.ts";
import type { EtcdChange, EtcdObject, Json } from "../apiserver/etcd.ts";
import { jsonOf, metadataOf, record, text } from "../apiserver/objects.ts";
import { countNewPins, isCount, newlyPaid } from "../truth/entry-writes.ts";
import { isTrulyAvailable, type WantedPods } from "../truth/pod-truth.ts";
import { Position } from "../truth/position.ts";
import { ledgerOf, parseStored, standsFor, wantedOf } from "../truth/stored-protectors.ts";
import { type CheckedWorld, CountChecks } from "./count-checks.ts";

/** S10: far below what etcd accepts. */
const OBJECT_CAP_BYTES = 1024 * 1024;
/** No clock is so wrong, and no request takes so long in addition. */
const MOST_SKEW_MS = 160_000;
/** Every time that can be read is long enough ago. One that is out of range never is, and such a pod does not count. */
const LAST_CUTOFF_MS = Number.MAX_VALUE;

export class ProtectorChecks {
  readonly #world: CheckedWorld;
  /** Every nonce that was ever written, and when it was written first. The mark of unlisted ones is no admission. */
  readonly #nonces = new Map<string, number>([[EARLIER, 0]]);
  readonly #counts: CountChecks;

  constructor(world: CheckedWorld) {
    this.#world = world;
    this.#counts = new CountChecks(world, this.#nonces);
  }

  /** Checks one change of a protector in the core's storage. */
  changed(change: EtcdChange): void {
    if (change.after === undefined) return;
    const after = parseStored(change.after);
    const before = change.before === undefined ? undefined : parseStored(change.before);
    const sameObject = before !== undefined && before.metadata.uid === after.metadata.uid;
    const old = new Map((sameObject ? (before.status?.cells ?? []) : []).map((cell) => [cell.cellID, cell]));
    this.#world.exemptions.endOnHold(after);
    // A write is decided on the version that it replaces.
    const isRegardless = before !== undefined && this.#isRegardless(before);
    const admitted: string[] = [];
    let pinned = 0;
    for (const cell of after.status?.cells ?? []) {
      const previous = old.get(cell.cellID);
      if (isCount(previous, cell)) this.#counts.counted(after, previous, cell);
      else this.#counts.rolledBack(after, previous, cell);
      for (const { uid, version } of newlyPaid(previous, cell, this.#nonces))
        if (this.#takesQuota(after, cell.cellID, uid, version)) admitted.push(uid);
      pinned += countNewPins(previous, cell);
      this.#onHold(after, previous, cell, isRegardless);
      this.#asked(after, previous, cell);
      this.#weights(after, cell);
    }
    const forced = admitted.filter((uid) => this.#world.exemptions.isForced(uid));
    if (admitted.length > forced.length && !isRegardless) this.#quota(after, forced.length + pinned);
    const bytes = jsonOf(change.after.value).length;
    if (bytes > OBJECT_CAP_BYTES) this.#world.violation("S10", `${after.metadata.name} has ${bytes} bytes`);
  }

  /** True when the protector promises nothing, or may be suspended by the clock of some replica. */
  #isRegardless({ spec: { minAvailable, suspend } }: PodProtector): boolean {
    if (minAvailable <= 0) return true;
    const untilMs = suspend?.until === undefined ? Number.POSITIVE_INFINITY : Date.parse(suspend.until);
    return suspend?.enabled === true && untilMs > this.#world.wallMs() - MOST_SKEW_MS;
  }

  /**
   * A pod that is unavailable at its admission, or was when it was reviewed, is recorded again without quota, whatever
   * was paid for it before.
   */
  #takesQuota(protector: PodProtector, cell: string, uid: string, version: string | undefined): boolean {
    const pods = this.#world.cells.get(cell)?.pods;
    const wanted = wantedOf(protector);
    if (pods === undefined || !pods.isAvailableNow(uid, wanted, Number.POSITIVE_INFINITY)) return pods === undefined;
    if (version === undefined) return true;
    return pods.availableAt(new Position(version), wanted, Number.POSITIVE_INFINITY).has(uid);
  }

  /**
   * S8: a disruption of an available pod is allowed only with a record of it in every protector that covers the pod.
   * S12: an eviction of a pod that a protector covers is allowed only if it is bound to the pod's UID.
   */
  allowed(protectors: readonly EtcdObject[], cell: string, inFlight: InFlightRequest, request: Json): void {
    const truth = this.#world.cells.get(cell);
    const stored = truth?.admission.stored(inFlight);
    if (truth === undefined || stored === undefined || inFlight.forced || inFlight.isRevived === true) return;
    if (inFlight.revision !== undefined && stored.revision !== inFlight.revision) return;
    const pod =
      request.oldObject === null || request.oldObject === undefined ? stored.value : record(request.oldObject);
    for (const stored of protectors) {
      const protector = parseStored(stored);
      const { name } = protector.metadata;
      const { exemptions } = this.#world;
      if (exemptions.isUncertain(name, inFlight.askedMs) || exemptions.isRemovedSince(name, cell, inFlight.askedMs))
        continue;
      if (exemptions.isNotPromised(name, inFlight.uid) || isBeingReleased(protector)) continue;
      if (inFlight.operation === "EVICT" && !isBound(request) && hasLabels(pod, wantedOf(protector).labels))
        this.#violation("S12", protector, `${inFlight.key}: an eviction was allowed without a UID precondition`);
      const aggregation = protector.status?.cells.find((one) => one.cellID === cell)?.aggregation;
      const cutoffMs = Date.parse(aggregation?.maturityCutoff ?? "");
      if (!isTrulyAvailable(pod, wantedOf(protector), cutoffMs) || truth.pods.deadAt(inFlight.uid) !== undefined)
        continue;
      const entry = protector.status?.cells.find((one) => one.cellID === cell);
      if (!standsFor(ledgerOf(entry).get(inFlight.uid)?.records, inFlight))
        this.#violation("S8", protector, `${inFlight.key} (${inFlight.operation}) was allowed without a record`);
    }
  }

  /** S9: every record belongs to a request that was no dry run. */
  #asked(protector: PodProtector, before: CellStatus | undefined, after: CellStatus): void {
    const admission = this.#world.cells.get(after.cellID)?.admission;
    for (const { uid, podName, records } of ledgerOf(after).reservations()) {
      if (uid === undefined || ledgerOf(before).get(uid) !== undefined) continue;
      for (const operation of records.keys())
        if (admission?.wasRequested(uid, operation) === false)
          this.#violation(
            "S9",
            protector,
            `the ${operation} of ${podName ?? uid} was recorded, and only dry runs were asked for`,
          );
    }
  }

  /** S1: a cell on hold admits nothing. What is written there was admitted before, and is written again. */
  #onHold(protector: PodProtector, before: CellStatus | undefined, after: CellStatus, isRegardless: boolean): void {
    const isHeld = before?.aggregation?.hold !== undefined && after.aggregation?.hold !== undefined;
    const wasHeld = isHeld && !isRegardless;
    for (const { uid, podName, records } of ledgerOf(after).reservations())
      for (const [operation, { nonces, paid }] of records)
        for (const nonce of nonces) {
          const isKnown = this.#nonces.has(nonce);
          if (!isKnown) this.#nonces.set(nonce, this.#world.elapsedMs());
          if (!isKnown && wasHeld && paid && uid !== undefined && !this.#world.exemptions.isForced(uid))
            this.#violation("S1", protector, `the ${operation} of ${podName ?? uid} was admitted in a cell on hold`);
        }
  }

  /** S7: the counters on the wire sum up to the weights. */
  #weights(protector: PodProtector, cell: CellStatus): void {
    const buckets = cell.admissionHistory?.buckets ?? [];
    const counters = buckets.reduce((sum, bucket) => sum + (bucket.counter ?? 1), 0);
    const { weight } = ledgerOf(cell);
    if (counters !== weight)
      this.#violation("S7", protector, `cell ${cell.cellID}: counters say ${counters}, weights ${weight}`);
  }

  /**
   * S1: the pods that are counted, and neither possibly deleted nor deleted since the snapshot, are at least the
   * minimum.
   */
  #quota(protector: PodProtector, free: number): void {
    const { exemptions } = this.#world;
    const wanted = wantedOf(protector);
    const { name } = protector.metadata;
    // Forced and pinned disruptions of the same write are no part of what this admission was decided on.
    let left = free;
    const gone: string[] = [];
    for (const cell of protector.status?.cells ?? []) {
      const truth = this.#world.cells.get(cell.cellID);
      const { resourceVersion, maturityCutoff } = cell.aggregation ?? {};
      if (truth === undefined || resourceVersion === undefined) continue;
      const cutoffMs = Date.parse(maturityCutoff ?? "");
      // Who counts on a pod counts on one that is Ready, not on one that waits for its counted gate.
      const ready = { ...wanted, areReady: true };
      const possible = truth.pods.availableAt(new Position(resourceVersion), ready, cutoffMs);
      for (const { uid, weight } of ledgerOf(cell).reservations())
        if (uid !== undefined && weight === 1) possible.delete(uid);
      // Exempt are pods that became unavailable by themselves since the snapshot, even if they are deleted later. A pod
      // that is Ready again was counted, and its maturity starts again only because it flapped.
      for (const { uid } of truth.admission.promised())
        if (
          truth.pods.isAvailableNow(uid, wanted, LAST_CUTOFF_MS) &&
          !exemptions.has(name, cell.cellID, uid) &&
          possible.delete(uid)
        )
          gone.push(`${uid} (may go)`);
      for (const uid of [...possible]) {
        if (exemptions.has(name, cell.cellID, uid)) continue;
        const isTaken = truth.pods.wasTaken(uid, wanted, LAST_CUTOFF_MS);
        if (!isTaken && truth.restarts?.isInProgress(uid) !== true) continue;
        possible.delete(uid);
        gone.push(uid);
      }
      left += possible.size;
    }
    if (left < protector.spec.minAvailable) {
      this.#violation(
        "S1",
        protector,
        `only ${left} of ${protector.spec.minAvailable} are safe (lost since the snapshots: ${gone.join(" ") || "-"})`,
      );
    }
  }

  #violation(invariant: string, { metadata }: PodProtector, message: string): void {
    this.#world.violation(invariant, `${metadata.name}@${metadata.resourceVersion}: ${message}`);
  }
}

/**
 * The release is recorded, or is about to be. A replica that knows only a lost predecessor may learn of that before it
 * sees this protector.
 */
function isBeingReleased({ metadata: { deletionTimestamp, annotations } }: PodProtector): boolean {
  return deletionTimestamp !== undefined && annotations?.[RELEASED_ANNOTATION] !== undefined;
}

function hasLabels(pod: Json, labels: WantedPods["labels"]): boolean {
  const own = record(metadataOf(pod).labels);
  return Object.entries(labels).every(([key, value]) => own[key] === value);
}

function isBound(request: Json): boolean {
  return text(record(record(record(request.object).deleteOptions).preconditions).uid) !== undefined;
}
