/**
 * A cluster, core and cell in one, with two kube-apiservers over one etcd. The watch caches of the second one stop
 * while it goes on to read, write and be ready, as behind a member of etcd whose watches lag: no readiness probe takes
 * it out of a load balancer.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { Component } from "../../../scripts/environment/component.ts";
import type { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";
import { createReadyPods, readyPods, setReady } from "../../support/cluster/pods.ts";
import { createProtector, readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { HistoryRecorder } from "../../support/history/history-recorder.ts";
import { TwoApiservers } from "./two-apiservers.ts";

const PODS = "/api/v1/namespaces/default/pods";
const COUNT = 40;
const MINIMUM = 25;

let environment: TestEnvironment;
let recorder: HistoryRecorder;
let apiservers: TwoApiservers;
let standby: Component;

beforeAll(async () => {
  let started: Promise<TwoApiservers> | undefined;
  ({ environment, recorder } = await HistoryRecorder.start({
    ...{ cells: ["cell"], single: true, cell: BARE, replicas: 2, settle: "10s", leaseNamespace: "podseidon-system" },
    // One replica stays with the second apiserver; the other components start there, through the balancer.
    kubeconfig: async (component, cluster) => {
      started ??= TwoApiservers.start(cluster);
      apiservers = await started;
      return await apiservers.kubeconfig(component === "webhook-2" ? "second" : "balancer");
    },
  }));
  const { core } = environment;
  const kubeconfig = await apiservers.kubeconfig("second");
  standby = await Component.start({
    ...{ kind: "aggregator", name: "standby", directory: core.directory },
    args: ["--cell-id", "cell", "--kubeconfig", kubeconfig, "--core", `core=${kubeconfig}`].concat([
      "--leader-elect-namespace",
      "podseidon-system",
      "--settle-period",
      "10s",
    ]),
  });
  await createProtector(core, "default", "app", { minAvailable: MINIMUM, selector: { matchLabels: { app: "app" } } });
  await createReadyPods(core, { namespace: "default", prefix: "app", count: COUNT, labels: { app: "app" } });
  await waitUntilSettled(core, "default", "app", COUNT);
  await recorder.untilKnown();
});

afterAll(async () => {
  try {
    await recorder?.judged();
  } finally {
    await standby?.stop();
    await environment?.stop();
    await apiservers?.[Symbol.asyncDispose]();
  }
});

/** Deletes and evicts all pods at once through both apiservers; resolves with how many were allowed. */
async function deleteAndEvictAll(): Promise<number> {
  // One that is marked as deleted and not removed yet may be deleted again.
  const alive = items(await environment.core.admin.get(PODS)).filter(
    (pod) => field(pod, "metadata", "deletionTimestamp") === undefined,
  );
  const names = alive.map((pod) => String(field(pod, "metadata", "name")));
  const both = [environment.core.admin, apiservers.second.admin];
  const requests = names.flatMap((name, index) =>
    both.map((admin, other) => ({ admin, name, isEviction: (index + other) % 2 === 0 })),
  );
  let allowed = 0;
  await eachAtMost(30, requests, async ({ admin, name, isEviction }) => {
    const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name } };
    const { status } = isEviction
      ? await admin.request("POST", `${PODS}/${name}/eviction`, eviction)
      : await admin.request("DELETE", `${PODS}/${name}`);
    if (status < 300) allowed += 1;
  });
  return allowed;
}

test("one lags: never more than the quota goes, and the count moves to the other one", async () => {
  const { core } = environment;
  apiservers.lag(true);
  // The second apiserver knows older versions of these.
  for (const isReady of [false, true])
    for (const index of [0, 1, 2]) await setReady(core, "default", `app-${index}`, isReady);
  await deleteAndEvictAll();
  expect(await readyPods([core], "app")).toBeGreaterThanOrEqual(MINIMUM);
  apiservers.balance("first");
  // The stream of pods was opened through the balancer when that led to the second apiserver, which still lags.
  const settled = () => waitUntilSettled(core, "default", "app", () => readyPods([core], "app"));
  await settled();
  const goOn = async (): Promise<boolean> => {
    await deleteAndEvictAll();
    await settled();
    return (await readyPods([core], "app")) <= MINIMUM;
  };
  await core.waitFor("all that may go to go", goOn);
  expect(await deleteAndEvictAll()).toBe(0);
  expect(await readyPods([core], "app")).toBe(MINIMUM);
});

test("a standby whose apiserver lags takes over, and takes nothing for restored or lost", async () => {
  const { core } = environment;
  // The leader backs it up and notes the version of the core, which the standby's streams have not reached.
  await createProtector(core, "default", "late", { minAvailable: 1, selector: { matchLabels: { app: "late" } } });
  await waitUntilSettled(core, "default", "late", 0);
  await environment.aggregators.get("cell")?.process.kill("SIGTERM");
  await core.waitFor("the standby to lead", async () => (await standby.metric("podseidon_leader")) === 1);
  apiservers.lag(false);
  await createReadyPods(core, { namespace: "default", prefix: "more", count: 2, labels: { app: "app" } });
  await waitUntilSettled(core, "default", "app", MINIMUM + 2);
  const seen = (event: string) => standby.metric("podseidon_aggregator_backup_events_total", { event });
  expect([await seen("coreWentBack"), await seen("vanished")]).toEqual([0, 0]);
  const { status } = await readProtector(core, "default", "app");
  expect(status?.cells?.map(({ aggregation }) => aggregation?.hold)).toEqual([undefined]);
});

test("one is frozen, and then killed: deletions go on through the other", async () => {
  const { core } = environment;
  await standby.process.kill("SIGTERM");
  await environment.startAggregator("cell");
  apiservers.second.process.freeze();
  const isDeleted = async (name: string): Promise<boolean> =>
    (await core.admin.request("DELETE", `${PODS}/${name}`)).status === 200;
  await core.waitFor("a deletion beside a frozen apiserver", () => isDeleted("more-0"));
  await apiservers.second.process.kill();
  await core.waitFor("a deletion beside a killed apiserver", () => isDeleted("more-1"));
  await waitUntilSettled(core, "default", "app", MINIMUM);
});
