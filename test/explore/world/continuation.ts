/**
 * The fair end of a world (docs/design.md#invariants, liveness): faults and requests stop, and every component does
 * what it does by itself. Then no record remains, the estimate is the truth, and a pod that can be spared is spared.
 */
import type { CountDecisions, Proof } from "../protocol/aggregator.ts";
import type { AdmissionDecisions } from "../protocol/webhook.ts";
import { notice } from "./events.ts";
import type { BrokenInvariant } from "./invariants.ts";
import { storeAccount } from "./stores.ts";
import {
  availableNow,
  cloneWorld,
  isLive,
  POD,
  type SmallWorld,
  stateNow,
  versionNow,
  type WorldCell,
} from "./world.ts";

/** More writes of one aggregator without a change of its world are too many. */
const WRITES = 7;

export class Continuation {
  readonly #admissions: AdmissionDecisions;
  readonly #counts: CountDecisions;
  readonly #minAvailable: number;

  constructor(admissions: AdmissionDecisions, counts: CountDecisions, minAvailable: number) {
    this.#admissions = admissions;
    this.#counts = counts;
    this.#minAvailable = minAvailable;
  }

  /** What is not as it should be in the end. */
  violation(from: SmallWorld): BrokenInvariant | undefined {
    const world = cloneWorld(from);
    for (const cell of world.cells) {
      leaveNewestLeader(cell);
      for (const leader of cell.aggregators) if (leader.isLost) notice(cell, leader);
      const late = this.#account(world, cell, "none") ?? leftOfTheDead(cell);
      if (late !== undefined) return late;
      for (const pod of cell.pods) {
        pod.unrecorded.fill(false);
        for (const record of pod.reservation?.records ?? [])
          for (const nonce of record?.nonces ?? []) nonce.inFlight = false;
      }
      const unsettled = this.#account(world, cell, "list");
      if (unsettled !== undefined) return unsettled;
      if (cell.pods.some(({ reservation }) => reservation !== undefined))
        return "L1: a record remains a settle period after everything has ended";
      if (cell.isOnHold) return "L1: a hold remains a settle period after everything has ended";
    }
    return this.#spare(world);
  }

  #account(world: SmallWorld, cell: WorldCell, proof: Proof): BrokenInvariant | undefined {
    for (let writes = 0; writes < WRITES; writes++) {
      const account = this.#counts.account(world, cell, 0, cell.end, proof);
      const violation = storeAccount(cell, 0, cell.end, account);
      if (violation !== undefined) return violation;
      // The first account after an epoch was seen adopts it, and the next one writes.
      if (account.written === undefined && writes > 0) return undefined;
    }
    return "L1: an aggregator writes again and again";
  }

  #spare(world: SmallWorld): BrokenInvariant | undefined {
    const available = availableNow(world);
    const counted = world.cells.reduce((sum, cell) => sum + cell.available, 0);
    if (counted !== available) return `L2: ${counted} pods are counted in the end, and ${available} are available`;
    const minimum = this.#minAvailable + (world.edits.isMinimumRaised ? 1 : 0);
    if (available <= minimum) return undefined;
    for (const [cell, { pods }] of world.cells.entries())
      for (const [pod, one] of pods.entries()) {
        if (stateNow(one) !== POD.Ready || one.isOutside) continue;
        const review = { state: POD.Ready, version: versionNow(one), isOvertaken: false };
        const allowance = this.#admissions.admit(world, { cell, pod, operation: 0, ...review });
        if (allowance === undefined) return "L3: a pod that can be spared in the end is denied";
      }
    return undefined;
  }
}

/** L1: R1 and R2 need nothing but the events, where the leader knows the epoch. */
function leftOfTheDead({
  pods,
  end,
  epoch,
  isCountLost,
  aggregators: [leader],
}: WorldCell): BrokenInvariant | undefined {
  if (leader === undefined || leader.adoptedEpoch < epoch || isCountLost) return undefined;
  for (const pod of pods) {
    if (pod.reservation === undefined) continue;
    // A version that was reviewed before a restore is not reached by its events: a LIST settles it.
    const isReached = pod.reservation.records.some((record) => record !== undefined && record.version <= end);
    if (!isLive(stateNow(pod)) && isReached)
      return "L1: the record of a dead pod remains although its events were received";
    const deletion = pod.reservation.records[0];
    if (deletion !== undefined && deletion.version < versionNow(pod))
      return "L1: the record of a superseded DELETE remains although the event was received";
  }
  return undefined;
}

function leaveNewestLeader(cell: WorldCell): void {
  const removed = cell.aggregators.length - 1;
  cell.aggregators.splice(0, removed);
  for (const { reservation } of cell.pods)
    for (const record of reservation?.records ?? [])
      for (const { seen } of record?.nonces ?? []) seen.splice(0, removed);
}
