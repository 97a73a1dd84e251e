/** Where the real scheduler puts the pods: replicas on nodes of their own, with zones and without, and on Linux. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay, SYSTEM } from "../../../scripts/demo/install.ts";

const HOST = "kubernetes.io/hostname";
const ZONE = "topology.kubernetes.io/zone";
const SEVERAL = [
  ["podseidon-webhook", 3],
  ["podseidon-aggregator", 2],
  ["podseidon-generator", 2],
] as const;

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

  async function podsOf(name: string): Promise<readonly unknown[]> {
    const query = `labelSelector=app.kubernetes.io/name%3D${name}`;
    return items(await cluster.admin.get(`/api/v1/namespaces/${SYSTEM}/pods?${query}`));
  }

  /** The value of a node's label for each pod of a Deployment. */
  async function places(name: string, label: string): Promise<readonly unknown[]> {
    const nodes = (await podsOf(name)).map((pod) => String(field(pod, "spec", "nodeName") ?? ""));
    return await Promise.all(
      nodes.map(async (node) => field(await cluster.admin.get(`/api/v1/nodes/${node}`), "metadata", "labels", label)),
    );
  }

  test.each(SEVERAL)("the replicas of %s are apart", async (name, replicas) => {
    await cluster.waitFor(
      `${replicas} pods`,
      async () => (await places(name, HOST)).filter((one) => one !== undefined).length === replicas,
    );
    expect(new Set(await places(name, topologyKey)).size).toBe(replicas);
    expect(await places(name, HOST)).not.toContain("windows");
  });

  test("in the network of their nodes, replicas of the webhook listen there, and replace each other", async () => {
    const name = "podseidon-webhook";
    for (const revision of ["first", "second"]) {
      const patch = JSON.stringify([
        { op: "add", path: "/spec/template/metadata/annotations/revision", value: revision },
      ]);
      const patches = [{ target: { kind: "Deployment", name }, patch }];
      await applyOverlay(cluster, "single-cluster", { components: ["host-network"], patches });
      const isPlaced = (pod: unknown): boolean =>
        field(pod, "metadata", "annotations", "revision") === revision && field(pod, "spec", "nodeName") !== undefined;
      // An old one may be gone before the new one in its place exists.
      const arePlaced = async (): Promise<boolean> => {
        const all = await podsOf(name);
        return all.length === 3 && all.every(isPlaced);
      };
      await cluster.waitFor(`the ${revision} replicas`, arePlaced);
    }
    expect(new Set(await places(name, HOST)).size).toBe(3);
    const port = { name: "webhook", containerPort: 18443, hostPort: 18443 };
    for (const pod of await podsOf(name)) expect(field(pod, "spec", "containers", 0, "ports", 0)).toMatchObject(port);
  });

  test("its other ports are those of its probes and of Prometheus", async () => {
    const deployment = await cluster.admin.get(`/apis/apps/v1/namespaces/${SYSTEM}/deployments/podseidon-webhook`);
    const container = field(deployment, "spec", "template", "spec", "containers", 0);
    const args = items(container, "args").map(String);
    const ports = items(container, "ports").map((port) => field(port, "containerPort"));
    const flags = ["--secure-port=", "--metrics-bind-address=:", "--health-probe-bind-address=:"];
    expect(args).toEqual(expect.arrayContaining(flags.map((flag, index) => `${flag}${ports[index]}`)));
    const annotations = field(deployment, "spec", "template", "metadata", "annotations");
    expect(field(annotations, "prometheus.io/port")).toBe(String(ports[1]));
  });
});
