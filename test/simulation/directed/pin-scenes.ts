/** Scenes of pins, weights and versions (docs/design.md#settling, docs/design.md#admission). */
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
      stage.commitAfter(LATE_MS);
      stage.deletePod(young);
      await stage.pass(10_000);
    },
  },
  {
    rule: "R2DeleteOnly",
    invariant: "S5",
    what: "a pod changes during its eviction, which commits at any version",
    plan: { pods: 4, protectors: [{ minAvailable: 2 }] },
    async play(stage, pod) {
      stage.commitAfter(LATE_MS);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.annotatePod(pod);
      await stage.pass(5_000);
    },
  },
  {
    rule: "PinEviction",
    invariant: "S1",
    what: "a pod that is not ready is evicted, becomes ready before that commits, and another one is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage, pod, other) {
      stage.setReady(pod, false);
      await stage.pass(2_000);
      stage.commitAfter(LATE_MS);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.setReady(pod, true);
      await stage.pass(2_000);
      stage.deletePod(other);
      await stage.pass(2_000);
    },
  },
  {
    rule: "PinWeight",
    invariant: "S1",
    what: "the snapshot counts a pod that was unready at the live read of its eviction, and is ready again",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage, pod, other) {
      stage.pauseAggregators();
      stage.setReady(pod, false);
      await stage.pass(1_000);
      stage.commitAfter(LATE_MS);
      stage.evict(pod);
      await stage.pass(1_000);
      stage.setReady(pod, true);
      await stage.pass(1_000);
      stage.deletePod(other);
      await stage.pass(2_000);
    },
  },
  {
    rule: "PinImmature",
    invariant: "S1",
    what: "a pod matures during its deletion, and another one is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 3, minReadySeconds: 20 }] },
    async play(stage, pod, other) {
      stage.setReady(pod, false);
      await stage.pass(1_000);
      stage.setReady(pod, true);
      await stage.pass(5_000);
      stage.commitAfter(40_000);
      stage.deletePod(pod);
      await stage.pass(25_000);
      stage.deletePod(other);
      await stage.pass(2_000);
    },
  },
  {
    rule: "Paid",
    invariant: "S1",
    what: "a pod that was pinned as immature counts now, all pods are needed, and its deletion is asked for again",
    plan: { pods: 4, protectors: [{ minAvailable: 4, minReadySeconds: 20 }] },
    async play(stage, pod) {
      stage.setReady(pod, false);
      await stage.pass(1_000);
      stage.setReady(pod, true);
      await stage.pass(5_000);
      stage.commitAfter(undefined);
      stage.deletePod(pod);
      await stage.pass(25_000);
      stage.deletePod(pod);
      await stage.pass(2_000);
    },
  },
  {
    rule: "RepeatNeedsWeight",
    invariant: "S1",
    what: "a pod is pinned as unready, becomes ready unseen, all pods are needed, and its eviction is asked for again",
    plan: { pods: 4, protectors: [{ minAvailable: 4 }] },
    async play(stage, pod) {
      stage.setReady(pod, false);
      await stage.pass(2_000);
      stage.commitAfter(undefined);
      stage.evict(pod);
      await stage.pass(2_000);
      stage.watchLag("cell-1", 30_000);
      stage.setReady(pod, true);
      await stage.pass(1_000);
      stage.evict(pod);
      await stage.pass(2_000);
    },
  },
  {
    rule: "MaturityPosition",
    invariant: "S1",
    what: "a counted pod flaps unseen, so that it is Ready and not mature; it is deleted, and so is another one",
    plan: { pods: 4, protectors: [{ minAvailable: 3, minReadySeconds: 20 }] },
    async play(stage, pod, other) {
      stage.pauseAggregators();
      stage.setReady(pod, false);
      await stage.pass(1_000);
      stage.setReady(pod, true);
      await stage.pass(1_000);
      stage.commitAfter(LATE_MS);
      stage.deletePod(pod);
      await stage.pass(1_000);
      stage.deletePod(other);
      await stage.pass(2_000);
    },
  },
  {
    rule: "LiveRead",
    invariant: "S2",
    what: "a pod becomes ready and is counted between the live read of its eviction and the write that pins it",
    plan: { pods: 4, protectors: [{ minAvailable: 3 }] },
    async play(stage, pod, other) {
      stage.setReady(pod, false);
      await stage.pass(2_000);
      stage.world.network.setLinks("webhook", "core", { fixedDelayMs: 40 });
      stage.evict(pod);
      await stage.pass(20);
      stage.setReady(pod, true);
      await stage.pass(20);
      stage.deletePod(other);
      await stage.pass(5_000);
    },
  },
  {
    rule: "SlowPins",
    invariant: "S2",
    what: "a pod becomes ready while a second core is slow to record its eviction (seed 426095243)",
    plan: { pods: 4, protectors: [{ minAvailable: 4 }, { minAvailable: 3, core: "core-2" }] },
    async play(stage, pod) {
      stage.setReady(pod, false);
      await stage.pass(2_000);
      stage.world.network.setLinks("webhook", "core-2", { fixedDelayMs: 900 });
      stage.evict(pod);
      await stage.pass(500);
      stage.setReady(pod, true);
      await stage.pass(5_000);
    },
  },
  {
    rule: "GateReason",
    invariant: "S1",
    what: "the node of a gated pod dies, and another pod is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 4 }], features: { countedGateEveryMs: Number.MAX_SAFE_INTEGER } },
    async play(stage) {
      // The first pods are older than the webhook, and have no gate.
      const gated = stage.create("web-gated");
      await stage.pass(10_000);
      stage.cell.kubelet.nodeDied(gated);
      // Until the next heartbeat the stored count is of a version at which the pod was ready.
      await stage.pass(70_000);
      stage.deletePod(stage.pod(0));
      await stage.pass(2_000);
      stage.cell.kubelet.nodeIsBack(gated, stage.uid(gated));
    },
  },
  {
    rule: "NotReady",
    invariant: "S1",
    what: "a gated pod is counted, its kubelet is slow to set Ready, and another pod is deleted",
    plan: { pods: 4, protectors: [{ minAvailable: 4 }], features: { countedGateEveryMs: Number.MAX_SAFE_INTEGER } },
    async play(stage) {
      stage.cell.kubelet.gateDelayMs = 20_000;
      stage.create("web-gated");
      await stage.pass(15_000);
      stage.deletePod(stage.pod(0));
      await stage.pass(2_000);
    },
  },
];
