import { wayOut } from "../../shared/decide/minimum/promise-less.ts";
import { preActivitiesOf } from "../../shared/decide/overrides.ts";
import type { Decision } from "../../shared/decide/quota.ts";
import { OWN_NAMESPACE, releaseCommand } from "../../shared/recovery/register/register-format.ts";
import { PRE_ACTIVITY_PREFIX } from "../../shared/schema/annotations.ts";
import { namespacedName, type Operation, type ProtectorId } from "../../shared/schema/podprotector.ts";
import type { BypassResult } from "../request/bypass.ts";
import type { DisruptionTarget, NoTarget } from "../request/disruption-target.ts";
import { type Denial, idOf, isBusy, type OverloadCause } from "../reserve/verdict.ts";
import type { AdmissionResponse, DenyStatus } from "./admission-response.ts";
import {
  CASCADING_DELETERS,
  type DenialContext,
  holdEnd,
  impossibleOne,
  isHeldUp,
  stuckCells,
  waitsForCells,
} from "./denial-outlook.ts";

/** The disruption that is denied, for the first words of the text. */
interface DeniedDisruption {
  readonly operation: Operation;
  readonly namespace: string;
  readonly pod: string;
  /** Completes "the pod may not be ...", where the operation does not say it. */
  readonly done?: string | undefined;
}

type QuotaDenial = Extract<Decision, { allowed: false }>;

const DONE: Readonly<Record<Operation, string>> = { DELETE: "deleted", EVICT: "evicted", UPDATE: "changed" };

/** Seconds after which client-go repeats a busy request by itself. */
export const RETRY_AFTER_SECONDS = 1;

/** Names beyond this many are counted, not listed: people read the message. */
export const MAX_NAMED = 5;

/** Protectors in one response, its audit annotations, its log line and its Events: one tenant can have thousands. */
export const MAX_LISTED = 20;

/**
 * The denial of a disruption: 429, because drain and every eviction client retry on no other code. Names each protector
 * that denies, with what it needs, what is available and what is reserved. `retryAfterSeconds` only when every denial
 * is busy.
 */
export function denyStatus(
  { operation, namespace, pod, done = DONE[operation] }: DeniedDisruption,
  denials: readonly Denial[],
  context: DenialContext,
): DenyStatus {
  const causes = denials.slice(0, MAX_LISTED).map((denial) => ({
    reason: "DisruptionBudget",
    message: `${nameOf(denial.protector, context)} ${explain(denial, context)}`,
    field: `podprotectors.podseidon.kubewharf.io/${denial.protector.namespace}/${denial.protector.name}`,
  }));
  const reasons = causes.slice(0, MAX_NAMED).map(({ message }) => message);
  if (denials.length > MAX_NAMED) reasons.push(`${denials.length - MAX_NAMED} more deny as well`);
  const retry = denials.every(isBusy) ? { retryAfterSeconds: RETRY_AFTER_SECONDS } : {};
  return {
    code: 429,
    reason: "TooManyRequests",
    message:
      `pod ${namespace}/${pod} may not be ${done} now: ${reasons.join("; ")}; ${adviceOn(denials, context)}. ` +
      `More: kubectl podseidon why ${pod} -n ${namespace}`,
    details: { name: pod, kind: "pods", causes, ...retry },
  };
}

/** The response with this text to the disruption of one pod or several that these protectors deny. */
export function denied(denial: DenyStatus, decisions: readonly Denial[], rollBack?: () => void): AdmissionResponse {
  const listed = decisions.slice(0, MAX_LISTED);
  const response: AdmissionResponse = {
    outcome: decisions.every(isBusy) ? "busy" : "denied",
    decisions,
    denial,
    message: denial.message,
    auditAnnotations: {
      "reject-by-podprotector": listed.map(({ protector }) => namespacedName(protector)).join(","),
      decision: listed.map((one) => `${idOf(one.protector)}=${causeOf(one)}`).join(","),
    },
  };
  if (rollBack === undefined) return response;
  // Rolls back only after the delivery: a caller that gave up may admit (failurePolicy Ignore), so its reservations
  // stay.
  return { ...response, delivered: (isComplete) => isComplete && rollBack() };
}

/** Adds what is told about the pod's force-delete annotation to a denial. */
export function withBypass(response: AdmissionResponse, bypass: BypassResult | undefined): AdmissionResponse {
  if (bypass === undefined) return response;
  const { auditAnnotations, warnings } = bypass;
  return {
    ...response,
    auditAnnotations: { ...response.auditAnnotations, ...auditAnnotations },
    ...(warnings.length > 0 && { warnings }),
  };
}

