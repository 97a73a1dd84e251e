/** Every row of docs/design.md#admission-table that one protector decides. */
import { expect, test } from "vitest";
import {
  makeCell,
  makePod,
  makeProtector,
  makeRequest,
  makeSpec,
  NOW_MS,
  type PodOptions,
  type RequestOptions,
} from "../../test/support/decide/fixtures.ts";
import { COUNTED_CONDITION, PRE_ACTIVITY_PREFIX } from "../schema/annotations.ts";
import type { Bucket, CellStatus, PodProtectorSpec } from "../schema/podprotector.ts";
import { formatMs } from "../schema/time.ts";
import { decide } from "./quota.ts";
import type { Criterion } from "./state/estimate.ts";
import { parseProtector } from "./state/protector-state.ts";

interface Row {
  readonly pod?: PodOptions;
  readonly request?: RequestOptions;
  readonly spec?: Partial<PodProtectorSpec>;
  /** Available pods of cell `a`, of which `minAvailable` 2 must stay. */
  readonly available?: number;
  readonly reserved?: Bucket[];
  readonly cells?: CellStatus[];
  readonly expected: string;
}

const NOT_READY: PodOptions = { readyForSeconds: undefined };
const CONTAINERS_READY: PodOptions = { ...NOT_READY, conditions: { ContainersReady: true } };
const IF_HEALTHY: Partial<PodProtectorSpec> = { unhealthyPodPolicy: "IfHealthyBudget" };
const UNREADY_IF_HEALTHY = { pod: NOT_READY, spec: IF_HEALTHY };
const BUSY_WITH: PodOptions = { annotations: { [`${PRE_ACTIVITY_PREFIX}copy-data`]: "" } };
const EVICT: RequestOptions = { operation: "EVICT" };
const SUSPENDED: Partial<PodProtectorSpec> = { suspend: { enabled: true } };
const FORCED: RequestOptions = { forced: true };
const OTHER: Bucket = {
  ...{ startTime: formatMs(NOW_MS), podUID: "other", podName: "other", podResourceVersion: "9" },
  ...{ operation: "DELETE", nonce: "o", paid: true },
};
const OWN: Bucket = { ...OTHER, podUID: "uid-x", podName: "x" };

const CHANGING: Bucket = { ...OWN, operation: "UPDATE", podGeneration: 1 };
/** Spread into a row. */
const UPDATE = {
  request: { operation: "UPDATE" },
  spec: { protectedOperations: ["DELETE", "EVICT", "UPDATE"] },
} satisfies Partial<Row>;

const by = (criterion: Criterion): Pick<Row, "spec" | "request"> => ({
  spec: { allowedHealthCriteria: [criterion] },
  request: { criterion },
});

