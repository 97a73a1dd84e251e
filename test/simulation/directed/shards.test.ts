/** Where the pods are watched in shards: what one shard knows says nothing of a pod of another (design 5.4). */
import { describe, expect, it } from "vitest";
import type { SimulatedLink } from "../apiserver/link.ts";
import { metadataOf } from "../apiserver/objects.ts";
import { shardNamed, shardOf } from "../apiserver/shards.ts";
import { restoreCellTo } from "../faults/lost-history.ts";
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
  await stage.rest();
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

/** A pod that is Ready from its beginning, of the shard that is wanted. */
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
  const reply = stage.removed(key);
  await stage.pass(3_000);
  return await reply;
}

describe.each([0, 1])("shard %d", (shard) => {
  const other = 1 - shard;

  it("a pod that is younger than what its shard has shown is no dead one, whatever the other shard has", async () => {
    const stage = await open({ ...PLAN, protectors: [{ minAvailable: 5 }] });
    stage.world.network.setOne(linkOf(stage, shard), { fixedDelayMs: 3_000 });
    // Is heard after the admission, and before the pod.
    stage.touch(podOf(stage, shard));
    await stage.pass(2_000);
    const young = addReady(stage, "young", shard);
    stage.commits(20_000);
    stage.remove(young);
    await stage.pass(400);
    stage.touch(podOf(stage, other));
    await stage.pass(10_000);
    await close(stage);
  });

  it("a deletion is not taken for one that never was while its shard lags, whatever the other shard has reached", async () => {
    const stage = await open();
    for (const [selector, cache] of stage.cell.server.podShards())
      if (shardNamed(selector, COUNT) === shard) cache.extraLagMs = 120_000;
    expect(await codeOf(stage, podOf(stage, shard))).toBe(200);
    await stage.pass(100_000);
    for (const key of stage.pods()) await codeOf(stage, key);
    await close(stage);
  });

  it("a deletion is not taken for superseded before its own shard is heard, where the cell was restored", async () => {
    const stage = await open();
    const { world, cell } = stage;
    const [gone, next] = [podOf(stage, shard), podOf(stage, other)];
    const backup = cell.server.etcd.backup();
    stage.touch(gone);
    await stage.pass(5_000);
    stage.commits(50_000);
    world.network.serves(CELL, false);
    restoreCellTo(world, cell, backup, true);
    stage.remove(gone);
    await stage.pass(500);
    world.network.serves(CELL, true, [linkOf(stage, shard)]);
    await stage.pass(2_000);
    stage.touch(next);
    await stage.pass(2_000);
    stage.remove(next);
    await stage.pass(5_000);
    world.network.serves(CELL, true);
    await close(stage);
  });

  it("nothing is counted while it has not shown what there is, where the other has shown that the cell was restored", async () => {
    const stage = await open({ ...PLAN, protectors: [{ minAvailable: 3 }] });
    const { world, cell } = stage;
    const backup = cell.server.etcd.backup();
    stage.remove(podOf(stage, shard));
    stage.remove(podOf(stage, other));
    await stage.pass(20_000);
    world.network.serves(CELL, false);
    restoreCellTo(world, cell, backup, false);
    await stage.pass(500);
    world.network.serves(CELL, true, [linkOf(stage, shard)]);
    await stage.pass(15_000);
    stage.ready(podOf(stage, other), false);
    await stage.pass(15_000);
    world.network.serves(CELL, true);
    await close(stage);
  });
});

describe("with shards, too, nothing is broken where", () => {
  it.each(SCENES)("$what", async ({ plan, play }) => {
    const stage = await open({ ...plan, features: { ...plan.features, shards: COUNT } });
    await play(stage);
    await close(stage);
  });
});
