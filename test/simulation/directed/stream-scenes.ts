/** Scenes around caches that lag, writes without an answer, and several protectors (design 5.3, 5.4, 5.7, 5.8). */
import { metadataOf, record } from "../apiserver/objects.ts";
import { removeCellOf } from "../faults/lost-history.ts";
import type { RuleScene } from "./scenes.ts";
import type { SceneStage } from "./stage.ts";

/** Protectors are made that no replica is told of for a minute. */
async function protectUnseen(stage: SceneStage): Promise<void> {
  stage.watchLag("core", 60_000);
  await stage.pass(2_000);
  for (const plan of stage.world.scenario.protectors) stage.world.createProtector(plan);
  await stage.pass(30_000);
}

export const STREAM_SCENES: readonly RuleScene[] = [
  {
    rule: "ConfirmedCache",
    invariant: "S8",
    what: "a protector is made, and a replica whose watch lags is asked half a minute later",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }], isProtected: false },
    async play(stage) {
      await protectUnseen(stage);
      stage.remove(stage.pod(0));
      await stage.pass(5_000);
    },
  },
  {
    rule: "Reached",
    invariant: "S8",
    what: "a protector is made, and a replica whose watch lags asks for lists that are answered",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }], isProtected: false },
    async play(stage) {
      await protectUnseen(stage);
      stage.remove(stage.pod(0));
      await stage.pass(5_000);
    },
  },
  {
    rule: "ConsistentList",
    invariant: "S8",
    what: "a protector is made, and a replica starts on a server whose cache lags",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }], isProtected: false },
    async play(stage) {
      await protectUnseen(stage);
      for (const replica of stage.world.webhooks) replica.kill();
      stage.world.webhooks = [stage.world.startReplica()];
      await stage.pass(2_000);
      stage.remove(stage.pod(0));
      await stage.pass(5_000);
    },
  },
  {
    rule: "SpecHash",
    invariant: "S1",
    what: "the selector comes to cover fewer pods, and the aggregator is stopped",
    plan: { pods: 12, protectors: [{ minAvailable: 3 }] },
    async play(stage) {
      stage.pauseAggregators();
      const { etcd } = stage.cell.server;
      const covered = stage.pods().filter((key) => record(metadataOf(etcd.get(key)?.value ?? {}).labels).tier === "a");
      stage.edit("web", { selector: { matchLabels: { app: "web", tier: "a" } }, minAvailable: covered.length });
      await stage.pass(2_000);
      for (const key of covered) stage.remove(key);
      await stage.pass(5_000);
    },
  },
  {
    rule: "RollbackByNonce",
    invariant: "S5",
    what: "a deletion is under way, and a second review of the same pod is refused by the second protector after the first had agreed",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }, { minAvailable: 2 }] },
    async play(stage) {
      const pod = stage.pod(0);
      stage.commits(40_000);
      stage.remove(pod);
      await stage.pass(2_000);
      stage.watchLag("core", 10_000);
      await stage.pass(100);
      await Promise.all([removeCellOf(stage.world, "web-too", "cell-1"), stage.pass(100)]);
      stage.remove(pod);
      await stage.pass(5_000);
    },
  },
  {
    rule: "RollbackRefused",
    invariant: "S5",
    what: "the second core does not answer, so there is no verdict, and the API server goes on",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }, { minAvailable: 2, core: "core-2" }] },
    async play(stage) {
      stage.slowCore("webhook");
      stage.world.network.set("webhook", "core-2", { requestsLost: true });
      stage.world.failsOpen = true;
      stage.commits(40_000);
      stage.remove(stage.pod(0));
      await stage.pass(20_000);
    },
  },
  {
    rule: "Deadline",
    invariant: "L4",
    what: "the core does not answer",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage) {
      stage.world.network.set("webhook", "core", { requestsLost: true });
      stage.remove(stage.pod(0));
      await stage.pass(40_000);
    },
  },
];
