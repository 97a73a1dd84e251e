/** The rows of the admission table (docs/design.md#admission-table) that are one request against one protector. */
import type { ApiAnswer } from "../../scripts/control-plane/api-client.ts";
import type { AdmissionHarness, PodSetting } from "../support/cluster/admission-harness.ts";

export interface AdmissionCase {
  readonly app: string;
  readonly pod: string;
}

export interface Expected {
  readonly verdict: string;
  /** Number of records in the status. */
  readonly records: number;
  readonly message?: RegExp;
}

const DRY = "?dryRun=All";
export const FORCE = { gracePeriodSeconds: 0 };
export const unready: PodSetting = { ready: false };

const EVICTIONS_ONLY = {
  unhealthyPodPolicy: "IfHealthyBudget",
  unhealthyPodPolicies: { DELETE: "AlwaysAllow", UPDATE: "AlwaysAllow" },
};

interface AdmissionRow {
  readonly row: string;
  readonly min: number;
  readonly available: number;
  readonly pod?: PodSetting;
  readonly spec?: Readonly<Record<string, unknown>>;
  readonly aggregation?: Readonly<Record<string, unknown>>;
  readonly act: (harness: AdmissionHarness, one: AdmissionCase) => Promise<ApiAnswer>;
  readonly expected: Expected;
  /** Allowed whatever the counts say, so a write that takes more than a second leaves no record. */
  readonly needsNoQuota?: boolean;
}

const deleteIt = (harness: AdmissionHarness, { pod }: AdmissionCase): Promise<ApiAnswer> => harness.delete(pod);
const evictIt = (harness: AdmissionHarness, { pod }: AdmissionCase): Promise<ApiAnswer> => harness.evict(pod);
export const allow = (records: number): Expected => ({ verdict: "allow", records });
export const denial: Expected = {
  verdict: "denial",
  records: 0,
  message: /needs \d+ available pods?, \d+ (is|are) available/,
};