const rows: Record<string, Row> = {
  "base, quota left": { available: 3, expected: "allow Reserved w=1 paid" },
  "base, none left": { available: 2, expected: "Denial AtMinimum" },
  "base, all reserved": { available: 3, reserved: [OTHER], expected: "Busy Reserved" },
  "an eviction is as base: quota left": { available: 3, request: EVICT, expected: "allow Reserved w=1 paid" },
  "an eviction is as base: none left": { available: 2, request: EVICT, expected: "Denial AtMinimum" },
  "the same UID again": { available: 1, reserved: [OWN], expected: "allow Repeated w=1 paid" },
  "the same name, another UID": {
    available: 2,
    reserved: [OWN],
    pod: { uid: "uid-new" },
    expected: "Denial AtMinimum",
  },
  "deletionTimestamp set": { available: 0, pod: { terminating: true }, expected: "allow Terminating" },
  "deletionTimestamp set, evicted": {
    available: 0,
    pod: { terminating: true },
    request: EVICT,
    expected: "allow Terminating",
  },
  "Succeeded, though Ready": { available: 0, pod: { phase: "Succeeded" }, expected: "allow Finished" },
  "Failed, though Ready": { available: 0, pod: { phase: "Failed" }, request: EVICT, expected: "allow Finished" },
  Pending: { available: 0, pod: { phase: "Pending", ...NOT_READY }, expected: "allow Pending" },
  "Pending, evicted: it may have started since": {
    available: 0,
    pod: { phase: "Pending", ...NOT_READY },
    request: EVICT,
    expected: "allow PinnedPending w=0",
  },
  "Pending under IfHealthyBudget": {
    available: 0,
    pod: { phase: "Pending", ...NOT_READY },
    spec: IF_HEALTHY,
    expected: "allow Pending",
  },
  "mirror pod": { available: 0, pod: { mirror: true }, expected: "allow Mirror" },
  "phase Unknown is as base": { available: 2, pod: { phase: "Unknown" }, expected: "Denial AtMinimum" },
  "not available, AlwaysAllow": { available: 0, pod: NOT_READY, expected: "allow Unavailable" },
  "not available, AlwaysAllow, evicted": {
    available: 0,
    pod: NOT_READY,
    request: EVICT,
    expected: "allow PinnedUnavailable w=0",
  },
  "not available, IfHealthyBudget, enough available": {
    available: 2,
    ...UNREADY_IF_HEALTHY,
    expected: "allow Unavailable",
  },
  "not available, IfHealthyBudget, evicted, enough available": {
    available: 2,
    ...UNREADY_IF_HEALTHY,
    request: EVICT,
    expected: "allow PinnedUnavailable w=0",
  },
  "not available, IfHealthyBudget, too few available": {
    available: 1,
    ...UNREADY_IF_HEALTHY,
    expected: "Denial UnhealthyBudget",
  },
  "not available, IfHealthyBudget, enough but reserved": {
    available: 2,
    reserved: [OTHER],
    ...UNREADY_IF_HEALTHY,
    expected: "Busy UnhealthyBudget",
  },
  "not available, IfHealthyBudget, not counted": { cells: [], ...UNREADY_IF_HEALTHY, expected: "Busy NotCounted" },
  "Ready but not mature": {
    cells: [makeCell("a", 0, [], { maturityCutoff: formatMs(NOW_MS - 60_000) }, makeSpec({ minReadySeconds: 60 }))],
    spec: { minReadySeconds: 60 },
    pod: { readyForSeconds: 5 },
    expected: "allow PinnedImmature w=0",
  },
  "the pod's cell never aggregated": { cells: [makeCell("b", 9)], expected: "Busy NotCounted" },
  "the pod's cell on hold": { cells: [makeCell("a", 9, [], { hold: "Gone/1" })], expected: "Busy OnHold" },
  "force-delete, quota left": { available: 3, request: FORCED, expected: "allow Reserved w=1 paid" },
  "force-delete, none left": { available: 0, request: FORCED, expected: "allow Forced w=1" },
  "force-delete, on hold": {
    cells: [makeCell("a", 9, [], { hold: "Gone/1" })],
    request: FORCED,
    expected: "allow Forced w=1",
  },
  "force-delete, not counted": { cells: [], request: FORCED, expected: "allow Forced w=1" },
  "force-delete, IfHealthyBudget": { available: 0, ...UNREADY_IF_HEALTHY, request: FORCED, expected: "allow Forced" },
  "force-delete, IfHealthyBudget, evicted": {
    available: 0,
    ...UNREADY_IF_HEALTHY,
    request: { ...FORCED, ...EVICT },
    expected: "allow Forced w=0",
  },
  suspended: { available: 0, spec: SUSPENDED, expected: "allow Suspended w=1" },
  "suspended, not available": { available: 0, pod: NOT_READY, spec: SUSPENDED, expected: "allow Suspended" },
  "suspended, not available, evicted": {
    available: 0,
    pod: NOT_READY,
    request: EVICT,
    spec: SUSPENDED,
    expected: "allow Suspended w=0",
  },
  "suspended, on hold": {
    cells: [makeCell("a", 9, [], { hold: "Gone/1" })],
    spec: SUSPENDED,
    expected: "allow Suspended w=1",
  },
  "suspended, operation not protected": {
    available: 0,
    spec: { suspend: { enabled: true }, protectedOperations: ["EVICT"] },
    expected: "allow Suspended",
  },
  "nothing promised": { available: 2, spec: { minAvailable: 0 }, expected: "allow Reserved w=1 paid" },
  "nothing promised, none counted": { available: 0, spec: { minAvailable: 0 }, expected: "allow NothingPromised w=1" },
  "nothing promised, on hold": {
    cells: [makeCell("a", 9, [], { hold: "Gone/1" })],
    spec: { minAvailable: 0 },
    expected: "allow NothingPromised w=1",
  },
  "nothing promised, not counted": { cells: [], spec: { minAvailable: 0 }, expected: "allow NothingPromised w=1" },
  "nothing promised, more reserved than allowed at once": {
    available: 3,
    reserved: [OTHER],
    spec: { minAvailable: 0, admissionHistoryConfig: { maxConcurrentLag: 1 } },
    expected: "allow NothingPromised w=1",
  },
  "nothing promised, and something has to be done first": {
    available: 9,
    pod: BUSY_WITH,
    spec: { minAvailable: 0 },
    expected: "Denial PreActivity",
  },
  "suspended until later": {
    available: 0,
    spec: { suspend: { enabled: true, until: formatMs(NOW_MS + 1) } },
    expected: "allow Suspended w=1",
  },
  "suspended until now": {
    available: 0,
    spec: { suspend: { enabled: true, until: formatMs(NOW_MS) } },
    expected: "Denial AtMinimum",
  },
  "suspension switched off": {
    available: 0,
    spec: { suspend: { enabled: false, until: formatMs(NOW_MS + 1) } },
    expected: "Denial AtMinimum",
  },
  "something has to be done first: available": { available: 9, pod: BUSY_WITH, expected: "Denial PreActivity" },
  "something has to be done first: not available": {
    available: 9,
    pod: { ...BUSY_WITH, ...NOT_READY },
    expected: "Denial PreActivity",
  },
  "something has to be done first: evicted": {
    available: 9,
    pod: BUSY_WITH,
    request: EVICT,
    expected: "Denial PreActivity",
  },
  "something has to be done first, but the pod never ran": {
    pod: { ...BUSY_WITH, ...NOT_READY, phase: "Pending" },
    expected: "allow Pending",
  },
  "something has to be done first, but it is terminating": {
    pod: { ...BUSY_WITH, terminating: true },
    expected: "allow Terminating",
  },
  "something has to be done first, but the protector is suspended": {
    pod: BUSY_WITH,
    spec: SUSPENDED,
    expected: "Denial PreActivity",
  },
  "something has to be done first, force-delete": {
    available: 9,
    pod: BUSY_WITH,
    request: FORCED,
    expected: "allow Forced w=1",
  },
  "an UPDATE that the protector does not ask for": {
    available: 0,
    request: { operation: "UPDATE" },
    expected: "allow NotProtected",
  },
  "a protected UPDATE is as base": {
    available: 2,
    request: { operation: "UPDATE" },
    spec: { protectedOperations: ["UPDATE"] },
    expected: "Denial AtMinimum",
  },
  "a protected UPDATE, quota left": { available: 3, ...UPDATE, expected: "allow Reserved w=1 paid" },
  "a protected UPDATE, all reserved": { available: 3, reserved: [OTHER], ...UPDATE, expected: "Busy Reserved" },
  "a protected UPDATE again, while the first is under way": {
    available: 1,
    reserved: [CHANGING],
    ...UPDATE,
    pod: { generation: 2 },
    expected: "allow Repeated w=1 paid",
  },
  "a protected UPDATE again, long after the first was committed": {
    available: 1,
    reserved: [{ ...CHANGING, startTime: formatMs(NOW_MS - 3_600_000) }],
    ...UPDATE,
    pod: { generation: 2 },
    expected: "allow Repeated w=1 paid",
  },
  "a protected UPDATE again and again, never committed": {
    available: 1,
    reserved: [{ ...CHANGING, startTime: formatMs(NOW_MS - 3_600_000) }],
    ...UPDATE,
    expected: "Busy RefreshedTooLong",
  },
  "a protected UPDATE of a pod that is not available is pinned: it may be before its containers restart": {
    available: 0,
    ...UPDATE,
    pod: NOT_READY,
    expected: "allow PinnedUnavailable w=0",
  },
  "a protected UPDATE of a pending pod is pinned": {
    available: 0,
    ...UPDATE,
    pod: { phase: "Pending", ...NOT_READY },
    expected: "allow PinnedPending w=0",
  },
  "a protected UPDATE of a pod that is being deleted": {
    available: 0,
    ...UPDATE,
    pod: { terminating: true },
    expected: "allow Terminating",
  },
  "a protected UPDATE of a pod whose deletion is reserved counts it once": {
    available: 3,
    reserved: [OWN],
    ...UPDATE,
    expected: "allow Reserved w=1 paid",
  },
  "a DELETE of a pod that is being changed counts it once": {
    available: 3,
    reserved: [CHANGING],
    expected: "allow Reserved w=1 paid",
  },
  "a DELETE of a pod that is being changed, long after": {
    available: 3,
    reserved: [{ ...CHANGING, startTime: formatMs(NOW_MS - 3_600_000) }],
    expected: "allow Reserved w=1 paid",
  },
  "a DELETE of a pod that is being changed, none left": {
    available: 2,
    reserved: [CHANGING],
    expected: "Denial AtMinimum",
  },
  "a protected UPDATE, something has to be done first": {
    available: 9,
    ...UPDATE,
    pod: BUSY_WITH,
    expected: "Denial PreActivity",
  },
  "a DELETE where only UPDATE is protected": {
    available: 0,
    spec: { protectedOperations: ["UPDATE"] },
    expected: "allow NotProtected",
  },
  "an availability condition that is missing": {
    available: 0,
    spec: { availabilityConditions: ["example.com/warm"] },
    expected: "allow Unavailable",
  },
  "an availability condition that is True": {
    cells: [makeCell("a", 2, [], {}, makeSpec({ availabilityConditions: ["example.com/warm"] }))],
    spec: { availabilityConditions: ["example.com/warm"] },
    pod: { conditions: { "example.com/warm": true } },
    expected: "Denial AtMinimum",
  },
  "waiting for the counted gate alone": {
    available: 2,
    pod: { readinessGates: [COUNTED_CONDITION], waitsForGates: true, ...CONTAINERS_READY },
    expected: "Denial AtMinimum",
  },
  "with the counted gate, on a dead node": {
    available: 2,
    pod: {
      readinessGates: [COUNTED_CONDITION],
      ...NOT_READY,
      conditions: { ContainersReady: true, [COUNTED_CONDITION]: true },
    },
    expected: "allow Unavailable",
  },
  "waiting for another gate too": {
    available: 2,
    pod: { readinessGates: [COUNTED_CONDITION, "example.com/other"], waitsForGates: true, ...CONTAINERS_READY },
    expected: "allow Unavailable",
  },
  "criterion Ready": {
    cells: [makeCell("a", 1, [], { readyReplicas: 3 })],
    ...by("Ready"),
    expected: "allow Reserved w=1 paid",
  },
  "criterion Running, which the protector does not allow": {
    cells: [makeCell("a", 2, [], { runningReplicas: 9 })],
    request: { criterion: "Running" },
    expected: "Denial AtMinimum",
  },
  "criterion Running, which the caller may ask for": {
    cells: [makeCell("a", 2, [], { runningReplicas: 9 })],
    request: { criterion: "Running", criterionPermitted: true },
    expected: "allow Reserved w=1 paid",
  },
  "criterion Running counts what weighs nothing": {
    cells: [makeCell("a", 9, [{ ...OTHER, counter: 0 }], { runningReplicas: 3 })],
    ...by("Running"),
    expected: "Busy Reserved",
  },
  "criterion Scheduled, own reservation without weight": {
    cells: [makeCell("a", 9, [{ ...OWN, counter: 0 }], { scheduledReplicas: 3 })],
    ...by("Scheduled"),
    expected: "allow Reserved w=1 paid",
  },
  "criterion Scheduled without such a count": {
    cells: [makeCell("a", 9, [], { scheduledReplicas: 0 })],
    ...by("Scheduled"),
    expected: "Denial AtMinimum",
  },
  "criterion Running, the pod is not available": {
    available: 0,
    pod: NOT_READY,
    ...by("Running"),
    expected: "allow Unavailable",
  },
};

test.each(Object.entries(rows))("%s", (_, row) => {
  const cells = row.cells ?? [makeCell("a", row.available ?? 0, row.reserved, {}, makeSpec(row.spec))];
  const decision = decide(
    parseProtector(makeProtector(cells, row.spec)),
    makeRequest(makePod("x", row.pod), row.request),
  );
  const write =
    decision.allowed && decision.write !== "none"
      ? ` w=${decision.write.weight}${decision.write.paid ? " paid" : ""}`
      : "";
  expect(decision.allowed ? `allow ${decision.reason}${write}` : `${decision.kind} ${decision.cause}`).toBe(
    row.expected,
  );
});
