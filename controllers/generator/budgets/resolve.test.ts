import { describe, expect, test } from "vitest";
import type { Aggregation, PodProtector } from "../../../shared/schema/podprotector.ts";
import {
  type GivenBudget,
  minimum,
  ofDeployment,
  ref,
  replicaSet,
  resolve,
  resolveScale,
  selector,
  workload,
} from "../../../test/support/generator/resolve-budget.ts";
import type { Budget } from "../sources/protection-source.ts";
import { cellsOf, expectedInCells, few } from "./cell-counts.ts";

const GET = "/apis/apps/v1/namespaces/shop/daemonsets/agent";

/** Derivations of 0 that say nothing of how many pods there should be. */
const OF_THE_BUDGET = [
  "minAvailable 0, as the budget says",
  "the budget sets no limit: minAvailable 0",
  "expected 0 (as the budget says) - maxUnavailable 1 = minAvailable 0",
];

describe("the number of pods that there should be", () => {
  test.each<[string, Partial<Budget>, GivenBudget, number]>([
    ["a ReplicaSet counts as its Deployment", { maxUnavailable: 1 }, ofDeployment, 9],
    [
      "a ReplicaSet counts itself when its Deployment is gone",
      { maxUnavailable: 1 },
      { ...ofDeployment, workloads: [["replicaset/shop/web-1", replicaSet]] },
      6,
    ],
    [
      "two ReplicaSets of one Deployment count once",
      { minAvailable: "50%" },
      {
        workloads: [
          ...(ofDeployment.workloads ?? []),
          ["replicaset/shop/web-2", workload("ReplicaSet", "web-2", 3, ref("Deployment", "web"))],
        ],
        pods: { total: 9, controllers: [ref("ReplicaSet", "web-1"), ref("ReplicaSet", "web-2")] },
      },
      5,
    ],
    [
      "several workloads are added up",
      { maxUnavailable: "10%" },
      {
        workloads: [
          ["statefulset/shop/db", workload("StatefulSet", "db", 3)],
          ["replicationcontroller/shop/old", workload("ReplicationController", "old", 4)],
        ],
        pods: { total: 5, controllers: [ref("StatefulSet", "db"), ref("ReplicationController", "old")] },
      },
      6,
    ],
    [
      "pods without a controller do not count beside a workload with such pods",
      { maxUnavailable: 1 },
      { workloads: [["statefulset/shop/db", workload("StatefulSet", "db", 3)]], pods: { total: 5, controllers: [] } },
      2,
    ],
    ["a minAvailable in pods needs no expected number", { minAvailable: 4 }, { notReady: true }, 4],
    ["the budget has the number itself", { maxUnavailable: 1, expectedPods: 8 }, {}, 7],
    [
      "without pods in this cluster, workloads count by their template",
      { maxUnavailable: 1 },
      { ...ofDeployment, pods: { total: 0, controllers: [] } },
      9,
    ],
  ])("%s", async (_, budget, given, expected) => {
    const resolution = await resolve(budget, given);
    expect(minimum(resolution)).toBe(expected);
    expect(resolution).toMatchObject({ recheck: false });
  });

  const served = {
    resources: [
      { name: "rollouts", kind: "Rollout" },
      { name: "rollouts/scale", kind: "Scale" },
    ],
  };
  const rollout: GivenBudget = {
    pods: { total: 5, controllers: [ref("Rollout", "web", "r1")] },
    answers: {
      "/apis/argoproj.io/v1alpha1": served,
      "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/web/scale": {
        metadata: { uid: "r1" },
        spec: { replicas: 6 },
        status: { selector: "app=web" },
      },
    },
  };

  test("a custom resource counts by its scale subresource, which is polled", async () => {
    const resolution = await resolve({ maxUnavailable: 2 }, rollout);
    expect(minimum(resolution)).toBe(4);
    expect(resolution).toMatchObject({ recheck: true });
    const targetRef = ref("Rollout", "web", "r1");
    const byTarget = await resolve({ maxUnavailable: 2, targetRef, selector: undefined }, rollout);
    expect([minimum(byTarget), byTarget]).toMatchObject([4, { recheck: true, protectors: [{ expectedPods: 6 }] }]);
    const watched = await resolve({ maxUnavailable: 2, targetRef: ref("Deployment", "web") }, ofDeployment);
    expect(watched).toMatchObject({ recheck: false });
    const controllers = [ref("Rollout", "web", "r1"), ref("ReplicaSet", "web-1")];
    const both = await resolve({ maxUnavailable: 2 }, { ...ofDeployment, ...rollout, pods: { total: 9, controllers } });
    expect([minimum(both), both]).toMatchObject([14, { recheck: true }]);
  });

  test.each<[string, GivenBudget]>([
    ["no pod has a controller", { pods: { total: 5, controllers: [] } }],
    ["the controller is gone", { pods: { total: 5, controllers: [ref("StatefulSet", "db")] } }],
    [
      "another object has the name of the controller",
      {
        workloads: [["statefulset/shop/db", workload("StatefulSet", "db", 3)]],
        pods: { total: 5, controllers: [ref("StatefulSet", "db", "other")] },
      },
    ],
    ["the kind is not served", { ...rollout, answers: {} }],
    [
      "the kind has no scale subresource",
      { ...rollout, answers: { "/apis/argoproj.io/v1alpha1": { resources: [{ name: "rollouts", kind: "Rollout" }] } } },
    ],
    [
      "another custom resource has the name",
      { ...rollout, pods: { total: 5, controllers: [ref("Rollout", "web", "r2")] } },
    ],
  ])("is unknown, because %s: the minimum stays, and a new protector requires all pods", async (_, given) => {
    const first = await resolve({ maxUnavailable: 1 }, given);
    expect(minimum(first)).toBe(5);
    expect(first).toMatchObject({ recheck: true, why: expect.any(String) });
    expect(minimum(await resolve({ maxUnavailable: 1 }, { ...given, present: 3 }))).toBe(3);
    // What was never known is no number to keep: a budget is often there before its pods.
    const [{ derivation } = {}] = first.kind === "resolved" ? first.protectors : [];
    expect(minimum(await resolve({ maxUnavailable: 1 }, { ...given, present: 1, derivation }))).toBe(5);
    const nothing = "expected 0 (no workload matches) - maxUnavailable 1 = minAvailable 0";
    expect(minimum(await resolve({ maxUnavailable: 1 }, { ...given, present: 0, derivation: nothing }))).toBe(5);
    for (const own of OF_THE_BUDGET)
      expect(minimum(await resolve({ maxUnavailable: 1 }, { ...given, present: 0, derivation: own }))).toBe(5);
    // A workload that was scaled to zero, and is gone before its last pods.
    const stopped = "expected 0 (Deployment web 0) - maxUnavailable 1 = minAvailable 0";
    expect(minimum(await resolve({ maxUnavailable: 1 }, { ...given, present: 0, derivation: stopped }))).toBe(0);
  });

  test.each<[string, Partial<Budget>]>([
    ["a number", { maxUnavailable: 2 }],
    ["a percentage", { minAvailable: "80%" }],
  ])("is not 0 because the last workload of pods in other clusters is gone: %s", async (_, budget) => {
    const pods = { total: 0, controllers: [] };
    const erased = await resolve(budget, { pods, present: 8 });
    expect(minimum(erased)).toBe(8);
    expect(erased).toMatchObject({ why: expect.stringContaining("no workload") });
    const stopped = workload("Deployment", "web", 0);
    expect(minimum(await resolve(budget, { pods, workloads: [["deployment/shop/web", stopped]], present: 8 }))).toBe(0);
    expect(minimum(await resolve(budget, { pods, present: 0 }))).toBe(0);
    expect(await resolve(budget, { pods, present: 0 })).toMatchObject({ why: undefined });
  });

  test("waits for the lists of pods and workloads, and fails in an outage", async () => {
    expect(await resolve({ maxUnavailable: 1 }, {})).toEqual({ kind: "waiting" });
    expect(await resolve({ maxUnavailable: 1 }, { ...ofDeployment, notReady: true })).toEqual({ kind: "waiting" });
    const down = { ...rollout, answers: { "/apis/argoproj.io/v1alpha1": "down" } };
    expect(await resolve({ maxUnavailable: 1 }, down)).toMatchObject({ kind: "failed" });
  });
});

