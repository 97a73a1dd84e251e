/** The pods of a cluster that wait on tainted nodes for their eviction (docs/design.md#eviction-retry). */
import { evictedAfterMs } from "../../shared/decide/taint-eviction.ts";
import { parsePlacedPods, parseTaintedNode } from "../../shared/schema/taints.ts";
import type { ClusterClient } from "./invocation/cluster.ts";
import { CommandError } from "./invocation/errors.ts";
import { firstNames, plural } from "./invocation/output.ts";

/** Most nodes that are read. A failed zone has more; the line then says "at least". */
const MAX_NODES = 50;
const MAX_NAMED = 5;

/** A line for people; "" when no pod waits in `namespace` (undefined for all), or when the user may not read nodes. */
export async function waitingEvictions(
  cluster: Pick<ClusterClient, "name" | "list">,
  namespace: string | undefined,
): Promise<string> {
  try {
    const nodes = (await cluster.list("/api/v1/nodes")).map(parseTaintedNode).filter(({ taints }) => taints.length > 0);
    const waiting: string[] = [];
    for (const { name, taints } of nodes.slice(0, MAX_NODES)) {
      const items = await cluster.list("/api/v1/pods", { fieldSelector: `spec.nodeName=${name}` });
      for (const pod of parsePlacedPods({ items })) {
        const isAsked = namespace === undefined || pod.namespace === namespace;
        if (isAsked && evictedAfterMs(pod, taints) !== undefined) waiting.push(`${pod.namespace}/${pod.name}`);
      }
    }
    if (waiting.length === 0) return "";
    const least = nodes.length > MAX_NODES ? "At least " : "";
    const named = firstNames(waiting, MAX_NAMED);
    const verb = waiting.length === 1 ? "waits" : "wait";
    return (
      `\n${least}${plural(waiting.length, "pod")} of ${cluster.name} ` +
      `${verb} on tainted nodes for eviction: ${named}\n`
    );
  } catch (error) {
    // A user who may read protectors may lack the permission to read nodes.
    if (error instanceof CommandError) return "";
    throw error;
  }
}
