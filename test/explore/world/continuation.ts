/**
 * The fair end of a world (docs/design.md#invariants, liveness): faults and requests stop, and every component does
 * what it does by itself. Then no record remains, the estimate is the truth, and a pod that can be spared is spared.
 */
import type { CountDecisions, Proof } from "../protocol/aggregator.ts";
import type { AdmissionDecisions } from "../protocol/webhook.ts";
import type { BrokenInvariant } from "./invariants.ts";
import { meetAll, storeCount } from "./stores.ts";
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
const WRITES = 3;

export class Continuation {
  readonly #webhook: AdmissionDecisions;
  readonly #aggregator: CountDecisions;
  readonly #minAvailable: number;

  constructor(webhook: AdmissionDecisions, aggregator: CountDecisions, minAvailable: number) {
    this.#webhook = webhook;
    this.#aggregator = aggregator;
    this.#minAvailable = minAvailable;
  }

  /** What is not as it should be in the end. */
  violation(from: SmallWorld): BrokenInvariant | undefined {
    const world = cloneWorld(from);
    for (const cell of world.cells) {
      const late = this.#catchUp(cell) ?? leftOfTheDead(cell);
      if (late !== undefined) return late;
      for (const pod of cell.pods) {
        pod.unrecorded.fill(false);
        for (const record of pod.reservation?.records ?? [])
          for (const nonce of record?.nonces ?? []) nonce.inFlight = false;
      }
      const unsettled = this.#account(cell, "list");
      if (unsettled !== undefined) return unsettled;
      if (cell.pods.some(({ reservation }) => reservation !== undefined))
        return "L1: a record remains a settle period after everything has ended";
    }
    return this.#spare(world);
  }

  /** The newest leader's stream has shown everything. */
  #catchUp(cell: WorldCell): BrokenInvariant | undefined {
    const removed = cell.aggregators.length - 1;
    cell.aggregators.splice(0, removed);
    for (const { reservation } of cell.pods)
      for (const record of reservation?.records ?? [])
        for (const { seen } of record?.nonces ?? []) seen.splice(0, removed);
    return this.#account(cell, "none");
  }

  #account(cell: WorldCell, proof: Proof): BrokenInvariant | undefined {
    for (let writes = 0; writes < WRITES; writes++) {
      const { written } = this.#aggregator.account(cell, 0, cell.end, proof);
      meetAll(cell, 0);
      if (written === undefined) return undefined;
      const violation = storeCount(cell, 0, cell.end, written);
      if (violation !== undefined) return violation;
    }
    return "L1: an aggregator writes again and again";
  }

  #spare(world: SmallWorld): BrokenInvariant | undefined {
    const available = availableNow(world);
    const counted = world.cells.reduce((sum, cell) => sum + cell.available, 0);
    if (counted !== available) return `L2: ${counted} pods are counted in the end, and ${available} are available`;
    if (available <= this.#minAvailable) return undefined;
    for (const [cell, { pods }] of world.cells.entries())
      for (const [pod, one] of pods.entries()) {
        if (stateNow(one) !== POD.Ready) continue;
        const review = { state: POD.Ready, version: versionNow(one), isOvertaken: false };
        const allowance = this.#webhook.admit(world.cells, { cell, pod, operation: 0, ...review });
        if (allowance === undefined) return "L3: a pod that can be spared in the end is denied";
      }
    return undefined;
  }
}

/** L1: R1 and R2 need nothing but the events. */
function leftOfTheDead({ pods }: WorldCell): BrokenInvariant | undefined {
  for (const pod of pods) {
    if (pod.reservation === undefined) continue;
    if (!isLive(stateNow(pod))) return "L1: the record of a dead pod remains although its events were received";
    const deletion = pod.reservation.records[0];
    if (deletion !== undefined && deletion.version !== versionNow(pod))
      return "L1: the record of a superseded DELETE remains although the event was received";
  }
  return undefined;
}