describe("a custom workload, by its scale subresource", () => {
  const SCALE = "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/web/scale";
  const scaled = (replicas: number, selector = "app=web"): GivenBudget => ({
    answers: { [SCALE]: { metadata: { uid: "r1" }, spec: { replicas }, status: { selector } } },
  });
  const own = { matchLabels: { app: "own" } };
  const app = { matchExpressions: [{ key: "app", operator: "In", values: ["web"] }] };

  test.each<[string, Parameters<typeof resolveScale>, object]>([
    ["by default, keeps three quarters", [{}, scaled(8)], { minAvailable: 6, minReadySeconds: 0, selector: app }],
    [
      "has a maxUnavailable of its own",
      [{ maxUnavailable: 3, minReadySeconds: 9 }, scaled(8)],
      { minAvailable: 5, minReadySeconds: 9 },
    ],
    ["has an annotation", [{ stated: { minAvailable: "7" }, maxUnavailable: 3 }, scaled(8)], { minAvailable: 7 }],
    ["has a selector of its own", [{ selector: own }, scaled(8, "")], { minAvailable: 6, selector: own }],
    ["is deleted with replicas", [{}, scaled(1), { deleting: true }], { minAvailable: 0 }],
    ["is at zero", [{}, scaled(0)], { minAvailable: 0 }],
  ])("%s", async (_, given, spec) => {
    const resolution = await resolveScale(...given);
    expect(resolution).toMatchObject({ kind: "resolved", protectors: [{ name: "rollout-web", spec }] });
  });

  test("is released where it is deleted at zero, and has a second protector with a floor", async () => {
    expect(await resolveScale({}, scaled(0), { deleting: true })).toMatchObject({ kind: "resolved", protectors: [] });
    const floors = await resolveScale({ stated: { minRunning: "50%" } }, scaled(8));
    expect(floors).toMatchObject({ protectors: [{}, { spec: { minAvailable: 4, healthCriterion: "Running" } }] });
  });

  test("leaves its protectors as they are where it can't be read", async () => {
    const why = (text: string) => ({ kind: "unresolved", why: expect.stringContaining(text) });
    expect(await resolveScale({}, {})).toMatchObject(why("scale"));
    expect(await resolveScale({}, scaled(8, ""))).toMatchObject(why("has no selector in its status"));
    expect(await resolveScale({}, { answers: { [SCALE]: "down" } })).toMatchObject({ kind: "failed" });
  });
});

