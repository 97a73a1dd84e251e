/**
 * What docs/operations.md has an operator do with a worker cluster: bring back protectors from a file, give the cell
 * another id, and let it join another core. The manifests' processes do the rest.
 */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay, kubelet, startPods } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { BUNDLES } from "../../../scripts/environment/component.ts";
import { root } from "../../../scripts/root.ts";
import { ask } from "../../support/cluster/ask.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { behind, block, operatorShell } from "../../support/cluster/documented.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, readProtector } from "../../support/cluster/protectors.ts";

const PAGE = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
const NAMESPACE = "shop";
const PROTECTOR = "deployment-web";
const PODS = 4;
const labels = { app: "web" };
const PODS_PATH = `/api/v1/namespaces/${NAMESPACE}/pods`;
const SECRETS = "/api/v1/namespaces/podseidon-system/secrets";

let core: Cluster;
let otherCore: Cluster;
let worker: Cluster;
let balancer: Balancer;
let generator: DemoKubelet;
let pods: DemoKubelet;
/** Lines of the page. */
let typed: ReturnType<typeof operatorShell>;

/** The worker's own folder with this id, as docs/install.md has it, rendered to a file. */
async function folderOf(id: string): Promise<string> {
  const directory = join(worker.directory, `overlay-${id}`);
  mkdirSync(directory);
  const manifests = relative(directory, join(root, "manifests"));
  const patch = (name: string, ...operations: readonly object[]) => ({
    target: { kind: "Deployment", name },
    patch: JSON.stringify(operations),
  });
  const one = { op: "add", path: "/spec/replicas", value: 1 };
  const settle = { op: "add", path: "/spec/template/spec/containers/0/args/-", value: "--settle-period=3s" };
  const literals = { name: "podseidon-cell", namespace: "podseidon-system", behavior: "merge", literals: [`id=${id}`] };
  const kustomization = {
    ...{ apiVersion: "kustomize.config.k8s.io/v1beta1", kind: "Kustomization" },
    resources: [join(manifests, "overlays/worker")],
    components: [join(manifests, "components/cell")],
    configMapGenerator: [{ ...literals, options: { disableNameSuffixHash: true } }],
    patches: [patch("podseidon-aggregator", one, settle), patch("podseidon-webhook", one, settle)],
  };
  writeFileSync(join(directory, "kustomization.yaml"), JSON.stringify(kustomization));
  const rendered = await worker.kubectl(["kustomize", directory]);
  const file = join(directory, "rendered.yaml");
  writeFileSync(file, behind(balancer.port, rendered.stdout));
  return file;
}

/** As the Deployments do after a rollout restart. */
async function restartPods(): Promise<void> {
  await pods?.stop();
  pods = await startPods(worker, balancer, ["podseidon-certificates", "podseidon-webhook", "podseidon-aggregator"]);
}

async function untilCounted(cell: string): Promise<void> {
  await core.waitFor(`${cell} to be counted`, async () => {
    const cells = (await readProtector(core, NAMESPACE, PROTECTOR)).status?.cells ?? [];
    const aggregation = cells.find(({ cellID }) => cellID === cell)?.aggregation;
    return aggregation?.availableReplicas === PODS && aggregation.hold === undefined;
  });
}

async function deleteAll(): Promise<readonly number[]> {
  const statuses: number[] = [];
  for (const pod of items(await worker.admin.get(PODS_PATH)))
    statuses.push((await ask(worker, "DELETE", `${PODS_PATH}/${field(pod, "metadata", "name")}`)).status);
  return statuses;
}

