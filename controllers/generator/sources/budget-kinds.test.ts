/** What the protector gets from each kind of budget: limits, policy, operations, suspension, probe. */
import { describe, expect, test } from "vitest";
import {
  CLUSTER_BUDGETS_ANNOTATION,
  EXPECTED_PODS_ANNOTATION,
  SUSPEND_CELLS_ANNOTATION,
} from "../../../shared/schema/annotations.ts";
import { plugins } from "./plugins.ts";
import type { Budget } from "./protection-source.ts";

const all = plugins({ protectSelector: "", protectNonZero: true });
const selector = { matchLabels: { app: "web" } };

function budget(name: string, spec: object | undefined, annotations: object = {}): Budget | undefined {
  const metadata = { name: "web", namespace: "shop", uid: "u1", resourceVersion: "7", annotations };
  const source = all
    .find((one) => one.name === name)
    ?.interpret(spec === undefined ? { metadata } : { metadata, spec });
  return source?.need?.kind === "budget" ? source.need.budget : undefined;
}

describe("a PodDisruptionBudget", () => {
  test.each<[string, object, Partial<Budget>]>([
    ["minAvailable", { minAvailable: 3 }, { minAvailable: 3, maxUnavailable: undefined }],
    ["a percentage", { maxUnavailable: "20%" }, { maxUnavailable: "20%" }],
    [
      "default policy, of evictions alone",
      {},
      {
        spec: {
          unhealthyPodPolicy: "IfHealthyBudget",
          unhealthyPodPolicies: { DELETE: "AlwaysAllow", UPDATE: "AlwaysAllow" },
        },
      },
    ],
    [
      "policy",
      { unhealthyPodEvictionPolicy: "AlwaysAllow" },
      {
        spec: {
          unhealthyPodPolicy: "AlwaysAllow",
          unhealthyPodPolicies: { DELETE: "AlwaysAllow", UPDATE: "AlwaysAllow" },
        },
      },
    ],
    [
      "a policy of a later Kubernetes, by which a client is to evict no unhealthy pod",
      { unhealthyPodEvictionPolicy: "Later" },
      { spec: { unhealthyPodPolicy: "IfHealthyBudget" } },
    ],
    ["the empty selector", { selector: {} }, { selector: {} }],
  ])("%s", (_, spec, expected) => {
    expect(budget("poddisruptionbudget", { selector, ...spec })).toMatchObject(expected);
  });

  test("without a selector selects no pod", () => {
    expect(budget("poddisruptionbudget", { minAvailable: 1 })).toBeUndefined();
    expect(budget("poddisruptionbudget", undefined)).toBeUndefined();
  });

  test.each([undefined, {}, { targetRef: { apiVersion: "apps/v1", kind: "Deployment" } }])(
    "that asks for protection and selects nothing says so: %j",
    (spec) => {
      const metadata = { name: "web", namespace: "shop", uid: "u1", resourceVersion: "7" };
      const whys = ["poddisruptionbudget", "podunavailablebudget"].map(
        (name) => all.find((one) => one.name === name)?.interpret({ metadata, spec }).why,
      );
      const why = "it has no selector, so that it selects no pod; an empty one selects all pods of the namespace";
      expect(whys).toEqual([why, why]);
    },
  );
});

