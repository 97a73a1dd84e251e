/**
 * Scenes of lagging caches, writes without a response, and several protectors (docs/design.md#several-protectors,
 * docs/design.md#batches).
 */
import { metadataOf, record } from "../apiserver/objects.ts";
import { removeCellEntry } from "../faults/lost-history.ts";
import type { RuleScene } from "./scenes.ts";
import type { SceneStage } from "./stage.ts";

/** Creates protectors that no replica learns of for a minute. */
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
    what: "a protector is created, and a replica that is cut off from the core is asked half a minute later",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }], isProtected: false },
    async play(stage) {
      stage.world.network.setLinks("webhook", "core", { requestsLost: true, responsesLost: true });
      await protectUnseen(stage);
      stage.deletePod(stage.pod(0));
      await stage.pass(5_000);
    },
  },
  {
    rule: "Reached",
    invariant: "S8",
    what: "a protector is created, and a replica whose watch lags sends lists that are answered",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }], isProtected: false },
    async play(stage) {
      await protectUnseen(stage);
      stage.deletePod(stage.pod(0));
      await stage.pass(5_000);
    },
  },
  {
    rule: "ConsistentList",
    invariant: "S8",
    what: "a protector is created, and a replica starts on a server whose cache lags",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }], isProtected: false },
    async play(stage) {
      await protectUnseen(stage);
      for (const replica of stage.world.replicas) replica.kill();
      stage.world.replicas = [stage.world.startReplica()];
      await stage.pass(2_000);
      stage.deletePod(stage.pod(0));
      await stage.pass(5_000);
    },
  },
  {
    rule: "SpecHash",
    invariant: "S1",
    what: "the selector is narrowed, and the aggregator is stopped",
    plan: { pods: 12, protectors: [{ minAvailable: 3 }] },
    async play(stage) {
      stage.pauseAggregators();
      const { etcd } = stage.cell.server;
      const covered = stage.pods().filter((key) => record(metadataOf(etcd.get(key)?.value ?? {}).labels).tier === "a");
      stage.edit("web", { selector: { matchLabels: { app: "web", tier: "a" } }, minAvailable: covered.length });
      await stage.pass(2_000);
      for (const key of covered) stage.deletePod(key);
      await stage.pass(5_000);
    },
  },
  {
    rule: "RollbackByNonce",
    invariant: "S5",
    what: "during a deletion a second request for the pod is allowed by one protector and denied by the other",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }, { minAvailable: 2 }] },
    async play(stage, pod) {
      stage.commitAfter(40_000);
      stage.deletePod(pod);
      await stage.pass(2_000);
      stage.watchLag("core", 10_000);
      await stage.pass(100);
      await Promise.all([removeCellEntry(stage.world, "web-too", "cell-1"), stage.pass(100)]);
      stage.deletePod(pod);
      await stage.pass(5_000);
    },
  },
  {
    rule: "RollbackRefused",
    invariant: "S5",
    what: "the second core does not answer, so there is no verdict, and the API server allows the request",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }, { minAvailable: 2, core: "core-2" }] },
    async play(stage, pod) {
      stage.slowCore("webhook");
      stage.world.network.setLinks("webhook", "core-2", { requestsLost: true });
      stage.world.failsOpen = true;
      stage.commitAfter(40_000);
      stage.deletePod(pod);
      await stage.pass(20_000);
    },
  },
  {
    rule: "Deadline",
    invariant: "L4",
    what: "the core does not answer",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage, pod) {
      stage.world.network.setLinks("webhook", "core", { requestsLost: true });
      stage.deletePod(pod);
      await stage.pass(40_000);
    },
  },
];
