/**
 * What can happen next in a world. A step makes another world, or breaks an invariant. A denial makes no step: it
 * changes nothing, and may be asked again.
 */
import type { CountDecisions, Proof } from "../protocol/aggregator.ts";
import type { AdmissionDecisions, AllowedReview, Review } from "../protocol/webhook.ts";
import { type BrokenInvariant, quotaViolation, supplyViolation } from "./invariants.ts";
import { isSeenBy, meetAll, storeCount, storeWritten, storyOf } from "./stores.ts";
import {
  changePod,
  cloneWorld,
  isLive,
  OLDER,
  OPERATIONS,
  POD,
  type PodStage,
  type SmallWorld,
  stateAt,
  stateNow,
  versionNow,
  type WorldCell,
  type WorldPod,
} from "./world.ts";

/** `tell` says what has happened, for people. */
export type Emit = (next: SmallWorld, tell: () => string, violation?: BrokenInvariant) => void;

/** A clone of the world, with the parts that a step is about. */
interface Copy {
  readonly world: SmallWorld;
  readonly cell: WorldCell;
  readonly pod: WorldPod;
}

interface Place {
  readonly cell: number;
  readonly pod: number;
  readonly operation: number;
}

export class Steps {
  readonly #webhook: AdmissionDecisions;
  readonly #aggregator: CountDecisions;
  readonly #minAvailable: number;

  constructor(webhook: AdmissionDecisions, aggregator: CountDecisions, minAvailable: number) {
    this.#webhook = webhook;
    this.#aggregator = aggregator;
    this.#minAvailable = minAvailable;
  }

  /** Calls `emit` for each world that follows from `world`. */
  after(world: SmallWorld, emit: Emit): void {
    for (const [cell, { pods, aggregators }] of world.cells.entries()) {
      for (const pod of pods.keys()) {
        for (const operation of OPERATIONS.keys()) {
          if (world.admissions > 0) this.#reviews(world, { cell, pod, operation }, emit);
          this.#requests(world, { cell, pod, operation }, emit);
        }
        changes(world, cell, pod, emit);
      }
      for (const which of aggregators.keys()) this.#counts(world, cell, which, emit);
      if (world.faults > 0) leaders(world, cell, emit);
    }
  }

  /** The webhook is asked about the pod as it is now, or as it was before its last change. */
  #reviews(world: SmallWorld, place: Place, emit: Emit): void {
    const { cell, pod } = partsOf(world, place);
    const now = stateNow(pod);
    if (isLive(now)) this.#admit(world, { ...place, state: now, version: versionNow(pod), isOvertaken: false }, emit);
    const last = pod.log.at(-1);
    if (last !== undefined) {
      const state = stateAt(pod, last.place - 1);
      const version = pod.log.at(-2)?.place ?? 0;
      const isOvertaken = cell.position >= last.place;
      if (isLive(state)) this.#admit(world, { ...place, state, version, isOvertaken }, emit);
    } else if (isLive(pod.earlier))
      this.#admit(world, { ...place, state: pod.earlier, version: OLDER, isOvertaken: true }, emit);
  }

  #admit(world: SmallWorld, review: Review, emit: Emit): void {
    const allowance = this.#webhook.admit(world.cells, review);
    if (allowance === undefined) return;
    const copy = copyOf(world, review);
    const { pod } = copy;
    const isOld = review.version !== versionNow(pod);
    const mayCommit = isLive(stateNow(pod)) && !(isOld && review.operation === 0);
    const wasPaid = (pod.reservation?.records ?? []).some((record) => record?.paid === true);
    let violation: BrokenInvariant | undefined;
    if (allowance.written !== undefined) violation = storeWritten(copy.world, review, allowance.written, mayCommit);
    else if (!mayCommit) return;
    else pod.unrecorded[review.operation] = true;
    copy.world.admissions--;
    violation ??= this.#admitted(copy, allowance, mayCommit, wasPaid);
    const old = isOld ? ", as it was before its last change," : "";
    emit(
      copy.world,
      () => `${taleOf(review)}${old} is allowed (${allowance.reason}): ${storyOf(copy.world)}`,
      violation,
    );
  }

  /** S1 and S8, of an admission. */
  #admitted(
    { world, pod }: Copy,
    { reason, written }: AllowedReview,
    mayCommit: boolean,
    wasPaid: boolean,
  ): BrokenInvariant | undefined {
    if (written === undefined && mayCommit && stateNow(pod) === POD.Ready)
      return "S8: the disruption of an available pod is allowed without a record";
    const usesQuota = reason === "Reserved" || (reason === "Repeated" && !wasPaid);
    return usesQuota ? quotaViolation(world, this.#minAvailable) : undefined;
  }

  /** A request that was allowed is committed, or never, or taken back because another protector denies it. */
  #requests(world: SmallWorld, place: Place, emit: Emit): void {
    const { pod } = partsOf(world, place);
    const nonces = pod.reservation?.records[place.operation]?.nonces ?? [];
    const isUnrecorded = pod.unrecorded[place.operation] === true;
    if (isUnrecorded || nonces.some(({ inFlight }) => inFlight)) this.#commit(world, place, emit);
    if (isUnrecorded) {
      const copy = copyOf(world, place);
      copy.pod.unrecorded[place.operation] = false;
      emit(copy.world, () => `${taleOf(place)} is given up`);
    }
    for (const [index, { inFlight }] of nonces.entries()) if (inFlight) this.#endRequest(world, place, index, emit);
  }

  #commit(world: SmallWorld, place: Place, emit: Emit): void {
    for (const isForced of [false, true]) {
      const copy = copyOf(world, place);
      const isTaken = stateNow(copy.pod) === POD.Ready;
      const gone = isTaken ? POD.TakenGone : POD.Gone;
      changePod(copy.cell, copy.pod, isForced ? gone : isTaken ? POD.TakenTerminating : POD.Terminating);
      const what = isForced ? "is committed, and the pod is gone" : "is committed";
      emit(copy.world, () => `${taleOf(place)} ${what}`, supplyViolation(copy.world, this.#minAvailable));
    }
  }

  #endRequest(world: SmallWorld, place: Place, index: number, emit: Emit): void {
    const ended = (): SmallWorld => {
      const copy = copyOf(world, place);
      const nonce = copy.pod.reservation?.records[place.operation]?.nonces[index];
      if (nonce !== undefined) nonce.inFlight = false;
      return copy.world;
    };
    emit(ended(), () => `${taleOf(place)} is refused by another webhook, or given up`);
    const back = ended();
    const { pod } = partsOf(back, place);
    const review = { ...place, state: stateNow(pod), version: versionNow(pod), isOvertaken: false };
    const violation = storeWritten(back, review, this.#webhook.rollBack(world.cells, review), false, index);
    emit(back, () => `${taleOf(place)} is denied by another protector, and taken back: ${storyOf(back)}`, violation);
  }

  /** An aggregator accounts with any snapshot that is not older than its last one, and with any proof. */
  #counts(world: SmallWorld, at: number, which: number, emit: Emit): void {
    const cell = world.cells[at];
    const aggregator = cell?.aggregators[which];
    if (cell === undefined || aggregator === undefined) return;
    for (let position = aggregator.position; position <= cell.end; position++) {
      this.#count(world, at, which, position, "none", emit);
      for (const [index, pod] of cell.pods.entries())
        if (isLive(stateNow(pod)) && pod.reservation !== undefined)
          this.#count(world, at, which, position, index, emit);
    }
    this.#count(world, at, which, cell.end, "list", emit);
  }

  #count(world: SmallWorld, at: number, which: number, position: number, proof: Proof, emit: Emit): void {
    const before = world.cells[at];
    if (before === undefined) return;
    const { written, isStale } = this.#aggregator.account(before, which, position, proof);
    const isNews = proof === "none" && position === before.aggregators[which]?.position && !isSeenBy(before, which);
    if (written === undefined && !isNews) return;
    // The same without a proof is another step.
    if (proof !== "none" && written === this.#aggregator.account(before, which, position, "none").written) return;
    const next = cloneWorld(world);
    const cell = next.cells[at];
    if (cell === undefined) return;
    meetAll(cell, which);
    const violation = written === undefined ? undefined : storeCount(cell, which, position, written);
    const did = written === undefined ? (isStale ? "is behind" : "sees the history") : "writes";
    emit(next, () => `${leaderOf(before, at, which)}${provenBy(proof, at)} ${did}: ${storyOf(next)}`, violation);
  }
}

