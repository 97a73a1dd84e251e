/** Which pods that are not available a policy keeps (docs/design.md#admission-table), and which are lost anyway. */
import { expect, test } from "vitest";
import {
  makeCell,
  makePod,
  makeProtector,
  makeRequest,
  makeSpec,
  type PodOptions,
} from "../../test/support/decide/fixtures.ts";
import { decideLost } from "../recovery/lost-protector.ts";
import { PRE_ACTIVITY_PREFIX } from "../schema/annotations.ts";
import type { Operation, PodProtectorSpec } from "../schema/podprotector.ts";
import { decide } from "./quota.ts";
import { parseProtector } from "./state/protector-state.ts";

interface Row {
  readonly operation: Operation;
  readonly pod?: PodOptions;
  readonly spec?: Partial<PodProtectorSpec>;
  /** 1 is fewer than the 2 that must stay. */
  readonly available?: number;
  readonly hold?: string;
  readonly expected: string;
}

const NOT_READY: PodOptions = { readyForSeconds: undefined };
const CONTAINERS_READY: PodOptions = { ...NOT_READY, conditions: { ContainersReady: true } };
const WAITS: PodOptions = { annotations: { [`${PRE_ACTIVITY_PREFIX}backup`]: "" } };
const IF_HEALTHY: Partial<PodProtectorSpec> = { unhealthyPodPolicy: "IfHealthyBudget" };
const EVICTIONS_ONLY: Partial<PodProtectorSpec> = {
  ...IF_HEALTHY,
  unhealthyPodPolicies: { DELETE: "AlwaysAllow", UPDATE: "AlwaysAllow" },
  protectedOperations: ["DELETE", "EVICT", "UPDATE"],
};

const rows: Record<string, Row> = {
  "a policy of evictions: DELETE": { operation: "DELETE", spec: EVICTIONS_ONLY, expected: "allow Unavailable none" },
  "a policy of evictions: EVICT": { operation: "EVICT", spec: EVICTIONS_ONLY, expected: "Denial UnhealthyBudget" },
  "a policy of evictions: UPDATE": {
    operation: "UPDATE",
    spec: EVICTIONS_ONLY,
    expected: "allow PinnedUnavailable w=0",
  },
  "a policy of deletions: DELETE": {
    operation: "DELETE",
    spec: { unhealthyPodPolicies: { DELETE: "IfHealthyBudget" } },
    expected: "Denial UnhealthyBudget",
  },
  "a policy that this version does not know: EVICT": {
    operation: "EVICT",
    spec: { unhealthyPodPolicies: { EVICT: "New" } },
    expected: "Denial UnhealthyBudget",
  },
  "not Ready with DisruptionTarget: EVICT": {
    operation: "EVICT",
    pod: { ...NOT_READY, conditions: { DisruptionTarget: true } },
    expected: "allow PinnedUnavailable w=0",
  },
  "on a lost node: EVICT": { operation: "EVICT", pod: CONTAINERS_READY, expected: "allow PinnedUnavailable w=0" },
  "on a lost node: DELETE": { operation: "DELETE", pod: CONTAINERS_READY, expected: "allow Unavailable none" },
  "waits for its readiness gates: EVICT": {
    operation: "EVICT",
    pod: { ...CONTAINERS_READY, waitsForGates: true },
    expected: "Denial UnhealthyBudget",
  },
  // x-pdb asks for DisruptionTarget before it looks for pre-activities.
  "not Ready with DisruptionTarget, and a pre-activity: DELETE": {
    operation: "DELETE",
    pod: { ...NOT_READY, ...WAITS, conditions: { DisruptionTarget: true } },
    expected: "allow Unavailable none",
  },
  "not Ready, and a pre-activity: DELETE": {
    operation: "DELETE",
    pod: { ...NOT_READY, ...WAITS },
    spec: {},
    expected: "Denial PreActivity",
  },
  "Ready with DisruptionTarget, and a pre-activity: DELETE": {
    operation: "DELETE",
    available: 9,
    pod: { ...WAITS, conditions: { DisruptionTarget: true } },
    expected: "Denial PreActivity",
  },
  "never ran: EVICT": {
    operation: "EVICT",
    pod: { ...NOT_READY, phase: "Pending" },
    expected: "allow PinnedPending w=0",
  },
  "never ran, and a pre-activity: EVICT": {
    operation: "EVICT",
    pod: { ...NOT_READY, ...WAITS, phase: "Pending" },
    expected: "allow PinnedPending w=0",
  },
  "in a cell on hold: EVICT": { operation: "EVICT", hold: "Gone/1", expected: "Busy OnHold" },
  "Ready without a condition that its protector asks for: DELETE": {
    operation: "DELETE",
    pod: {},
    spec: { ...IF_HEALTHY, availabilityConditions: ["warm"] },
    expected: "Denial UnhealthyBudget",
  },
  "Ready with DisruptionTarget: DELETE": {
    operation: "DELETE",
    available: 2,
    pod: { conditions: { DisruptionTarget: true } },
    expected: "Denial AtMinimum",
  },
};

test.each(Object.entries(rows))(
  "%s",
  (_, { operation, pod = NOT_READY, spec = IF_HEALTHY, available = 1, hold, expected }) => {
    const aggregation = hold === undefined ? {} : { hold };
    const protector = makeProtector([makeCell("a", available, [], aggregation, makeSpec(spec))], spec);
    const decision = decide(parseProtector(protector), makeRequest(makePod("x", pod), { operation }));
    const write = decision.allowed && decision.write !== "none" ? `w=${decision.write.weight}` : "none";
    expect(decision.allowed ? `allow ${decision.reason} ${write}` : `${decision.kind} ${decision.cause}`).toBe(
      expected,
    );
  },
);

test("a status write that ends a pod, and the deletion of its node, ask for no policy", () => {
  const state = parseProtector(makeProtector([makeCell("a", 1)], { unhealthyPodPolicy: "IfHealthyBudget" }));
  const request = makeRequest(makePod("x", NOT_READY));
  expect(decide(state, request)).toMatchObject({ cause: "UnhealthyBudget" });
  expect(decide(state, { ...request, mayGoUnhealthy: true })).toMatchObject({ reason: "Unavailable" });
  expect(decideLost(state, request)).toBeUndefined();
  expect(decideLost(state, { ...request, mayGoUnhealthy: true })).toMatchObject({ reason: "Unavailable" });
  const ofDeadNode = makePod("x", { ...NOT_READY, conditions: { ContainersReady: true } });
  expect(decideLost(state, makeRequest(ofDeadNode))).toMatchObject({ reason: "Unavailable" });
});
