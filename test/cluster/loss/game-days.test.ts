/**
 * Game days: ordinary maintenance, in combination and in an unlucky order, on real control planes. A cell that is gone,
 * or cut off, can't answer for what a restored core says of it.
 */

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { BUNDLES, Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const [HERE, GONE] = ["east", "west"];
const NAMESPACE = "shop";
const NAME = "deployment-web";
const PROMISED = 4;
/** What is left above the promise is in the cell that is gone. */
const ONLY_HELD = `${PROMISED + 3} are available, 3 of them in cells that are on hold`;
const SETTLE = "3s";
const labels = { app: "web" };
const SYSTEM = "/api/v1/namespaces/podseidon-system";
const DEPLOYMENT = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/web`;
const PROTECTORS = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors`;
const PROTECTOR = `${PROTECTORS}/${NAME}`;
const PODS_PATH = `/api/v1/namespaces/${NAMESPACE}/pods`;
const PLUGIN = join(BUNDLES, "kubectl-podseidon.mjs");

let environment: TestEnvironment;
let generator: Component;
let west: Cluster;

beforeAll(async () => {
  const aggregatorArgs = ["--copy-interval=100ms"];
  [environment, west] = await Promise.all([
    TestEnvironment.start({ cells: [HERE], cell: BARE, replicas: 1, settle: SETTLE, aggregatorArgs }),
    Cluster.start({ name: GONE, ...BARE }),
  ]);
  const annotations = { "podseidon.kubewharf.io/min-available": String(PROMISED) };
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
  await environment.core.apply([namespace, deployment("web", 6, { namespace: NAMESPACE, annotations })]);
  await environment.cell(HERE).apply([namespace]);
  const system = { apiVersion: "v1", kind: "Namespace", metadata: { name: "podseidon-system" } };
  await west.apply([namespace, system]);
  generator = await environment.startGenerator([]);
});

afterAll(async () => {
  await generator?.stop();
  await environment?.stop();
  await west?.stop();
});

/** Deletes one pod after the other, each as often as the answer is busy for now, until one is needed. */
async function deleteUntilMinimum(): Promise<void> {
  const { admin } = environment.cell(HERE);
  for (const pod of items(await admin.get(PODS_PATH))) {
    let isDenied = false;
    const decided = async () => {
      const { status, text } = await admin.request("DELETE", `${PODS_PATH}/${field(pod, "metadata", "name")}`);
      isDenied = text.includes("its capacity is at the minimum") || text.includes(ONLY_HELD);
      return status === 200 || isDenied;
    };
    await environment.core.waitFor("a decision", decided);
    if (isDenied) return;
  }
}

async function holdOfWest(): Promise<string | undefined> {
  const { status } = await readProtector(environment.core, NAMESPACE, NAME);
  return status?.cells.find(({ cellID }) => cellID === GONE)?.aggregation?.hold;
}

const startWest = (): Promise<Component> =>
  Component.start({
    ...{ kind: "aggregator", name: "aggregator-west", directory: join(environment.core.directory, "product") },
    args: [
      ...["--cell-id", GONE, "--kubeconfig", west.kubeconfig, "--core", `core=${environment.core.kubeconfig}`],
      ...["--leader-elect=false", "--settle-period", SETTLE, "--copy-interval=100ms", "--restore-after=1s"],
    ],
  });

async function removeWest(...flags: string[]): Promise<void> {
  const { directory, kubeconfig } = environment.core;
  const env = { PATH: "/usr/bin:/bin", HOME: directory, KUBECONFIG: kubeconfig };
  const args = [PLUGIN, "remove-cell", GONE, "--all-namespaces", "--yes", ...flags];
  await promisify(execFile)(process.execPath, args, { env });
}

const isGone = async (path: string): Promise<boolean> =>
  (await environment.core.admin.request("GET", path)).status === 404;
const dataOf = async (name: string): Promise<Readonly<Record<string, string>>> =>
  Object(field(await environment.core.admin.get(`${SYSTEM}/configmaps/${name}`), "data"));

test("a core restored to before a cell was removed lets no pod go for those that were there", async () => {
  const { core } = environment;
  await createReadyPods(west, { namespace: NAMESPACE, prefix: "west", count: 3, labels });
  await createReadyPods(environment.cell(HERE), { namespace: NAMESPACE, prefix: "east", count: 3, labels });
  const aggregator = await startWest();
  await waitUntilSettled(core, NAMESPACE, NAME, 6);
  const backup = core.snapshotEtcd();
  // What is lost has versions that the restored core does not give again at once.
  for (let count = 0; count < 300; count += 1) {
    const metadata = { labels: { count: String(count) } };
    await core.admin.call("PATCH", `/api/v1/namespaces/${NAMESPACE}`, { metadata });
  }

  await aggregator.stop();
  await createReadyPods(environment.cell(HERE), { namespace: NAMESPACE, prefix: "moved", count: 3, labels });
  await removeWest();
  await waitUntilSettled(core, NAMESPACE, NAME, 6);

  await core.restoreEtcd(backup);
  await deleteUntilMinimum();
  expect(items(await environment.cell(HERE).admin.get(PODS_PATH))).toHaveLength(PROMISED);
  expect(await holdOfWest()).toMatch(/^CoreRestored\//);
});

test("which count again once somebody counts them", async () => {
  await using _ = await startWest();
  await environment.core.waitFor("the hold to end", async () => (await holdOfWest()) === undefined);
  await deleteUntilMinimum();
  expect(items(await environment.cell(HERE).admin.get(PODS_PATH))).toHaveLength(PROMISED - 3);
});

test("a cell that was removed while it was out of reach restores nothing that was released meanwhile", async () => {
  const { core } = environment;
  await removeWest("--may-return");
  await core.admin.call("PATCH", DEPLOYMENT, { metadata: { labels: { "podseidon.kubewharf.io/protect": "false" } } });
  await core.waitFor("the release", () => isGone(PROTECTOR));
  await core.admin.call("DELETE", DEPLOYMENT);
  // Days later.
  const released = Object.entries(await dataOf("podseidon-released-0"));
  const data = Object.fromEntries(released.map(([uid, text]) => [uid, text.replace(/^\S+/, "2026-01-01T00:00:00Z")]));
  const old = await core.admin.call("PATCH", `${SYSTEM}/configmaps/podseidon-released-0`, { data });
  await generator.stop();
  generator = await environment.startGenerator([], "generator-later");
  await core.apply([deployment("later", 6, { namespace: NAMESPACE })]);
  await core.waitFor("the generator", async () => !(await isGone(`${PROTECTORS}/deployment-later`)));

  await using _ = await startWest();
  const version = Number(field(old, "metadata", "resourceVersion"));
  // A cell acknowledges once it has no backup of what was released.
  const hasFollowed = async () => Number((await dataOf("podseidon-cells"))[GONE]) >= version;
  await core.waitFor("west to follow the releases", hasFollowed);
  expect(await isGone(PROTECTOR)).toBe(true);
});
