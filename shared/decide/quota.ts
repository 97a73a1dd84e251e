/**
 * The webhook's decision (design 5.3, 6): may this pod be disrupted, as far as one protector is concerned? Pure: everything it
 * knows is the protector's state and the request. `apply` makes the reservation in a working copy, `encodeStatus` writes it.
 */
import { PRE_ACTIVITY_PREFIX } from "../schema/annotations.ts";
import type { Pod } from "../schema/pod.ts";
import type { Operation } from "../schema/podprotector.ts";
import { hasReached } from "../schema/resource-version.ts";
import { classifyPod, type PodClass } from "./availability/availability.ts";
import { isDeletionPaid, type Reservation, type Weight } from "./ledger/reservation.ts";
import { oldestComponent } from "./position.ts";
import type { CellState, ProtectorState } from "./state/cell-state.ts";
import { type Criterion, estimate } from "./state/estimate.ts";
import { cellOf } from "./state/protector-state.ts";
import { parseMicros, parseMs } from "./time.ts";

export type { ProtectorState } from "./state/cell-state.ts";
export type { Criterion } from "./state/estimate.ts";
export { cloneState, encodeStatus, parseProtector } from "./state/protector-state.ts";

/**
 * No reservation is added to a history that may have more bytes (design 5.5, S10): the object stays under 1 MiB whatever the names
 * are. Usual names take a third of what is reckoned here, so that some 5,000 reservations fit.
 */
export const HARD_CAP_BYTES = 768 * 1024;
/** No pin is added beyond this: the quota does not bound pins, and they must leave room for reservations. */
export const PIN_CAP_BYTES = 576 * 1024;

export interface DisruptionRequest {
  readonly cell: string;
  readonly operation: Operation;
  /** Of this review; without commas. */
  readonly nonce: string;
  /** The pod as it is reviewed: `oldObject`, or the live read of an eviction. */
  readonly pod: Pod;
  /** The pod says that it may go whatever the count (design 12, `force-delete`). */
  readonly forced: boolean;
  readonly criterion: Criterion;
  /** RFC 3339, of this admission. */
  readonly startTime: string;
  /** RFC 3339, two settle periods ago: a reservation that was first made before this is not refreshed again. */
  readonly staleRefreshBefore: string;
}

/** Why a request passes. */
export type AllowReason =
  /** Quota was there and is reserved. */
  | "Reserved"
  /** Its reservation lives and is paid for. */
  | "Repeated"
  /** Ready, but not for long enough to be counted; pinned. */
  | "PinnedImmature"
  /** An eviction, or a change in place, of a pod that is not available; pinned. */
  | "PinnedUnavailable"
  /** The same of a Pending pod, which may have started since. */
  | "PinnedPending"
  | "Unavailable"
  | "Pending"
  | "Finished"
  | "Terminating"
  | "Mirror"
  /** Refused by every rule, let go by its annotation. */
  | "Forced"
  | "Suspended"
  /** The protector does not ask for this operation (`spec.protectedOperations`). */
  | "NotProtected";

export type RefuseCause =
  | "AtMinimum"
  | "Reserved"
  | "UnhealthyBudget"
  | "NotCounted"
  | "OnHold"
  | "ConcurrentLag"
  | "HistoryFull"
  | "RefreshedTooLong"
  /** The pod's annotations hold it back until something is done (design 9). */
  | "PreActivity";

/** What the decision rests on, for the text of a refusal. */
export interface QuotaFacts {
  readonly minAvailable: number;
  /** `Act` by the request's criterion. */
  readonly available: number;
  /** What of it is in cells on hold, or counted for another spec, and does not count. */
  readonly unreliable: number;
  /** Sum of weights (by another criterion: number of reservations). */
  readonly reserved: number;
  /** `Est`. */
  readonly estimated: number;
  /** What has to be done first, where that is the cause. */
  readonly preActivities?: readonly string[];
}

/** What is written for an admission: the weight that its pod has at least from then on, and whether it has used quota. */
export interface RecordChange {
  readonly weight: Weight;
  readonly paid: boolean;
}

