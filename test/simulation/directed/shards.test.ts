/** Where pods are watched in shards, one shard proves nothing of a pod in another (docs/design.md#informers). */
import { describe, expect, it } from "vitest";
import type { SimulatedLink } from "../apiserver/link.ts";
import { metadataOf } from "../apiserver/objects.ts";
import { firstShardOf, shardOf } from "../apiserver/shards.ts";
import { restoreCell } from "../faults/lost-history.ts";
import { SCENES } from "./scenes.ts";
import { CELL, type ScenePlan, SceneStage } from "./stage.ts";

const COUNT = 2;
const PLAN: ScenePlan = { pods: 8, protectors: [{ minAvailable: 7 }], features: { shards: COUNT } };

async function open(plan: ScenePlan = PLAN): Promise<SceneStage> {
  const stage = await SceneStage.open(plan);
  expect(stage.cell.aggregators.map(({ shardLinks }) => shardLinks.length)).toEqual([COUNT]);
  return stage;
}

async function close(stage: SceneStage): Promise<void> {
  await stage.end();
  expect(stage.violations).toEqual([]);
}

/** Keys of the pods of one shard. */
function podsOf(stage: SceneStage, shard: number): string[] {
  return stage.pods().filter((key) => shardOf(stage.uid(key), COUNT) === shard);
}

function podOf(stage: SceneStage, shard: number, index = 0): string {
  const key = podsOf(stage, shard)[index];
  if (key === undefined) throw new Error(`shard ${shard} has no pod ${index}`);
  return key;
}

function linkOf(stage: SceneStage, shard: number): SimulatedLink {
  const link = stage.cell.aggregators[0]?.shardLinks[shard];
  if (link === undefined) throw new Error(`there is no shard ${shard}`);
  return link;
}

/** Creates a pod of the given shard, Ready from its beginning. */
function addReady(stage: SceneStage, name: string, shard: number): string {
  const { etcd } = stage.cell.server;
  const { value = {} } = etcd.get(stage.pod(0)) ?? {};
  const uids = Array.from({ length: 20 }, (_, index) => `${index}-${name}-uid`);
  const uid = uids.find((one) => shardOf(one, COUNT) === shard);
  const key = `pods/default/${name}`;
  etcd.put(key, { ...value, metadata: { ...metadataOf(value), name, uid } }, 0);
  return key;
}

async function codeOf(stage: SceneStage, key: string): Promise<number> {
  const response = stage.deleted(key);
  await stage.pass(3_000);
  return await response;
}

describe.each([0, 1])("shard %d", (shard) => {
  const other = 1 - shard;

  it("does not take a pod for dead that is younger than its position, whatever the other shard shows", async () => {
    const stage = await open({ ...PLAN, protectors: [{ minAvailable: 5 }] });
    stage.world.network.setLink(linkOf(stage, shard), { fixedDelayMs: 3_000 });
    // The aggregator hears this after the admission, and before the pod.
    stage.annotatePod(podOf(stage, shard));
    await stage.pass(2_000);
    const young = addReady(stage, "young", shard);
    stage.commitAfter(20_000);
    stage.deletePod(young);
    await stage.pass(400);
    stage.annotatePod(podOf(stage, other));
    await stage.pass(10_000);
    await close(stage);
  });

  it("does not settle a deletion as never executed while it lags, whatever the other shard has reached", async () => {
    const stage = await open();
    for (const [selector, cache] of stage.cell.server.podShards())
      if (firstShardOf(selector, COUNT) === shard) cache.extraLagMs = 120_000;
    expect(await codeOf(stage, podOf(stage, shard))).toBe(200);
    await stage.pass(100_000);
    for (const key of stage.pods()) await codeOf(stage, key);
    await close(stage);
  });

  it("does not take a deletion for superseded before it is heard after a restore of the cell", async () => {
    const stage = await open();
    const { world, cell } = stage;
    const [first, second] = [podOf(stage, shard), podOf(stage, other)];
    const backup = cell.server.etcd.backup();
    stage.annotatePod(first);
    await stage.pass(5_000);
    stage.commitAfter(50_000);
    world.network.setServing(CELL, false);
    restoreCell(world, cell, backup, true);
    stage.deletePod(first);
    await stage.pass(500);
    world.network.setServing(CELL, true, [linkOf(stage, shard)]);
    await stage.pass(2_000);
    stage.annotatePod(second);
    await stage.pass(2_000);
    stage.deletePod(second);
    await stage.pass(5_000);
    world.network.setServing(CELL, true);
    await close(stage);
  });

  it("keeps the cell from being counted until it is listed after a restore that the other shard has seen", async () => {
    const stage = await open({ ...PLAN, protectors: [{ minAvailable: 3 }] });
    const { world, cell } = stage;
    const backup = cell.server.etcd.backup();
    stage.deletePod(podOf(stage, shard));
    stage.deletePod(podOf(stage, other));
    await stage.pass(20_000);
    world.network.setServing(CELL, false);
    restoreCell(world, cell, backup, false);
    await stage.pass(500);
    world.network.setServing(CELL, true, [linkOf(stage, shard)]);
    await stage.pass(15_000);
    stage.setReady(podOf(stage, other), false);
    await stage.pass(15_000);
    world.network.setServing(CELL, true);
    await close(stage);
  });
});

describe("with shards nothing is broken where", () => {
  it.each(SCENES)("$what", async ({ plan, play }) => {
    const stage = await open({ ...plan, features: { ...plan.features, shards: COUNT } });
    await play(stage, stage.pod(0), stage.pod(1));
    await close(stage);
  });
});
