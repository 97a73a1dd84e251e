/**
 * The webhook's decision (docs/design.md#admission): may this pod be disrupted, as far as one protector is concerned?
 * Pure: depends only on the protector's state and the request. `reserve.ts` records an allowed disruption. Both use
 * `availability/` (when a pod counts), `ledger/` (reservations) and `state/` (a parsed protector).
 *
 * The first rule that holds decides, in the order of CHECKS. A reservation has weight 1 and has used quota. A pin has
 * used no quota, and has weight 0, or 1 while the snapshot may still count its pod.
 * | condition                                                        | decision                     | record      |
 * | ---------------------------------------------------------------- | ---------------------------- | ----------- |
 * | the protector does not ask for this operation                    | allow NotProtected           |             |
 * | the pod is Finished, Terminating or Mirror                       | allow, with that reason      |             |
 * | DELETE of a Pending pod                                          | allow Pending                |             |
 * | a pre-activity (`overrides.ts`) of a pod that is not Pending     | deny PreActivity             |             |
 * | pod unavailable, not lost, IfHealthyBudget, under minAvailable   | deny or busy UnhealthyBudget |             |
 * | DELETE of a pod that is not available                            | allow Unavailable            |             |
 * | the pod's cell is not counted                                    | busy NotCounted              |             |
 * | the pod's cell is on hold                                        | busy OnHold                  |             |
 * | a pin is needed, for a pod without a record, and history is full | busy HistoryFull             |             |
 * | EVICT or UPDATE of a Pending pod                                 | allow PinnedPending          | pin         |
 * | EVICT or UPDATE of a pod that is not available                   | allow PinnedUnavailable      | pin         |
 * | the pod is Ready, but not mature                                 | allow PinnedImmature         | pin         |
 * | the pod's record has been refreshed for two settle periods       | busy RefreshedTooLong        |             |
 * | the pod's reservation is paid for                                | allow Repeated               | reservation |
 * | fewer than minAvailable would be left, no more are available     | deny AtMinimum               |             |
 * | fewer than minAvailable would be left, until pods are Ready      | busy NotReady                |             |
 * | fewer than minAvailable would be left, because of reservations   | busy Reserved                |             |
 * | the caller has to leave half of the quota to others              | busy OthersShare             |             |
 * | maxConcurrentLag reservations are outstanding                    | busy ConcurrentLag           |             |
 * | the pod has no record, and the history is full                   | busy HistoryFull             |             |
 * | otherwise                                                        | allow Reserved               | reservation |
 *
 * The annotation `force-delete` (or `no-protect`: `overrides.ts`) turns a denial or busy into allow Forced, with the
 * record of the pod's class, unpaid. So does a minAvailable of 0, into NothingPromised. A suspended protector allows
 * everything as Suspended, with this record, which counts if the suspension ends before the commit. A pre-activity
 * denies in both cases. With `spec.enforcement` Warn, any denial or busy, even by a pre-activity, is allowed as
 * NotEnforced, with this record, and the denial as warning. A pod is available if the criterion counts it.
 */
import { PRE_ACTIVITY_PREFIX } from "../schema/annotations.ts";
import type { Pod } from "../schema/pod.ts";
import type { HealthCriterion, Operation } from "../schema/podprotector.ts";
import { hasReached, oldestComponent } from "../schema/resource-version.ts";
import { parseMicros, parseMs } from "../schema/time.ts";
import { classifyPod, isLost, type PodClass } from "./availability/availability.ts";
import { isPaidFor, type Reservation, type Weight } from "./ledger/reservation.ts";
import { isForced, isProtectedFrom, type Overrides, preActivitiesOf } from "./overrides.ts";
import { type Criterion, criterionInForce, type Estimate, estimate } from "./state/estimate.ts";
import { type CellState, historyBytesAtMost, type ProtectorState, publishedCounts } from "./state/protector-state.ts";

/**
 * No reservation is added to a history that may have more bytes (docs/design.md#history-size, S10): the object stays
 * under 1 MiB whatever the names are. Usual names need a third of this estimate, so some 5,000 reservations fit.
 */
