/**
 * One command takes everything out: while every deletion of a pod is denied, and while the generator and the
 * aggregator, which put back what is missing, go on running (this cluster has no kubelet that would end them).
 */

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { KWOK_ANNOTATIONS } from "../../../scripts/control-plane/kwok/annotations.ts";
import { addition, applyOverlay, kubelet, type OverlayPatch } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { root } from "../../../scripts/root.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { shellCommand } from "../../support/cluster/documented.ts";

const PAGE = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
const NAMESPACE = "shop";
const DEPLOYMENT = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/web`;
const PROTECTOR = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors/deployment-web`;
const PODS = "/api/v1/namespaces/podseidon-system/pods";
const RECORD = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-registration";
const REGISTRATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podseidon";
const GATE_REGISTRATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/podseidon-gate";
const FINALIZER = "podseidon.kubewharf.io/generator";
const GATE = "podseidon.kubewharf.io/counted";
const GATED = `/api/v1/namespaces/${NAMESPACE}/pods/gated`;

let cluster: Cluster;
let pods: DemoKubelet;
let aggregators: DemoKubelet;

/** How long an aggregator's pod stays after its deletion. */
function terminatesAfter(value: string): OverlayPatch {
  const path = `/spec/template/metadata/annotations/${KWOK_ANNOTATIONS.terminateAfter.replace("/", "~1")}`;
  return addition({ kind: "Deployment", name: "podseidon-aggregator" }, path, value);
}

const workload = deployment("web", 2, { namespace: NAMESPACE, finalizers: ["example.com/before"] });

beforeAll(async () => {
  cluster = await Cluster.start({ nodes: 1 });
  await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } }, workload]);
  await applyOverlay(cluster, "single-cluster", { patches: [terminatesAfter("never")] });
  pods = kubelet(cluster);
  await pods.start(["podseidon-generator"]);
  await startAggregators();
  await cluster.waitFor("the workload to be protected", async () => {
    const protector = await cluster.admin.request("GET", PROTECTOR);
    return protector.status === 200 && String(await finalizers(DEPLOYMENT)).includes(FINALIZER);
  });
});

async function startAggregators(): Promise<void> {
  aggregators = kubelet(cluster);
  await aggregators.start(["podseidon-aggregator"]);
  await cluster.waitFor("the registration to be kept", async () => {
    return (await cluster.admin.request("GET", RECORD)).text.includes("ValidatingWebhookConfiguration");
  });
  await cluster.admin.call("DELETE", REGISTRATION);
  await untilRestored();
}

/**
 * As a kubelet does: the process ends before its pod. An aggregator whose pod is terminating still restores the webhook
 * configuration.
 */
async function endAggregatorsBeforeTheirPods(): Promise<void> {
  const query = "labelSelector=app.kubernetes.io/name%3Dpodseidon-aggregator";
  const list = async (): Promise<readonly unknown[]> => items(await cluster.admin.get(`${PODS}?${query}`));
  await cluster.waitFor("the aggregator's pods to be terminating", async () =>
    (await list()).every((pod) => typeof field(pod, "metadata", "deletionTimestamp") === "string"),
  );
  await cluster.admin.call("DELETE", REGISTRATION);
  await untilRestored();
  await aggregators.stop();
  const metadata = { annotations: { [KWOK_ANNOTATIONS.terminateAfter]: "1ms" } };
  for (const pod of await list())
    await cluster.admin.call("PATCH", `${PODS}/${field(pod, "metadata", "name")}`, { metadata });
}

async function untilRestored(): Promise<void> {
  await cluster.waitFor("the webhook configuration to be restored", async () => {
    return (await cluster.admin.request("GET", REGISTRATION)).status === 200;
  });
}

afterAll(async () => {
  await aggregators?.stop();
  await pods?.stop();
  await cluster?.stop();
});

async function finalizers(path: string): Promise<unknown> {
  return field(await cluster.admin.get(path), "metadata", "finalizers") ?? [];
}

async function uninstall(...flags: readonly string[]): Promise<string> {
  const { kubectl } = await ensureBinaries();
  const env = { PATH: `${dirname(kubectl)}:${process.env.PATH ?? ""}`, HOME: cluster.directory };
  const script = join(root, "manifests/uninstall.sh");
  const run = promisify(execFile);
  return (await run("sh", [script, ...flags, "--kubeconfig", cluster.kubeconfig], { env })).stdout;
}

test("nobody is asked once the last command of the break-glass has ended, until the overlay is applied", async () => {
  const kind = { apiVersion: "admissionregistration.k8s.io/v1", kind: "MutatingWebhookConfiguration" };
  await cluster.apply([{ ...kind, metadata: { name: "podseidon-gate" }, webhooks: [] }]);
  const { stdout: context } = await cluster.kubectl(["config", "current-context"]);
  const ended = endAggregatorsBeforeTheirPods();
  await shellCommand(cluster, PAGE.replaceAll("CONTEXT", context.trim()), "nobody is asked");
  await ended;
  for (const path of [REGISTRATION, GATE_REGISTRATION])
    expect((await cluster.admin.request("GET", path)).status).toBe(404);
  await applyOverlay(cluster, "single-cluster", { patches: [terminatesAfter("3s")] });
  await startAggregators();
});

test("nothing is changed while it would complete a deletion that is held", async () => {
  const held = DEPLOYMENT.replace(/web$/, "held");
  await cluster.apply([{ ...workload, metadata: { ...workload.metadata, name: "held", finalizers: [] } }]);
  await cluster.waitFor("the finalizer", async () => String(await finalizers(held)).includes(FINALIZER));
  const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
  await cluster.admin.call("DELETE", `${policies}/podseidon-workload-deletions`);
  await cluster.waitFor("the deletion to be held", async () => {
    return (await cluster.admin.request("DELETE", held)).status < 300;
  });
  await expect(uninstall()).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining("shop held\n") });
  expect(await finalizers(held)).toEqual([FINALIZER]);
  expect((await cluster.admin.request("GET", REGISTRATION)).status).toBe(200);
});

test("a pod, its Deployment and its namespace can be deleted again, and nothing is left", async () => {
  const spec = { readinessGates: [{ conditionType: GATE }], containers: [{ name: "web", image: "web:1" }] };
  await cluster.apply([{ apiVersion: "v1", kind: "Pod", metadata: { name: "gated", namespace: NAMESPACE }, spec }]);
  // The webhook does not run: nobody can delete a pod, and the workload is held.
  const refused = await cluster.admin.request("DELETE", `/api/v1/namespaces/${NAMESPACE}/pods`);
  expect(refused.status).toBe(500);
  expect(await finalizers(DEPLOYMENT)).toEqual(["example.com/before", FINALIZER]);

  expect(await uninstall("--complete-deletions")).toMatch(/podseidon is gone from this cluster\n$/);
  expect(await finalizers(DEPLOYMENT)).toEqual(["example.com/before"]);
  expect(conditionStatus(await cluster.admin.get(GATED), GATE)).toBe("True");
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
    "flowschemas,prioritylevelconfigurations,validatingwebhookconfigurations,mutatingwebhookconfigurations";
  const { stdout } = await cluster.kubectl(["get", kinds, "--all-namespaces", "--output", "name"]);
  expect(stdout.split("\n").filter((name) => name.includes("podseidon"))).toEqual([]);
});

test("a second time, nothing is to be done", async () => {
  expect(await uninstall()).toBe("podseidon is gone from this cluster\n");
});