export const ROWS: readonly AdmissionRow[] = [
  { row: "DELETE of a Ready pod, quota left", min: 1, available: 2, act: deleteIt, expected: allow(1) },
  { row: "DELETE of a Ready pod, no quota", min: 2, available: 2, act: deleteIt, expected: denial },
  {
    row: "gracePeriodSeconds 0 with quota",
    min: 1,
    available: 2,
    act: (harness, { pod }) => harness.delete(pod, FORCE),
    expected: allow(1),
  },
  {
    row: "gracePeriodSeconds 0 is no bypass",
    min: 2,
    available: 2,
    act: (harness, { pod }) => harness.delete(pod, FORCE),
    expected: denial,
  },
  {
    row: "phase Succeeded, even if Ready",
    min: 2,
    available: 2,
    pod: { phase: "Succeeded" },
    act: deleteIt,
    expected: allow(0),
  },
  { row: "phase Failed", min: 2, available: 2, pod: { phase: "Failed" }, act: deleteIt, expected: allow(0) },
  {
    row: "phase Pending",
    min: 2,
    available: 2,
    pod: { phase: "Pending", ready: false },
    act: deleteIt,
    expected: allow(0),
  },
  {
    row: "mirror pod of a static pod",
    min: 2,
    available: 2,
    pod: { annotations: { "kubernetes.io/config.mirror": "x" }, scheduled: true },
    act: deleteIt,
    expected: allow(0),
  },
  { row: "not available, AlwaysAllow", min: 2, available: 2, pod: unready, act: deleteIt, expected: allow(0) },
  { row: "not available, evicted: pinned", min: 2, available: 2, pod: unready, act: evictIt, expected: allow(1) },
  {
    row: "not available, IfHealthyBudget, too few available",
    min: 2,
    available: 1,
    pod: unready,
    spec: { unhealthyPodPolicy: "IfHealthyBudget" },
    act: deleteIt,
    expected: { ...denial, message: /IfHealthyBudget/ },
  },
  {
    row: "not available, IfHealthyBudget, enough available",
    min: 2,
    available: 2,
    pod: unready,
    spec: { unhealthyPodPolicy: "IfHealthyBudget" },
    act: deleteIt,
    expected: allow(0),
  },
  {
    row: "not available, IfHealthyBudget for evictions alone: DELETE",
    min: 2,
    available: 1,
    pod: unready,
    spec: EVICTIONS_ONLY,
    act: deleteIt,
    expected: allow(0),
  },
  {
    row: "not available, IfHealthyBudget for evictions alone: EVICT",
    min: 2,
    available: 1,
    pod: unready,
    spec: EVICTIONS_ONLY,
    act: evictIt,
    expected: { ...denial, message: /IfHealthyBudget/ },
  },
  {
    row: "not Ready with DisruptionTarget, IfHealthyBudget: EVICT",
    min: 2,
    available: 1,
    pod: { ready: false, conditions: { DisruptionTarget: "True" } },
    spec: { unhealthyPodPolicy: "IfHealthyBudget" },
    act: evictIt,
    expected: allow(1),
  },
  {
    row: "on a lost node, whose pod node-lifecycle has marked not Ready, IfHealthyBudget: EVICT",
    min: 2,
    available: 1,
    pod: { ready: false, conditions: { ContainersReady: "True" } },
    spec: { unhealthyPodPolicy: "IfHealthyBudget" },
    act: evictIt,
    expected: allow(1),
  },
  {
    row: "dry run with quota",
    min: 1,
    available: 2,
    act: (harness, { pod }) => harness.delete(pod, undefined, DRY),
    expected: allow(0),
  },
  {
    row: "dry run without quota",
    min: 2,
    available: 2,
    act: (harness, { pod }) => harness.delete(pod, undefined, DRY),
    expected: denial,
  },
  {
    row: "dry run in the body of an eviction",
    min: 1,
    available: 2,
    act: (harness, { pod }) => harness.evict(pod, { deleteOptions: { dryRun: ["All"] } }),
    expected: allow(0),
  },
  { row: "eviction, policy/v1, with quota", min: 1, available: 2, act: evictIt, expected: allow(1) },
  { row: "eviction, policy/v1, without quota", min: 2, available: 2, act: evictIt, expected: denial },
  {
    row: "eviction whose UID precondition differs",
    min: 1,
    available: 2,
    act: (harness, { pod }) => harness.evict(pod, { deleteOptions: { preconditions: { uid: "another" } } }),
    expected: { verdict: "409", records: 0, message: /UID/ },
  },
  {
    row: "force-delete annotation without quota",
    min: 2,
    available: 2,
    pod: { annotations: { "podseidon.kubewharf.io/force-delete": "MaintenanceOfRack7" } },
    act: deleteIt,
    expected: allow(1),
  },
  {
    row: "force-delete with a reserved value is no bypass",
    min: 2,
    available: 2,
    pod: { annotations: { "podseidon.kubewharf.io/force-delete": '{"until":"tomorrow"}' } },
    act: deleteIt,
    expected: denial,
  },
  {
    row: "the pod's cell is on hold",
    min: 1,
    available: 2,
    aggregation: { hold: "Behind/abc" },
    act: deleteIt,
    expected: { verdict: "busy", records: 0, message: /on hold/ },
  },
  {
    row: "nothing is promised, and the pod's cell is on hold",
    min: 0,
    available: 2,
    aggregation: { hold: "Behind/abc" },
    act: deleteIt,
    expected: allow(1),
    needsNoQuota: true,
  },
  {
    row: "health-criterion Ready counts another number, where the protector allows it",
    spec: { allowedHealthCriteria: ["Ready"] },
    min: 3,
    available: 2,
    aggregation: { readyReplicas: 5 },
    pod: { annotations: { "podseidon.kubewharf.io/health-criterion": "Ready" } },
    act: deleteIt,
    expected: allow(1),
  },
  {
    row: "health-criterion Ready that the protector does not allow is Available",
    min: 3,
    available: 2,
    aggregation: { readyReplicas: 5 },
    pod: { annotations: { "podseidon.kubewharf.io/health-criterion": "Ready" } },
    act: deleteIt,
    expected: denial,
  },
  {
    row: "an unknown health-criterion is Available",
    min: 3,
    available: 2,
    aggregation: { readyReplicas: 5 },
    pod: { annotations: { "podseidon.kubewharf.io/health-criterion": "Perfect" } },
    act: deleteIt,
    expected: denial,
  },
  {
    row: "suspended",
    min: 2,
    available: 2,
    spec: { suspend: { enabled: true, reason: "moving" } },
    act: deleteIt,
    expected: allow(1),
    needsNoQuota: true,
  },
];
