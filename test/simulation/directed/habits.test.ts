/**
 * Changes whose end no status tells, and ways by which a change takes a pod away: a deadline, and a voluntary readiness
 * gate (docs/design.md#in-place-changes, docs/design.md#status-writes). The checks notice a webhook that lets such a
 * change pass.
 */
import { afterEach, expect, it, vi } from "vitest";
import type { Json } from "../apiserver/etcd.ts";
import { VOLUNTARY_GATE } from "../apiserver/pod-conditions.ts";
import { SceneStage } from "./stage.ts";

const isLetPass = vi.hoisted(() => ({ value: false }));

vi.mock("../../../webhook/request/status-change.ts", async (original) => {
  const actual = await original<typeof import("../../../webhook/request/status-change.ts")>();
  const statusChange: typeof actual.statusChange = (request, rules) =>
    isLetPass.value ? undefined : actual.statusChange(request, rules);
  return { ...actual, statusChange };
});
vi.mock("../../../webhook/request/in-place-change.ts", async (original) => {
  const actual = await original<typeof import("../../../webhook/request/in-place-change.ts")>();
  const endsSooner: typeof actual.endsSooner = (before, after) => !isLetPass.value && actual.endsSooner(before, after);
  return { ...actual, endsSooner };
});

afterEach(() => {
  isLetPass.value = false;
});

const DEADLINE: Json = { spec: { activeDeadlineSeconds: 1 } };
const CLOSED: Json = { status: { conditions: [{ type: VOLUNTARY_GATE, status: "False" }] } };

/** Five pods, of which one can be spared. */
function fivePods(): Promise<SceneStage> {
  const features = { inPlaceEveryMs: Number.MAX_SAFE_INTEGER, habits: new Set(["voluntaryGates"] as const) };
  return SceneStage.open({ pods: 5, protectors: [{ minAvailable: 4 }], features });
}

/** Patches two pods; resolves to the status codes. */
async function patched(stage: SceneStage, body: Json, subresource = ""): Promise<number[]> {
  const contentType = "application/strategic-merge-patch+json";
  const codes: number[] = [];
  for (const index of [0, 1]) {
    const path = `/api/v1/namespaces/default/pods/${stage.pod(index).split("/")[2]}${subresource}`;
    const response = stage.cell.server.handle({ method: "PATCH", path, body, contentType, user: "client" });
    await stage.pass(300);
    codes.push((await response).status);
  }
  await stage.pass(10_000);
  return codes;
}

it("a deadline uses quota until its pod is dead", async () => {
  const stage = await fivePods();
  expect(await patched(stage, DEADLINE)).toEqual([200, 429]);
  await stage.end();
  expect(stage.violations).toEqual([]);
});

it("a gate uses quota until it is open again", async () => {
  const stage = await fivePods();
  expect(await patched(stage, CLOSED, "/status")).toEqual([200, 429]);
  await stage.end();
  expect(stage.violations).toEqual([]);
});

it("a change that nothing confirms is settled, although its protector no longer covers the pod", async () => {
  const features = { inPlaceEveryMs: Number.MAX_SAFE_INTEGER, habits: new Set(["resolvedImages"] as const) };
  const stage = await SceneStage.open({ pods: 5, protectors: [{ minAvailable: 4 }], features });
  const { world, cell } = stage;
  for (const node of cell.aggregators) node.kill();
  stage.changeImage(stage.pod(0), "app:2");
  await stage.pass(40_000);
  // This one has not seen how the pod ran before.
  cell.aggregators = [world.startAggregator(cell)];
  stage.edit("web", { minAvailable: 0, selector: { matchLabels: { app: "another" } } });
  await stage.pass(5_000);
  await stage.end();
  expect(stage.violations).toEqual([]);
});

it.for([
  ["deadlines", DEADLINE, ""],
  ["closed gates", CLOSED, "/status"],
] as const)("a webhook that lets %s pass breaks the promise", async ([, body, subresource]) => {
  const stage = await fivePods();
  isLetPass.value = true;
  expect(await patched(stage, body, subresource)).toEqual([200, 200]);
  expect(new Set(stage.violations.map(({ invariant }) => invariant))).toEqual(new Set(["S2", "S8"]));
});
