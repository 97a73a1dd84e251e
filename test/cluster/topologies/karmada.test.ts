/** A core that runs no pods, with its generator in another cluster: the folders of docs/how-to/karmada.md. */

import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { kubelet, SYSTEM } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { root } from "../../../scripts/root.ts";
import { deployment, PROTECTED } from "../../support/cluster/deployments.ts";
import { block } from "../../support/cluster/documented.ts";
import { eventually, protectorPath } from "../../support/generator/generator-harness.ts";

const PAGE = readFileSync(new URL("../../../docs/how-to/karmada.md", import.meta.url), "utf8");
const FLEETS = readFileSync(new URL("../../../docs/how-to/fleets.md", import.meta.url), "utf8");
const WITHIN_MS = 300_000;
const CONTAINERS = [{ name: "app", image: "app:1" }];

let karmada: Cluster;
let host: Cluster;
let pods: DemoKubelet;

/** `kubectl apply -k` of a folder that the page has its readers make. */
async function install(cluster: Cluster, name: string): Promise<void> {
  const copy = join(cluster.directory, "tree");
  for (const folder of ["manifests", "crds"]) cpSync(join(root, folder), join(copy, folder), { recursive: true });
  const directory = join(copy, "manifests/overlays/own");
  mkdirSync(directory);
  writeFileSync(join(directory, "kustomization.yaml"), block(PAGE, name));
  const { code, stderr } = await cluster.kubectl(["apply", "-k", directory]);
  if (code !== 0) throw new Error(stderr);
}

beforeAll(async () => {
  [karmada, host] = await Promise.all([
    Cluster.start({ name: "karmada", ...BARE }),
    Cluster.start({ name: "host", ...BARE }),
  ]);
  await Promise.all([install(karmada, "the core"), install(host, "the host cluster")]);
  const serviceAccount = { namespace: SYSTEM, name: "podseidon-generator" };
  const kubeconfig = readFileSync(await karmada.kubeconfigFor({ serviceAccount, expirationSeconds: 86_400 }), "utf8");
  const metadata = { name: "podseidon-core-generator", namespace: SYSTEM };
  await host.apply([{ apiVersion: "v1", kind: "Secret", metadata, stringData: { kubeconfig } }]);
  pods = kubelet(host, { startTimeoutMs: WITHIN_MS });
  await pods.start();
});

afterAll(async () => {
  await pods?.stop();
  await Promise.all([karmada, host].map((cluster) => cluster?.stop()));
});

test("the core runs nothing, and the host cluster grants the generator nothing", async () => {
  expect(items(await karmada.admin.get("/apis/apps/v1/deployments"))).toEqual([]);
  expect(JSON.stringify(await host.admin.get("/apis/apps/v1/deployments"))).not.toContain('"image":"podseidon"');
  const bindings = items(await host.admin.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"));
  expect(bindings.filter((one) => String(field(one, "metadata", "name")).startsWith("podseidon"))).toEqual([]);
});

test("a Deployment of the core is protected, and held", async () => {
  await karmada.apply([deployment("web", 8)]);
  const path = protectorPath("default", "deployment-web");
  await eventually(karmada, path, (one) => field(one, "spec", "minAvailable") === 6);
  // The federation may set the template's replicas to the pods that exist.
  const MIN_AVAILABLE = "podseidon.kubewharf.io/min-available";
  await karmada.kubectl(["annotate", "deployment", "web", `${MIN_AVAILABLE}=4`]);
  await eventually(karmada, path, (one) => field(one, "spec", "minAvailable") === 4);
  await karmada.kubectl(["scale", "deployment", "web", "--replicas=13"]);
  const derivation = ["metadata", "annotations", "podseidon.kubewharf.io/derivation"] as const;
  const scaled = await eventually(karmada, path, (one) => String(field(one, ...derivation)).includes("13"));
  expect(field(scaled, "spec", "minAvailable")).toBe(4);
  const deletion = await karmada.kubectl(["delete", "deployment", "web", "--wait=false"]);
  expect(deletion.stderr).toContain("podseidon-workload-deletions");
});

test("a DaemonSet of the core promises what the federation sums up; a budget keeps its number", async () => {
  const labels = { app: "agent" };
  const spec = {
    selector: { matchLabels: labels },
    template: { metadata: { labels }, spec: { containers: CONTAINERS } },
  };
  const metadata = { name: "agent", namespace: "default", labels: PROTECTED };
  await karmada.apply([
    { apiVersion: "apps/v1", kind: "DaemonSet", metadata, spec },
    {
      apiVersion: "policy/v1",
      kind: "PodDisruptionBudget",
      metadata,
      spec: { selector: spec.selector, minAvailable: 5 },
    },
  ]);
  const [ofNodes, ofBudget] = ["daemonset-agent", "poddisruptionbudget-agent"].map((name) =>
    protectorPath("default", name),
  ) as [string, string];
  await eventually(karmada, ofBudget, (one) => field(one, "spec", "minAvailable") === 5);
  const sumUp = async (desiredNumberScheduled: number): Promise<void> => {
    const counts = { currentNumberScheduled: 0, numberMisscheduled: 0, numberReady: 0, observedGeneration: 1 };
    const status = JSON.stringify({ status: { ...counts, desiredNumberScheduled } });
    await karmada.kubectl(["patch", "daemonset", "agent", "--subresource=status", "--type=merge", "--patch", status]);
  };
  await sumUp(6);
  await eventually(karmada, ofNodes, (one) => field(one, "spec", "minAvailable") === 5);
  // The copies were deleted, and made again: their status is new.
  await sumUp(0);
  await eventually(karmada, ofNodes, (one) => field(one, "spec", "minAvailable") === 0);
  expect(field(await karmada.admin.get(ofBudget), "spec", "minAvailable")).toBe(5);
});

test("a budget asks the cells for their workloads, where the core has none", async () => {
  await karmada.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: "shop" } }]);
  const { code, stderr } = await karmada.kubectl(["apply", "-f", "-"], {
    input: block(FLEETS, "a budget over all clusters"),
  });
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  const path = protectorPath("shop", "poddisruptionbudget-web");
  await eventually(karmada, path, (one) => field(one, "spec", "countExpectedPods") === true);
});
