/** Scenes of everyday events. Random seeds show the worth of these rules as well. */
import type { RuleScene } from "./scenes.ts";

const LATE_MS = 20_000;

export const PLAIN_SCENES: readonly RuleScene[] = [
  {
    rule: "R1",
    invariant: "L1",
    what: "a pod is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage, pod) {
      stage.deletePod(pod);
      await stage.pass(20_000);
    },
  },
  {
    rule: "R2",
    invariant: "L1",
    what: "a pod changes after its deletion was reviewed, which never commits",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    // The check of the bounds of L1 plays it, in the quiet.
    play: (stage) => stage.pass(1_000),
  },
  {
    rule: "R3",
    invariant: "L1",
    what: "an eviction never commits",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage, pod) {
      stage.commitAfter(undefined);
      stage.evict(pod);
      await stage.pass(5_000);
    },
  },
  {
    rule: "R3Settle",
    invariant: "S5",
    what: "a deletion commits late, and its pod is seen alive meanwhile",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage, pod) {
      stage.slowCore("aggregator");
      stage.commitAfter(LATE_MS);
      stage.deletePod(pod);
      await stage.pass(10_000);
    },
  },
  {
    rule: "WeightFollowsAvailable",
    invariant: "S6",
    what: "a pod becomes unready during its deletion",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage, pod) {
      stage.commitAfter(LATE_MS);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.setReady(pod, false);
      await stage.pass(5_000);
    },
  },
  {
    rule: "RepeatRefresh",
    invariant: "S5",
    what: "a pod changes between review and commit, so that it is reviewed again, and the new review commits late",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage, pod) {
      stage.watchLag("cell-1", 10_000);
      stage.commitAfter(2_000);
      stage.deletePod(pod);
      await stage.pass(1_000);
      stage.annotatePod(pod);
      stage.commitAfter(30_000);
      await stage.pass(20_000);
    },
  },
  {
    rule: "Reserved",
    invariant: "S1",
    what: "two pods are deleted, and only one can be spared",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage, pod, other) {
      stage.commitAfter(LATE_MS);
      stage.deletePod(pod);
      await stage.pass(2_000);
      stage.deletePod(other);
      await stage.pass(2_000);
    },
  },
  {
    rule: "AllAgree",
    invariant: "S8",
    what: "a pod with two protectors is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }, { minAvailable: 2 }] },
    async play(stage, pod) {
      stage.deletePod(pod);
      await stage.pass(5_000);
    },
  },
  {
    rule: "UnknownOutcome",
    invariant: "S8",
    what: "the write of a reservation is lost on its way",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage, pod) {
      stage.world.network.setLinks("webhook", "core", { requestsLost: true });
      stage.deletePod(pod);
      await stage.pass(9_000);
    },
  },
  {
    rule: "DecideAgain",
    invariant: "S1",
    what: "all pods are deleted at once by way of three replicas, and only one can be spared",
    plan: { pods: 6, protectors: [{ minAvailable: 5 }], webhooks: 3 },
    async play(stage) {
      stage.commitAfter(LATE_MS);
      // All requests wait for the write of the first one, however quick the replica is.
      stage.slowCore("webhook");
      for (const pod of stage.pods()) stage.deletePod(pod);
      await stage.pass(5_000);
    },
  },
  {
    rule: "DecideTogether",
    invariant: "S1",
    what: "all pods are deleted at once by way of one replica, and two can be spared: one is written, the others wait",
    plan: { pods: 6, protectors: [{ minAvailable: 4 }] },
    async play(stage) {
      stage.commitAfter(LATE_MS);
      // All requests wait for the write of the first one, however quick the replica is.
      stage.slowCore("webhook");
      for (const pod of stage.pods()) stage.deletePod(pod);
      await stage.pass(5_000);
    },
  },
  {
    rule: "ConfirmRefusal",
    invariant: "L6",
    what: "a deletion is settled, its pod is replaced, and a replica that does not know that yet is asked",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage, pod, other) {
      stage.watchLag("core", 12_000);
      stage.deletePod(pod);
      await stage.pass(10_000);
      stage.deletePod(other);
      await stage.pass(500);
    },
  },
];