test("the order of workloads changes nothing that is written", async () => {
  const workloads: GivenBudget["workloads"] = [
    ["statefulset/shop/db", workload("StatefulSet", "db", 3)],
    ["replicationcontroller/shop/old", workload("ReplicationController", "old", 4)],
  ];
  const controllers = [ref("StatefulSet", "db"), ref("ReplicationController", "old")];
  const of = (order: typeof controllers) =>
    resolve({ maxUnavailable: 1 }, { workloads, pods: { total: 7, controllers: order } });
  expect(await of(controllers)).toEqual(await of(controllers.toReversed()));
});

test("a budget with a targetRef may say itself how many pods there should be", async () => {
  const targetRef = ref("Deployment", "web");
  expect(minimum(await resolve({ maxUnavailable: 1, targetRef, expectedPods: 20 }, ofDeployment))).toBe(19);
  expect(await resolve({ maxUnavailable: 1, selector: undefined }, ofDeployment)).toMatchObject({ protectors: [] });
});

describe("a budget is unresolved, which leaves its protectors as they are, for", () => {
  test.each<[string, Partial<Budget>, GivenBudget]>([
    ["a targetRef to a missing workload", { maxUnavailable: 1, targetRef: ref("Deployment", "other") }, ofDeployment],
  ])("%s", async (_, budget, given) => {
    expect(await resolve(budget, given)).toMatchObject({ kind: "unresolved" });
  });
});

