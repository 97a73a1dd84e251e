/** Components that leave objects out, where a cluster has them: `kubectl apply` deletes none, and pages say how to. */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay, kubelet, SYSTEM } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { shellCommand } from "../../support/cluster/documented.ts";

const INSTALL = readFileSync(new URL("../../../docs/install.md", import.meta.url), "utf8");
const OPERATIONS = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
const SECRET = `/api/v1/namespaces/${SYSTEM}/secrets/podseidon-webhook-tls`;
const POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";

let cluster: Cluster;
let certificates: DemoKubelet;

beforeAll(async () => {
  const flags = { "kube-apiserver": { "disable-admission-plugins": "ServiceAccount" } };
  cluster = await Cluster.start({ controllerManager: false, scheduler: false, kwok: false, flags });
  await applyOverlay(cluster, "single-cluster");
  certificates = kubelet(cluster);
  await certificates.start(["podseidon-certificates"]);
});

afterAll(async () => {
  await certificates?.stop();
  await cluster?.stop();
});

async function deployments(): Promise<readonly string[]> {
  const list = await cluster.admin.get(`/apis/apps/v1/namespaces/${SYSTEM}/deployments`);
  return items(list).map((one) => String(field(one, "metadata", "name")));
}

/** In the Secret, as it was read last. */
async function servedName(secret?: unknown): Promise<string> {
  const found = secret ?? (await cluster.admin.get(SECRET));
  const pem = Buffer.from(String(field(found, "data", "tls.crt")), "base64");
  return pem.length === 0 ? "" : (new X509Certificate(pem).subjectAltName ?? "");
}

test("a certificate of one's own is replaced until the page's command ends the project's own", async () => {
  await cluster.waitFor("a certificate", async () => (await servedName()) !== "");
  await applyOverlay(cluster, "single-cluster", { components: ["provided-certificate"] });
  const own = await cluster.identity.servingCertificate(["own.example.com"], []);
  const stringData = { "tls.crt": own.certificatePem, "tls.key": own.privateKeyPem };
  // It may be replaced before it is read again.
  expect(await servedName(await cluster.admin.call("PATCH", SECRET, { stringData }))).toContain("own.example.com");
  await cluster.waitFor("it to be replaced", async () => !(await servedName()).includes("own.example.com"));
  expect(await deployments()).toContain("podseidon-certificates");
  await shellCommand(cluster, INSTALL, "end the project's own certificates");
  expect(await deployments()).toEqual([
    "podseidon-aggregator",
    "podseidon-generator",
    "podseidon-update-trigger",
    "podseidon-webhook",
  ]);
});

test("the policy of workload deletions stays until the page's commands delete it", async () => {
  await applyOverlay(cluster, "single-cluster", { components: ["without-workload-deletions"] });
  const left = async (): Promise<readonly number[]> => {
    const paths = ["ies", "ybindings"].map((end) => `${POLICIES}${end}/podseidon-workload-deletions`);
    return await Promise.all(paths.map(async (path) => (await cluster.admin.request("GET", path)).status));
  };
  expect(await left()).toEqual([200, 200]);
  await shellCommand(cluster, OPERATIONS, "without the policy");
  expect(await left()).toEqual([404, 404]);
});
