/** Scenes of lost history and of leaders that do not know that they are none (design 5.4). */
import { removeCellOf, restoreCellTo } from "../faults/lost-history.ts";
import type { RuleScene } from "./scenes.ts";
import type { SceneStage } from "./stage.ts";

/** A deletion under way is forgotten with its cell's entry; then another pod is deleted. */
async function forgetAndDelete(stage: SceneStage): Promise<void> {
  const [pod, other] = [stage.pod(0), stage.pod(1)];
  stage.commits(50_000);
  stage.evict(pod);
  await stage.pass(2_000);
  await Promise.all([removeCellOf(stage.world, "web", "cell-1"), stage.pass(2_000)]);
  await stage.pass(8_000);
  stage.remove(other);
  await stage.pass(5_000);
}

/** An aggregator that is cut off from its cell's pods stays, and a new one takes over. */
function succeed(stage: SceneStage): void {
  stage.world.network.set("aggregator", "cell-1", { responsesLost: true, requestsLost: true });
  stage.cell.aggregators.push(stage.world.startAggregator(stage.cell));
}

export const LOSS_SCENES: readonly RuleScene[] = [
  {
    rule: "Hold",
    invariant: "S1",
    what: "a cell's entry is removed with a deletion under way, and another pod is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    play: forgetAndDelete,
  },
  {
    rule: "LostHistory",
    invariant: "S1",
    what: "a cell's entry is removed with a deletion under way, and another pod is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    play: forgetAndDelete,
  },
  {
    rule: "Reassert",
    invariant: "S1",
    what: "the core goes back behind a deletion that is under way while the aggregator is stopped, and another pod is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage) {
      const [pod, other] = [stage.pod(0), stage.pod(1)];
      const core = stage.world.coreOf("web");
      const backup = core.etcd.backup();
      stage.commits(50_000);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.pauseAggregators();
      stage.world.rejections.forget();
      core.etcd.restore(backup, false);
      core.reset();
      await stage.pass(15_000);
      stage.remove(other);
      await stage.pass(5_000);
    },
  },
  {
    rule: "OwnAnswers",
    invariant: "S1",
    what: "the same, before the watch has shown the reservation and with versions that go on, as they should; another replica is asked",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }], webhooks: 2 },
    async play(stage) {
      const [pod, other] = [stage.pod(0), stage.pod(1)];
      const core = stage.world.coreOf("web");
      const backup = core.etcd.backup();
      stage.commits(50_000);
      stage.watchLag("core", 60_000);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.pauseAggregators();
      stage.world.rejections.forget();
      stage.watchLag("core", 100);
      core.etcd.restore(backup, true);
      core.reset();
      await stage.pass(15_000);
      stage.remove(other);
      await stage.pass(5_000);
    },
  },
  {
    rule: "Standstill",
    invariant: "S1",
    what: "two replicas stand still while the core goes back behind the reservation of one; the other goes on first, and is asked",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }], webhooks: 2 },
    async play(stage) {
      const { world } = stage;
      const [pod, other] = [stage.pod(0), stage.pod(1)];
      const core = world.coreOf("web");
      const backup = core.etcd.backup();
      const [one, two] = world.webhooks;
      stage.commits(50_000);
      stage.watchLag("core", 60_000);
      stage.onlyAsks(one);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.pauseAggregators();
      one?.ports.pause();
      two?.ports.pause();
      world.rejections.forget();
      stage.watchLag("core", 100);
      core.etcd.restore(backup, true);
      core.reset();
      await stage.pass(5_000);
      two?.ports.resume();
      stage.onlyAsks(two);
      await stage.pass(1_000);
      stage.remove(other);
      await stage.pass(4_000);
      one?.ports.resume();
      await stage.pass(5_000);
    },
  },
  {
    rule: "Heard",
    invariant: "S1",
    what: "a cell goes back behind a change of a pod, which is deleted before the aggregator hears of it; then another one is",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage) {
      const { world } = stage;
      const [pod, other] = [stage.pod(0), stage.pod(1)];
      const backup = stage.cell.server.etcd.backup();
      stage.touch(pod);
      await stage.pass(5_000);
      stage.commits(50_000);
      world.network.serves(stage.cell.name, false);
      restoreCellTo(world, stage.cell, backup, true);
      stage.remove(pod);
      await stage.pass(500);
      stage.remove(other);
      await stage.pass(500);
      world.network.serves(stage.cell.name, true);
      await stage.pass(5_000);
    },
  },
  {
    rule: "Fence",
    invariant: "S4",
    what: "a leader that is cut off from its pods and does not know of its successor sees the protector change",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage) {
      succeed(stage);
      await stage.pass(5_000);
      stage.remove(stage.pod(0));
      await stage.pass(20_000);
    },
  },
  {
    rule: "Epoch",
    invariant: "S3",
    what: "the cell's etcd goes back, a new leader notices, and the old one, cut off from its pods, still counts what was",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage) {
      const backup = stage.cell.server.etcd.backup();
      stage.remove(stage.pod(0));
      await stage.pass(20_000);
      succeed(stage);
      restoreCellTo(stage.world, stage.cell, backup, false);
      await stage.pass(5_000);
      stage.edit("web", { minAvailable: 1 });
      await stage.pass(60_000);
    },
  },
];
