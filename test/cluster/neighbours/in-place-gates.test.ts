/**
 * An in-place update as OpenKruise makes it: the controller closes a voluntary readiness gate by a status
 * write, changes the image once the pod is out of service, and opens the gate again (docs/design.md#status-writes).
 */

import { afterAll, beforeAll, expect, test } from "vitest";
import { conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import { KWOK_ANNOTATIONS } from "../../../scripts/control-plane/kwok/annotations.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";
import { ask } from "../../support/cluster/ask.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const REPLICAS = 8;
/** What the controller allows itself, and what is promised. */
const AT_ONCE = 4;
const PROMISED = 6;
/** OpenKruise's two, by turns: the second is closed by lifecycle hooks. */
const gateOf = (pod: string): string => (Number(pod.split("-")[1]) % 2 === 0 ? "InPlaceUpdateReady" : "KruisePodReady");
const PODS = "/api/v1/namespaces/default/pods";
const STRATEGIC = { contentType: "application/strategic-merge-patch+json" };

let environment: TestEnvironment;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1, settle: "8s" },
    cell: { nodes: 1, scheduler: false },
  });
  await eachAtMost(REPLICAS, names(), async (name) => {
    const annotations = { [KWOK_ANNOTATIONS.readyAfter]: "500ms" };
    const spec = {
      ...{ nodeName: "node-1", readinessGates: [{ conditionType: gateOf(name) }] },
      containers: [{ name: "app", image: "app:1" }],
    };
    const metadata = { name, labels: { app: "clone" }, annotations };
    await environment.core.admin.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata, spec });
    await setGate(name, "True");
  });
  const spec = { minAvailable: PROMISED, protectedOperations: ["DELETE", "EVICT", "UPDATE"] };
  await createProtector(environment.core, "default", "clone", { ...spec, selector: { matchLabels: { app: "clone" } } });
  await waitUntilSettled(environment.core, "default", "clone", REPLICAS);
});

afterAll(() => environment?.stop());

function names(): string[] {
  return Array.from({ length: REPLICAS }, (_, index) => `clone-${index}`);
}

async function setGate(pod: string, status: "True" | "False"): Promise<number> {
  const body = { status: { conditions: [{ type: gateOf(pod), status }] } };
  const answer = await ask(environment.core, "PATCH", `${PODS}/${pod}/status`, body, STRATEGIC);
  expect([200, 429], answer.text).toContain(answer.status);
  return answer.status;
}

async function read(pod: string): Promise<unknown> {
  return await environment.core.admin.get(`${PODS}/${pod}`);
}

/** Changes one pod; resolves to how often closing the gate was denied. */
async function change(pod: string, image: string): Promise<number> {
  const { core } = environment;
  let denied = 0;
  await core.waitFor(`the gate of ${pod} to be closed`, async () => {
    const isClosed = (await setGate(pod, "False")) === 200;
    if (!isClosed) denied++;
    return isClosed;
  });
  await core.waitFor(`${pod} to be out of service`, async () => conditionStatus(await read(pod), "Ready") !== "True");
  const body = { spec: { containers: [{ name: "app", image }] } };
  await core.admin.call("PATCH", `${PODS}/${pod}`, body, STRATEGIC);
  await core.waitFor(`${pod} to run ${image}`, async () => {
    const found = await read(pod);
    const isNew = field(found, "status", "containerStatuses", 0, "image") === image;
    return isNew && conditionStatus(found, "ContainersReady") === "True";
  });
  await setGate(pod, "True");
  await core.waitFor(`${pod} to be in service`, async () => conditionStatus(await read(pod), "Ready") === "True");
  return denied;
}

test(`taking ${AT_ONCE} of ${REPLICAS} pods out at once ends within a promise of ${PROMISED}`, async () => {
  const availability = await AvailabilityJudge.watch([environment.core], "default", "app=clone");
  let denied = 0;
  try {
    availability.from();
    await eachAtMost(AT_ONCE, names(), async (name) => {
      denied += await change(name, "app:2");
    });
    process.stdout.write(
      `in place by gates: lowest ${availability.lowest} of ${PROMISED} promised, denied ${denied}\n`,
    );
    expect(availability.lowest).toBeGreaterThanOrEqual(PROMISED);
  } finally {
    await availability.stop();
  }
  const pods = items(await environment.core.admin.get(`${PODS}?labelSelector=app%3Dclone`));
  expect(new Set(pods.map((pod) => field(pod, "spec", "containers", 0, "image")))).toEqual(new Set(["app:2"]));
  await waitUntilSettled(environment.core, "default", "clone", REPLICAS);
});

test("a gate that closes and opens without a change returns its quota", async () => {
  expect(await setGate("clone-0", "False")).toBe(200);
  expect(await setGate("clone-0", "True")).toBe(200);
  await waitUntilSettled(environment.core, "default", "clone", REPLICAS);
});