/** What a pod does by itself. */
function changes(world: SmallWorld, at: number, index: number, emit: Emit): void {
  if (world.changes === 0) return;
  const place = { cell: at, pod: index };
  const state = stateNow(partsOf(world, place).pod);
  const become = (next: PodStage, what: string): void => {
    const copy = copyOf(world, place);
    copy.world.changes--;
    if (state === POD.Ready && next === POD.Unready) copy.world.lost++;
    changePod(copy.cell, copy.pod, next);
    emit(copy.world, () => `pod ${at}.${index} ${what}`);
  };
  if (state === POD.Absent) become(POD.Unready, "is created");
  if (state === POD.Unready) become(POD.Ready, "becomes ready");
  if (state === POD.Ready) become(POD.Unready, "becomes unready");
  if (isLive(state)) become(state, "gets another version");
}

/** An aggregator crashes, or is cut off while another one leads already. A new leader lists the pods. */
function leaders(world: SmallWorld, at: number, emit: Emit): void {
  const cell = world.cells[at];
  for (const which of cell?.aggregators.keys() ?? []) {
    const next = faulty(world);
    const changed = next.cells[at];
    const aggregator = changed?.aggregators[which];
    if (cell === undefined || changed === undefined || aggregator === undefined) continue;
    aggregator.position = changed.end;
    meetAll(changed, which, false);
    emit(next, () => `${leaderOf(cell, at, which)} crashes; a new one lists the pods`);
  }
  if (cell === undefined || cell.aggregators.length > 1) return;
  const next = faulty(world);
  const changed = next.cells[at];
  if (changed === undefined) return;
  changed.aggregators.push({ position: changed.end });
  meetAll(changed, 1, false);
  emit(next, () => `aggregator ${at} lags; a second leader lists the pods`);
}

function faulty(world: SmallWorld): SmallWorld {
  const next = cloneWorld(world);
  next.faults--;
  return next;
}

function partsOf(world: SmallWorld, place: Pick<Place, "cell" | "pod">): Copy {
  const cell = world.cells[place.cell];
  const pod = cell?.pods[place.pod];
  if (cell === undefined || pod === undefined) throw new Error(`there is no pod ${place.cell}.${place.pod}`);
  return { world, cell, pod };
}

function copyOf(world: SmallWorld, place: Pick<Place, "cell" | "pod">): Copy {
  return partsOf(cloneWorld(world), place);
}

function taleOf({ cell, pod, operation }: Place): string {
  return `${OPERATIONS[operation]} of pod ${cell}.${pod}`;
}

function leaderOf({ aggregators }: WorldCell, at: number, which: number): string {
  return `aggregator ${at}${aggregators.length > 1 ? `, leader ${which + 1},` : ""}`;
}

function provenBy(proof: Proof, at: number): string {
  if (proof === "none") return "";
  const read = proof === "list" ? "lists the pods" : `reads pod ${at}.${proof}`;
  return ` waits for the settle period, ${read}, and`;
}
