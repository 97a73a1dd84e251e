/**
 * A workload controller that deletes a pod, for a scale-down or a rollout. Its work queue repeats a denied deletion
 * after 5 ms, then after twice as long, up to 1,000 s (client-go's rate limiter for controllers), and nothing wakes it.
 */
import { isMirror, metadataOf } from "../apiserver/objects.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { World } from "../world/world.ts";

const CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller";
const FIRST_PAUSE_MS = 5;
const MOST_PAUSE_MS = 1_000_000;
const LONG_PAUSE_MS = 10_000;

export async function deleteByController(world: World, chance: Chance): Promise<void> {
  const { server } = chance.pick([...world.cells.values()]);
  const pods = server.etcd.range(`pods/${NAMESPACE}/`).filter(({ value }) => !isMirror(value));
  if (pods.length === 0) return;
  const { key, value } = chance.pick(pods);
  const { uid } = metadataOf(value);
  const path = `/api/v1/namespaces/${NAMESPACE}/pods/${key.split("/")[2]}`;
  const body = { preconditions: { uid } };
  for (let pauseMs = FIRST_PAUSE_MS; world.faultsActive; pauseMs = Math.min(2 * pauseMs, MOST_PAUSE_MS)) {
    const { status } = await server.handle({
      ...{ method: "DELETE", path, body, contentType: "application/json", user: CONTROLLER },
    });
    if (status < 300 && pauseMs > LONG_PAUSE_MS) world.coverage.rule("a workload controller comes back late");
    // Gone, or another pod has the name.
    if (status < 300 || status === 404 || status === 409) return;
    world.coverage.rule("a workload controller backs off");
    await new Promise<void>((resolve) => world.time.timers.after(pauseMs, resolve));
  }
}