beforeAll(async () => {
  [core, otherCore, worker, balancer] = await Promise.all([
    Cluster.start({ name: "core", ...BARE }),
    Cluster.start({ name: "other-core", ...BARE }),
    Cluster.start({ name: "worker-2", ...BARE }),
    Balancer.listen([]),
  ]);
  typed = operatorShell(BUNDLES, [core, worker, otherCore]);
  const shop = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
  await Promise.all([core, otherCore, worker].map((cluster) => cluster.apply([shop])));
  await Promise.all([applyOverlay(core, "core"), applyOverlay(otherCore, "core")]);
  await typed(`kubectl --context worker-2 apply --filename ${await folderOf("worker-2")}`);
  await typed("kubectl podseidon join worker-2 --core-context core --context worker-2");
  generator = kubelet(core);
  await generator.start(["podseidon-generator"]);
  await restartPods();
  await createReadyPods(worker, { namespace: NAMESPACE, prefix: "web", count: PODS, labels });
  const spec = { strategy: { rollingUpdate: { maxUnavailable: 1 } } };
  await core.apply([deployment("web", PODS, { namespace: NAMESPACE, spec })]);
  await core.waitFor("the protector", async () => {
    const path = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors/${PROTECTOR}`;
    return (await core.admin.request("GET", path)).status === 200;
  });
  await untilCounted("worker-2");
});

afterAll(async () => {
  await Promise.all([pods, generator].map((one) => one?.stop()));
  await balancer?.close();
  await Promise.all([core, otherCore, worker].map((cluster) => cluster?.stop()));
});

test("a file brings back the protector that the core has lost, and leaves the other as it is", async () => {
  await createProtector(core, NAMESPACE, "by-hand", { minAvailable: 1, selector: { matchLabels: { app: "hand" } } });
  await typed("kubectl --context core get podprotectors --all-namespaces --output yaml > podprotectors.yaml");
  const { metadata } = await readProtector(core, NAMESPACE, PROTECTOR);
  const key = `/registry/podseidon.kubewharf.io/podprotectors/${NAMESPACE}/by-hand`;
  expect(await core.etcd.deleteKey(key)).toBe(true);
  const lines = block(PAGE, "bring protectors back").replaceAll("kubectl ", "kubectl --context core ");
  await expect(typed(lines)).rejects.toMatchObject({
    stderr: expect.stringMatching(/^Error .*"deployment-web" already exists\n$/),
  });
  expect((await readProtector(core, NAMESPACE, "by-hand")).spec.minAvailable).toBe(1);
  expect((await readProtector(core, NAMESPACE, PROTECTOR)).metadata.uid).toBe(metadata.uid);
  await typed(`kubectl --context core delete podprotector by-hand --namespace ${NAMESPACE}`);
});

test("a cell gets another id by the page's commands, and its pods count once", async () => {
  const rendered = await folderOf("worker-3");
  const lines = block(PAGE, "rename a cell").replace("-k manifests/overlays/worker-2", `--filename ${rendered}`);
  process.stdout.write(`${lines}${await typed(lines)}\n`);
  await restartPods();
  await untilCounted("worker-3");
  const { cells = [] } = (await readProtector(core, NAMESPACE, PROTECTOR)).status ?? {};
  expect(cells.map(({ cellID, aggregation }) => [cellID, aggregation?.availableReplicas])).toEqual([
    ["worker-2", 0],
    ["worker-3", PODS],
  ]);
  expect((await deleteAll()).toSorted()).toEqual([200, 429, 429, 429]);
});

test("a cell that is in one core does not join another by mistake, as by a wrong context", async () => {
  const secret = () => worker.admin.get(`${SECRETS}/podseidon-core-webhook`);
  const before = field(await secret(), "data");
  await expect(
    typed("kubectl podseidon join worker-3 --core-context other-core --context worker-2"),
  ).rejects.toMatchObject({
    stderr: expect.stringContaining(`worker-2 has a kubeconfig for another core (${core.url})`),
  });
  expect(field(await secret(), "data")).toEqual(before);
  expect(items(await otherCore.admin.get(SECRETS))).toEqual([]);
});

test("a cell that joins another core by the page's commands takes nothing of the first one along", async () => {
  const lines = block(PAGE, "another core").replace(/(leave|join) worker-2/g, "$1 worker-3");
  const [left = "", rest = ""] = lines.split(/^(?=.* delete configmap )/m);
  process.stdout.write(`${left}${await typed(left)}\n`);
  // The pods that follow on the deleted ones have no kubeconfig to start with, so that nobody writes the backups again.
  expect(left).toContain("delete pod --selector app.kubernetes.io/name=podseidon-aggregator");
  expect((await worker.admin.request("GET", `${SECRETS}/podseidon-core-aggregator`)).status).toBe(404);
  await pods.stop();
  process.stdout.write(`${rest}${await typed(rest)}\n`);
  await restartPods();
  expect(await deleteAll()).toEqual([200, 200, 200]);
});
