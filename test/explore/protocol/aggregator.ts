/**
 * What an aggregator decides: the shipping `planReconcile` on the stored form and a snapshot. It is pure, so that each
 * distinct input is decided once and remembered.
 */
import { planReconcile } from "../../../controllers/aggregator/settling/reconcile-plan.ts";
import { specFacts } from "../../../shared/decide/availability/spec-facts.ts";
import { FirstSeenTimes } from "../../../shared/decide/settling/first-seen.ts";
import { checkHistory } from "../../../shared/decide/settling/lost-history.ts";
import type { Evidence } from "../../../shared/decide/settling/settle-rules.ts";
import { cellEntry, type PodProtectorSpec } from "../../../shared/schema/podprotector.ts";
import { NOW_MS } from "../../support/decide/fixtures.ts";
import {
  isPresent,
  type Nonce,
  type PodStage,
  stateAt,
  versionAt,
  type WorldCell,
  type WorldPod,
  type WorldReservation,
} from "../world/world.ts";
import {
  type CellForm,
  cellID,
  nonceText,
  podOf,
  positionText,
  type RecordForm,
  type ReservationForm,
  readCell,
  storedProtector,
  throughJson,
  uidOf,
} from "./stored.ts";

/**
 * What an aggregator knows beside its snapshot: nothing, the LIST that its stream has just reached, or the GET of a pod
 * that has just found it alive. Both were sent a settle period after the requests had ended that are not in flight.
 */
export type Proof = "none" | "list" | number;

export interface Account {
  /** The snapshot is older than the stored count, so nothing is written. */
  readonly isStale: boolean;
  /** The cell after the write; undefined when there is nothing to write. */
  readonly written: CellForm | undefined;
}

const SETTLE_MS = 1_000;
/** The aggregator's monotonic clock: now, when its proof was sent, and when it first saw what. */
const NOW_MONOTONIC_MS = 10_000;
const PROOF_MS = 9_500;
const SEEN_LONG_AGO_MS = 1_000;
const SEEN_LATELY_MS = 9_200;

/** How far the newest admission of a record is. */
type Age = "unseen" | "lately" | "longAgo";

interface Input {
  readonly cell: CellForm;
  /** The states in the snapshot, and the ages of the records, by pod and operation. */
  readonly states: readonly PodStage[];
  readonly ages: readonly (readonly Age[])[];
  readonly proof: Proof;
}

export class CountDecisions {
  readonly #spec: PodProtectorSpec;
  readonly #accounts = new Map<string, Account>();

  constructor(spec: PodProtectorSpec) {
    this.#spec = spec;
  }

  /** What aggregator number `which` makes of the stored cell, with the snapshot at `position`. */
  account(cell: WorldCell, which: number, position: number, proof: Proof): Account {
    const key = keyOf(cell, which, position, proof);
    const known = this.#accounts.get(key);
    if (known !== undefined) return known;
    const account = this.#account(inputOf(cell, which, position, proof));
    this.#accounts.set(key, account);
    return account;
  }

  #account(input: Input): Account {
    const protector = storedProtector([input.cell], this.#spec);
    const stored = cellEntry(protector, cellID(0));
    const pods = input.states.flatMap((state, pod) => (isPresent(state) ? [podOf(pod, state)] : []));
    const position = positionText(0);
    const history = checkHistory({
      protectorUID: protector.metadata.uid,
      protectorVersion: protector.metadata.resourceVersion,
      stored,
      known: undefined,
      isMarkedRestored: false,
      etcdRestore: undefined,
      token: () => "token",
      nowMs: NOW_MS,
    });
    const plan = planReconcile({
      protector,
      isSelectorCurrent: true,
      historyInDoubt: false,
      problems: [],
      etcdRestoreID: undefined,
      settings: { rateMs: undefined, staleAfterMs: Number.POSITIVE_INFINITY },
      state: { lastWriteMs: undefined, staleSinceMs: undefined, unadoptedEpoch: undefined, windowSinceMs: undefined },
      account: {
        spec: specFacts(protector.spec),
        cellID: cellID(0),
        stored,
        snapshot: {
          position,
          positionOf: () => position,
          podByUID: (uid) => pods.find((pod) => pod.uid === uid),
          podByName: (name, isWanted) => pods.find((pod) => pod.name === name && isWanted(pod)),
          settledGeneration: () => undefined,
          unconfirmedGeneration: () => undefined,
          declinedGeneration: () => undefined,
        },
        pods,
        history,
        adoptedEpoch: 0,
        nowMs: NOW_MS,
        monotonicMs: NOW_MONOTONIC_MS,
        settleMs: SETTLE_MS,
        seen: seenOf(input),
        evidence: evidenceOf(input),
        algorithm: "exact",
        lastEventMs: NOW_MS,
        isHeartbeatDue: false,
      },
    });
    const isStale = plan.result.stale !== undefined;
    if (plan.status === undefined) return { isStale, written: undefined };
    const after = throughJson({ ...protector, status: plan.status });
    return { isStale, written: readCell(after, 0, input.states.length) };
  }
}

