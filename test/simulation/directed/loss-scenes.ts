/**
 * Scenes of lost history, and of former leaders that do not know that they no longer lead
 * (docs/design.md#lost-history).
 */
import { removeCellEntry, restoreCell } from "../faults/lost-history.ts";
import type { RuleScene } from "./scenes.ts";
import type { SceneStage } from "./stage.ts";

/** A cell's entry is removed with the record of a deletion in progress. Then another pod is deleted. */
async function forgetAndDelete(stage: SceneStage, pod: string, other: string): Promise<void> {
  stage.commitAfter(50_000);
  stage.evict(pod);
  await stage.pass(2_000);
  await Promise.all([removeCellEntry(stage.world, "web", "cell-1"), stage.pass(2_000)]);
  await stage.pass(8_000);
  stage.deletePod(other);
  await stage.pass(5_000);
}

/** The leading aggregator is cut off from its cell's pods and stays, while a new one takes over. */
function addSuccessor(stage: SceneStage): void {
  stage.world.network.setLinks("aggregator", "cell-1", { responsesLost: true, requestsLost: true });
  stage.cell.aggregators.push(stage.world.startAggregator(stage.cell));
}

export const LOSS_SCENES: readonly RuleScene[] = [
  {
    rule: "Hold",
    invariant: "S1",
    what: "a cell's entry is removed during a deletion, and another pod is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    play: forgetAndDelete,
  },
  {
    rule: "LostHistory",
    invariant: "S1",
    what: "a cell's entry is removed during a deletion, and another pod is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    play: forgetAndDelete,
  },
  {
    rule: "Reassert",
    invariant: "S1",
    what: "the core is restored to before a deletion while the aggregator is stopped, and another pod is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage, pod, other) {
      const core = stage.world.coreOf("web");
      const backup = core.etcd.backup();
      stage.commitAfter(50_000);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.pauseAggregators();
      stage.world.denials.forget();
      core.etcd.restore(backup, false);
      core.reset();
      await stage.pass(15_000);
      stage.deletePod(other);
      await stage.pass(5_000);
    },
  },
  {
    rule: "OwnAnswers",
    invariant: "S1",
    what: "as Reassert, before the watch has shown the reservation and with bumped revisions; another replica is asked",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }], webhooks: 2 },
    async play(stage, pod, other) {
      const core = stage.world.coreOf("web");
      const backup = core.etcd.backup();
      stage.commitAfter(50_000);
      stage.watchLag("core", 60_000);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.pauseAggregators();
      stage.world.denials.forget();
      stage.watchLag("core", 100);
      core.etcd.restore(backup, true);
      core.reset();
      await stage.pass(15_000);
      stage.deletePod(other);
      await stage.pass(5_000);
    },
  },
  {
    rule: "Stall",
    invariant: "S1",
    what: "two replicas are stopped while the core loses a reservation of one; the other continues first, and is asked",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }], webhooks: 2 },
    async play(stage, pod, other) {
      const { world } = stage;
      const core = world.coreOf("web");
      const backup = core.etcd.backup();
      const [one, two] = world.replicas;
      stage.commitAfter(50_000);
      stage.watchLag("core", 60_000);
      stage.useOnly(one);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.pauseAggregators();
      one?.ports.pause();
      two?.ports.pause();
      world.denials.forget();
      stage.watchLag("core", 100);
      core.etcd.restore(backup, true);
      core.reset();
      await stage.pass(5_000);
      two?.ports.resume();
      stage.useOnly(two);
      await stage.pass(1_000);
      stage.deletePod(other);
      await stage.pass(4_000);
      one?.ports.resume();
      await stage.pass(5_000);
    },
  },
  {
    rule: "Heard",
    invariant: "S1",
    what: "a cell is restored to before a change of a pod, which is deleted before the aggregator hears; then another",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage, pod, other) {
      const { world } = stage;
      const backup = stage.cell.server.etcd.backup();
      stage.annotatePod(pod);
      await stage.pass(5_000);
      stage.commitAfter(50_000);
      world.network.setServing(stage.cell.name, false);
      restoreCell(world, stage.cell, backup, true);
      stage.deletePod(pod);
      await stage.pass(500);
      stage.deletePod(other);
      await stage.pass(500);
      world.network.setServing(stage.cell.name, true);
      await stage.pass(5_000);
    },
  },
  {
    rule: "Fence",
    invariant: "S4",
    what: "a leader that is cut off from its pods and does not know of its successor sees the protector change",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage) {
      addSuccessor(stage);
      await stage.pass(5_000);
      stage.deletePod(stage.pod(0));
      await stage.pass(20_000);
    },
  },
  {
    rule: "Epoch",
    invariant: "S3",
    what: "the cell is restored, a new leader notices, and the old one, cut off from its pods, counts the lost history",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage, pod) {
      const backup = stage.cell.server.etcd.backup();
      stage.deletePod(pod);
      await stage.pass(20_000);
      addSuccessor(stage);
      restoreCell(stage.world, stage.cell, backup, false);
      await stage.pass(5_000);
      stage.edit("web", { minAvailable: 1 });
      await stage.pass(60_000);
    },
  },
];
