import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";

const KINDS = ["replicasets", "statefulsets", "daemonsets"];
/** Polls grow farther apart, and so do the changes: they must not keep a busy machine busy. */
const EVERY = 10;

/**
 * To be called at each poll for the end of a rollout. A workload controller counts its failures, and each event of a
 * pod is another try: on a busy machine the last one comes before the count that it needs, and the pause after it takes
 * up to 1,000 s. Any change of the workload makes it try again at once (docs/limits.md).
 */
export function wakingControllers(cluster: Cluster, namespace = "default"): () => Promise<void> {
  let calls = 0;
  return async () => {
    if (++calls % EVERY !== 0) return;
    const metadata = { annotations: { "example.com/change": String(calls) } };
    for (const kind of KINDS) {
      const path = `/apis/apps/v1/namespaces/${namespace}/${kind}`;
      for (const one of items(await cluster.admin.get(path)).filter((all) => kind !== "replicasets" || isTooLarge(all)))
        await cluster.admin.request("PATCH", `${path}/${String(field(one, "metadata", "name"))}`, { metadata });
    }
  };
}

function isTooLarge(set: unknown): boolean {
  return Number(field(set, "status", "replicas")) > Number(field(set, "spec", "replicas"));
}
