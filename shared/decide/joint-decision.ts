/**
 * Decides several disruptions together (docs/design.md#node-deletion): the pods of one protector that the deletion of a
 * node ends. `quota.ts` decides each of them.
 */
import { type Decision, type DisruptionRequest, decide, factsOf } from "./quota.ts";
import { apply } from "./reserve.ts";
import { cloneState, type ProtectorState } from "./state/protector-state.ts";

type Denial = Extract<Decision, { allowed: false }>;

/**
 * Returns one decision for each request, in their order: either all allow, or all are the same denial. Each request is
 * decided after the effects of the ones before. Does not change `state`.
 */
export function decideTogether(state: ProtectorState, requests: readonly DisruptionRequest[]): readonly Decision[] {
  const working = cloneState(state);
  const decisions = requests.map((request) => {
    const decision = decide(working, request);
    apply(working, request, decision);
    return decision;
  });
  const denied = decisions.find(isDenial);
  if (denied === undefined) return decisions;
  const denial = denialOf(state, requests, decisions.filter(usesQuota).length) ?? denied;
  return requests.map(() => denial);
}

/**
 * A denial of a single pod is the denial of all. Where each pod alone would be allowed, there are too many: the result
 * is a denial when the counts can't spare that many, else busy until other reservations are settled.
 */
function denialOf(state: ProtectorState, requests: readonly DisruptionRequest[], together: number): Denial | undefined {
  const alone = requests.map((request) => decide(state, request)).filter(isDenial);
  const standing = alone.find(({ kind }) => kind === "Denial");
  if (standing !== undefined) return standing;
  const [first] = requests;
  if (first === undefined) return undefined;
  const facts = { ...factsOf(state, first), together };
  const isForGood =
    facts.available - together < facts.minAvailable || together > (state.spec.maxConcurrentLag ?? together);
  if (isForGood) return { allowed: false, kind: "Denial", cause: "TooManyTogether", facts };
  return alone[0] ?? { allowed: false, kind: "Busy", cause: "TooManyTogether", facts };
}

function isDenial(decision: Decision): decision is Denial {
  return !decision.allowed;
}

function usesQuota(decision: Decision): boolean {
  return !decision.allowed || (decision.write !== "none" && decision.write.weight === 1);
}