/** The response to the disruption of a pod that only its pre-activities deny, because no protector covers it. */
export function heldBack(
  { pod, operation, dryRun }: Pick<DisruptionTarget, "pod" | "operation" | "dryRun">,
  bypass: BypassResult | undefined,
): AdmissionResponse {
  const { namespace, name, uid } = pod;
  const preActivities = preActivitiesOf(pod).map((annotation) => annotation.slice(PRE_ACTIVITY_PREFIX.length));
  const message = `pod ${namespace}/${name} may not be ${DONE[operation]} now: it ${waitsFor(preActivities)}`;
  const response: AdmissionResponse = {
    outcome: "denied",
    denial: { code: 429, reason: "TooManyRequests", message, details: { name, kind: "pods", causes: [] } },
    message,
    pod: { namespace, name, uid },
    dryRun,
    auditAnnotations: { decision: "PreActivity" },
  };
  return withBypass(response, bypass);
}

export function causeOf({ decision }: Denial): string {
  switch (decision.kind) {
    case "denied":
      return decision.decision.cause;
    case "lost":
      return "Vanished";
    case "overloaded":
      return decision.cause;
    case "owner":
      return `Probe:${decision.answer.result}`;
  }
}

/** The response to an eviction whose precondition does not hold, or that lacks the one it needs. */
export function preconditionFailed(
  target: Extract<NoTarget, { readonly kind: "conflict" | "unbound" }>,
): AdmissionResponse {
  if (target.kind === "unbound") return { outcome: "unbound", denial: unboundStatus(target.namespace, target.name) };
  const { name, field, wanted } = target;
  // Does not show the pod's own value: the user may have no permission to read the pod.
  const message =
    `the ${field} in the precondition (${wanted}) does not match the ${field} ` +
    `of pod ${name}: the pod was replaced or changed`;
  return { outcome: "conflict", denial: { code: 409, reason: "Conflict", message } };
}

/** The denial of an eviction without the UID precondition that `--require-bound-evictions` asks for. */
function unboundStatus(namespace: string, name: string): DenyStatus {
  const message =
    `the eviction of pod ${namespace}/${name} is not bound to the pod's UID ` +
    "(deleteOptions.preconditions.uid), so another pod of the same name could be evicted in " +
    "its place: check that the mutating webhook for pods/eviction is registered and reachable";
  const causes = [{ reason: "UnboundEviction", message, field: "deleteOptions.preconditions.uid" }];
  return { code: 429, reason: "TooManyRequests", message, details: { name, kind: "pods", causes } };
}

export function nameOf({ core, namespace, name }: ProtectorId, { hasSeveralCores }: DenialContext): string {
  return `PodProtector ${namespace}/${name}${hasSeveralCores ? ` (core ${core})` : ""}`;
}

/** The rest of a sentence that begins with the protector's name. */
export function explain({ protector, decision }: Denial, context: DenialContext): string {
  switch (decision.kind) {
    case "overloaded":
      return OVERLOADED[decision.cause];
    case "owner":
      return decision.answer.message;
    case "lost": {
      const command = releaseCommand(context.ownNamespace, decision.uid, `${protector.namespace}/${protector.name}`);
      return (
        "vanished without a release, so its available pods stay protected until it is " +
        `restored; to release it, run in its core cluster: ${command}`
      );
    }
    case "denied":
      return [
        QUOTA_TEXT[decision.decision.cause](decision.decision.facts, holdEnd(decision, context)),
        ...namedCells(stuckCells(decision, context)),
      ].join(", and ");
  }
}

/** In a core that was restored, all cells of a large fleet may be on hold. */
function namedCells(stuck: readonly { readonly text: string }[]): string[] {
  const rest = stuck.length - MAX_NAMED;
  return [...stuck.slice(0, MAX_NAMED).map(({ text }) => text), ...(rest > 0 ? [`${rest} more cells are stuck`] : [])];
}

const OVERLOADED: Readonly<Record<OverloadCause, string>> = {
  queue: "has too many disruptions waiting for a decision",
  time: "could not decide before the deadline of this request",
  recovering: "was out of reach until just now, and is being checked for lost reservations",
};

const QUOTA_TEXT: Readonly<Record<QuotaDenial["cause"], (facts: QuotaDenial["facts"], holdEnd: string) => string>> = {
  AtMinimum: (facts) => `${countsIn(facts)} by disruptions under way: its capacity is at the minimum`,
  NotReady: (facts) => `${countsIn(facts)}, ${facts.notReady} of them counted and not Ready yet`,
  Reserved: (facts) => `${countsIn(facts)} by disruptions that are not accounted for yet`,
  OthersShare: (facts) =>
    `${countsIn(facts)}: what this caller reserved lately did not happen, so it leaves half of the quota to others`,
  UnhealthyBudget: (facts) =>
    `${countsIn(facts)} by disruptions under way: with unhealthyPodPolicy ` +
    "IfHealthyBudget even its unavailable pods stay until it is healthy",
  NotCounted: (facts) => `${needOf(facts)}, and no aggregator has counted the pods of this cell yet`,
  OnHold: (facts, end) =>
    `${needOf(facts)}, and this cell is on hold${end}, because its admission history may have been lost`,
  ConcurrentLag: (facts) => `${countsIn(facts)}: no more than its maxConcurrentLag may be under way at once`,
  HistoryFull: (facts) =>
    `${countsIn(facts)}: its admission history is full until disruptions under way are accounted for`,
  RefreshedTooLong: (facts) =>
    `${countsIn(facts)}: the reservation of this pod was repeated for too long and has to settle first`,
  TooManyTogether: (facts) => `${countsIn(facts)}, and ${facts.together} of its pods would go at once`,
  PreActivity: ({ preActivities = [] }) => waitsFor(preActivities),
};