export const HARD_CAP_BYTES = 768 * 1024;
/** No pin is added beyond this: quota does not bound pins, and pins must leave room for reservations. */
export const PIN_CAP_BYTES = 576 * 1024;

export interface DisruptionRequest extends Overrides {
  readonly cell: string;
  readonly operation: Operation;
  /** Identifies this admission request; has no commas. */
  readonly nonce: string;
  /** The reviewed version of the pod: `oldObject`, or the live read of an eviction. */
  readonly pod: Pod;
  /** The change is a resize. */
  readonly isResize?: boolean;
  /** The criterion that the pod or the Eviction asks for. */
  readonly criterion: Criterion;
  /** The caller may choose the criterion, whatever the protector allows. */
  readonly criterionPermitted?: boolean;
  /** The pod may end despite `unhealthyPodPolicy` if it does not count: nothing else ends a pod whose node is gone. */
  readonly mayGoUnhealthy?: boolean;
  /** Leaves half of the quota to others (docs/design.md#callers-whose-disruptions-do-not-happen). */
  readonly keepsShare?: boolean;
  /** Time of this admission, RFC 3339. */
  readonly startTime: string;
  /** RFC 3339, two settle periods ago: a reservation that was first made before this is not refreshed again. */
  readonly staleRefreshBefore: string;
}

export type AllowReason =
  | "Reserved"
  | "Repeated"
  | "PinnedImmature"
  | "PinnedUnavailable"
  | "PinnedPending"
  | "Unavailable"
  | "Pending"
  | "Finished"
  | "Terminating"
  | "Mirror"
  | "Forced"
  | "Suspended"
  | "NothingPromised"
  | "NotEnforced"
  | "NotProtected";

type DenyCause =
  | "AtMinimum"
  | "NotReady"
  | "Reserved"
  | "OthersShare"
  | "UnhealthyBudget"
  | "NotCounted"
  | "OnHold"
  | "ConcurrentLag"
  | "HistoryFull"
  | "RefreshedTooLong"
  | "PreActivity"
  /** Only for disruptions that are decided together (`joint-decision.ts`). */
  | "TooManyTogether";

/** The facts behind the decision, for the text of a denial. */
export interface QuotaFacts extends Estimate {
  /** The protector's criterion, where it is not Available. */
  readonly healthCriterion?: HealthCriterion;
  /** The criterion that pods are counted by, where it is not the protector's. */
  readonly criterion?: Exclude<Criterion, "Available">;
  readonly minAvailable: number;
  /** The pre-activities that have to end first, where they are the cause. */
  readonly preActivities?: readonly string[];
  /** The number of pods in the same joint decision that use quota. */
  readonly together?: number;
}

/** The record of an allowed disruption: the least weight of its pod from then on, if it is paid, and if only now. */
interface RecordChange {
  readonly weight: Weight;
  readonly paid: boolean;
  readonly pays?: boolean;
}

export interface Allowed {
  readonly allowed: true;
  readonly reason: AllowReason;
  readonly write: "none" | RecordChange;
  readonly facts: QuotaFacts;
  /** The denial if the protector enforced its decisions. */
  readonly instead?: Denied;
}

interface Denied {
  readonly allowed: false;
  /** A denial lasts until more pods are available; busy passes by itself. The response to both is 429. */
  readonly kind: "Denial" | "Busy";
  readonly cause: DenyCause;
  readonly facts: QuotaFacts;
}

export type Decision = Allowed | Denied;

/** One request to one protector, with the facts that the checks need. */
interface DecisionInput {
  readonly state: ProtectorState;
  readonly request: DisruptionRequest;
  readonly cell: CellState | undefined;
  readonly podClass: PodClass;
  readonly held: Reservation | undefined;
  readonly facts: QuotaFacts;
}
type Check = (input: DecisionInput) => Decision | undefined;

