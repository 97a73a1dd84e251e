/** A bad probe makes every pod unready while all of them run: the floor of running pods keeps them. */

import { afterAll, beforeAll, expect, test } from "vitest";
import { deploy, roll } from "../../../scripts/bench/rollout.ts";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { KWOK_ANNOTATIONS } from "../../../scripts/control-plane/kwok/annotations.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { kubectlDecided } from "../../support/cluster/ask.ts";
import { wakingControllers } from "../../support/cluster/denied-controllers.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const NAME = "web";
const PODS = 4;
const FLOOR = 2;
const AVAILABLE = "deployment-web";
const RUNNING = "deployment-web.running";

let environment: TestEnvironment;
let generator: Component;

beforeAll(async () => {
  environment = await TestEnvironment.start({ cells: ["cell"], single: true, replicas: 1, cell: { nodes: 1 } });
  generator = await environment.startGenerator();
  await deploy(environment, NAME, PODS);
  await kubectl("delete", `podprotector/${NAME}`);
  await kubectl("annotate", `deployment/${NAME}`, "podseidon.kubewharf.io/min-running=50%");
  await kubectl("label", `deployment/${NAME}`, `${Object.keys(PROTECTED)[0]}=true`);
  for (const one of [AVAILABLE, RUNNING]) await waitUntilSettled(environment.core, "default", one, PODS);
});

afterAll(async () => {
  await generator?.stop();
  await environment?.stop();
});

async function kubectl(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await kubectlDecided(environment.core, args);
  return `${code} ${stdout}${stderr}`;
}

/** UIDs of the pods that run and nobody has deleted. */
async function running(): Promise<readonly string[]> {
  const pods = items(await environment.core.admin.get(`/api/v1/namespaces/default/pods?labelSelector=app%3D${NAME}`));
  const runs = (pod: unknown): boolean =>
    field(pod, "status", "phase") === "Running" && field(pod, "metadata", "deletionTimestamp") === undefined;
  return pods.filter(runs).map((pod) => String(field(pod, "metadata", "uid")));
}

test("the annotation min-running makes a second protector", async () => {
  const { spec, status } = await readProtector(environment.core, "default", RUNNING);
  expect(spec).toMatchObject({ healthCriterion: "Running", minAvailable: FLOOR });
  expect(status?.conditions).toContainEqual(expect.objectContaining({ type: "SharesPods", status: "True" }));
});

test("while no pod is ready, a deletion of all of them stops at the floor", async () => {
  // What the Deployment creates in their place must not run.
  await kubectl("cordon", "node-1");
  await kubectl("annotate", "pods", "--all", `${KWOK_ANNOTATIONS.unready}=true`);
  await waitUntilSettled(environment.core, "default", AVAILABLE, 0);
  await environment.core.waitFor("the protector of running pods to know", async () => {
    const { status } = await readProtector(environment.core, "default", RUNNING);
    return status?.summary.aggregatedReady === 0;
  });
  const { status } = await readProtector(environment.core, "default", RUNNING);
  expect(status?.summary.aggregatedAvailableReplicas).toBe(PODS);
  const before = await running();
  const answer = await kubectl("delete", "pods", "--all", "--wait=false");
  expect(answer).toMatch(/^1 /);
  expect(answer).toContain(`PodProtector default/${RUNNING} needs ${FLOOR} running pods`);
  const after = new Set(await running());
  expect(before.filter((uid) => after.has(uid))).toHaveLength(FLOOR);
});

test("a rollout that mends the probe passes", async () => {
  await kubectl("uncordon", "node-1");
  await roll(environment, NAME, PODS, "app:2", wakingControllers(environment.core));
  for (const one of [AVAILABLE, RUNNING]) await waitUntilSettled(environment.core, "default", one, PODS);
  expect(await running()).toHaveLength(PODS);
});