export interface Allowed {
  readonly allowed: true;
  readonly reason: AllowReason;
  readonly write: "none" | RecordChange;
  readonly facts: QuotaFacts;
}

export interface Refused {
  readonly allowed: false;
  /** A denial stands until more pods are available; busy passes by itself. Both are answered 429. */
  readonly verdict: "Denial" | "Busy";
  readonly cause: RefuseCause;
  readonly facts: QuotaFacts;
}

export type Decision = Allowed | Refused;

/** A decision without the facts, which are the same for every rule. */
type Verdict = Omit<Allowed, "facts"> | Omit<Refused, "facts">;

/** One request before one protector, with what every rule asks for. */
interface Question {
  readonly state: ProtectorState;
  readonly request: DisruptionRequest;
  readonly cell: CellState | undefined;
  readonly podClass: PodClass;
  /** What the pod already holds in its cell. */
  readonly held: Reservation | undefined;
  readonly facts: QuotaFacts;
}

const PINNED: RecordChange = { weight: 0, paid: false };
const RESERVED: RecordChange = { weight: 1, paid: true };

/** Decides `request` on `state`, which is not changed. */
export function decide(state: ProtectorState, request: DisruptionRequest): Decision {
  const cell = state.cells.get(request.cell);
  const question: Question = {
    state,
    request,
    cell,
    podClass: classifyPod(request.pod, state.spec, publishedMaturity(cell)),
    held: cell?.ledger.get(request.pod.uid, request.pod.name),
    facts: factsOf(state, request.criterion),
  };
  const verdict = verdictOf(question);
  const final = verdict.allowed || !request.forced ? verdict : force(question);
  const facts = !final.allowed && final.cause === "PreActivity" ? withPreActivities(question) : question.facts;
  return { ...final, facts };
}

function withPreActivities({ facts, request }: Question): QuotaFacts {
  const preActivities = preActivitiesOf(request.pod).map((annotation) => annotation.slice(PRE_ACTIVITY_PREFIX.length));
  return { ...facts, preActivities };
}

/** Annotations that hold a disruption back until they are removed (design 9, x-pdb's name). */
export function preActivitiesOf({ annotations }: Pod): readonly string[] {
  if (annotations === undefined) return [];
  return Object.keys(annotations).filter((annotation) => annotation.startsWith(PRE_ACTIVITY_PREFIX));
}

function verdictOf(question: Question): Verdict {
  const { state, request, podClass } = question;
  if (parseMs(request.startTime) < state.spec.suspendedUntilMs) return free("Suspended");
  if (!state.spec.protectedOperations.includes(request.operation)) return free("NotProtected");
  switch (podClass) {
    case "Finished":
    case "Terminating":
    case "Mirror":
      return free(podClass);
    case "Pending":
      return request.operation === "DELETE" ? free("Pending") : pinUnavailable(question, "PinnedPending");
    default:
      return heldBack(question) ?? decideLiving(question, podClass);
  }
}

/** A pod that runs: what is left to do before it goes is done first, whether it is available or not. */
function heldBack({ request }: Question): Verdict | undefined {
  // A denial and not busy: it ends when somebody has done something, and a client that asks each second does not speed that up.
  return preActivitiesOf(request.pod).length === 0 ? undefined : refuse("Denial", "PreActivity");
}

function decideLiving(question: Question, podClass: "Unavailable" | "Immature" | "Available"): Verdict {
  if (podClass === "Unavailable") return decideUnavailable(question);
  return podClass === "Immature" ? pinImmature(question) : decideAvailable(question);
}