const PINNED: RecordChange = { weight: 0, paid: false };
const RESERVED: RecordChange = { weight: 1, paid: true, pays: true };
/** For a disruption that is allowed without quota: unpaid, so that a repeat under stricter rules needs quota. */
const UNPAID: RecordChange = { weight: 1, paid: false };

const CHECKS: readonly Check[] = [
  operationNotProtected,
  podEndsAnyway,
  pendingPodIsDeleted,
  preActivityHoldsBack,
  budgetIsUnhealthy,
  unavailablePodIsDeleted,
  cellIsNotCounted,
  cellIsOnHold,
  noRoomForPin,
  unavailablePodIsPinned,
  immaturePodIsPinned,
  refreshedTooLong,
  repeated,
  noQuotaLeft,
  tooManyReservations,
  historyIsFull,
];

const PINS: ReadonlySet<string> = new Set<AllowReason>(["PinnedPending", "PinnedUnavailable", "PinnedImmature"]);

/** True for a disruption that uses no quota because of its pod's class. */
export function isPin(decision: Decision): boolean {
  return decision.allowed && PINS.has(decision.reason);
}

/** Decides `request` on `state`, without a change of `state`. */
export function decide(state: ProtectorState, request: DisruptionRequest): Decision {
  const cell = state.cells.get(request.cell);
  const input: DecisionInput = {
    state,
    request,
    cell,
    podClass: classifyPod(request.pod, state.spec, publishedCounts(cell)),
    held: cell?.ledger.get(request.pod.uid, request.pod.name),
    facts: factsOf(state, request),
  };
  if (isSuspended(state, request)) {
    const ends = operationNotProtected(input) ?? podEndsAnyway(input);
    const isAsked = ends === undefined && !isForced(state, request);
    const heldBack = isAsked ? preActivityHoldsBack(input) : undefined;
    return heldBack === undefined || state.spec.warnsOnly
      ? allow(input, "Suspended", recordRegardless(input))
      : heldBack;
  }
  for (const check of CHECKS) {
    const decision = check(input);
    if (decision !== undefined) return decision.allowed ? decision : allowAnyway(input, decision);
  }
  return allow(input, "Reserved", RESERVED);
}

/** True where the request is allowed whatever the counts are, even if its record can't be written. */
export function needsNoQuota(state: ProtectorState, request: DisruptionRequest): boolean {
  if (state.spec.warnsOnly) return true;
  return (isSuspended(state, request) || state.spec.minAvailable <= 0) && preActivitiesOf(request.pod).length === 0;
}

/** The decision where {@link needsNoQuota} is true, but the record could not be written. */
export function allowUnrecorded(state: ProtectorState, request: DisruptionRequest): Allowed {
  const unenforced = state.spec.warnsOnly ? "NotEnforced" : "NothingPromised";
  const reason = isSuspended(state, request) ? "Suspended" : unenforced;
  return { allowed: true, reason, write: "none", facts: factsOf(state, request) };
}

function isSuspended({ spec }: ProtectorState, { startTime, cell }: DisruptionRequest): boolean {
  return parseMs(startTime) < spec.suspendedUntilMs && spec.suspendedCells?.includes(cell) !== false;
}

function operationNotProtected(input: DecisionInput): Decision | undefined {
  return isProtectedFrom(input.state, input.request) ? undefined : allow(input, "NotProtected");
}

function podEndsAnyway(input: DecisionInput): Decision | undefined {
  const { podClass } = input;
  const ends = podClass === "Finished" || podClass === "Terminating" || podClass === "Mirror";
  return ends ? allow(input, podClass) : undefined;
}

function pendingPodIsDeleted(input: DecisionInput): Decision | undefined {
  const isDeleted = input.podClass === "Pending" && input.request.operation === "DELETE";
  return isDeleted ? allow(input, "Pending") : undefined;
}

/** Not busy: the denial ends when the annotation is removed, which retries each second do not accelerate. */
function preActivityHoldsBack({ podClass, request, facts }: DecisionInput): Decision | undefined {
  if (podClass === "Pending") return undefined;
  const annotations = preActivitiesOf(request.pod);
  if (annotations.length === 0) return undefined;
  const preActivities = annotations.map((annotation) => annotation.slice(PRE_ACTIVITY_PREFIX.length));
  return { allowed: false, kind: "Denial", cause: "PreActivity", facts: { ...facts, preActivities } };
}