function waitsFor(preActivities: readonly string[]): string {
  return `waits for the pre-activities of this pod: ${named(preActivities)}; each ends when its annotation is removed`;
}

/** The condition that the protector counts pods by, as text. */
function countedAs({ healthCriterion = "Available" }: QuotaDenial["facts"]): string {
  return healthCriterion.toLowerCase();
}

function needOf(facts: QuotaDenial["facts"]): string {
  return `needs ${facts.minAvailable} ${countedAs(facts)} pod${facts.minAvailable === 1 ? "" : "s"}`;
}

function countsIn(facts: QuotaDenial["facts"]): string {
  const { available, unreliable, reserved } = facts;
  const elsewhere =
    unreliable === 0 ? "" : `, ${unreliable} of them in cells that are on hold or not counted for its present spec yet`;
  return (
    `${needOf(facts)}, ${available} ${available === 1 ? "is" : "are"} ` +
    `${countedAs(facts)}${elsewhere}, ${reserved} of them reserved`
  );
}

export function named(names: readonly string[]): string {
  const listed = names.slice(0, MAX_NAMED).join(", ");
  return names.length > MAX_NAMED ? `${listed} and ${names.length - MAX_NAMED} more` : listed;
}

/** What to wait for or to do; without detail where that depends on people or other programs. */
export function adviceOn(denials: readonly Denial[], context: DenialContext): string {
  const [impossible] = denials.flatMap(({ decision }) => impossibleOne(decision) ?? []);
  if (impossible !== undefined) {
    // Of a lower promise, each pod less would go for good.
    if (CASCADING_DELETERS.test(context.username ?? ""))
      return "its owner or namespace is deleted. Nobody replaces it: create the workload again, or end the promise";
    // A StatefulSet, for example, creates a pod again only when the terminating one is gone. No count shows such a pod.
    return `no more pods match than must be available${wayOut(impossible)}`;
  }
  // Of those that are listed: thousands of protectors of a tenant may deny, and a fleet has hundreds of cells.
  const stuck = denials.slice(0, MAX_LISTED).flatMap(({ decision }) => stuckCells(decision, context));
  if (stuck.length > 0) {
    const end = stuck.some(({ isSilent }) => isSilent) ? "that aggregator writes again" : "that hold ends";
    // The own cell asks, so it is there.
    const gone = stuck.find(({ cellID }) => context.cell !== undefined && cellID !== context.cell)?.cellID;
    if (gone === undefined) return `it may once ${end}`;
    const own = context.ownNamespace;
    const where = own === OWN_NAMESPACE ? "" : ` --system-namespace ${own}`;
    const removal = `kubectl podseidon remove-cell ${gone} --all-namespaces${where}`;
    return `it may once ${end}, or, if ${gone} is gone for good: ${removal}`;
  }
  if (denials.every(isBusy)) return waitFor(denials, context);
  if (denials.every(({ decision }) => decision.kind === "lost")) {
    return "a lost protector is restored within a minute or so, where its API is served";
  }
  return denials.some(isAboutPods) ? "try again when more pods are available" : "try again later";
}

/** For denials that pass by themselves: names the longest wait. */
function waitFor(denials: readonly Denial[], context: DenialContext): string {
  const causes = denials.map(({ decision }) => (decision.kind === "denied" ? decision.decision.cause : ""));
  if (causes.includes("NotCounted"))
    return "it may once they are counted: kubectl podseidon doctor says whether they are";
  if (causes.includes("OnHold")) return "the hold ends by itself";
  const isLong = causes.includes("OthersShare") || causes.includes("RefreshedTooLong");
  if (!isLong && denials.some(({ decision }) => waitsForCells(decision)))
    return "it may once those cells are counted again: kubectl podseidon doctor says whether they are";
  const isHeld = isLong || denials.some(({ decision }) => isHeldUp(decision, context));
  return `this passes by itself${isHeld ? " within minutes" : ", try again in a second"}`;
}

function isAboutPods({ decision }: Denial): boolean {
  return decision.kind !== "owner" && !(decision.kind === "denied" && decision.decision.cause === "PreActivity");
}