/** A Ready, mature pod: by quota. */
function decideAvailable(question: Question): Verdict {
  const { state, request, held, facts } = question;
  const unready = refuseUncounted(question);
  if (unready !== undefined) return unready;
  if (held !== undefined && isRefreshedTooLong(held, request)) return refuse("Busy", "RefreshedTooLong");
  if (held !== undefined && isRepeat(held, request.operation)) {
    return { allowed: true, reason: "Repeated", write: RESERVED };
  }
  const delta = isSubtracted(held, request.criterion) ? 0 : 1;
  if (facts.estimated - delta < facts.minAvailable) {
    return facts.available <= facts.minAvailable ? refuse("Denial", "AtMinimum") : refuse("Busy", "Reserved");
  }
  if (held?.weight !== 1 && exceedsLag(state)) return refuse("Busy", "ConcurrentLag");
  if (held === undefined && historyBytes(state) > HARD_CAP_BYTES) return refuse("Busy", "HistoryFull");
  return { allowed: true, reason: "Reserved", write: RESERVED };
}

/** Not available: needs no quota, and under `IfHealthyBudget` a healthy protector. */
function decideUnavailable(question: Question): Verdict {
  const { state, request, facts } = question;
  if (state.spec.unhealthyPodPolicy === "IfHealthyBudget" && facts.estimated < facts.minAvailable) {
    const unready = refuseUncounted(question);
    if (unready !== undefined) return unready;
    return refuse(facts.available < facts.minAvailable ? "Denial" : "Busy", "UnhealthyBudget");
  }
  // A DELETE commits at the reviewed version, at which the pod is unavailable, or is reviewed again.
  return request.operation === "DELETE" ? free("Unavailable") : pinUnavailable(question);
}

/**
 * An eviction is not bound to the version, and the containers of a changed pod restart some time after the change: the pod may be
 * available by then, so both leave a record.
 */
function pinUnavailable(
  question: Question,
  reason: "PinnedUnavailable" | "PinnedPending" = "PinnedUnavailable",
): Verdict {
  return refusePin(question) ?? { allowed: true, reason, write: unavailablePin(question) };
}

/** The pod matures without a new version, so even a DELETE leaves a record. The published count does not contain the pod. */
function pinImmature(question: Question): Verdict {
  return refusePin(question) ?? { allowed: true, reason: "PinnedImmature", write: PINNED };
}

/** A snapshot that is older than what was read live may count the pod; until it has caught up, the pin subtracts it. */
function unavailablePin({ cell, request }: Question): RecordChange {
  const position = oldestComponent(cell?.aggregation?.resourceVersion);
  const isCaughtUp = hasReached(position, request.pod.resourceVersion);
  return { weight: isCaughtUp ? 0 : 1, paid: false };
}

function refusePin(question: Question): Verdict | undefined {
  const unready = refuseUncounted(question);
  if (unready !== undefined) return unready;
  const isFull = question.held === undefined && historyBytes(question.state) > PIN_CAP_BYTES;
  return isFull ? refuse("Busy", "HistoryFull") : undefined;
}

/** Where nobody counts, or history may be lost, nothing can be promised and nothing is written (design 5.3). */
function refuseUncounted({ cell }: Question): Verdict | undefined {
  if (cell === undefined || !cell.isCounted) return refuse("Busy", "NotCounted");
  return cell.isOnHold ? refuse("Busy", "OnHold") : undefined;
}

/** The annotation lets go what every rule refuses; the reservation is made all the same, unless there is no room for it. */
function force(question: Question): Verdict {
  const { podClass, request, held, state } = question;
  if (podClass === "Unavailable" && request.operation === "DELETE") return free("Forced");
  const write = podClass === "Available" ? RESERVED : podClass === "Immature" ? PINNED : unavailablePin(question);
  // Whatever it is that refused: a history that is full says so last of all.
  const isFull = held === undefined && historyBytes(state) > (write.paid ? HARD_CAP_BYTES : PIN_CAP_BYTES);
  return isFull ? free("Forced") : { allowed: true, reason: "Forced", write };
}

/**
 * The pod is subtracted already and its admission was paid for: it is admitted whatever the estimate (design 5.3). A deletion is
 * paid for by an eviction and the other way round (design 6); a restart of containers pays for itself only.
 */
function isRepeat(held: Reservation, operation: Operation): boolean {
  if (held.weight !== 1) return false;
  return held.records.get(operation)?.paid === true || (operation !== "UPDATE" && isDeletionPaid(held));
}

