/** Where the real scheduler puts the pods: replicas on nodes of their own, with zones and without, and on Linux. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field, items } from "../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../scripts/control-plane/cluster.ts";
import { applyOverlay, SYSTEM } from "../../scripts/demo/install.ts";

const HOST = "kubernetes.io/hostname";
const ZONE = "topology.kubernetes.io/zone";
const SEVERAL = [
  ["podseidon-webhook", 3],
  ["podseidon-aggregator", 2],
  ["podseidon-generator", 2],
] as const;
const WITHIN_MS = 120_000;

describe.each([
  ["nodes without zones", [undefined, undefined, undefined], HOST],
  ["nodes of three zones", ["a", "b", "c", "a", "a"], ZONE],
])("on %s", (_, zones, topologyKey) => {
  let cluster: Cluster;

  beforeAll(async () => {
    cluster = await Cluster.start({ nodes: 0 });
    for (const [index, zone] of zones.entries())
      await cluster.createNode({
        labels: { [HOST]: `host-${index}`, "kubernetes.io/os": "linux", ...(zone && { [ZONE]: zone }) },
      });
    await cluster.createNode({ name: "windows", labels: { [HOST]: "windows", "kubernetes.io/os": "windows" } });
    await applyOverlay(cluster, "single-cluster");
  });

  afterAll(() => cluster?.stop());

  /** The value of a node's label for each pod of a Deployment. */
  async function places(name: string, label: string): Promise<readonly unknown[]> {
    const query = `labelSelector=app.kubernetes.io/name%3D${name}`;
    const pods = items(await cluster.admin.get(`/api/v1/namespaces/${SYSTEM}/pods?${query}`));
    const nodes = pods.map((pod) => String(field(pod, "spec", "nodeName") ?? ""));
    return await Promise.all(
      nodes.map(async (node) => field(await cluster.admin.get(`/api/v1/nodes/${node}`), "metadata", "labels", label)),
    );
  }

  test.each(SEVERAL)("the replicas of %s are apart", async (name, replicas) => {
    await cluster.waitFor(
      `${replicas} pods`,
      async () => (await places(name, HOST)).filter((one) => one !== undefined).length === replicas,
      WITHIN_MS,
    );
    expect(new Set(await places(name, topologyKey)).size).toBe(replicas);
    expect(await places(name, HOST)).not.toContain("windows");
  });
});
