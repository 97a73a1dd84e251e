/**
 * Orders of events in which a seed broke an invariant. A seed tells another history when the world learns something
 * new, so what it told is kept here, or as the scene of a rule.
 */
import { expect, it } from "vitest";
import { metadataOf } from "../apiserver/objects.ts";
import { SceneStage } from "./stage.ts";

const NEVER = Number.MAX_SAFE_INTEGER;

it("a pod changes again without a verdict; a restored core has the last record (seed 1058974994)", async () => {
  const features = { inPlaceEveryMs: NEVER };
  const stage = await SceneStage.open({ pods: 4, protectors: [{ minAvailable: 3 }], features });
  const core = stage.world.coreOf("web");
  const pod = stage.pod(0);
  stage.changeImage(pod, "app:2");
  await stage.pass(20);
  const backup = core.etcd.backup();
  await stage.pass(30_000);
  stage.commitAfter(40_000);
  stage.world.failsOpen = true;
  stage.world.network.setLinks("webhook", "core", { requestsLost: true });
  stage.changeImage(pod, "app:3");
  await stage.pass(20_000);
  stage.world.network.setLinks("webhook", "core", { requestsLost: false });
  stage.world.denials.forget();
  core.etcd.restore(backup, false);
  core.reset();
  await stage.pass(20_000);
  await stage.end();
  expect(stage.violations).toEqual([]);
});

it("a pod starts while its eviction, which a lost protector allows, gets its response (seed 69528662)", async () => {
  const features = { backupsEveryMs: NEVER };
  const stage = await SceneStage.open({ pods: 5, protectors: [{ minAvailable: 4 }], features });
  stage.world.coreOf("web").etcd.delete("podprotectors/default/web");
  await stage.pass(200);
  stage.world.network.setLinks("webhook", "cell-1", { fixedDelayMs: 100 });
  const pod = stage.create("web-young");
  await stage.pass(1);
  const evicted = stage.evicted(pod);
  await stage.pass(330);
  stage.start(pod);
  await stage.pass(1_000);
  expect(await evicted).toBe(201);
  expect(stage.violations).toEqual([]);
});

it("a replica that could not know of a lost protector has not seen yet that it is back (seed 500340)", async () => {
  const features = { generatorEveryMs: NEVER };
  const protectors = [{ name: "deployment-web", minAvailable: 4 }];
  const stage = await SceneStage.open({ pods: 5, protectors, features });
  const { world } = stage;
  world.network.setLinks("generator", "core", { requestsLost: true });
  world.coreOf("deployment-web").etcd.delete("podprotectors/default/deployment-web");
  for (const replica of world.replicas) replica.kill();
  world.replicas = [world.startReplica()];
  await stage.pass(5_000);
  world.network.setLinks("webhook", "core", { requestsLost: true, responsesLost: true });
  world.network.setLinks("generator", "core", { requestsLost: false });
  await stage.pass(9_000);
  expect(world.coreOf("deployment-web").etcd.get("podprotectors/default/deployment-web")).toBeDefined();
  const deleted = stage.deleted(stage.pod(0));
  await stage.pass(1_000);
  expect(await deleted).toBe(200);
  expect(stage.violations).toEqual([]);
});

it("somebody writes a restored core first, and the lost reservations were packed (seed 500104)", async () => {
  const stage = await SceneStage.open({ pods: 4, protectors: [{ minAvailable: 3, compactThreshold: 0 }] });
  const core = stage.world.coreOf("web");
  const [pod, other] = [stage.pod(0), stage.pod(1)];
  const backup = core.etcd.backup();
  stage.commitAfter(50_000);
  stage.evict(pod);
  await stage.pass(2_000);
  stage.pauseAggregators();
  stage.world.denials.forget();
  core.etcd.restore(backup, true);
  // The version is newer than the one that the replica has written.
  for (const { key, value } of core.etcd.range("podprotectors/"))
    core.etcd.put(key, { ...value, metadata: { ...metadataOf(value), annotations: { touched: "by hand" } } });
  core.reset();
  await stage.pass(15_000);
  const deleted = stage.deleted(other);
  await stage.pass(5_000);
  await stage.end();
  expect(stage.violations).toEqual([]);
  expect(await deleted).toBe(429);
});

it("a generator restores a protector that is lost just after its core has taken back the release", async () => {
  const features = { generatorEveryMs: NEVER };
  const protectors = [{ name: "deployment-web", minAvailable: 4 }];
  const stage = await SceneStage.open({ pods: 5, protectors, features });
  const { world } = stage;
  const core = world.coreOf("deployment-web");
  const backup = core.etcd.backup();
  void core.handle({
    ...{ method: "PATCH", path: "/apis/apps/v1/namespaces/default/deployments/web", user: "operator" },
    ...{ contentType: "application/merge-patch+json", body: { metadata: { labels: null } } },
  });
  await stage.pass(5_000);
  expect(core.etcd.get("podprotectors/default/deployment-web")).toBeUndefined();
  world.denials.forget();
  core.etcd.restore(backup, false);
  core.reset();
  await stage.pass(15_000);
  core.etcd.delete("podprotectors/default/deployment-web");
  await stage.pass(15_000);
  expect(core.etcd.get("podprotectors/default/deployment-web")).toBeDefined();
  // Restored with what it recorded, not created anew.
  expect(world.coverage.rules.get("generator: restored")).toBe(1);
});
