import type { Decision } from "../../shared/decide/quota.ts";
import { OWN_NAMESPACE, releaseCommand } from "../../shared/recovery/register/register-format.ts";
import type { StatusCause } from "../../shared/schema/admission.ts";
import type { Operation } from "../../shared/schema/podprotector.ts";
import type { ProbeResult } from "../probe/owner.ts";
import type { DenyStatus } from "../request/admission-request.ts";
import type { OverloadCause } from "../reserve/pending.ts";

/** Why one protector does not let a request pass. */
export interface Blocker {
  readonly core: string;
  readonly namespace: string;
  readonly name: string;
  readonly why:
    | { readonly kind: "quota"; readonly decision: Extract<Decision, { allowed: false }> }
    /** The webhook had no room or no time for the request (design 5.8). */
    | { readonly kind: "overloaded"; readonly cause: OverloadCause }
    /** The protector, of this UID, vanished without having been released (design 7). */
    | { readonly kind: "vanished"; readonly cause: "Vanished"; readonly uid: string }
    /** The workload's owner said no, or did not answer (design 9); the message goes on from the protector's name. */
    | { readonly kind: "owner"; readonly result: ProbeResult; readonly message: string };
}

/** What is refused, for the first words of the text. */
export interface DeniedDisruption {
  readonly operation: Operation;
  readonly namespace: string;
  readonly pod: string;
}

const DONE: Readonly<Record<Operation, string>> = { DELETE: "deleted", EVICT: "evicted", UPDATE: "changed" };

/** Seconds after which client-go repeats a busy request by itself (design 5.3). */
const RETRY_AFTER_SECONDS = 1;

/** Names beyond this many are counted, not listed: a status message is read by people. */
const MAX_NAMED = 5;

/** True for what passes soon: the quota is there, but reserved and not accounted for yet. */
export function isBusy({ why }: Blocker): boolean {
  if (why.kind === "owner") return why.result === "overloaded";
  return why.kind === "quota" ? why.decision.kind === "Busy" : why.kind === "overloaded";
}