// x-pdb's CRD takes any text, and a number in quotes is no percentage: x-pdb then answers disruptions with an error.
test.each([{}, { present: 0 }])("a limit that was never readable requires all pods: %j", async (given) => {
  const resolution = await resolve({ minAvailable: "3" }, { ...ofDeployment, ...given });
  expect(minimum(resolution)).toBe(10);
  expect(resolution).toMatchObject({ why: "its minAvailable or maxUnavailable can't be read" });
});

// x-pdb asks nobody about a limit where the budget is suspended, and denies the disruption of each pod that it selects.
test("a limit that can't be read keeps its number, beside the pods and the suspension of the budget", async () => {
  const suspend = { enabled: true, reason: "x" };
  const wider = { matchExpressions: [{ key: "app", operator: "In" as const, values: ["web", "api"] }] };
  const given = { ...ofDeployment, present: 3, presentSelector: wider };
  const resolution = await resolve({ maxUnavailable: "many", selector: wider, spec: { suspend } }, given);
  expect(resolution).toMatchObject({
    protectors: [{ spec: { minAvailable: 3, selector: wider, suspend } }],
    why: "its minAvailable or maxUnavailable can't be read",
  });
});

test("a limit that is no whole number can't be read: the core would refuse a protector with it", async () => {
  const resolution = await resolve({ minAvailable: 2.5 }, ofDeployment);
  expect(minimum(resolution)).toBe(10);
  expect(resolution).toMatchObject({ why: "its minAvailable or maxUnavailable can't be read" });
});

test("targetRef has precedence over selector, and ignored pods count but are not protected", async () => {
  const targetRef = ref("Deployment", "web");
  const resolution = await resolve(
    {
      maxUnavailable: 1,
      targetRef,
      selector: { matchLabels: { app: "other" } },
      ignoredPodSelector: { matchLabels: { canary: "yes" } },
    },
    ofDeployment,
  );
  expect(resolution.kind === "resolved" && resolution.protectors[0]?.spec).toEqual({
    minAvailable: 9,
    minReadySeconds: 0,
    selector,
    ignoredPodSelector: { matchLabels: { canary: "yes" } },
  });
});

// OpenKruise finds such a workload by getRefUID, its pods by their owner, and their number in the budget.
describe("a targetRef to a DaemonSet, which has no scale subresource", () => {
  const daemonSet = { spec: { selector: { matchLabels: { app: "agent" } } } };
  const given = (apiVersion: string): GivenBudget => ({
    answers: {
      [`/apis/${apiVersion}`]: { resources: [{ name: "daemonsets", kind: "DaemonSet" }] },
      [`/apis/${apiVersion}/namespaces/shop/daemonsets/agent`]: daemonSet,
    },
  });
  const ofGroup = (apiVersion: string) => ({ apiVersion, kind: "DaemonSet", name: "agent" });
  const budget = (apiVersion: string): Partial<Budget> => ({ selector: undefined, targetRef: ofGroup(apiVersion) });

  test.each([
    ["apps/v1", { minAvailable: 3 }, 3],
    ["apps.kruise.io/v1beta1", { minAvailable: 3 }, 3],
    ["apps/v1", { maxUnavailable: 1, expectedPods: 5 }, 4],
    ["apps/v1", { minAvailable: "50%", expectedPods: 5 }, 3],
  ])("protects its pods: %s %j", async (version, limits, expected) => {
    const resolution = await resolve({ ...budget(version), ...limits }, given(version));
    expect(minimum(resolution)).toBe(expected);
    expect(resolution).toMatchObject({ recheck: true, protectors: [{ spec: daemonSet.spec }] });
  });

  test.each<[string, Partial<Budget>, GivenBudget]>([
    ["the budget does not say how many there should be", { maxUnavailable: 1 }, given("apps/v1")],
    ["its group is another one", { minAvailable: 3, targetRef: ofGroup("example.com/v1") }, given("example.com/v1")],
    ["it is not there", { minAvailable: 3 }, { answers: { ...given("apps/v1").answers, [GET]: undefined } }],
    ["it selects nothing", { minAvailable: 3 }, { answers: { ...given("apps/v1").answers, [GET]: { spec: {} } } }],
  ])("is unresolved where %s", async (_, limits, cluster) => {
    expect((await resolve({ ...budget("apps/v1"), ...limits }, cluster)).kind).not.toBe("resolved");
  });
});

