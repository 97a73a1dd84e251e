/**
 * The updater of the Vertical Pod Autoscaler evicts and resizes protected pods: at the minimum it tries again, with
 * quota each pod has its turn (docs/neighbours.md#vertical-pod-autoscaler). With PODSEIDON_TEST_SIZE=full only, because
 * the updater is built for it.
 */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { refusals } from "../../../scripts/bench/rollout.ts";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { ensureNeighbour, neighbourVersion } from "../../support/neighbours/binaries.ts";
import { startVerticalPodAutoscaler } from "../../support/neighbours/controllers.ts";
import { changePromise, podsOf } from "../../support/neighbours/protected-deployment.ts";

const REPLICAS = 4;
const NAMESPACE = "default";
const AUTOSCALERS = `/apis/autoscaling.k8s.io/v1/namespaces/${NAMESPACE}/verticalpodautoscalers`;
const RECOMMENDED = "200m";
const WAIT_MS = 5 * 60_000;
/** How often each pod is refused before a test believes that the updater comes back. */
const DENIALS_EACH = 3;

let environment: TestEnvironment;
let cluster: Cluster;
let updater: ManagedProcess | undefined;

/** With a CPU that is below what is recommended, and whose change restarts the container. */
async function deploy(name: string): Promise<void> {
  const resources = { requests: { cpu: "100m" } };
  const resizePolicy = [{ resourceName: "cpu", restartPolicy: "RestartContainer" }];
  const containers = [{ name: "app", image: "app:1", resources, resizePolicy }];
  const workload = deployment(name, REPLICAS, {
    labels: {},
    podSpec: { terminationGracePeriodSeconds: 1, containers },
  });
  await cluster.apply([workload]);
  const protectedOperations = ["DELETE", "EVICT", "RESIZE"];
  const spec = { minAvailable: REPLICAS, selector: workload.spec.selector, protectedOperations };
  await createProtector(cluster, NAMESPACE, name, spec);
  await waitUntilSettled(cluster, NAMESPACE, name, REPLICAS, WAIT_MS);
}

/** As the recommender would write it. */
async function recommend(name: string, updateMode: string): Promise<void> {
  const amount = { cpu: RECOMMENDED };
  const recommendation = { containerName: "app", target: amount, lowerBound: amount, upperBound: amount };
  await cluster.admin.call("POST", AUTOSCALERS, {
    apiVersion: "autoscaling.k8s.io/v1",
    kind: "VerticalPodAutoscaler",
    metadata: { name },
    spec: { targetRef: { apiVersion: "apps/v1", kind: "Deployment", name }, updatePolicy: { updateMode } },
  });
  const status = { recommendation: { containerRecommendations: [recommendation] } };
  await cluster.admin.call("PATCH", `${AUTOSCALERS}/${name}/status`, { status });
}

const uids = async (name: string): Promise<unknown[]> =>
  (await podsOf([cluster], name)).map((pod) => field(pod, "metadata", "uid")).sort();

const cpuOf = (pod: unknown): unknown =>
  field(items(field(pod, "spec"), "containers")[0], "resources", "requests", "cpu");

/** Resolves when the updater has met `count` more denials. */
async function untilDenied(count: number): Promise<void> {
  const before = await refusals(environment);
  await cluster.waitFor(`${count} denials`, async () => (await refusals(environment)) - before >= count, WAIT_MS);
}

function logged(text: string): number {
  if (updater === undefined) throw new Error("there is no updater");
  return readFileSync(updater.logFile, "utf8").split(text).length - 1;
}

/** Runs a story, and prints the fewest pods that were available in it, and the denials. */
async function observed(name: string, title: string, promised: number, story: () => Promise<void>): Promise<void> {
  await using availability = await AvailabilityJudge.watch([cluster], NAMESPACE, `app=${name}`);
  availability.from();
  const before = await refusals(environment);
  const startedMs = performance.now();
  await story();
  await availability.catchUp();
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  const denied = (await refusals(environment)) - before;
  process.stdout.write(
    `VPA ${neighbourVersion("vertical-pod-autoscaler")}, ${title}: lowest ${availability.lowest} of `,
  );
  process.stdout.write(`${promised} promised, ${denied} denied, ${seconds} s\n`);
  expect(availability.lowest).toBeGreaterThanOrEqual(promised);
}

describe.runIf(process.env.PODSEIDON_TEST_SIZE === "full")("with the Vertical Pod Autoscaler", () => {
  beforeAll(async () => {
    await ensureNeighbour("vertical-pod-autoscaler");
    environment = await TestEnvironment.start({
      ...{ cells: ["cell"], single: true, replicas: 1, settle: "8s" },
      cell: { nodes: 2 },
    });
    cluster = environment.core;
    updater = await startVerticalPodAutoscaler(cluster);
  }, 60 * 60_000);

  afterAll(async () => {
    await updater?.kill("SIGKILL");
    await environment?.stop();
  });

  test("pods are evicted as they can be spared", async () => {
    await deploy("evicted");
    const before = await uids("evicted");
    await observed("evicted", "evictions at the minimum", REPLICAS, async () => {
      await recommend("evicted", "Recreate");
      await untilDenied(DENIALS_EACH * REPLICAS);
      expect(await uids("evicted")).toEqual(before);
    });
    expect(logged("Eviction failed")).toBeGreaterThanOrEqual(DENIALS_EACH);
    await observed("evicted", "evictions with a quota of one", REPLICAS - 1, async () => {
      await changePromise(environment, "evicted", REPLICAS - 1);
      const gone = async (): Promise<boolean> => {
        const now = await uids("evicted");
        return before.every((uid) => !now.includes(uid));
      };
      await cluster.waitFor("each pod to have been evicted", gone, WAIT_MS);
      await cluster.admin.call("DELETE", `${AUTOSCALERS}/evicted`);
      await waitUntilSettled(cluster, NAMESPACE, "evicted", REPLICAS, WAIT_MS);
    });
  });

  test("pods are resized in place as they can be spared", async () => {
    await deploy("resized");
    const before = await uids("resized");
    await observed("resized", "resizes at the minimum", REPLICAS, async () => {
      await recommend("resized", "InPlaceOrRecreate");
      await untilDenied(2 * DENIALS_EACH * REPLICAS);
      expect(await uids("resized")).toEqual(before);
      for (const pod of await podsOf([cluster], "resized")) expect(cpuOf(pod)).toBe("100m");
    });
    expect(logged("falling back to eviction")).toBeGreaterThanOrEqual(DENIALS_EACH);
    await observed("resized", "resizes with a quota of one", REPLICAS - 1, async () => {
      await changePromise(environment, "resized", REPLICAS - 1);
      const done = async (): Promise<boolean> => {
        const pods = await podsOf([cluster], "resized");
        return pods.length === REPLICAS && pods.every((pod) => cpuOf(pod) === RECOMMENDED);
      };
      await cluster.waitFor("each pod to have what is recommended", done, WAIT_MS);
      await waitUntilSettled(cluster, NAMESPACE, "resized", REPLICAS, WAIT_MS);
    });
    const kept = (await uids("resized")).filter((uid) => before.includes(uid)).length;
    process.stdout.write(`${kept} of ${REPLICAS} pods were resized in place, the others evicted first\n`);
  });
});
