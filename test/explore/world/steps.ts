/**
 * What can happen next in a world. A step makes another world, or breaks an invariant. A denial makes no step: it
 * changes nothing, and may be asked again.
 */
import type { Bounds } from "../bounds.ts";
import { type Account, type CountDecisions, isProvable, type Proof } from "../protocol/aggregator.ts";
import type { AdmissionDecisions, AllowedReview, Review } from "../protocol/webhook.ts";
import { clockEvents, edits, entryFaults, leaderFaults, notices, podEvents, restores } from "./events.ts";
import { type BrokenInvariant, quotaViolation, supplyViolation } from "./invariants.ts";
import { copyOf, type Emit, leaderOf, nameOf, type Parts, partsOf, type RequestPlace, requestOf } from "./parts.ts";
import { isSeenBy, storeAccount, storeWritten, storyOf } from "./stores.ts";
import {
  changePod,
  cloneWorld,
  isLive,
  isReady,
  OLDER,
  OPERATIONS,
  POD,
  type SmallWorld,
  stateAt,
  stateNow,
  versionNow,
} from "./world.ts";

export class Steps {
  readonly #admissions: AdmissionDecisions;
  readonly #counts: CountDecisions;
  readonly #bounds: Bounds;

  constructor(admissions: AdmissionDecisions, counts: CountDecisions, bounds: Bounds) {
    this.#admissions = admissions;
    this.#counts = counts;
    this.#bounds = bounds;
  }

  /** Calls `emit` for each world that follows from `world`. */
  after(world: SmallWorld, emit: Emit): void {
    const matures = this.#bounds.minReadySeconds > 0;
    if (matures) clockEvents(world, emit);
    edits(world, emit);
    for (const [cell, { pods, aggregators }] of world.cells.entries()) {
      for (const pod of pods.keys()) {
        for (const operation of OPERATIONS.keys()) {
          if (world.admissions > 0) this.#reviews(world, { cell, pod, operation }, emit);
          this.#requests(world, { cell, pod, operation }, emit);
        }
        if (world.admissions > 1) this.#rivals(world, { cell, pod, operation: 0 }, emit);
        podEvents(world, { cell, pod }, matures, emit);
      }
      for (const which of aggregators.keys()) this.#accounts(world, cell, which, emit);
      notices(world, cell, emit);
      if (world.faults === 0) continue;
      leaderFaults(world, cell, emit);
      entryFaults(world, cell, emit);
      restores(world, cell, emit);
    }
  }

