/**
 * Every replica starts after the loss of the protector, and knows only the backup in the cell. The checks notice a
 * replica that ignores it.
 */
import { afterEach, expect, it, vi } from "vitest";
import { ProtectorCache } from "../../../webhook/reserve/protector-cache.ts";
import { releaseProtector } from "../actors/release.ts";
import { OWN_NAMESPACE } from "../scenario/scenario.ts";
import { SceneStage } from "./stage.ts";

const PROTECTOR = "podprotectors/default/web";
const UNTOLD = "backups: allowed by a replica that could not know of the loss";

afterEach(() => vi.restoreAllMocks());

async function afterTheLoss(): Promise<SceneStage> {
  const features = { backupsEveryMs: Number.MAX_SAFE_INTEGER };
  const stage = await SceneStage.open({ pods: 5, protectors: [{ minAvailable: 4 }], features });
  for (const replica of stage.world.replicas) replica.kill();
  stage.world.replicas = [];
  for (const node of stage.cell.aggregators) node.kill();
  stage.cell.aggregators = [];
  stage.world.coreOf("web").etcd.delete(PROTECTOR);
  return stage;
}

/** Resolves to the status code of a deletion that a new replica decides. */
async function asked(stage: SceneStage): Promise<number> {
  stage.world.replicas = [stage.world.startReplica()];
  await stage.pass(1_000);
  const response = stage.deleted(stage.pod(0));
  await stage.pass(1_000);
  return await response;
}

it("a replica denies by the backup until the protector is back and counted", async () => {
  const stage = await afterTheLoss();
  expect(await asked(stage)).toBe(429);
  stage.cell.aggregators = [stage.world.startAggregator(stage.cell)];
  await stage.pass(120_000);
  expect(stage.world.coreOf("web").etcd.get(PROTECTOR)).toBeDefined();
  expect(await asked(stage)).toBe(200);
  await stage.end();
  expect(stage.violations).toEqual([]);
});

it("a replica without a backup allows, which is no violation", async () => {
  const stage = await afterTheLoss();
  const { etcd } = stage.cell.server;
  for (const { key } of etcd.range(`configmaps/${OWN_NAMESPACE}/`)) etcd.delete(key);
  expect(await asked(stage)).toBe(200);
  expect(stage.violations).toEqual([]);
  expect(stage.world.coverage.rules.get(UNTOLD)).toBe(1);
});

it("a replica that ignores the backup violates S11", async () => {
  const stage = await afterTheLoss();
  vi.spyOn(ProtectorCache.prototype, "adopt").mockReturnValue();
  expect(await asked(stage)).toBe(200);
  expect(stage.violations.map(({ invariant }) => invariant)).toEqual(["S11"]);
});

it("a protector is lost just after its core has taken back the release: it is not released", async () => {
  const features = { backupsEveryMs: Number.MAX_SAFE_INTEGER };
  const stage = await SceneStage.open({ pods: 5, protectors: [{ minAvailable: 4 }], features });
  const core = stage.world.coreOf("web");
  const backup = core.etcd.backup();
  void releaseProtector(stage.world, core, "web");
  await stage.pass(5_000);
  expect(core.etcd.get(PROTECTOR)).toBeUndefined();
  stage.world.denials.forget();
  core.etcd.restore(backup, false);
  core.reset();
  await stage.pass(12000);
  stage.pauseAggregators();
  core.etcd.delete(PROTECTOR);
  await stage.pass(1_000);
  const response = stage.deleted(stage.pod(0));
  await stage.pass(1_000);
  expect(await response).toBe(429);
  expect(stage.violations).toEqual([]);
});