function named(names: readonly string[]): string {
  const listed = names.slice(0, MAX_NAMED).join(", ");
  return names.length > MAX_NAMED ? `${listed} and ${names.length - MAX_NAMED} more` : listed;
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Why what is available is not enough, where nothing else says so. */
function unreliable(pods: number): string {
  return pods === 0 ? "" : `, ${pods} of them in cells that are on hold or not counted for its present spec yet`;
}

const OVERLOADED: Readonly<Record<OverloadCause, string>> = {
  queue: "has too many disruptions waiting for a decision",
  time: "could not be asked in the time that this request had",
  recovering: "was out of reach until just now, and is being checked for lost reservations",
};

/** What the protector says, as the rest of a sentence that begins with its name. */
function explain(blocker: Blocker, ownNamespace: string): string {
  if (blocker.why.kind === "overloaded") return OVERLOADED[blocker.why.cause];
  if (blocker.why.kind === "vanished") {
    return `has vanished without having been released, so none of its available pods may go until it is back; if it was meant to go, run in its core cluster: ${releaseCommand(ownNamespace, blocker.why.uid, `${blocker.namespace}/${blocker.name}`)}`;
  }
  if (blocker.why.kind === "owner") return blocker.why.message;
  const { cause, facts } = blocker.why.decision;
  const needed = `needs ${plural(facts.minAvailable, "available pod")}`;
  const counts = `${facts.available} ${facts.available === 1 ? "is" : "are"} available${unreliable(facts.unreliable)}, ${facts.reserved} of them reserved`;
  switch (cause) {
    case "AtMinimum":
      return `${needed}, ${counts} by disruptions under way: its capacity is at the minimum`;
    case "Reserved":
      return `${needed}, ${counts} by disruptions that are not accounted for yet`;
    case "UnhealthyBudget":
      return `${needed}, ${counts} by disruptions under way: with unhealthyPodPolicy IfHealthyBudget even its unavailable pods stay until it is healthy`;
    case "NotCounted":
      return `${needed}, and no aggregator has counted the pods of this cell yet`;
    case "OnHold":
      return `${needed}, and this cell is on hold because its admission history may have been lost`;
    case "ConcurrentLag":
      return `${needed}, ${counts}: no more than its maxConcurrentLag may be under way at once`;
    case "HistoryFull":
      return `${needed}, ${counts}: its admission history is full until disruptions under way are accounted for`;
    case "RefreshedTooLong":
      return `${needed}, ${counts}: the reservation of this pod was repeated for too long and has to settle first`;
    case "PreActivity":
      return `waits for what has to be done before this pod goes: ${named(facts.preActivities ?? [])}; each is over when its annotation is removed`;
  }
}

function nameOf({ core, namespace, name }: Blocker): string {
  return `PodProtector ${namespace}/${name}${core === "" ? "" : ` (core ${core})`}`;
}

function causeOf(blocker: Blocker, ownNamespace: string): StatusCause {
  return {
    reason: "DisruptionBudget",
    message: `${nameOf(blocker)} ${explain(blocker, ownNamespace)}`,
    field: `podprotectors.podseidon.kubewharf.io/${blocker.namespace}/${blocker.name}`,
  };
}

/**
 * The refusal that a client sees (design 5.3, 6): 429, because drain and every eviction client retry on nothing else; names each
 * blocking protector with what it needs, what is available and what is reserved; `retryAfterSeconds` only when every blocker
 * is busy. What is to be done by hand is said for the project's own namespace.
 */
export function denyResponse(
  refused: DeniedDisruption,
  blockers: readonly Blocker[],
  ownNamespace: string = OWN_NAMESPACE,
): DenyStatus {
  const busy = blockers.every(isBusy);
  const reasons = blockers.slice(0, MAX_NAMED).map((one) => `${nameOf(one)} ${explain(one, ownNamespace)}`);
  if (blockers.length > MAX_NAMED) reasons.push(`${blockers.length - MAX_NAMED} more refuse as well`);
  const advice = adviceOf(blockers);
  return {
    code: 429,
    reason: "TooManyRequests",
    message: `pod ${refused.namespace}/${refused.pod} may not be ${DONE[refused.operation]} now: ${reasons.join("; ")}; ${advice}`,
    details: {
      name: refused.pod,
      kind: "pods",
      causes: blockers.map((blocker) => causeOf(blocker, ownNamespace)),
      ...(busy ? { retryAfterSeconds: RETRY_AFTER_SECONDS } : {}),
    },
  };
}

/** What to wait for; nothing more is said where only people or other programs can tell. */
function adviceOf(blockers: readonly Blocker[]): string {
  if (blockers.every(isBusy)) return "this passes by itself, try again in a second";
  if (blockers.every(({ why }) => why.kind === "vanished")) {
    return "a protector that vanished is created again by itself within a minute or so, where its API is served";
  }
  const isOfPods = blockers.some(
    ({ why }) => why.kind !== "owner" && !(why.kind === "quota" && why.decision.cause === "PreActivity"),
  );
  return isOfPods ? "try again when more pods are available" : "try again later";
}

/** An eviction that names no UID, where the registration was to add it (`--require-bound-evictions`). */
export function describeUnbound(refused: DeniedDisruption): DenyStatus {
  const message = `the eviction of pod ${refused.namespace}/${refused.pod} is not bound to the pod's UID (deleteOptions.preconditions.uid), so another pod of the same name could be evicted in its place: check that the mutating webhook for pods/eviction is registered and reachable`;
  return {
    code: 429,
    reason: "TooManyRequests",
    message,
    details: {
      name: refused.pod,
      kind: "pods",
      causes: [{ reason: "UnboundEviction", message, field: "deleteOptions.preconditions.uid" }],
    },
  };
}