  /** The webhook is asked about the pod as it is now, or as it was before its last change. */
  #reviews(world: SmallWorld, place: RequestPlace, emit: Emit): void {
    const { cell, pod } = partsOf(world, place);
    const now = reviewNow(world, place);
    if (now !== undefined) this.#admit(world, now, emit);
    const last = pod.log.at(-1);
    if (last !== undefined) {
      const state = stateAt(pod, last.place - 1);
      const version = pod.log.at(-2)?.place ?? 0;
      const isOvertaken = cell.isCounted && cell.position >= last.place;
      if (isLive(state)) this.#admit(world, { ...place, state, version, isOvertaken }, emit);
    } else if (isLive(pod.earlier))
      this.#admit(world, { ...place, state: pod.earlier, version: OLDER, isOvertaken: true }, emit);
  }

  #admit(world: SmallWorld, review: Review, emit: Emit): void {
    const outcome = this.#admissions.admit(world, review);
    if (outcome === undefined) return;
    const copy = copyOf(world, review);
    const old = review.version === versionNow(copy.pod) ? "" : ", as it was before its last change,";
    const violation = this.#allow(copy, review, outcome);
    if (outcome.written === undefined && copy.pod.unrecorded[review.operation] !== true) return;
    const { reason } = outcome;
    emit(copy.world, () => `${requestOf(review)}${old} is allowed (${reason}): ${storyOf(copy.world)}`, violation);
  }

  /** Records what was allowed, and judges it by S1, S5 and S8. */
  #allow({ world, pod }: Parts, review: Review, { reason, written }: AllowedReview): BrokenInvariant | undefined {
    const { operation, version } = review;
    const mayCommit = isLive(stateNow(pod)) && (operation !== 0 || version === versionNow(pod));
    const wasPaid = (pod.reservation?.records ?? []).some((record) => record?.paid === true);
    world.admissions--;
    if (written === undefined) {
      if (!mayCommit) return undefined;
      pod.unrecorded[operation] = true;
      // The label that the count leaves out, or the cell's entry, may be gone: nothing can be recorded there.
      const isPromised = stateNow(pod) === POD.Ready;
      return isPromised ? "S8: the disruption of an available pod is allowed without a record" : undefined;
    }
    if (reason === "Suspended") world.lost = Math.max(world.lost, 1);
    const violation = storeWritten(world, review, written, mayCommit);
    const usesQuota = reason === "Reserved" || (reason === "Repeated" && !wasPaid);
    return violation ?? (usesQuota ? quotaViolation(world, this.#bounds.minAvailable) : undefined);
  }

  /** Two deletions at one moment: in one write of one replica, or by two replicas, of which one meets a conflict. */
  #rivals(world: SmallWorld, place: RequestPlace, emit: Emit): void {
    const first = reviewNow(world, place);
    if (first === undefined || !isReady(first.state)) return;
    for (const other of partsOf(world, place).cell.pods.keys()) {
      const second = other === place.pod ? undefined : reviewNow(world, { ...place, pod: other });
      if (second === undefined || !isReady(second.state)) continue;
      if (other > place.pod) this.#together(world, first, second, emit);
      this.#conflict(world, first, second, emit);
    }
  }

  #together(world: SmallWorld, first: Review, second: Review, emit: Emit): void {
    const outcomes = this.#admissions.admitTogether(world, first, second);
    if (outcomes === undefined) return;
    const next = cloneWorld(world);
    let violation: BrokenInvariant | undefined;
    for (const [index, review] of [first, second].entries()) {
      const outcome = outcomes[index];
      if (outcome !== undefined) violation ??= this.#allow(partsOf(next, review), review, outcome);
    }
    const what = `${requestOf(first)} and of ${nameOf(second)} are allowed in one write`;
    emit(next, () => `${what}: ${storyOf(next)}`, violation);
  }

  #conflict(world: SmallWorld, first: Review, second: Review, emit: Emit): void {
    const outcome = this.#admissions.admit(world, first);
    if (outcome?.written === undefined) return;
    const copy = copyOf(world, first);
    if (this.#allow(copy, first, outcome) !== undefined) return;
    const again = this.#admissions.admitAgain(world, copy.world, second);
    if (again === undefined) return;
    const violation = this.#allow(partsOf(copy.world, second), second, again);
    const what = `${requestOf(first)} is allowed by one replica, and of ${nameOf(second)} by another, after a conflict`;
    emit(copy.world, () => `${what}: ${storyOf(copy.world)}`, violation);
  }

  /** A request that was allowed is committed, or never, or taken back because another protector denies it. */
  #requests(world: SmallWorld, place: RequestPlace, emit: Emit): void {
    const { pod } = partsOf(world, place);
    const nonces = pod.reservation?.records[place.operation]?.nonces ?? [];
    const isUnrecorded = pod.unrecorded[place.operation] === true;
    if (isUnrecorded || nonces.some(({ inFlight }) => inFlight)) this.#commit(world, place, emit);
    if (isUnrecorded) {
      const copy = copyOf(world, place);
      copy.pod.unrecorded[place.operation] = false;
      emit(copy.world, () => `${requestOf(place)} is given up`);
    }
    for (const [index, { inFlight }] of nonces.entries()) if (inFlight) this.#endRequest(world, place, index, emit);
  }

  #commit(world: SmallWorld, place: RequestPlace, emit: Emit): void {
    for (const isForced of [false, true]) {
      const copy = copyOf(world, place);
      const isTaken = isReady(stateNow(copy.pod));
      const gone = isTaken ? POD.TakenGone : POD.Gone;
      changePod(copy.cell, copy.pod, isForced ? gone : isTaken ? POD.TakenTerminating : POD.Terminating);
      const what = isForced ? "is committed, and the pod is gone" : "is committed";
      const violation = supplyViolation(copy.world, this.#bounds.minAvailable);
      emit(copy.world, () => `${requestOf(place)} ${what}`, violation);
    }
  }

  #endRequest(world: SmallWorld, place: RequestPlace, index: number, emit: Emit): void {
    const ended = (): SmallWorld => {
      const { world: copy, pod } = copyOf(world, place);
      const nonce = pod.reservation?.records[place.operation]?.nonces[index];
      if (nonce !== undefined) nonce.inFlight = false;
      return copy;
    };
    emit(ended(), () => `${requestOf(place)} is refused by another webhook, or given up`);
    const back = ended();
    const { pod } = partsOf(back, place);
    const review = { ...place, state: stateNow(pod), version: versionNow(pod), isOvertaken: false };
    const violation = storeWritten(back, review, this.#admissions.rollBack(world, review), false, index);
    const what = "is denied by another protector, and taken back";
    emit(back, () => `${requestOf(place)} ${what}: ${storyOf(back)}`, violation);
  }

  /** An aggregator accounts with any snapshot that is not older than its last one, and with any proof. */
  #accounts(world: SmallWorld, at: number, which: number, emit: Emit): void {
    const cell = world.cells[at];
    const aggregator = cell?.aggregators[which];
    if (cell === undefined || aggregator === undefined) return;
    // No position and no epoch tells the two leaders apart (docs/design.md#what-remains-possible).
    const isRival = aggregator.isLost && !cell.isCountLost && cell.aggregators.length > 1;
    if (isRival && aggregator.adoptedEpoch >= cell.epoch) return;
    const last = aggregator.isLost ? aggregator.position : cell.end;
    for (let position = aggregator.position; position <= last; position++) {
      this.#account(world, at, which, position, "none", emit);
      for (const [index, pod] of cell.pods.entries())
        if (isLive(stateNow(pod)) && isProvable([pod], which)) this.#account(world, at, which, position, index, emit);
    }
    // A list that is older than the snapshot shows the restore.
    if (aggregator.isLost) return;
    const isNeeded =
      cell.isCountLost || aggregator.sawHold || aggregator.adoptedEpoch < cell.epoch || isProvable(cell.pods, which);
    if (isNeeded) this.#account(world, at, which, cell.end, "list", emit);
  }

  #account(world: SmallWorld, at: number, which: number, position: number, proof: Proof, emit: Emit): void {
    const before = world.cells[at];
    const aggregator = before?.aggregators[which];
    if (before === undefined || aggregator === undefined) return;
    const account = this.#counts.account(world, before, which, position, proof);
    const isFound = account.isRestoreFound && !aggregator.hasIncident;
    const isProven = proof === "list" && (isFound || account.adoptedEpoch > aggregator.adoptedEpoch);
    if (account.written === undefined && !isProven) {
      const knows = aggregator.isKnowing && aggregator.seenEpoch === before.epoch;
      const isAll = isSeenBy(before, which) && knows && aggregator.sawHold === before.isOnHold;
      if (proof !== "none" || position !== aggregator.position || isAll) return;
    }
    // The same without a proof is another step.
    if (proof !== "none" && !isProven && this.#isSame(account, world, at, which, position)) return;
    const next = cloneWorld(world);
    const cell = next.cells[at];
    if (cell === undefined) return;
    const violation = storeAccount(cell, which, position, account);
    const did = account.written === undefined ? (account.isStale ? "is behind" : "sees the history") : "writes";
    emit(next, () => `${leaderOf(before, at, which)}${provenBy(proof, at)} ${did}: ${storyOf(next)}`, violation);
  }

  #isSame({ text }: Account, world: SmallWorld, at: number, which: number, position: number): boolean {
    const cell = world.cells[at];
    return cell !== undefined && text === this.#counts.account(world, cell, which, position, "none").text;
  }
}

function reviewNow(world: SmallWorld, place: RequestPlace): Review | undefined {
  const { pod } = partsOf(world, place);
  const state = stateNow(pod);
  return isLive(state) ? { ...place, state, version: versionNow(pod), isOvertaken: false } : undefined;
}

function provenBy(proof: Proof, at: number): string {
  if (proof === "none") return "";
  const read = proof === "list" ? "lists the pods" : `reads pod ${at}.${proof}`;
  return ` waits for the settle period, ${read}, and`;
}
