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
const WITHIN_MS = 120_000;
const SETTLE = "3s";
const labels = { app: "web" };
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
    await environment.core.waitFor("a decision", decided, WITHIN_MS);
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
      ...["--leader-elect=false", "--settle-period", SETTLE],
    ],
  });

test("a core restored to before a cell was removed lets no pod go for those that were there", async () => {
  const { core } = environment;
  await createReadyPods(west, { namespace: NAMESPACE, prefix: "west", count: 3, labels });
  await createReadyPods(environment.cell(HERE), { namespace: NAMESPACE, prefix: "east", count: 3, labels });
  const aggregator = await startWest();
  await waitUntilSettled(core, NAMESPACE, NAME, 6, WITHIN_MS);
  const backup = core.snapshotEtcd();
  // What is lost has versions that the restored core does not give again at once.
  for (let count = 0; count < 300; count += 1) {
    const metadata = { labels: { count: String(count) } };
    await core.admin.call("PATCH", `/api/v1/namespaces/${NAMESPACE}`, { metadata });
  }

  await aggregator.stop();
  await createReadyPods(environment.cell(HERE), { namespace: NAMESPACE, prefix: "moved", count: 3, labels });
  const env = { PATH: "/usr/bin:/bin", HOME: core.directory, KUBECONFIG: core.kubeconfig };
  await promisify(execFile)(process.execPath, [PLUGIN, "remove-cell", GONE, "--all-namespaces", "--yes"], { env });
  await waitUntilSettled(core, NAMESPACE, NAME, 6, WITHIN_MS);

  await core.restoreEtcd(backup);
  await deleteUntilMinimum();
  expect(items(await environment.cell(HERE).admin.get(PODS_PATH))).toHaveLength(PROMISED);
  expect(await holdOfWest()).toMatch(/^CoreRestored\//);
});

test("which count again once somebody counts them", async () => {
  await using _ = await startWest();
  await environment.core.waitFor("the hold to end", async () => (await holdOfWest()) === undefined, WITHIN_MS);
  await deleteUntilMinimum();
  expect(items(await environment.cell(HERE).admin.get(PODS_PATH))).toHaveLength(PROMISED - 3);
});
