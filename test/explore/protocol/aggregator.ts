/**
 * What an aggregator decides: the shipping `planReconcile` on the stored form and a snapshot. It is pure, so that each
 * distinct input is decided once and remembered.
 */
import { planReconcile } from "../../../controllers/aggregator/settling/reconcile-plan.ts";
import { specFacts } from "../../../shared/decide/availability/spec-facts.ts";
import { FirstSeenTimes } from "../../../shared/decide/settling/first-seen.ts";
import { checkHistory } from "../../../shared/decide/settling/lost-history.ts";
import type { Evidence } from "../../../shared/decide/settling/settle-rules.ts";
import { cellEntry } from "../../../shared/schema/podprotector.ts";
import { NOW_MS } from "../../support/decide/fixtures.ts";
import {
  isPresent,
  isRequested,
  type Nonce,
  type PodStage,
  type PodView,
  type SmallWorld,
  stateAt,
  versionAt,
  viewOf,
  type WorldCell,
  type WorldPod,
  type WorldReservation,
} from "../world/world.ts";
import {
  type CellForm,
  cellID,
  editsKey,
  entryForm,
  entryKey,
  HOLD,
  nonceText,
  podOf,
  positionText,
  type RecordForm,
  type ReservationForm,
  readCell,
  type Specs,
  storedProtector,
  throughJson,
  uidOf,
  wallMs,
} from "./stored.ts";

/**
 * What an aggregator knows beside its snapshot: nothing, the LIST that its stream has just reached, or the GET of a pod
 * that has just found it alive. Both were sent a settle period after the requests had ended that are not in flight.
 */
export type Proof = "none" | "list" | number;

export interface Account {
  /** The snapshot is older than the stored count, so nothing is written. */
  readonly isStale: boolean;
  /** Admissions may be lost: the epoch rises, and the cell goes on hold. */
  readonly isLost: boolean;
  /** The stored count is newer than a quorum read: the cell was restored. */
  readonly isRestoreFound: boolean;
  readonly adoptedEpoch: number;
  /** The cell after the write; undefined when there is nothing to write. */
  readonly written: CellForm | undefined;
  /** The same for equal writes. */
  readonly text: string;
}

const RESTORE = { id: "restore", reason: "CellRestored" } as const;
const SETTLE_MS = 1_000;
/** The aggregator's monotonic clock: now, when its proof was sent, and when it first saw what. */
const NOW_MONOTONIC_MS = 10_000;
const PROOF_MS = 9_500;
const SEEN_LONG_AGO_MS = 1_000;
const SEEN_LATELY_MS = 9_200;

/** What an account reads of a world, beside its cell. */
type Counted = Pick<SmallWorld, "edits" | "clock">;

/** How far the newest admission of a record is. */
type Age = "unseen" | "lately" | "longAgo";

interface Input {
  readonly cell: CellForm;
  readonly aggregator: WorldCell["aggregators"][number];
  /** As the snapshot shows them. */
  readonly pods: readonly { readonly state: PodStage; readonly isOutside: boolean }[];
  readonly holdAge: Age;
  /** Of the records, by pod and operation. */
  readonly ages: readonly (readonly Age[])[];
  readonly proof: Proof;
  /** By pod: the stream was silent since an admission. */
  readonly unheard: readonly boolean[];
}

export class CountDecisions {
  readonly #specs: Specs;
  readonly #accounts = new Map<string, Account>();

  constructor(specs: Specs) {
    this.#specs = specs;
  }

  /** What aggregator number `which` makes of the stored cell, with the snapshot at `position`. */
  account(world: Counted, cell: WorldCell, which: number, position: number, proof: Proof): Account {
    const key = keyOf(world, cell, which, position, proof);
    const known = this.#accounts.get(key);
    if (known !== undefined) return known;
    const account = this.#account(world, inputOf(cell, which, position, proof));
    this.#accounts.set(key, account);
    return account;
  }

