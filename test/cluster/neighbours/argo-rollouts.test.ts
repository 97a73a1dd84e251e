/**
 * Rollouts of Argo Rollouts under the protector that the generator derives with `--scalable`: a canary with an abort,
 * a blue-green switch, and a mass deletion in the middle of each (docs/neighbours.md#argo-rollouts). With
 * PODSEIDON_TEST_SIZE=full only, because the controller is built for it.
 */

import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { refusals } from "../../../scripts/bench/rollout.ts";
import { conditionStatus, field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { grantScalable, installGenerator } from "../../support/generator/generator-harness.ts";
import { ensureNeighbour, neighbourVersion } from "../../support/neighbours/binaries.ts";
import { startArgoRollouts } from "../../support/neighbours/controllers.ts";
import { podsOf } from "../../support/neighbours/protected-deployment.ts";

const REPLICAS = 8;
/** By default a quarter of the replicas may be unavailable. */
const PROMISED = 6;
const ROLLOUTS = "/apis/argoproj.io/v1alpha1/namespaces/default/rollouts";
const PODS = "/api/v1/namespaces/default/pods";
const MERGE = { contentType: "application/merge-patch+json" };
const WAIT_MS = 5 * 60_000;

let environment: TestEnvironment;
let cluster: Cluster;
let controller: ManagedProcess | undefined;
let generator: Component | undefined;

const template = (name: string, image: string): object => ({
  metadata: { labels: { app: name } },
  spec: { terminationGracePeriodSeconds: 1, containers: [{ name: "app", image }] },
});

/** Resolves when all pods of the Rollout are counted by the protector that the generator makes. */
async function deploy(name: string, strategy: object): Promise<void> {
  const metadata = { name, namespace: "default", labels: PROTECTED };
  const selector = { matchLabels: { app: name } };
  const spec = { replicas: REPLICAS, selector, template: template(name, "app:1"), strategy };
  await cluster.apply([{ apiVersion: "argoproj.io/v1alpha1", kind: "Rollout", metadata, spec }]);
  await untilPhase(name, "Healthy");
  await waitUntilSettled(cluster, "default", `rollout-${name}`, REPLICAS, WAIT_MS);
  expect((await readProtector(cluster, "default", `rollout-${name}`)).spec.minAvailable).toBe(PROMISED);
}

const patch = (name: string, body: object): Promise<unknown> =>
  cluster.admin.call("PATCH", `${ROLLOUTS}/${name}`, body, MERGE);
const update = (name: string, image: string): Promise<unknown> =>
  patch(name, { spec: { template: template(name, image) } });
/** What `kubectl argo rollouts abort`, `retry` and `promote --full` do. */
const command = (name: string, status: object): Promise<unknown> =>
  cluster.admin.call("PATCH", `${ROLLOUTS}/${name}/status`, { status }, MERGE);

async function untilPhase(name: string, phase: string): Promise<void> {
  await cluster.waitFor(
    `Rollout ${name} to be ${phase}`,
    async () => {
      const rollout = await cluster.admin.get(`${ROLLOUTS}/${name}`);
      const observed =
        String(field(rollout, "metadata", "generation")) === field(rollout, "status", "observedGeneration");
      return observed && field(rollout, "status", "phase") === phase;
    },
    WAIT_MS,
  );
}

/** Available pods of an image. */
async function available(name: string, image: string): Promise<number> {
  const runs = (pod: unknown): boolean =>
    field(pod, "spec", "containers", 0, "image") === image &&
    field(pod, "metadata", "deletionTimestamp") === undefined &&
    conditionStatus(pod, "Ready") === "True";
  return (await podsOf([cluster], name)).filter(runs).length;
}

async function untilAvailable(name: string, image: string, count: number): Promise<void> {
  const what = `${count} pods of ${name} to be available with ${image}`;
  await cluster.waitFor(what, async () => (await available(name, image)) === count, WAIT_MS);
}

/** What `kubectl delete pods -l app=NAME` does, at once. */
async function deleteAll(name: string): Promise<void> {
  const names = (await podsOf([cluster], name)).map((pod) => String(field(pod, "metadata", "name")));
  await Promise.all(names.map((pod) => cluster.admin.request("DELETE", `${PODS}/${pod}`)));
}

interface Told {
  readonly lowest: () => Promise<number>;
}

/** Runs a story and prints the fewest pods that were available in it, and the denials. */
async function observed(name: string, labels: string, story: (told: Told) => Promise<void>): Promise<void> {
  await using availability = await AvailabilityJudge.watch([cluster], "default", labels);
  availability.from();
  const before = await refusals(environment);
  const lowest = async (): Promise<number> => {
    await availability.catchUp();
    return availability.lowest;
  };
  await story({ lowest });
  const denied = (await refusals(environment)) - before;
  process.stdout.write(`Argo Rollouts ${neighbourVersion("argo-rollouts")}, ${name}: `);
  process.stdout.write(`lowest ${await lowest()} of ${PROMISED} promised, ${denied} denied\n`);
  expect(await lowest()).toBeGreaterThanOrEqual(PROMISED);
}

describe.runIf(process.env.PODSEIDON_TEST_SIZE === "full")("with Argo Rollouts", () => {
  beforeAll(async () => {
    await ensureNeighbour("argo-rollouts");
    environment = await TestEnvironment.start({
      ...{ cells: ["cell"], single: true, replicas: 2, settle: "8s" },
      cell: { nodes: 2 },
    });
    cluster = environment.core;
    controller = await startArgoRollouts(cluster);
    await installGenerator(cluster);
    await grantScalable(cluster, "argoproj.io", "rollouts");
    const serviceAccount = { namespace: "podseidon-system", name: "podseidon-generator" };
    const kubeconfig = await cluster.kubeconfigFor({ serviceAccount });
    generator = await Component.start({
      ...{ kind: "generator", name: "generator", directory: join(cluster.directory, "product") },
      args: ["--kubeconfig", kubeconfig, "--leader-elect=false", "--scalable=argoproj.io/v1alpha1/rollouts"],
    });
  }, 60 * 60_000);

  afterAll(async () => {
    await controller?.kill("SIGKILL");
    await generator?.stop();
    await environment?.stop();
  });

  test("a canary is aborted, tried again and completed, and a mass deletion in the middle is denied", async () => {
    const name = "canary";
    await deploy(name, { canary: { steps: [{ setWeight: 50 }, { pause: {} }] } });
    await observed("a canary up to its pause", `app=${name}`, async () => {
      await update(name, "app:2");
      await untilPhase(name, "Paused");
      await untilAvailable(name, "app:2", REPLICAS / 2);
    });
    await observed("all pods deleted during the pause", `app=${name}`, async ({ lowest }) => {
      await deleteAll(name);
      expect(await lowest()).toBeLessThan(REPLICAS);
      await untilAvailable(name, "app:2", REPLICAS / 2);
      await untilAvailable(name, "app:1", REPLICAS / 2);
    });
    await observed("the canary aborted", `app=${name}`, async () => {
      await command(name, { abort: true });
      await untilAvailable(name, "app:1", REPLICAS);
      await untilAvailable(name, "app:2", 0);
    });
    await observed("the canary tried again and promoted", `app=${name}`, async () => {
      await command(name, { abort: false });
      await untilPhase(name, "Paused");
      await command(name, { promoteFull: true });
      await untilPhase(name, "Healthy");
      await untilAvailable(name, "app:2", REPLICAS);
      await untilAvailable(name, "app:1", 0);
    });
    await waitUntilSettled(cluster, "default", `rollout-${name}`, REPLICAS, WAIT_MS);
  });

  test("a blue-green rollout switches, and its protector follows the active pods", async () => {
    const name = "bluegreen";
    const ports = [{ port: 80 }];
    const service = { apiVersion: "v1", kind: "Service", metadata: { name, namespace: "default" } };
    await cluster.apply([{ ...service, spec: { selector: { app: name }, ports } }]);
    await deploy(name, { blueGreen: { activeService: name, autoPromotionEnabled: false, scaleDownDelaySeconds: 1 } });
    await observed("all pods deleted while the preview waits", `app=${name}`, async () => {
      await update(name, "app:2");
      await untilPhase(name, "Paused");
      await untilAvailable(name, "app:2", REPLICAS);
      const before = await available(name, "app:1");
      await deleteAll(name);
      const after = await available(name, "app:1");
      process.stdout.write(`active pods: ${before}, after the deletion of all pods ${after}\n`);
      expect(after).toBeGreaterThanOrEqual(PROMISED);
      await untilAvailable(name, "app:1", REPLICAS);
      await untilAvailable(name, "app:2", REPLICAS);
    });
    await observed("the switch", `app=${name}`, async () => {
      await command(name, { promoteFull: true });
      await untilPhase(name, "Healthy");
      await untilAvailable(name, "app:1", 0);
      await untilAvailable(name, "app:2", REPLICAS);
    });
    await waitUntilSettled(cluster, "default", `rollout-${name}`, REPLICAS, WAIT_MS);
    const hash = field(await cluster.admin.get(`${ROLLOUTS}/${name}`), "status", "stableRS");
    const { selector } = (await readProtector(cluster, "default", `rollout-${name}`)).spec;
    expect(JSON.stringify(selector)).toContain(String(hash));
  });
});
