/** Pods that are removed from etcd raise an alarm within seconds; deletions of every kind raise none. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { deploy, drain, roll } from "../../../scripts/bench/rollout.ts";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import type { Condition } from "../../../shared/schema/podprotector.ts";
import { wakingControllers } from "../../support/cluster/denied-controllers.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const NAME = "web";
const PODS = 6;
const PODS_PATH = "/api/v1/namespaces/default/pods";

let environment: TestEnvironment;

beforeAll(async () => {
  environment = await TestEnvironment.start({ cells: ["cell"], single: true, replicas: 1, cell: { nodes: 3 } });
  await deploy(environment, NAME, PODS);
  await settled();
});

afterAll(() => environment?.stop());

async function settled(): Promise<void> {
  await waitUntilSettled(environment.core, "default", NAME, PODS);
}

async function kubectl(...args: readonly string[]): Promise<void> {
  const { code, stderr } = await environment.core.kubectl(args);
  expect([code, stderr.includes("not be deleted") ? stderr : ""]).toEqual([0, ""]);
}

async function pod(): Promise<{ readonly name: string; readonly node: string }> {
  const pods = items(await environment.core.admin.get(`${PODS_PATH}?labelSelector=app%3D${NAME}`));
  const alive = pods.find((one) => field(one, "metadata", "deletionTimestamp") === undefined);
  return { name: String(field(alive, "metadata", "name")), node: String(field(alive, "spec", "nodeName")) };
}

/** What is told of vanished pods: the metric, the Events' messages, and the condition. */
async function told(): Promise<readonly [number | undefined, readonly string[], Condition | undefined]> {
  const aggregator = environment.aggregators.get("cell");
  const metric = await aggregator?.metric("podseidon_aggregator_vanished_pods_total", { core: "core" });
  const events = items(await environment.core.admin.get("/api/v1/namespaces/default/events"));
  const messages = events.filter((one) => field(one, "reason") === "PodsVanished").map((one) => field(one, "message"));
  const { status } = await readProtector(environment.core, "default", NAME);
  return [metric, messages.map(String), status?.conditions?.find(({ type }) => type === "PodsVanished")];
}

test.each<[string, () => Promise<void>]>([
  ["a deletion", async () => kubectl("delete", "pod", (await pod()).name)],
  [
    "a deletion by force",
    async () => {
      await kubectl("delete", "pod", (await pod()).name, "--grace-period=0", "--force");
    },
  ],
  [
    "an eviction without a grace period",
    async () => {
      const { name } = await pod();
      const body = {
        ...{ apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace: "default" } },
        deleteOptions: { gracePeriodSeconds: 0 },
      };
      await environment.core.admin.call("POST", `${PODS_PATH}/${name}/eviction`, body);
    },
  ],
  ["a drain", async () => void (await drain(environment, (await pod()).node, NAME, PODS))],
  ["a rollout", async () => void (await roll(environment, NAME, PODS, "app:2", wakingControllers(environment.core)))],
])("%s raises no alarm", async (_, story) => {
  await story();
  await settled();
  expect(await told()).toEqual([0, [], undefined]);
});

test("a pod that is removed from etcd raises it, and counts no more", async () => {
  const { name } = await pod();
  expect(await environment.core.etcd.deleteKey(`/registry/pods/default/${name}`)).toBe(true);
  await environment.core.waitFor("the Event", async () => (await told())[1].length > 0);
  const [metric, [message], condition] = await told();
  expect(metric).toBe(1);
  expect(message).toBe(
    `1 available pod of cell cell disappeared without a deletion request: ${name}. ` +
      "The etcd of the cell may have lost them.",
  );
  expect(condition).toMatchObject({ status: "True", reason: "WithoutDeletion" });
  const { status } = await readProtector(environment.core, "default", NAME);
  expect(status?.cells[0]?.aggregation).toMatchObject({ vanishedPods: 1 });
  // The Deployment replaces it, and the condition stays for an hour.
  await settled();
  expect((await told())[2]?.status).toBe("True");
});
