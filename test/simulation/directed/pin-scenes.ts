/** Scenes around pins, weights and versions (design 5.2, 5.3). */
import type { RuleScene } from "./scenes.ts";

const LATE_MS = 20_000;

export const PIN_SCENES: readonly RuleScene[] = [
  {
    rule: "R1Position",
    invariant: "S5",
    what: "a pod that is younger than the snapshot is deleted, and the deletion commits late",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage) {
      stage.watchLag("cell-1", 30_000);
      const young = stage.create("young");
      await stage.pass(12_000);
      stage.slowCore("aggregator");
      stage.commits(LATE_MS);
      stage.remove(young);
      await stage.pass(10_000);
    },
  },
  {
    rule: "R2DeleteOnly",
    invariant: "S5",
    what: "a pod changes while its eviction is under way, which is bound to no version",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage) {
      stage.commits(LATE_MS);
      const pod = stage.pod(0);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.touch(pod);
      await stage.pass(5_000);
    },
  },
  {
    rule: "PinEviction",
    invariant: "S1",
    what: "a pod that is not ready is evicted, becomes ready before that commits, and another one is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage) {
      const [pod, other] = [stage.pod(0), stage.pod(1)];
      stage.ready(pod, false);
      await stage.pass(2_000);
      stage.commits(LATE_MS);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.ready(pod, true);
      await stage.pass(2_000);
      stage.remove(other);
      await stage.pass(2_000);
    },
  },
  {
    rule: "PinWeight",
    invariant: "S1",
    what: "the snapshot still counts a pod that the live read of its eviction has seen unready, and that is ready again",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage) {
      const [pod, other] = [stage.pod(0), stage.pod(1)];
      stage.pauseAggregators();
      stage.ready(pod, false);
      await stage.pass(1_000);
      stage.commits(LATE_MS);
      stage.evict(pod);
      await stage.pass(1_000);
      stage.ready(pod, true);
      await stage.pass(1_000);
      stage.remove(other);
      await stage.pass(2_000);
    },
  },
  {
    rule: "PinImmature",
    invariant: "S1",
    what: "a pod matures while its deletion is under way, and another one is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 3, minReadySeconds: 20 }] },
    async play(stage) {
      const [pod, other] = [stage.pod(0), stage.pod(1)];
      stage.ready(pod, false);
      await stage.pass(1_000);
      stage.ready(pod, true);
      await stage.pass(5_000);
      stage.commits(40_000);
      stage.remove(pod);
      await stage.pass(25_000);
      stage.remove(other);
      await stage.pass(2_000);
    },
  },
  {
    rule: "Paid",
    invariant: "S1",
    what: "a pod that was pinned while it was immature counts by now, all pods are needed, and its deletion is asked for again",
    plan: { pods: 4, protectors: [{ minAvailable: 4, minReadySeconds: 20 }] },
    async play(stage) {
      const pod = stage.pod(0);
      stage.ready(pod, false);
      await stage.pass(1_000);
      stage.ready(pod, true);
      await stage.pass(5_000);
      stage.commits(undefined);
      stage.remove(pod);
      await stage.pass(25_000);
      stage.remove(pod);
      await stage.pass(2_000);
    },
  },
  {
    rule: "RepeatNeedsWeight",
    invariant: "S1",
    what: "a pod is pinned while it is not ready, becomes ready unseen, all pods are needed, and its eviction is asked for again",
    plan: { pods: 4, protectors: [{ minAvailable: 4 }] },
    async play(stage) {
      const pod = stage.pod(0);
      stage.ready(pod, false);
      await stage.pass(2_000);
      stage.commits(undefined);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.watchLag("cell-1", 30_000);
      stage.ready(pod, true);
      await stage.pass(1_000);
      stage.evict(pod);
      await stage.pass(2_000);
    },
  },
  {
    rule: "MaturityPosition",
    invariant: "S1",
    what: "a pod that is counted flaps unseen, so that it is Ready and not mature, is deleted, and so is another one",
    plan: { pods: 4, protectors: [{ minAvailable: 3, minReadySeconds: 20 }] },
    async play(stage) {
      const [pod, other] = [stage.pod(0), stage.pod(1)];
      stage.pauseAggregators();
      stage.ready(pod, false);
      await stage.pass(1_000);
      stage.ready(pod, true);
      await stage.pass(1_000);
      stage.commits(LATE_MS);
      stage.remove(pod);
      await stage.pass(1_000);
      stage.remove(other);
      await stage.pass(2_000);
    },
  },
  {
    rule: "LiveRead",
    invariant: "S2",
    what: "a pod becomes ready and is counted between the live read of its eviction and the write that pins it",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage) {
      const [pod, other] = [stage.pod(0), stage.pod(1)];
      stage.ready(pod, false);
      await stage.pass(2_000);
      stage.slowCore("webhook");
      stage.evict(pod);
      await stage.pass(60);
      stage.ready(pod, true);
      await stage.pass(20);
      stage.remove(other);
      await stage.pass(5_000);
    },
  },
];