function budgetIsUnhealthy(input: DecisionInput): Decision | undefined {
  const { state, request, podClass, facts } = input;
  const mayGo = request.mayGoUnhealthy === true || isLost(request.pod);
  const isKept = state.spec.keptUnhealthy.includes(request.operation) && !mayGo;
  if (podClass !== "Unavailable" || !isKept || facts.estimated >= facts.minAvailable) return undefined;
  const kind = facts.available < facts.minAvailable ? "Denial" : "Busy";
  return cellIsNotCounted(input) ?? cellIsOnHold(input) ?? deny(input, kind, "UnhealthyBudget");
}

/** A DELETE commits only at the reviewed version, in which the pod is unavailable; otherwise it is reviewed again. */
function unavailablePodIsDeleted(input: DecisionInput): Decision | undefined {
  const isDeleted = input.podClass === "Unavailable" && input.request.operation === "DELETE";
  return isDeleted ? allow(input, "Unavailable") : undefined;
}

/** In a cell that is not counted or on hold, nothing can be promised, so no record is written. */
function cellIsNotCounted(input: DecisionInput): Decision | undefined {
  return input.cell?.isCounted === true ? undefined : deny(input, "Busy", "NotCounted");
}

function cellIsOnHold(input: DecisionInput): Decision | undefined {
  return input.cell?.isOnHold === true ? deny(input, "Busy", "OnHold") : undefined;
}

function noRoomForPin(input: DecisionInput): Decision | undefined {
  const isFull = input.podClass !== "Available" && !hasRoom(input, PIN_CAP_BYTES);
  return isFull ? deny(input, "Busy", "HistoryFull") : undefined;
}

/**
 * An eviction commits at any version, and the containers of a changed pod restart some time after the change. The pod
 * may be available by then, so both leave a record.
 */
function unavailablePodIsPinned(input: DecisionInput): Decision | undefined {
  const { podClass } = input;
  if (podClass !== "Pending" && podClass !== "Unavailable") return undefined;
  return allow(input, podClass === "Pending" ? "PinnedPending" : "PinnedUnavailable", unavailablePin(input));
}

/** A snapshot older than the live read may count the pod; the pin subtracts the pod until the snapshot catches up. */
function unavailablePin({ cell, request }: DecisionInput): RecordChange {
  const isCaughtUp = hasReached(oldestComponent(cell?.aggregation?.resourceVersion), request.pod.resourceVersion);
  return { weight: isCaughtUp ? 0 : 1, paid: false };
}

/** The pod matures without a new version, so even a DELETE leaves a record. The published count lacks the pod. */
function immaturePodIsPinned(input: DecisionInput): Decision | undefined {
  return input.podClass === "Immature" ? allow(input, "PinnedImmature", PINNED) : undefined;
}

/** A client whose disruption something else denies for hours must not use quota for hours. */
function refreshedTooLong(input: DecisionInput): Decision | undefined {
  const { held, request } = input;
  if (held === undefined) return undefined;
  const limitMicros = parseMicros(request.staleRefreshBefore);
  for (const [operation, { firstMicros, podGeneration }] of held.records) {
    if ((operation === "UPDATE") !== (request.operation === "UPDATE")) continue;
    // A committed change may take long, and the pod may be changed again meanwhile.
    if (operation === "UPDATE" && podGeneration !== undefined && request.pod.generation > podGeneration) continue;
    if (firstMicros < limitMicros) return deny(input, "Busy", "RefreshedTooLong");
  }
  return undefined;
}

/**
 * The pod is already subtracted and its admission was paid for, so it is admitted whatever the estimate is. An eviction
 * pays for a deletion, and vice versa; a restart of containers pays only for itself.
 */