describe("a PodUnavailableBudget", () => {
  const ALL = ["DELETE", "EVICT", "UPDATE"];
  const OPERATIONS = "kruise.io/pub-protect-operations";
  test.each<[string, object, object, readonly string[]]>([
    ["none", {}, {}, ALL],
    ["unknown", { protectOperations: ["OTHER"] }, {}, ALL],
    ["one", { protectOperations: ["EVICT"] }, {}, ["EVICT"]],
    ["RESIZE", { protectOperations: ["DELETE", "RESIZE"] }, {}, ["DELETE", "RESIZE"]],
    ["annotation", {}, { [OPERATIONS]: "DELETE, EVICT" }, ["DELETE", "EVICT"]],
    ["field before annotation", { protectOperations: ["UPDATE"] }, { [OPERATIONS]: "DELETE" }, ["UPDATE"]],
    ["an empty field says nothing", { protectOperations: [] }, { [OPERATIONS]: "EVICT" }, ["EVICT"]],
  ])("operations: %s", (_, spec, annotations, expected) => {
    const found = budget("podunavailablebudget", { selector, ...spec }, annotations)?.spec.protectedOperations;
    expect([...(found ?? [])].sort()).toEqual([...expected]);
  });

  test.each<[string, object, object, number | undefined]>([
    ["none", {}, {}, undefined],
    ["field", { protectTotalReplicas: 9 }, {}, 9],
    ["annotation", {}, { "pub.kruise.io/protect-total-replicas": "7" }, 7],
    ["none at all", {}, { "pub.kruise.io/protect-total-replicas": "0" }, 0],
    ["fewer than none", {}, { "pub.kruise.io/protect-total-replicas": "-3" }, 0],
    ["an empty annotation", {}, { "pub.kruise.io/protect-total-replicas": "" }, undefined],
    ["not a number", {}, { "pub.kruise.io/protect-total-replicas": "many" }, undefined],
    ["white space", {}, { "pub.kruise.io/protect-total-replicas": " " }, undefined],
    ["no decimal digits", {}, { "pub.kruise.io/protect-total-replicas": "0x0" }, undefined],
  ])("total replicas: %s", (_, spec, annotations, expected) => {
    expect(budget("podunavailablebudget", { selector, ...spec }, annotations)?.expectedPods).toBe(expected);
  });

  test("targetRef, ignoredPodSelector, and neither targetRef nor selector", () => {
    const targetRef = { apiVersion: "apps/v1", kind: "Deployment", name: "web" };
    expect(budget("podunavailablebudget", { targetRef })).toMatchObject({ targetRef, selector: undefined });
    expect(budget("podunavailablebudget", { targetRef: { kind: "Deployment" } })).toBeUndefined();
    expect(budget("podunavailablebudget", { ignoredPodSelector: {}, selector })?.ignoredPodSelector).toEqual({});
  });
});

test.each<[string, string | undefined, object | undefined]>([
  ["in all cells", undefined, { enabled: true, reason: "XPodDisruptionBudget web is suspended" }],
  ["in some", "a, b", { enabled: true, reason: "XPodDisruptionBudget web is suspended", cells: ["a", "b"] }],
  ["in none", "", undefined],
])("an XPodDisruptionBudget is suspended %s", (_, cells, expected) => {
  const annotations = cells === undefined ? {} : { "podseidon.kubewharf.io/suspend-cells": cells };
  expect(budget("xpoddisruptionbudget", { selector, suspend: true }, annotations)?.spec.suspend).toEqual(expected);
});

describe("an XPodDisruptionBudget", () => {
  const endpoint = "probe.shop:8080";
  test.each<[string, object, object]>([
    ["without suspend and probe", {}, {}],
    ["suspended", { suspend: true }, { suspend: { enabled: true, reason: "XPodDisruptionBudget web is suspended" } }],
    ["not suspended", { suspend: false }, {}],
    ["a probe", { probe: { endpoint } }, { probe: { endpoint, protocol: "GRPC" } }],
    ["an enabled probe", { probe: { endpoint, enabled: true } }, { probe: { endpoint, protocol: "GRPC" } }],
    ["a disabled probe", { probe: { endpoint, enabled: false } }, {}],
    ["a probe without endpoint", { probe: {} }, {}],
  ])("%s", (_, spec, expected) => {
    const found = budget("xpoddisruptionbudget", { selector, ...spec });
    expect(found?.spec).toEqual({
      unhealthyPodPolicy: "IfHealthyBudget",
      unhealthyPodPolicies: { DELETE: "AlwaysAllow", UPDATE: "AlwaysAllow" },
      ...expected,
    });
  });
});