/** Whether the estimate has the pod subtracted: by weight, and by any reservation where another criterion counts. */
function isSubtracted(held: Reservation | undefined, criterion: Criterion): boolean {
  return criterion === "Available" ? held?.weight === 1 : held !== undefined;
}

/** A client that is refused elsewhere for hours must not hold quota for hours (design 5.3). */
function isRefreshedTooLong(
  { records }: Reservation,
  { operation, pod, staleRefreshBefore }: DisruptionRequest,
): boolean {
  const limitMicros = parseMicros(staleRefreshBefore);
  for (const [held, { firstMicros, podGeneration }] of records) {
    if ((held === "UPDATE") !== (operation === "UPDATE")) continue;
    // A change that was committed may take its time, and the pod may be changed again meanwhile.
    if (held === "UPDATE" && podGeneration !== undefined && pod.generation > podGeneration) continue;
    if (firstMicros < limitMicros) return true;
  }
  return false;
}

function exceedsLag(state: ProtectorState): boolean {
  const { maxConcurrentLag } = state.spec;
  return maxConcurrentLag !== undefined && estimate(state).reserved + 1 > maxConcurrentLag;
}

function historyBytes(state: ProtectorState): number {
  let bytes = 0;
  for (const { ledger } of state.cells.values()) bytes += ledger.bytesAtMost;
  return bytes;
}

function publishedMaturity(
  cell: CellState | undefined,
): { cutoffMs: number; position: string | undefined } | undefined {
  if (cell?.maturityCutoffMs === undefined) return undefined;
  return { cutoffMs: cell.maturityCutoffMs, position: cell.aggregation?.resourceVersion };
}

/** What there is of pods and reservations, by this criterion. */
export function factsOf(state: ProtectorState, criterion: Criterion): QuotaFacts {
  const { counted, unreliable, reserved, estimated } = estimate(state, criterion);
  return { minAvailable: state.spec.minAvailable, available: counted, unreliable, reserved, estimated };
}

function free(reason: AllowReason): Verdict {
  return { allowed: true, reason, write: "none" };
}

function refuse(verdict: Refused["verdict"], cause: RefuseCause): Verdict {
  return { allowed: false, verdict, cause };
}

/** Makes the reservation that `decision` asks for in `state`. The same request twice changes nothing more. */
export function apply(state: ProtectorState, request: DisruptionRequest, decision: Decision): void {
  if (!decision.allowed || decision.write === "none") return;
  const { operation, nonce, pod } = request;
  const { weight, paid } = decision.write;
  const admission = {
    operation,
    nonce,
    podResourceVersion: pod.resourceVersion,
    podGeneration: operation === "UPDATE" ? pod.generation : undefined,
    paid,
    atMicros: parseMicros(request.startTime),
  };
  cellOf(state, request.cell).ledger.admit(pod.uid, pod.name, admission, weight);
}

/** Takes back one admission of a request (design 5.7): what others share, or wrote before, stays. */
export function rollback(state: ProtectorState, cell: string, uid: string, operation: Operation, nonce: string): void {
  state.cells.get(cell)?.ledger.removeNonce(uid, operation, nonce);
}

/** True when this admission is written in `state`: how a write with unknown outcome is resolved (design 5.7). */
export function holdsNonce(
  state: ProtectorState,
  cell: string,
  uid: string,
  operation: Operation,
  nonce: string,
): boolean {
  return state.cells.get(cell)?.ledger.holdsNonce(uid, operation, nonce) ?? false;
}

/**
 * Puts a cell on hold (design 5.4): what a webhook does with every cell of a protector whose version went back or whose UID
 * changed, in one update with its own unsettled reservations, which it applies again as they were decided. A cell without an
 * entry gets one, so that its aggregator learns of the loss. `hold` is `REASON/TOKEN`.
 */
export function holdCell(state: ProtectorState, cellID: string, hold: string): void {
  const cell = cellOf(state, cellID);
  const aggregation = { ...(cell.aggregation ?? { totalReplicas: 0, availableReplicas: 0 }), hold };
  state.cells.set(cellID, { ...cell, aggregation, isOnHold: true });
}
