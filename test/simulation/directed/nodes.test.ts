/**
 * The deletion of a node and the status writes of pod garbage collection (docs/design.md#node-deletion). The checks
 * notice a webhook that lets such a write pass.
 */

import { afterEach, expect, it, vi } from "vitest";
import { decideTogether } from "../../../shared/decide/joint-decision.ts";
import { deletionOf } from "../actors/node-deletions.ts";
import { record } from "../apiserver/objects.ts";
import { SceneStage } from "./stage.ts";

const isLetPass = vi.hoisted(() => ({ value: false }));

vi.mock("../../../webhook/request/status-change.ts", async (original) => {
  const actual = await original<typeof import("../../../webhook/request/status-change.ts")>();
  const statusChange: typeof actual.statusChange = (request, rules) =>
    isLetPass.value ? undefined : actual.statusChange(request, rules);
  return { ...actual, statusChange };
});

const isUnreserved = vi.hoisted(() => ({ value: false }));

vi.mock("../../../webhook/reserve/decide-all.ts", async (original) => {
  const actual = await original<typeof import("../../../webhook/reserve/decide-all.ts")>();
  const decideAll: typeof actual.decideAll = (pipeline, disruptions) => {
    const together = { decide: decideTogether };
    const evaluates = { decide: (one: (typeof disruptions)[number]) => pipeline.decide({ ...one, together }) };
    return actual.decideAll(isUnreserved.value ? evaluates : pipeline, disruptions);
  };
  return { ...actual, decideAll };
});

afterEach(() => {
  isLetPass.value = false;
  isUnreserved.value = false;
});

/** Six pods: two on node-0, three on node-1, one on node-2. */
function sixPods(minAvailable: number): Promise<SceneStage> {
  const features = { nodesEveryMs: Number.MAX_SAFE_INTEGER };
  return SceneStage.open({ pods: 6, protectors: [{ minAvailable }], features });
}

async function deletion(stage: SceneStage, node: string): Promise<number> {
  const verdict = stage.cell.admission.validate(deletionOf(stage.world, node, false));
  await stage.pass(1_000);
  return (await verdict).code;
}

/** Pod garbage collection sets every pod of the node to Failed; resolves to the status codes. */
async function collected(stage: SceneStage, node: string): Promise<number[]> {
  const { server } = stage.cell;
  const keys = stage.pods().filter((key) => record(server.etcd.get(key)?.value.spec).nodeName === node);
  const condition = { type: "DisruptionTarget", status: "True", reason: "DeletionByPodGC" };
  const body = { status: { phase: "Failed", conditions: [condition] } };
  const contentType = "application/strategic-merge-patch+json";
  const responses = keys.map((key) => {
    const path = `/api/v1/namespaces/default/pods/${key.split("/")[2]}/status`;
    return server.handle({ method: "PATCH", path, body, contentType, user: "pod-garbage-collector" });
  });
  await stage.pass(1_000);
  return (await Promise.all(responses)).map(({ status }) => status);
}

it("a node whose pods can be spared is deleted: its quota is used, and its pods are collected", async () => {
  const stage = await sixPods(4);
  expect(await deletion(stage, "node-1")).toBe(429);
  expect(await deletion(stage, "node-0")).toBe(200);
  expect(await deletion(stage, "node-2")).toBe(429);
  await stage.pass(20_000);
  expect(await collected(stage, "node-0")).toEqual([200, 200]);
  await stage.end();
  expect(stage.violations).toEqual([]);
});

it("pods of a node that was removed unasked stay while they are needed", async () => {
  const stage = await sixPods(5);
  expect((await collected(stage, "node-1")).sort()).toEqual([200, 429, 429]);
  expect(stage.violations).toEqual([]);
});

it("a webhook that lets such status writes pass breaks the promise", async () => {
  const stage = await sixPods(5);
  isLetPass.value = true;
  expect(await collected(stage, "node-1")).toEqual([200, 200, 200]);
  expect(new Set(stage.violations.map(({ invariant }) => invariant))).toEqual(new Set(["S2", "S8"]));
});

it("a webhook that reserves nothing for the pods of a node breaks S8", async () => {
  const stage = await sixPods(4);
  isUnreserved.value = true;
  expect(await deletion(stage, "node-0")).toBe(200);
  expect(new Set(stage.violations.map(({ invariant }) => invariant))).toEqual(new Set(["S8"]));
});
