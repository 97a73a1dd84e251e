/**
 * One command takes everything out: while every deletion of a pod is denied, and while the generator and the
 * aggregator, which put back what is missing, go on running (this cluster has no kubelet that would end them).
 */
import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../scripts/control-plane/binaries/binaries.ts";
import { Cluster } from "../../scripts/control-plane/cluster.ts";
import { applyOverlay, kubelet } from "../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../scripts/demo/kubelet.ts";
import { root } from "../../scripts/root.ts";

const NAMESPACE = "shop";
const DEPLOYMENT = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/web`;
const PROTECTOR = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors/deployment-web`;
const RECORD = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-registration";
const FINALIZER = "podseidon.kubewharf.io/generator";

let cluster: Cluster;
let pods: DemoKubelet;

const workload = {
  apiVersion: "apps/v1",
  kind: "Deployment",
  metadata: {
    name: "web",
    namespace: NAMESPACE,
    labels: { "podseidon.kubewharf.io/protect": "true" },
    finalizers: ["example.com/before"],
  },
  spec: {
    replicas: 2,
    selector: { matchLabels: { app: "web" } },
    template: { metadata: { labels: { app: "web" } }, spec: { containers: [{ name: "web", image: "web:1" }] } },
  },
};

beforeAll(async () => {
  cluster = await Cluster.start({ nodes: 1 });
  await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } }, workload]);
  await applyOverlay(cluster, "single-cluster");
  pods = kubelet(cluster, process.env.PODSEIDON_BUNDLES ?? join(root, "dist"));
  await pods.start(["podseidon-generator", "podseidon-aggregator"]);
  await cluster.waitFor("the workload to be protected", async () => {
    const protector = await cluster.admin.request("GET", PROTECTOR);
    return protector.status === 200 && String(await finalizers(DEPLOYMENT)).includes(FINALIZER);
  });
  await cluster.waitFor("the registration to be kept", async () => {
    return (await cluster.admin.request("GET", RECORD)).text.includes("ValidatingWebhookConfiguration");
  });
});

afterAll(async () => {
  await pods?.stop();
  await cluster?.stop();
});

async function finalizers(path: string): Promise<unknown> {
  return field(await cluster.admin.get(path), "metadata", "finalizers") ?? [];
}

async function uninstall(): Promise<string> {
  const { kubectl } = await ensureBinaries();
  const env = { PATH: `${dirname(kubectl)}:${process.env.PATH ?? ""}`, HOME: cluster.directory };
  const script = join(root, "manifests/uninstall.sh");
  const run = promisify(execFile);
  return (await run("sh", [script, "--kubeconfig", cluster.kubeconfig], { env })).stdout;
}

test("a pod, its Deployment and its namespace can be deleted again, and nothing is left", async () => {
  // The webhook does not run: nobody can delete a pod, and the workload is held.
  const refused = await cluster.admin.request("DELETE", `/api/v1/namespaces/${NAMESPACE}/pods`);
  expect(refused.status).toBe(500);
  expect(await finalizers(DEPLOYMENT)).toEqual(["example.com/before", FINALIZER]);

  expect(await uninstall()).toMatch(/podseidon is gone from this cluster\n$/);
  expect(await finalizers(DEPLOYMENT)).toEqual(["example.com/before"]);
  await cluster.admin.call("PATCH", DEPLOYMENT, { metadata: { finalizers: null } });
  await cluster.admin.call("DELETE", DEPLOYMENT);
  await cluster.admin.call("DELETE", `/api/v1/namespaces/${NAMESPACE}`);
  for (const namespace of [NAMESPACE, "podseidon-system", "podseidon-update-trigger"]) {
    await cluster.waitFor(`${namespace} to be gone`, async () => {
      return (await cluster.admin.request("GET", `/api/v1/namespaces/${namespace}`)).status === 404;
    });
  }
  const kinds =
    "clusterroles,clusterrolebindings,priorityclasses,crds,roles,rolebindings," +
    "validatingwebhookconfigurations,mutatingwebhookconfigurations";
  const { stdout } = await cluster.kubectl(["get", kinds, "--all-namespaces", "--output", "name"]);
  expect(stdout.split("\n").filter((name) => name.includes("podseidon"))).toEqual([]);
});

test("a second time, nothing is to be done", async () => {
  expect(await uninstall()).toBe("podseidon is gone from this cluster\n");
});