  #account({ edits, clock }: Counted, input: Input): Account {
    const { cell, aggregator, proof } = input;
    const protector = storedProtector([cell], this.#specs.of(edits));
    const stored = cellEntry(protector, cellID(0));
    const present = input.pods.map(({ state }, pod) => (isPresent(state) ? podOf(pod, state) : undefined));
    const pods = present.filter((pod) => pod !== undefined);
    const counted = present.filter((_, pod) => !(edits.isSelectorEdited && input.pods[pod]?.isOutside === true));
    const position = positionText(0);
    // A LIST that was sent after the epoch was seen adopts it.
    const isAdopting = proof === "list" && aggregator.seenEpoch >= cell.epoch;
    const adoptedEpoch = isAdopting ? Math.max(aggregator.adoptedEpoch, cell.epoch) : aggregator.adoptedEpoch;
    const { uid: protectorUID, resourceVersion: protectorVersion } = protector.metadata;
    const nowMs = wallMs(clock);
    const history = checkHistory({
      protectorUID,
      protectorVersion,
      stored,
      known: aggregator.isKnowing
        ? {
            protectorUID,
            protectorVersion,
            wasCounted: aggregator.knewCounts,
            epoch: aggregator.knownEpoch,
            position: undefined,
          }
        : undefined,
      isMarkedRestored: false,
      etcdRestore: aggregator.hasIncident ? RESTORE : undefined,
      token: () => "token",
      nowMs,
    });
    const plan = planReconcile({
      protector,
      isSelectorCurrent: true,
      historyInDoubt: false,
      problems: [],
      etcdRestoreID: aggregator.hasIncident ? RESTORE.id : undefined,
      settings: { rateMs: undefined, staleAfterMs: Number.POSITIVE_INFINITY },
      state: {
        staleSinceMs: proof === "list" && aggregator.isKnowing ? SEEN_LONG_AGO_MS : undefined,
        unadoptedEpoch: undefined,
        windowSinceMs: undefined,
        yieldsUntilMs: Number.NEGATIVE_INFINITY,
      },
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
        pods: counted.filter((pod) => pod !== undefined),
        history,
        adoptedEpoch,
        nowMs,
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
    const found = { isStale, isLost: history.lost !== undefined, isRestoreFound: plan.isCellRestored, adoptedEpoch };
    if (plan.status === undefined) return { ...found, written: undefined, text: "" };
    const after = throughJson({ ...protector, status: plan.status });
    const written = readCell(after, 0, input.pods.length);
    return { ...found, written, text: JSON.stringify(written) };
  }
}

/** False where a proof tells this aggregator nothing of these pods: it has met none of their admissions. */
export function isProvable(pods: readonly WorldPod[], which: number): boolean {
  for (const { reservation } of pods)
    for (const record of reservation?.records ?? [])
      if (record !== undefined && ageOf(record.nonces, which) !== "unseen") return true;
  return false;
}

function seenOf({ ages, holdAge }: Input): FirstSeenTimes {
  const seen = new FirstSeenTimes();
  if (holdAge !== "unseen") seen.observe(`hold/${HOLD}`, holdAge === "longAgo" ? SEEN_LONG_AGO_MS : SEEN_LATELY_MS);
  for (const [pod, ofPod] of ages.entries())
    for (const [operation, age] of ofPod.entries())
      if (age !== "unseen")
        seen.observe(`nonce/${nonceText(operation, pod, 0)}`, age === "longAgo" ? SEEN_LONG_AGO_MS : SEEN_LATELY_MS);
  return seen;
}

function evidenceOf({ proof, unheard }: Input): Evidence {
  return {
    reachedSentMs: proof === "list" ? PROOF_MS : undefined,
    heardMs: (uid) => (unheard.some((is, pod) => is && (uid ?? uidOf(pod)) === uidOf(pod)) ? 0 : NOW_MONOTONIC_MS + 1),
    aliveSentMs: (uid) => (typeof proof === "number" && uid === uidOf(proof) ? PROOF_MS : undefined),
  };
}

function inputOf(cell: WorldCell, which: number, position: number, proof: Proof): Input {
  const aggregator = cell.aggregators[which];
  if (aggregator === undefined) throw new Error(`the cell has no aggregator ${which}`);
  return {
    cell: {
      ...entryForm(cell),
      position: Math.sign(cell.position - position),
      reservations: cell.pods.map((pod, index) => formOf(pod, viewOf(pod, aggregator.isLost), index, position)),
    },
    aggregator,
    pods: cell.pods.map((pod) => ({
      state: stateAt(viewOf(pod, aggregator.isLost), position),
      isOutside: pod.isOutside,
    })),
    unheard: cell.pods.map((pod) => aggregator.isLost && isAfterRestore(pod)),
    holdAge: holdAgeOf(cell, aggregator),
    ages: cell.pods.map(({ reservation }) => agesOf(reservation, which)),
    proof,
  };
}

/** A settle period after the hold was seen, no request is in flight that was admitted before. */
function holdAgeOf({ pods }: WorldCell, { sawHold }: Input["aggregator"]): Age {
  if (!sawHold) return "unseen";
  return pods.some(isRequested) ? "lately" : "longAgo";
}

function isAfterRestore({ reservation }: WorldPod): boolean {
  for (const record of reservation?.records ?? [])
    for (const nonce of record?.nonces ?? []) if (nonce.isAfterRestore) return true;
  return false;
}

function formOf(pod: WorldPod, view: PodView, index: number, position: number): ReservationForm | undefined {
  if (pod.reservation === undefined) return undefined;
  const { weight, packed } = pod.reservation;
  const records = pod.reservation.records.map((record, operation): RecordForm | undefined => {
    if (record === undefined) return undefined;
    const nonces = [nonceText(operation, index, 0)];
    return { version: relative(view, record.version, position), paid: record.paid, nonces };
  });
  return { weight, packed, records };
}

/** A recorded version is older than that of the snapshot, the same, or newer than the snapshot. */
function relative(pod: PodView, version: number, position: number): number {
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

function keyOf({ edits, clock }: Counted, cell: WorldCell, which: number, position: number, proof: Proof): string {
  const aggregator = cell.aggregators[which];
  if (aggregator === undefined) return "";
  const { isKnowing, knewCounts, isLost, hasIncident } = aggregator;
  let key = `${proof}${editsKey(edits)}${clock}${entryKey(cell)}:${Math.sign(cell.position - position)}`;
  key += `${isKnowing ? "k" : "-"}${knewCounts ? "c" : "-"}${hasIncident ? "i" : "-"}`;
  key += `${aggregator.knownEpoch},${aggregator.seenEpoch},${aggregator.adoptedEpoch}`;
  if (cell.isOnHold) key += holdAgeOf(cell, aggregator).charAt(1);
  for (const pod of cell.pods) {
    const view = viewOf(pod, isLost);
    key += `|${stateAt(view, position)}${pod.isOutside ? "o" : ""}${isLost && isAfterRestore(pod) ? "u" : ""}`;
    const { reservation } = pod;
    if (reservation === undefined) continue;
    key += reservation.packed ? `p${reservation.weight}` : reservation.weight;
    for (const record of reservation.records) {
      if (record === undefined) {
        key += ".";
        continue;
      }
      key += `${record.paid ? "$" : "0"}${relative(view, record.version, position)}`;
      if (proof !== "none") key += ageOf(record.nonces, which).charAt(1);
    }
  }
  return key;
}
