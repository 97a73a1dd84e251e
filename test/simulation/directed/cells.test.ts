/** Mistakes in the ids of cells: two clusters with one id, and two cells over the same pods (docs/limits.md). */
import { expect, it } from "vitest";
import { AdmissionRequests } from "../actors/admission-requests.ts";
import { parseStored } from "../truth/stored-protectors.ts";
import type { SimulatedCell } from "../world/cell.ts";
import { CELL, SceneStage } from "./stage.ts";

const PODS = 6;
const WEB = { labels: { app: "web" }, minReadySeconds: 0 };

/** The other cluster reviews and counts as the first one. The judge looks at its pods only. */
function takeIdOfFirst({ world }: SceneStage): SimulatedCell {
  const other = world.cells.get("cell-2");
  if (other === undefined) throw new Error("the world has no second cell");
  for (const node of other.aggregators) node.kill();
  const { time: ports, scenario, chance, coverage } = world;
  other.server.admission = new AdmissionRequests(CELL, other.server.etcd, {
    ...{ ports, scenario, chance: chance.fork(), coverage },
    faultsActive: () => false,
    replicas: () => world.replicas,
    responded: () => undefined,
    failsOpen: () => false,
    allowedWithoutVerdict: () => undefined,
    violation: () => undefined,
  });
  other.aggregators = [world.startAggregator({ ...other, name: CELL })];
  return other;
}

function isOnHold({ world }: SceneStage): boolean {
  const stored = world.coreOf("web").etcd.get("podprotectors/default/web");
  return stored !== undefined && parseStored(stored).status?.cells.at(0)?.aggregation?.hold !== undefined;
}

it.each([1, 5_000])("two clusters with one id, %i versions apart: its cell stays on hold", async (apart) => {
  const protectors = [{ minAvailable: PODS - 2 }];
  const stage = await SceneStage.open({ pods: PODS, cells: 2, protectors, isProtected: false });
  const other = takeIdOfFirst(stage);
  for (let write = 0; write < apart; write += 1) other.server.etcd.put("configmaps/default/other", { write });
  for (const plan of stage.world.scenario.protectors) stage.world.createProtector(plan);
  await stage.pass(200_000);
  expect(isOnHold(stage)).toBe(true);
  let codes: Promise<number>[] = [];
  for (let second = 0; second < 240; second += 20) {
    for (const { server } of [stage.cell, other])
      for (const { key } of server.etcd.range("pods/default/")) {
        const path = `/api/v1/namespaces/default/${key.replace("default/", "")}`;
        const request = { method: "DELETE", path, body: {}, contentType: "application/json", user: "client" };
        codes = [...codes, server.handle(request).then(({ status }) => status)];
      }
    await stage.pass(20_000);
    expect(isOnHold(stage)).toBe(true);
  }
  expect(new Set(await Promise.all(codes))).toEqual(new Set([429]));
  expect(stage.cell.pods.countNow(WEB) + other.pods.countNow(WEB)).toBe(2 * PODS);
});

it("two cells over the same pods count each pod twice, and the checks notice that", async () => {
  const stage = await SceneStage.open({ pods: PODS, protectors: [{ minAvailable: PODS }] });
  stage.cell.aggregators.push(stage.world.startAggregator({ ...stage.cell, name: "cell-too" }));
  await stage.pass(5_000);
  const deleted = stage.deleted(stage.pod(0));
  await stage.pass(1_000);
  expect(await deleted).toBe(200);
  expect(stage.violations.map(({ invariant }) => invariant)).toContain("S1");
});
