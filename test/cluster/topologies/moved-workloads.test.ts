/**
 * Workloads move from one core to another by docs/topologies.md: the cell obeys both, and then the new core alone. At
 * no moment may a pod go that one of them promises.
 */

import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay, SYSTEM, startPods } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { BUNDLES } from "../../../scripts/environment/component.ts";
import { root } from "../../../scripts/root.ts";
import { behind, block, operatorShell } from "../../support/cluster/documented.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const PAGE = readFileSync(new URL("../../../docs/topologies.md", import.meta.url), "utf8");
const NAMESPACE = "shop";
const PODS = 3;
const PROMISED = 2;
const HANGS_MS = 240_000;
const labels = { app: "web" };
const PODS_PATH = `/api/v1/namespaces/${NAMESPACE}/pods`;
const promise = { minAvailable: PROMISED, selector: { matchLabels: labels } };

let oldCore: Cluster;
let newCore: Cluster;
let worker: Cluster;
let balancer: Balancer;
let pods: DemoKubelet | undefined;
let typed: ReturnType<typeof operatorShell>;

/** The page's folder of two cores with the kubeconfigs of `join`; without the second core once the page says so. */
function folder(cores: "both" | "one"): string {
  const component = cores === "both" ? ", ../../components/second-core" : "";
  const components = `components: [../../components/cell${component}]`;
  const settle = { op: "add", path: "/spec/template/spec/containers/0/args/-", value: "--settle-period=3s" };
  const one = { op: "replace", path: "/spec/replicas", value: 1 };
  const patch = (name: string): object => ({
    target: { kind: "Deployment", name },
    patch: JSON.stringify([one, settle]),
  });
  const patches = JSON.stringify([patch("podseidon-webhook"), patch("podseidon-aggregator")]);
  const text = block(PAGE, "a cell of two cores").replace(/^components: .*$/m, components);
  return `${text}\npatches: ${patches}\n`;
}

/** The folder `worker-2`, as the command of the page applies it. */
async function writeFolder(cores: "both" | "one"): Promise<string> {
  const manifests = join(worker.directory, "manifests");
  cpSync(join(root, "manifests"), manifests, { recursive: true });
  const directory = join(manifests, "overlays", "worker-2");
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, "kustomization.yaml"), folder(cores));
  const file = join(worker.directory, `${cores}.yaml`);
  writeFileSync(file, behind(balancer.port, (await worker.kubectl(["kustomize", directory])).stdout));
  return file;
}

async function restartPods(): Promise<void> {
  await pods?.stop();
  pods = await startPods(worker, balancer, ["podseidon-certificates", "podseidon-webhook", "podseidon-aggregator"]);
}

/** Deletes one pod after the other, each until it is decided; the statuses. */
async function deleteAll(): Promise<readonly number[]> {
  const statuses: number[] = [];
  for (const pod of items(await worker.admin.get(PODS_PATH))) {
    const path = `${PODS_PATH}/${field(pod, "metadata", "name")}`;
    let decided = 0;
    const isDecided = async (): Promise<boolean> => {
      const { status, text } = await worker.admin.request("DELETE", path);
      decided = status;
      return status === 200 || text.includes("its capacity is at the minimum");
    };
    await worker.waitFor(`a decision about ${path}`, isDecided, HANGS_MS);
    statuses.push(decided);
  }
  return statuses;
}

beforeAll(async () => {
  [oldCore, newCore, worker, balancer] = await Promise.all([
    Cluster.start({ name: "old-core", ...BARE }),
    Cluster.start({ name: "new-core", ...BARE }),
    Cluster.start({ name: "worker-2", ...BARE }),
    Balancer.listen([]),
  ]);
  typed = operatorShell(BUNDLES, [worker, oldCore, newCore]);
  const shop = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
  await Promise.all([oldCore, newCore, worker].map((cluster) => cluster.apply([shop])));
  await Promise.all([applyOverlay(oldCore, "core"), applyOverlay(newCore, "core")]);
  await typed(`kubectl --context worker-2 apply --filename ${await writeFolder("both")}`);
  await typed("kubectl podseidon join worker-2 --core-context old-core --context worker-2");
  const serviceAccount = { namespace: SYSTEM, name: "podseidon-aggregator" };
  const kubeconfig = await newCore.kubeconfigFor({ serviceAccount, expirationSeconds: 86_400 });
  const metadata = { name: "podseidon-second-core", namespace: SYSTEM };
  const stringData = { kubeconfig: readFileSync(kubeconfig, "utf8") };
  await worker.apply([{ apiVersion: "v1", kind: "Secret", metadata, stringData }]);
  await createProtector(oldCore, NAMESPACE, "web", promise);
  await createReadyPods(worker, { namespace: NAMESPACE, prefix: "web", count: PODS, labels });
  await restartPods();
  await waitUntilSettled(oldCore, NAMESPACE, "web", PODS, HANGS_MS);
});

afterAll(async () => {
  await pods?.stop();
  await balancer?.close();
  await Promise.all([oldCore, newCore, worker].map((cluster) => cluster?.stop()));
});

test("the new core promises before the old one ends, and alone after the page's last step", async () => {
  await createProtector(newCore, NAMESPACE, "web", promise);
  await waitUntilSettled(newCore, NAMESPACE, "web", PODS, HANGS_MS);
  await typed(`kubectl --context old-core delete podprotector web --namespace ${NAMESPACE}`);
  const rendered = await writeFolder("one");
  const lines = block(PAGE, "the new core alone").replace("-k manifests/overlays/worker-2", `--filename ${rendered}`);
  process.stdout.write(`${lines}${await typed(lines)}\n`);
  await restartPods();
  expect(await deleteAll()).toEqual([200, 429, 429]);
});
