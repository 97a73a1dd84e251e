/**
 * A cell that is one namespace and obeys two cores, installed from the folders of docs/topologies.md. (One webhook for
 * all clusters is how the demo runs: `test/cluster/people/demo.test.ts`.)
 */

import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay, SYSTEM, startPods } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { root } from "../../../scripts/root.ts";
import { ask } from "../../support/cluster/ask.ts";
import { behind, block } from "../../support/cluster/documented.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const PAGE = readFileSync(new URL("../../../docs/topologies.md", import.meta.url), "utf8");
const NAMESPACE = "shop";
const PODS = 3;
const SETTLED_WITHIN_MS = 300_000;
const labels = { app: "web" };

let worker: Cluster;
let first: Cluster;
let second: Cluster;
let balancer: Balancer;
let pods: DemoKubelet;

const namespaceObject = (name: string): unknown => ({ apiVersion: "v1", kind: "Namespace", metadata: { name } });

/** The kubeconfig of the shared account of a core, as a Secret of the worker. */
async function secretFor(core: Cluster, name: string): Promise<unknown> {
  const serviceAccount = { namespace: SYSTEM, name: "podseidon-aggregator" };
  const path = await core.kubeconfigFor({ serviceAccount, expirationSeconds: 86_400 });
  const stringData = { kubeconfig: readFileSync(path, "utf8") };
  return { apiVersion: "v1", kind: "Secret", metadata: { name, namespace: SYSTEM }, stringData };
}

/** The folder of two cores with the cell of a namespace: components go together. */
function kustomization(): string {
  const [, components = ""] = /^components: \[(.*)\]$/m.exec(block(PAGE, "a cell of two cores")) ?? [];
  return block(PAGE, "a cell by namespace").replace("../../components/cell, ", `${components}, `);
}

beforeAll(async () => {
  [worker, first, second] = await Promise.all([
    Cluster.start({ name: "worker", ...BARE }),
    Cluster.start({ name: "first", ...BARE }),
    Cluster.start({ name: "second", ...BARE }),
  ]);
  balancer = await Balancer.listen([]);
  await Promise.all([first, second].map((core) => applyOverlay(core, "core")));
  await Promise.all([worker, first, second].map((cluster) => cluster.apply([namespaceObject(NAMESPACE)])));
  const copy = join(worker.directory, "manifests");
  cpSync(join(root, "manifests"), copy, { recursive: true });
  const directory = join(copy, "overlays", "own");
  mkdirSync(directory);
  writeFileSync(join(directory, "kustomization.yaml"), kustomization());
  const { stdout } = await worker.kubectl(["kustomize", directory]);
  await worker.apply(behind(balancer.port, stdout));
  await worker.apply([await secretFor(first, "podseidon-core"), await secretFor(second, "podseidon-second-core")]);
  pods = await startPods(worker, balancer, undefined, { startTimeoutMs: SETTLED_WITHIN_MS });
  await createProtector(first, NAMESPACE, "web", { minAvailable: 1, selector: { matchLabels: labels } });
  await createProtector(second, NAMESPACE, "web", { minAvailable: PODS, selector: { matchLabels: labels } });
  for (const namespace of [NAMESPACE, "default"])
    await createReadyPods(worker, { namespace, prefix: "web", count: PODS, labels });
});

afterAll(async () => {
  await pods?.stop();
  await balancer?.close();
  await Promise.all([worker, first, second].map((cluster) => cluster?.stop()));
});

const podPath = (namespace: string, name: string): string => `/api/v1/namespaces/${namespace}/pods/${name}`;

test("both cores count the pods of the namespace alone, and its stream has the update trigger's pod", async () => {
  for (const core of [first, second]) await waitUntilSettled(core, NAMESPACE, "web", PODS);
  await worker.waitFor(
    "the dummy pod",
    async () => (await worker.admin.request("GET", podPath(NAMESPACE, "podseidon-update-trigger"))).status === 200,
  );
});

test("what one core denies is denied, also where the other has pods to spare", async () => {
  const path = podPath(NAMESPACE, "web-0");
  let said = "";
  await worker.waitFor("the denial", async () => {
    const { status, body } = await worker.admin.request("DELETE", `${path}?dryRun=All`);
    said = String(field(body, "message"));
    return status === 429 && said.includes("(core second)");
  });
  expect(said).toContain(`needs ${PODS} available pods, ${PODS} are available`);
  expect((await ask(worker, "DELETE", path)).status).toBe(429);
});

test("in another namespace nobody is asked", async () => {
  expect((await worker.admin.request("DELETE", podPath("default", "web-0"))).status).toBe(200);
});

test("what both allow is allowed, and both account for it", async () => {
  await second.admin.call("PATCH", `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors/web`, {
    spec: { minAvailable: 1 },
  });
  const path = podPath(NAMESPACE, "web-0");
  await worker.waitFor("the deletion", async () => {
    const { status } = await worker.admin.request("DELETE", path);
    return status === 200 || status === 404;
  });
  for (const core of [first, second]) await waitUntilSettled(core, NAMESPACE, "web", PODS - 1);
});