function repeated(input: DecisionInput): Decision | undefined {
  const { held, request } = input;
  if (held === undefined || !isPaidFor(held, request.operation)) return undefined;
  const pays = held.records.get(request.operation)?.paid !== true;
  return allow(input, "Repeated", { ...RESERVED, pays });
}

function noQuotaLeft(input: DecisionInput): Decision | undefined {
  const { facts, held, request } = input;
  const delta = isSubtracted(held, facts) ? 0 : 1;
  const left = facts.estimated - delta - facts.minAvailable;
  if (left < 0 && facts.available <= facts.minAvailable) return deny(input, "Denial", "AtMinimum");
  if (left < 0) return deny(input, "Busy", left + facts.notReady >= 0 ? "NotReady" : "Reserved");
  const whole = facts.available - facts.unreliable - facts.notReady - facts.minAvailable;
  const kept = request.keepsShare === true ? Math.floor(whole / 2) : 0;
  return delta === 1 && left < kept ? deny(input, "Busy", "OthersShare") : undefined;
}

/** True when the estimate subtracts the pod: by its weight, or for another criterion by any reservation. */
function isSubtracted(held: Reservation | undefined, { criterion }: QuotaFacts): boolean {
  return criterion === undefined ? held?.weight === 1 : held !== undefined;
}

function tooManyReservations(input: DecisionInput): Decision | undefined {
  const { state, facts, held } = input;
  const { maxConcurrentLag } = state.spec;
  if (maxConcurrentLag === undefined || held?.weight === 1) return undefined;
  const { reserved } = facts.criterion === undefined ? facts : estimate(state);
  return reserved + 1 > maxConcurrentLag ? deny(input, "Busy", "ConcurrentLag") : undefined;
}

function historyIsFull(input: DecisionInput): Decision | undefined {
  return hasRoom(input, HARD_CAP_BYTES) ? undefined : deny(input, "Busy", "HistoryFull");
}

/** True when the pod already has a reservation, or there is room for one more. */
function hasRoom({ state, held }: DecisionInput, capBytes: number): boolean {
  return held !== undefined || historyBytesAtMost(state) <= capBytes;
}

/** An annotation overrides a denial. So do a minimum of 0, which promises nothing, and a protector that only warns. */
function allowAnyway(input: DecisionInput, denied: Denied): Decision {
  if (isForced(input.state, input.request)) return allow(input, "Forced", recordRegardless(input));
  if (input.state.spec.warnsOnly && input.state.spec.minAvailable > 0)
    return { ...allow(input, "NotEnforced", recordRegardless(input)), instead: denied };
  return needsNoQuota(input.state, input.request) ? allow(input, "NothingPromised", recordRegardless(input)) : denied;
}

/** The record of the pod's class (0 for an immature pod), as if there were quota, unless the history has no room. */
function recordRegardless(input: DecisionInput): Allowed["write"] {
  const { podClass, request } = input;
  if (operationNotProtected(input) ?? podEndsAnyway(input) ?? pendingPodIsDeleted(input)) return "none";
  if (podClass === "Unavailable" && request.operation === "DELETE") return "none";
  const write = podClass === "Available" ? UNPAID : unavailablePin(input);
  return hasRoom(input, write === UNPAID ? HARD_CAP_BYTES : PIN_CAP_BYTES) ? write : "none";
}

function allow({ facts }: DecisionInput, reason: AllowReason, write: Allowed["write"] = "none"): Allowed {
  return { allowed: true, reason, write, facts };
}

function deny({ facts }: DecisionInput, kind: Denied["kind"], cause: DenyCause): Denied {
  return { allowed: false, kind, cause, facts };
}

/** The counted and reserved pods, by the criterion in force. */
export function factsOf(state: ProtectorState, request: DisruptionRequest): QuotaFacts {
  const criterion = criterionInForce(state, request.criterion, request.criterionPermitted);
  const { minAvailable, healthCriterion } = state.spec;
  const facts = { minAvailable, ...estimate(state, criterion) };
  if (criterion !== "Available") return { ...facts, criterion };
  return healthCriterion === "Available" ? facts : { ...facts, healthCriterion };
}
