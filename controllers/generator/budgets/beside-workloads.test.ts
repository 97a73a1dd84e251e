/** Pods for which the disruption controller knows no number count beside the pods of workloads that have one. */
import { expect, test } from "vitest";
import {
  type GivenBudget,
  minimum,
  ofDeployment,
  ref,
  resolve,
  selector,
  workload,
} from "../../../test/support/generator/resolve-budget.ts";
import { plugins } from "../sources/plugins.ts";
import type { ProtectionSource } from "../sources/protection-source.ts";

const JOB = { apiVersion: "batch/v1", kind: "Job", name: "hook", uid: "j" };

function daemonSet(nodes: number): ProtectionSource {
  const metadata = { name: "agent", namespace: "shop", uid: "DaemonSet-agent", resourceVersion: "1" };
  const plugin = plugins({ protectSelector: "", protectNonZero: true }).find(({ name }) => name === "daemonset");
  const template = { metadata: { labels: selector.matchLabels } };
  const status = { desiredNumberScheduled: nodes, observedGeneration: nodes > 0 ? 1 : 0 };
  return plugin?.interpret({ metadata, spec: { selector, template }, status }) ?? expect.fail("no such plugin");
}

/** Its pods: three of a StatefulSet, and two of a DaemonSet, which is not there. */
const besideDaemonSet = {
  workloads: [["statefulset/shop/db", workload("StatefulSet", "db", 3)]],
  pods: { total: 5, controllers: [ref("StatefulSet", "db"), ref("DaemonSet", "agent")] },
} as const satisfies GivenBudget;

test.each<[string, GivenBudget, number]>([
  [
    "unfinished pods of a Job count beside a workload",
    {
      workloads: [["statefulset/shop/db", workload("StatefulSet", "db", 3)]],
      pods: { total: 6, controllers: [ref("StatefulSet", "db"), JOB], jobPods: 2 },
    },
    4,
  ],
  [
    "a DaemonSet counts beside a workload, by the nodes that should run it",
    { ...besideDaemonSet, workloads: [...besideDaemonSet.workloads, ["daemonset/shop/agent", daemonSet(4)]] },
    6,
  ],
])("%s", async (_, given, expected) => {
  // With a number already, and before there is one.
  for (const present of [undefined, 2]) {
    const resolution = await resolve({ maxUnavailable: 1 }, { ...given, ...(present && { present }) });
    expect(minimum(resolution)).toBe(expected);
    expect(resolution).toMatchObject({ recheck: false, why: undefined });
  }
});

test.each<[string, GivenBudget]>([
  ["all pods are a Job's", { pods: { total: 5, controllers: [JOB], jobPods: 5 } }],
  ["a DaemonSet beside the workload is gone", besideDaemonSet],
  [
    "no node has been counted for the DaemonSet",
    { ...besideDaemonSet, workloads: [...besideDaemonSet.workloads, ["daemonset/shop/agent", daemonSet(0)]] },
  ],
  [
    "all pods are a DaemonSet's",
    {
      workloads: [["daemonset/shop/agent", daemonSet(5)]],
      pods: { total: 5, controllers: [ref("DaemonSet", "agent")] },
    },
  ],
  ["the generator may not list DaemonSets", { ...besideDaemonSet, denied: "daemonset" }],
  [
    "its pods have no controller here, and the generator may not list Deployments",
    { pods: { total: 5, controllers: [] }, denied: "deployment" },
  ],
])("the number is unknown, because %s", async (_, given) => {
  const first = await resolve({ maxUnavailable: 1 }, given);
  expect(minimum(first)).toBe(5);
  expect(first).toMatchObject({ recheck: true, why: expect.any(String) });
  expect(minimum(await resolve({ maxUnavailable: 1 }, { ...given, present: 3 }))).toBe(3);
});

test("a DaemonSet is no template of pods in other clusters", async () => {
  const workloads: GivenBudget["workloads"] = [...(ofDeployment.workloads ?? []), ["daemonset/shop/a", daemonSet(4)]];
  expect(minimum(await resolve({ maxUnavailable: 1 }, { workloads, pods: { total: 0, controllers: [] } }))).toBe(9);
});