function seenOf({ ages }: Input): FirstSeenTimes {
  const seen = new FirstSeenTimes();
  for (const [pod, ofPod] of ages.entries())
    for (const [operation, age] of ofPod.entries())
      if (age !== "unseen")
        seen.observe(`nonce/${nonceText(operation, pod, 0)}`, age === "longAgo" ? SEEN_LONG_AGO_MS : SEEN_LATELY_MS);
  return seen;
}

function evidenceOf({ proof }: Input): Evidence {
  return {
    reachedSentMs: proof === "list" ? PROOF_MS : undefined,
    heardMs: () => Number.POSITIVE_INFINITY,
    aliveSentMs: (uid) => (typeof proof === "number" && uid === uidOf(proof) ? PROOF_MS : undefined),
  };
}

function inputOf(cell: WorldCell, which: number, position: number, proof: Proof): Input {
  const { total, available, pods } = cell;
  return {
    cell: {
      ...{ total, available },
      position: Math.sign(cell.position - position),
      reservations: pods.map((pod, index) => formOf(pod, index, position)),
    },
    states: pods.map((pod) => stateAt(pod, position)),
    ages: pods.map(({ reservation }) => agesOf(reservation, which)),
    proof,
  };
}

function formOf(pod: WorldPod, index: number, position: number): ReservationForm | undefined {
  if (pod.reservation === undefined) return undefined;
  const { weight, packed } = pod.reservation;
  const records = pod.reservation.records.map((record, operation): RecordForm | undefined => {
    if (record === undefined) return undefined;
    const nonces = [nonceText(operation, index, 0)];
    return { version: relative(pod, record.version, position), paid: record.paid, nonces };
  });
  return { weight, packed, records };
}

/** A recorded version is older than that of the snapshot, the same, or newer than the snapshot. */
function relative(pod: WorldPod, version: number, position: number): number {
  if (version > position) return 1;
  return isPresent(stateAt(pod, position)) && version < versionAt(pod, position) ? -1 : 0;
}

function agesOf(reservation: WorldReservation | undefined, which: number): readonly Age[] {
  return (reservation?.records ?? []).map((record) => ageOf(record?.nonces ?? [], which));
}

function ageOf(nonces: readonly Nonce[], which: number): Age {
  if (nonces.some(({ seen }) => seen[which] !== true)) return "unseen";
  return nonces.some(({ inFlight }) => inFlight) ? "lately" : "longAgo";
}

function keyOf(cell: WorldCell, which: number, position: number, proof: Proof): string {
  let key = `${proof},${cell.total},${cell.available},${Math.sign(cell.position - position)}`;
  for (const pod of cell.pods) {
    key += `|${stateAt(pod, position)}`;
    const { reservation } = pod;
    if (reservation === undefined) continue;
    key += reservation.packed ? `p${reservation.weight}` : reservation.weight;
    for (const record of reservation.records) {
      if (record === undefined) {
        key += ".";
        continue;
      }
      key += `${record.paid ? "$" : "0"}${relative(pod, record.version, position)}`;
      if (proof !== "none") key += ageOf(record.nonces, which).charAt(1);
    }
  }
  return key;
}