describe("a budget of several clusters, of which one has a limit that can't be read", () => {
  const ofClusters = [
    { cluster: "c", minAvailable: 4 },
    { cluster: "a", minAvailable: 5 },
    { cluster: "b", minAvailable: "unreadable" },
  ];
  test.each<[string, GivenBudget, number]>([
    ["is made with what the others ask for", {}, 5],
    ["follows what the others ask for", { present: 3 }, 5],
    ["keeps a number that was greater", { present: 8 }, 8],
  ])("%s", async (_, given, expected) => {
    for (const minAvailable of [5, "unreadable"]) {
      const resolution = await resolve({ minAvailable, ofClusters }, { ...ofDeployment, ...given });
      expect(minimum(resolution)).toBe(expected);
      expect(resolution).toMatchObject({ why: "its minAvailable or maxUnavailable can't be read" });
    }
  });

  test("of which none can be read stays as it is", async () => {
    const unreadable = [{ cluster: "b", minAvailable: "unreadable" }];
    const given = { ...ofDeployment, present: 8 };
    const resolution = await resolve({ minAvailable: "unreadable", ofClusters: unreadable }, given);
    expect(minimum(resolution)).toBe(8);
    expect(resolution).toMatchObject({ why: "its minAvailable or maxUnavailable can't be read" });
  });
});

describe("the cells of a protector", () => {
  const counted = { totalReplicas: 2, availableReplicas: 2, resourceVersion: "1" };
  const ofCells = (...aggregations: (Aggregation | undefined)[]): PodProtector => {
    const cells = aggregations.map((aggregation, index) => ({ cellID: `${index}`, aggregation }));
    const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
    const metadata = { name: "web", namespace: "shop", uid: "p", resourceVersion: "1" };
    return { metadata, spec: { minAvailable: 1, minReadySeconds: 0, selector }, status: { cells, summary } };
  };

  test("are those that an aggregator has counted", () => {
    const present = ofCells(undefined, { totalReplicas: 9, availableReplicas: 9 }, counted);
    expect(cellsOf(present).map(({ id }) => id)).toEqual(["2"]);
    expect(cellsOf(undefined)).toEqual([]);
  });

  test.each<[object, boolean]>([
    [{ totalReplicas: 0 }, true],
    [{ totalReplicas: 0, hold: "Gone/1" }, false],
    [{ totalReplicas: 0, expectedReplicas: 0, hold: "Gone/1" }, false],
    [{ totalReplicas: 1, hold: "Gone/1" }, true],
    [{ totalReplicas: 0, expectedReplicas: 1, hold: "Gone/1" }, true],
  ])("have a say, as far as they are not on hold without pods: %j", (aggregation, expected) => {
    expect(expectedInCells(ofCells({ ...counted, ...aggregation })).hasAnySay).toBe(expected);
  });

  test("are named up to a bound, and the others counted", () => {
    expect(few([..."abcde"])).toBe("a, b, c, d, e");
    expect(few([..."abcdefg"])).toBe("a, b, c, d, e and 2 more");
  });
});
