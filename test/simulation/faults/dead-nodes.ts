/**
 * A node dies, and comes back. Its kubelet writes nothing meanwhile. node-lifecycle sets Ready from True to False and
 * leaves everything else as it is: ContainersReady, gates, and Ready's reason (MarkPodsNotReady in
 * pkg/controller/util/node of Kubernetes).
 */
import { metadataOf, record, text } from "../apiserver/objects.ts";
import { isGated, isTrue } from "../apiserver/pod-conditions.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { World } from "../world/world.ts";

const MOST_PODS = 6;
const DEAD_MEAN_MS = 15_000;

export function killNode(world: World, chance: Chance): void {
  const { server, kubelet } = chance.pick([...world.cells.values()]);
  const pods = server.etcd.range(`pods/${NAMESPACE}/`);
  const first = chance.between(0, Math.max(0, pods.length - 1));
  for (const { key, value } of pods.slice(first, first + chance.between(1, MOST_PODS))) {
    if (metadataOf(value).deletionTimestamp !== undefined || record(value.status).phase !== "Running") continue;
    const uid = text(metadataOf(value).uid) ?? "";
    if (isGated(value) && isTrue(value, "ContainersReady") && !isTrue(value, "Ready"))
      world.coverage.rule("a kubelet dies while its pod waits for gates");
    if (kubelet.nodeDied(key))
      world.coverage.rule(
        isGated(value) ? "node-lifecycle: Ready of a gated pod alone" : "node-lifecycle: Ready alone",
      );
    world.time.timers.after(chance.exponential(DEAD_MEAN_MS), () => kubelet.nodeIsBack(key, uid));
  }
}