// x-pdb's selector is no pointer: an absent one is the empty one, which selects every pod of the namespace.
test.each([{ minAvailable: 3 }, { minAvailable: 3, selector: null }, { minAvailable: 3, selector: {} }])(
  "an XPodDisruptionBudget without a selector selects all pods: %j",
  (spec) => {
    expect(budget("xpoddisruptionbudget", spec)).toMatchObject({ selector: {}, minAvailable: 3 });
  },
);

describe("what no protector can have", () => {
  test.each([
    ["an account", "user@host:1"],
    ["an account in a URL", "https://user:word@host/x"],
    ["too much text", "x".repeat(2049)],
  ])("an endpoint with %s", (_, endpoint) => {
    const spec = { selector, minAvailable: 1, probe: { endpoint } };
    expect(() => budget("xpoddisruptionbudget", spec)).toThrow("spec.probe.endpoint");
  });

  test("cells of a suspension that are named twice, or by no id", () => {
    const cells = { "podseidon.kubewharf.io/suspend-cells": `a,b,a,${"x".repeat(254)}` };
    const spec = { selector, minAvailable: 1, suspend: true };
    expect(budget("xpoddisruptionbudget", spec, cells)?.spec.suspend).toMatchObject({
      enabled: true,
      cells: ["a", "b"],
    });
  });
});

test.each<[string, Pick<Budget, "expectedPods" | "countedIn">]>([
  ["8", { expectedPods: 8, countedIn: undefined }],
  ["core", { expectedPods: undefined, countedIn: "core" }],
  ["cells", { expectedPods: undefined, countedIn: "cells" }],
  ["0", { expectedPods: undefined, countedIn: undefined }],
  ["2.5", { expectedPods: undefined, countedIn: undefined }],
  ["many", { expectedPods: undefined, countedIn: undefined }],
  ["1e3", { expectedPods: undefined, countedIn: undefined }],
  ["0x10", { expectedPods: undefined, countedIn: undefined }],
  [" 8", { expectedPods: undefined, countedIn: undefined }],
])("the pods that there should be are annotated on a budget of any kind: %s", (stated, expected) => {
  for (const name of ["poddisruptionbudget", "podunavailablebudget", "xpoddisruptionbudget"])
    expect(budget(name, { selector }, { [EXPECTED_PODS_ANNOTATION]: stated })).toMatchObject(expected);
});

test("a budget of several clusters counts in the cells, unless it says otherwise", () => {
  const clusters = JSON.stringify({ name: "db", clusters: { a: { minAvailable: 2 }, b: { maxUnavailable: 1 } } });
  const of = (annotations: object) => budget("xpoddisruptionbudget", { selector }, annotations);
  expect(of({ [CLUSTER_BUDGETS_ANNOTATION]: clusters })).toMatchObject({
    ofClusters: [
      { cluster: "a", minAvailable: 2 },
      { cluster: "b", maxUnavailable: 1 },
    ],
    countedIn: "cells",
  });
  const core = { [CLUSTER_BUDGETS_ANNOTATION]: clusters, [EXPECTED_PODS_ANNOTATION]: "core" };
  expect(of(core)?.countedIn).toBe("core");
  expect(of({ [CLUSTER_BUDGETS_ANNOTATION]: "?" })?.ofClusters).toMatchObject([{ minAvailable: "unreadable" }]);
  expect(of({})).not.toHaveProperty("ofClusters");
});

test("a suspension of more cells than a protector can name is none, and one that ends is taken back", () => {
  const suspended = (cells: number) =>
    budget(
      "xpoddisruptionbudget",
      { selector, suspend: true },
      { [SUSPEND_CELLS_ANNOTATION]: Array.from({ length: cells }, (_, index) => `c${index}`).join(",") },
    );
  expect([256, 257].map((cells) => suspended(cells)?.spec.suspend?.cells?.length)).toEqual([256, undefined]);
  expect(suspended(257)?.spec).not.toHaveProperty("suspend");
  expect(suspended(1)?.owns).toEqual(expect.arrayContaining(["suspend", "probe"]));
});
