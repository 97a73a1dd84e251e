/**
 * A cluster whose cell gets another id. Its pods are in the protectors already, under the old one: until that is
 * removed, they are not counted again.
 */

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { BUNDLES, type Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { isCounted } from "../../../shared/decide/state/protector-state.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const [BEFORE, AFTER] = ["east", "west"];
const NAMESPACE = "shop";
const NAME = "deployment-web";
const PODS = 4;
const PROMISED = 3;
const labels = { app: "web" };
const PODS_PATH = `/api/v1/namespaces/${NAMESPACE}/pods`;
const PLUGIN = join(BUNDLES, "kubectl-podseidon.mjs");

let environment: TestEnvironment;
let generator: Component;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: [BEFORE, AFTER], single: true, cell: BARE, replicas: 1, settle: "3s", aggregators: false },
    aggregatorArgs: ["--copy-interval=100ms"],
  });
  await environment.core.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } },
    deployment("web", PODS, { namespace: NAMESPACE }),
  ]);
  await environment.register(BEFORE);
  generator = await environment.startGenerator();
  await createReadyPods(environment.core, { namespace: NAMESPACE, prefix: "web", count: PODS, labels });
  const aggregator = await environment.startAggregator(BEFORE);
  await environment.core.waitFor("the first id to be counted", () => isCountedAs(BEFORE));
  await environment.core.waitFor(
    "a backup",
    async () => (await aggregator.metric("podseidon_aggregator_backups")) === 1,
  );
  await aggregator.stop();
});

afterAll(async () => {
  await generator?.stop();
  await environment?.stop();
});

async function isCountedAs(cell: string): Promise<boolean> {
  const { status } = await readProtector(environment.core, NAMESPACE, NAME);
  const aggregation = status?.cells.find(({ cellID }) => cellID === cell)?.aggregation ?? undefined;
  return isCounted(aggregation) && aggregation?.hold === undefined;
}

/** Deletes every pod, one after the other; the statuses and the last text. */
async function deleteAll(): Promise<readonly [number[], string]> {
  const statuses: number[] = [];
  let text = "";
  for (const pod of items(await environment.core.admin.get(PODS_PATH))) {
    const answer = await environment.core.admin.request("DELETE", `${PODS_PATH}/${field(pod, "metadata", "name")}`);
    statuses.push(answer.status);
    text = answer.text;
  }
  return [statuses, text];
}

test("its pods are not counted twice, and again once the old id is removed", async () => {
  await environment.register(AFTER);
  const aggregator = await environment.startAggregator(AFTER);
  const isTold = (): boolean => aggregator.process.logTail().includes(`"formerCell":"${BEFORE}"`);
  await environment.core.waitFor("the first look", async () => isTold() || (await isCountedAs(AFTER)));
  const [statuses, text] = await deleteAll();
  expect(statuses).toEqual(Array.from({ length: PODS }, () => 429));
  expect(text).toContain("no aggregator has counted the pods of this cell yet");
  expect(isTold()).toBe(true);

  const env = { PATH: "/usr/bin:/bin", HOME: environment.core.directory, KUBECONFIG: environment.core.kubeconfig };
  const args = [PLUGIN, "remove-cell", BEFORE, "--all-namespaces", "--yes"];
  await promisify(execFile)(process.execPath, args, { env });
  await environment.core.waitFor("the second id to be counted", () => isCountedAs(AFTER));
  const [again] = await deleteAll();
  expect(again.filter((status) => status === 200)).toHaveLength(PODS - PROMISED);
  await waitUntilSettled(environment.core, NAMESPACE, NAME, PROMISED);
});
