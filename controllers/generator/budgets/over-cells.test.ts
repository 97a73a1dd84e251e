import { expect, test } from "vitest";
import {
  type GivenBudget,
  minimum,
  ofDeployment,
  ref,
  resolve,
} from "../../../test/support/generator/resolve-budget.ts";
import type { Budget } from "../sources/protection-source.ts";

const nowhere = { total: 0, controllers: [] };
const bare = { total: 4, controllers: [] };
const threes = [
  [3, 3],
  [3, 3],
  [3, 3],
] as const;
test.each<[string, Partial<Budget>, GivenBudget, number, boolean]>([
  ["the cells' add up", {}, { pods: nowhere, present: 2, cells: threes }, 8, true],
  ["before a cell has counted there are none", {}, { pods: nowhere }, 0, true],
  [
    "a cell that has not said is no zero: all pods",
    {},
    {
      pods: nowhere,
      present: 0,
      cells: [
        [3, 3],
        [2, undefined],
      ],
    },
    5,
    true,
  ],
  [
    "a cell that has not said is no zero: as it was",
    {},
    {
      pods: nowhere,
      present: 8,
      cells: [
        [3, 3],
        [2, undefined],
      ],
    },
    8,
    true,
  ],
  [
    "a cell without pods counts",
    {},
    {
      pods: nowhere,
      present: 8,
      cells: [
        [3, 3],
        [0, 3],
      ],
    },
    5,
    true,
  ],
  [
    "what is federated counts once",
    {},
    {
      ...ofDeployment,
      pods: nowhere,
      present: 9,
      cells: [
        [5, 5],
        [5, 5],
      ],
    },
    9,
    true,
  ],
  [
    "the core's own is a part of it",
    {},
    {
      ...ofDeployment,
      present: 9,
      cells: [
        [10, 10],
        [5, 5],
      ],
    },
    14,
    true,
  ],
  [
    "what the core's workloads ask for counts where it is more",
    {},
    {
      ...ofDeployment,
      present: 9,
      cells: [
        [3, 3],
        [2, 2],
      ],
    },
    9,
    true,
  ],
  [
    "a cell without pods is none of several",
    {},
    {
      ...ofDeployment,
      present: 9,
      cells: [
        [10, 10],
        [0, 0],
      ],
    },
    9,
    false,
  ],
  [
    "one cell has said more than the core",
    {},
    { ...ofDeployment, present: 9, cells: [[7, 12]], isCounted: true },
    11,
    true,
  ],
  ["of one cell, the core's workloads", {}, { ...ofDeployment, present: 9, cells: [[10, undefined]] }, 9, false],
  [
    "cells that lost all pods still count",
    {},
    {
      ...ofDeployment,
      present: 14,
      cells: [
        [10, 10],
        [0, 5],
      ],
      isCounted: true,
    },
    14,
    true,
  ],
  [
    "the owner says that the core's count",
    { countedIn: "core" },
    {
      ...ofDeployment,
      present: 9,
      cells: [
        [10, 10],
        [5, 5],
      ],
      isCounted: true,
    },
    9,
    false,
  ],
  [
    "the owner says that the cells' count",
    { countedIn: "cells" },
    { ...ofDeployment, present: 9, cells: [[12, 12]] },
    11,
    true,
  ],
  [
    "pods without a workload in the core",
    {},
    { pods: bare, present: 0, derivation: "expected 0 (no workload matches) - 1", cells: [[4, undefined]] },
    4,
    false,
  ],
])("over cells: %s", async (_, budget, given, expected, isAsked) => {
  const resolution = await resolve({ maxUnavailable: 1, ...budget }, given);
  expect(minimum(resolution)).toBe(expected);
  const [protector] = resolution.kind === "resolved" ? resolution.protectors : [];
  expect(protector?.spec.countExpectedPods).toBe(isAsked ? true : undefined);
  expect(protector?.owns).toContain("countExpectedPods");
  const isSilent = given.cells?.some(([, one]) => one === undefined) === true && isAsked;
  // An aggregator that may not list a kind is as silent as one without a workload.
  const why = "cell b has not said: no workload there has such pods, or its aggregator can't list a kind";
  if (isSilent) expect(resolution).toMatchObject({ why });
});

// A budget that is applied together with a custom workload is there before its pods, and asks the cells. The aggregator
// of the cluster itself does not know the kind. The disruption controller and OpenKruise read its scale.
const API = "/apis/argoproj.io/v1alpha1";
const rollout: GivenBudget = {
  pods: { total: 5, controllers: [ref("Rollout", "web", "r1")] },
  answers: {
    [API]: { resources: ["rollouts", "rollouts/scale"].map((name) => ({ name, kind: "Rollout" })) },
    [`${API}/namespaces/shop/rollouts/web/scale`]: { metadata: { uid: "r1" }, spec: { replicas: 5 } },
  },
};
test.each<[string, Partial<Budget>, GivenBudget, number, boolean]>([
  ["alone has its pods", {}, { present: 0, cells: [[5, undefined]] }, 4, false],
  ["was asked while its pods came", {}, { present: 2, cells: [[5, undefined]] }, 4, false],
  [
    "has pods of a workload that was scaled to zero",
    {},
    {
      answers: {
        ...rollout.answers,
        [`${API}/namespaces/shop/rollouts/web/scale`]: { metadata: { uid: "r1" }, spec: { replicas: 0 } },
      },
      present: 4,
      cells: [[5, undefined]],
    },
    0,
    false,
  ],
  [
    "has pods that no controller in the core asks for",
    {},
    { pods: { total: 5, controllers: [] }, present: 8, cells: [[5, undefined]] },
    8,
    true,
  ],
  ["has more pods than the core", {}, { present: 8, cells: [[9, undefined]] }, 8, true],
  [
    "has pods beside another one",
    {},
    {
      present: 8,
      cells: [
        [5, undefined],
        [5, undefined],
      ],
    },
    8,
    true,
  ],
  ["is to be asked, as the owner says", { countedIn: "cells" }, { present: 8, cells: [[5, undefined]] }, 8, true],
])("a silent cell that %s", async (_, budget, given, expected, isAsked) => {
  const resolution = await resolve({ maxUnavailable: 1, ...budget }, { ...rollout, ...given, isCounted: true });
  expect(minimum(resolution)).toBe(expected);
  const [protector] = resolution.kind === "resolved" ? resolution.protectors : [];
  expect(protector?.spec.countExpectedPods).toBe(isAsked ? true : undefined);
});
