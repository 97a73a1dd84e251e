/** Combines the decisions of single protectors to one verdict on the disruption (docs/design.md#several-protectors). */

import type { Decision } from "../../shared/decide/quota.ts";
import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { ProtectorId } from "../../shared/schema/podprotector.ts";
import type { ProbeAnswer } from "../probe/probe-request.ts";

/** Why no decision was reached: an HTTP error, so that failurePolicy decides. Metric labels. */
export const FAILURE_TAGS = [
  /** The core cluster did not answer in time, or with an error. */
  "core-unavailable",
  /** The core cluster rejected the write: a missing permission, or an object that it does not accept. */
  "core-rejected",
  /** The pod could not be read live. */
  "cell-unavailable",
  /** The write's result was unknown at the deadline. The reservation, if it was written, stays and settles. */
  "deadline",
  /** A defect of this program in the decision of this one request. */
  "defect",
] as const;
export type FailureTag = (typeof FAILURE_TAGS)[number];

/** The pending queue was full, the deadline came first, or the core has just come back from an outage. */
export type OverloadCause = "queue" | "time" | "recovering";

interface AllowedBy {
  readonly kind: "allowed";
  readonly decision: Extract<Decision, { allowed: true }>;
  /** The version that was decided on. */
  readonly version: ProtectorVersion;
  /** A reservation was written. */
  readonly written: boolean;
}

type DeniedBy =
  | {
      readonly kind: "denied";
      readonly decision: Extract<Decision, { allowed: false }>;
      /** The version that was decided on. */
      readonly version?: ProtectorVersion;
    }
  /** The protector is lost, and its last version stays in force (docs/design.md#lost-protectors). */
  | { readonly kind: "lost"; readonly uid: string }
  /** Not decided in time, and nothing was written. */
  | { readonly kind: "overloaded"; readonly cause: OverloadCause }
  /** The workload's owner said no, or did not answer (docs/design.md#owner-probe). */
  | { readonly kind: "owner"; readonly answer: ProbeAnswer };

export type Undecided =
  | { readonly kind: "failed"; readonly tag: FailureTag; readonly message: string }
  /** A live read during the decision did not find the pod. */
  | { readonly kind: "podGone" }
  /** The caller disconnected before anything was written. */
  | { readonly kind: "abandoned" };

/** The answer of one protector to one disruption: its decision by quota, or why there is no such decision. */
export type ProtectorDecision = AllowedBy | DeniedBy | Undecided | { readonly kind: "absent" };

/** `core/namespace/name`, as logs and audit annotations name a protector. */
export function idOf({ core, namespace, name }: ProtectorId): string {
  return `${core}/${namespace}/${name}`;
}

/** A decision and the protector that made it. */
export interface DecisionOf<D extends ProtectorDecision = ProtectorDecision> {
  readonly protector: ProtectorId;
  readonly decision: D;
}
export type Allowance = DecisionOf<AllowedBy>;
export type Denial = DecisionOf<DeniedBy>;

/** The combined result of all protectors and failures for one disruption. */
export type Verdict =
  | {
      readonly kind: "allowed";
      readonly decisions: readonly Allowance[];
      /** Rolls the reservations back, for a disruption that is allowed only together with others. */
      readonly rollBack?: (() => void) | undefined;
    }
  | {
      readonly kind: "denied";
      readonly decisions: readonly Denial[];
      /** Rolls back the reservations from before the denial. To be called once the denial is delivered. */
      readonly rollBack: (() => void) | undefined;
    }
  | Undecided;

const DENYING: ReadonlySet<ProtectorDecision["kind"]> = new Set<DeniedBy["kind"]>([
  "denied",
  "lost",
  "overloaded",
  "owner",
]);

function isDenial(one: DecisionOf): one is Denial {
  return DENYING.has(one.decision.kind);
}

function isAllowance(one: DecisionOf): one is Allowance {
  return one.decision.kind === "allowed";
}

function isUndecided(decision: ProtectorDecision): decision is Undecided {
  return decision.kind === "failed" || decision.kind === "podGone" || decision.kind === "abandoned";
}

/** The verdict, by the first rule that applies. An absent protector does not take part. */
export function verdictOf(decisions: readonly DecisionOf[], rollBack?: () => void): Verdict {
  // Two backups of one lost protector are two matches.
  const denials = new Map(decisions.filter(isDenial).map((denial) => [idOf(denial.protector), denial]));
  if (denials.size > 0) return { kind: "denied", decisions: [...denials.values()], rollBack };
  for (const { decision } of decisions) if (isUndecided(decision)) return decision;
  return { kind: "allowed", decisions: decisions.filter(isAllowance), ...(rollBack && { rollBack }) };
}

/** A denial that passes by itself: quota is reserved but not settled yet, or the webhook was overloaded. */
export function isBusy({ decision }: Denial): boolean {
  if (decision.kind === "denied") return decision.decision.kind === "Busy";
  return decision.kind === "overloaded" || (decision.kind === "owner" && decision.answer.result === "overloaded");
}

/** A tenant may make thousands of protectors over one pod, and each that is being asked takes memory and time. */
export const MAX_AT_ONCE = 50;

/**
 * The verdict of all protectors, `atOnce` of which are asked concurrently. After a denial that lasts, no more are
 * asked.
 */
export async function verdictOfEach<T>(
  all: readonly T[],
  ask: (one: T) => Promise<DecisionOf>,
  atOnce = MAX_AT_ONCE,
): Promise<Verdict> {
  const decisions: DecisionOf[] = [];
  while (decisions.length < all.length && !decisions.some((one) => isDenial(one) && !isBusy(one))) {
    const next = all.slice(decisions.length, decisions.length + atOnce);
    decisions.push(...(await Promise.all(next.map(ask))));
  }
  return verdictOf(decisions);
}

/** The denials by protectors that do not enforce their decisions. */
export function unenforcedIn(decisions: readonly Allowance[]): readonly Denial[] {
  return decisions.flatMap(({ protector, decision: { decision, version } }) =>
    decision.instead === undefined
      ? []
      : [{ protector, decision: { kind: "denied", decision: decision.instead, version } as const }],
  );
}
