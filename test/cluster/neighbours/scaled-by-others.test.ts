/**
 * What schedulers and autoscalers send that run beside podseidon (docs/how-to/autoscalers.md), in order: Volcano's
 * evictions, Knative's revisions, OpenKruise's Rollouts, a Deployment that falls to one replica. None of them runs
 * here.
 */

import { join } from "node:path";
import { loadAll } from "js-yaml";
import * as v from "valibot";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { ask, messageOf, untilDecided, verdictOf } from "../../support/cluster/ask.ts";
import { deployment, PROTECTED } from "../../support/cluster/deployments.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { eventually, protectorPath, readObject } from "../../support/generator/generator-harness.ts";

const namespace = "default";
const DEPLOYMENTS = `/apis/apps/v1/namespaces/${namespace}/deployments`;
const PODS = `/api/v1/namespaces/${namespace}/pods`;
const BUDGETS = `/apis/policy/v1/namespaces/${namespace}/poddisruptionbudgets`;
const POLICY = "podseidon-workload-deletions";
const STRATEGIC = { contentType: "application/strategic-merge-patch+json" };
let environment: TestEnvironment;
let generator: Component;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1, settle: "8s" },
    cell: { nodes: 1 },
  });
  generator = await environment.startGenerator();
  const { stdout } = await environment.core.kubectl(["kustomize", join(root, "manifests/overlays/core")]);
  await environment.core.apply(loadAll(stdout).filter((one) => field(one, "metadata", "name") === POLICY));
});

afterAll(async () => {
  await generator?.stop();
  await environment?.stop();
});

interface Deployed {
  readonly name: string;
  readonly replicas: number;
  readonly maxUnavailable: number;
  readonly labels?: Readonly<Record<string, string>>;
}

const settled = (name: string, pods: number): Promise<void> =>
  waitUntilSettled(environment.core, namespace, `deployment-${name}`, pods);
const scale = (name: string, replicas: number | null): Promise<unknown> =>
  environment.core.admin.call("PATCH", `${DEPLOYMENTS}/${name}`, { spec: { replicas } });

async function create({ name, replicas, maxUnavailable, labels = PROTECTED }: Deployed): Promise<void> {
  const spec = { strategy: { rollingUpdate: { maxUnavailable } } };
  const body = deployment(name, replicas, { labels, spec, podSpec: { terminationGracePeriodSeconds: 1 } });
  await environment.core.admin.call("POST", DEPLOYMENTS, body);
}

async function deploy(deployed: Deployed): Promise<void> {
  await create(deployed);
  const path = protectorPath(namespace, `deployment-${deployed.name}`);
  await eventually(environment.core, path, (one) => one !== undefined);
  await settled(deployed.name, deployed.replicas);
}

async function podsOf(name: string): Promise<string[]> {
  const pods = items(await environment.core.admin.get(`${PODS}?labelSelector=app%3D${name}`));
  return pods
    .filter((pod) => field(pod, "metadata", "deletionTimestamp") === undefined)
    .map((pod) => String(field(pod, "metadata", "name")));
}

/** As Volcano's evictor, and kube-batch's before it: it sets the pod to not Ready, and then deletes it. */
async function evictAsVolcano(pod: string): Promise<string> {
  const { core } = environment;
  const conditions = [
    { type: "Ready", status: "False", reason: "Evict", message: "Pod is evicted, because of preempt" },
  ];
  const write = () => core.admin.request("PATCH", `${PODS}/${pod}/status`, { status: { conditions } }, STRATEGIC);
  const written = await untilDecided(core, write);
  if (written.status !== 200) return messageOf(written);
  const deleted = await ask(core, "DELETE", `${PODS}/${pod}`);
  return deleted.status === 200 ? "evicted" : messageOf(deleted);
}

test("Volcano's preemption takes no more pods than can be spared", async () => {
  const { core } = environment;
  const names = ["job-0", "job-1", "job-2", "job-3"];
  const spec = { nodeName: "node-1", terminationGracePeriodSeconds: 1, containers: [{ name: "app", image: "app:1" }] };
  for (const name of names) {
    const metadata = { name, labels: { app: "job" } };
    await core.admin.call("POST", PODS, { apiVersion: "v1", kind: "Pod", metadata, spec });
  }
  await createProtector(core, namespace, "job", { minAvailable: 3, selector: { matchLabels: { app: "job" } } });
  await waitUntilSettled(core, namespace, "job", names.length);
  const [first = "", ...others] = names;
  // A kubelet may set the pod to Ready again before the deletion, which is denied then. Volcano comes back.
  await core.waitFor("the one to go", async () => (await evictAsVolcano(first)) === "evicted");
  await waitUntilSettled(core, namespace, "job", others.length);
  const denied =
    /may not be taken out of service for its eviction \(condition Ready: Evict\) now.*job needs 3 available/;
  for (const name of others) expect(await evictAsVolcano(name)).toMatch(denied);
  await waitUntilSettled(core, namespace, "job", 3);
  expect(await podsOf("job")).toEqual(others);
});

test("Kueue's preemption of a group stops at the promise: the first pod's successor is gated", async () => {
  const { core } = environment;
  const [first, ...others] = ["group-0", "group-1", "group-2"] as const;
  const labels = { app: "group" };
  const spec = { terminationGracePeriodSeconds: 1, containers: [{ name: "app", image: "app:1" }] };
  const create = (name: string, more: object): Promise<unknown> =>
    core.admin.call("POST", PODS, {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, labels },
      spec: { ...spec, ...more },
    });
  for (const name of [first, ...others]) await create(name, { nodeName: "node-1" });
  await createProtector(core, namespace, "group", { minAvailable: 2, selector: { matchLabels: labels } });
  await waitUntilSettled(core, namespace, "group", 3);
  expect((await ask(core, "DELETE", `${PODS}/${first}`)).status).toBe(200);
  await eventually(core, `${PODS}/${first}`, (one) => one === undefined);
  await create(first, { schedulingGates: [{ name: "kueue.x-k8s.io/admission" }] });
  await waitUntilSettled(core, namespace, "group", 2);
  const stop = async (name: string): Promise<string> => verdictOf(await ask(core, "DELETE", `${PODS}/${name}`));
  expect(await Promise.all(others.map(stop))).toEqual(["denial", "denial"]);
  // The gated pod is not available: nothing keeps it.
  expect(await stop(first)).toBe("allow");
});

test("a Knative revision goes to zero and comes back, and is collected at zero", async () => {
  const name = "hello-00001-deployment";
  await deploy({ name, replicas: 3, maxUnavailable: 0 });
  for (const pods of [0, 2, 0]) {
    await scale(name, pods);
    await environment.core.waitFor(`${pods} pods`, async () => (await podsOf(name)).length === pods);
    await settled(name, pods);
  }
  expect((await environment.core.admin.request("DELETE", `${DEPLOYMENTS}/${name}`)).status).toBe(200);
  await eventually(environment.core, `${DEPLOYMENTS}/${name}`, (one) => one === undefined);
});

test("KEDA's idle replicas take all pods through the scale subresource, and bring the promise back", async () => {
  const name = "consumer";
  await deploy({ name, replicas: 6, maxUnavailable: 1 });
  const path = `${DEPLOYMENTS}/${name}/scale`;
  const metadata = { name, namespace };
  const body = { apiVersion: "autoscaling/v1", kind: "Scale", metadata };
  for (const replicas of [0, 6]) {
    await environment.core.admin.call("PUT", path, { ...body, spec: { replicas } });
    await environment.core.waitFor(`${replicas} pods`, async () => (await podsOf(name)).length === replicas);
    await settled(name, replicas);
  }
  const pods = await podsOf(name);
  const answers = await Promise.all(pods.map((pod) => ask(environment.core, "DELETE", `${PODS}/${pod}`)));
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 429, 429, 429, 429, 429]);
});

test("a Deployment that is deleted to stop it, as by KServe, says what to do, and one at zero goes", async () => {
  const name = "model-predictor";
  await deploy({ name, replicas: 2, maxUnavailable: 1 });
  const stop = (): Promise<unknown> => environment.core.admin.request("DELETE", `${DEPLOYMENTS}/${name}`);
  await environment.core.waitFor("the policy to be enforced", async () => {
    const tried = await environment.core.admin.request("DELETE", `${DEPLOYMENTS}/${name}?dryRun=All`);
    return tried.status === 403;
  });
  expect(await stop()).toMatchObject({ status: 403, text: expect.stringContaining("Scale it to zero and delete it") });
  await scale(name, 0);
  expect(await stop()).toMatchObject({ status: 200 });
  await eventually(environment.core, `${DEPLOYMENTS}/${name}`, (one) => one === undefined);
});

test("Flagger's primary has no protection from the label of its target, and has it from the annotation", async () => {
  await deploy({ name: "podinfo", replicas: 3, maxUnavailable: 1 });
  // What Flagger copies of the target's metadata by default: its annotations, and none of its labels.
  await create({ name: "podinfo-primary", replicas: 3, maxUnavailable: 1, labels: {} });
  await scale("podinfo", 0);
  await settled("podinfo", 0);
  const path = protectorPath(namespace, "deployment-podinfo-primary");
  expect(await readObject(environment.core, path)).toBeUndefined();
  await environment.core.admin.call("PATCH", `${DEPLOYMENTS}/podinfo-primary`, {
    metadata: { annotations: PROTECTED },
  });
  await eventually(environment.core, path, (one) => field(one, "spec", "minAvailable") === 2);
});

test.each([
  [
    "blue and green",
    {
      metadata: { annotations: { "rollouts.kruise.io/original-deployment-strategy": '{"maxUnavailable":1}' } },
      spec: {
        ...{ minReadySeconds: 2_147_483_646, progressDeadlineSeconds: 2_147_483_647 },
        strategy: { rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } },
      },
    },
  ],
  [
    "batches",
    {
      metadata: {
        annotations: {
          "rollouts.kruise.io/deployment-strategy": '{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1},"partition":1}',
        },
      },
      spec: { paused: true, strategy: { type: "Recreate", rollingUpdate: null } },
    },
  ],
])(
  "what OpenKruise's Rollouts make of a Deployment for a rollout in %s takes nothing of its promise",
  async (how, patch) => {
    const name = `rolled-in-${how.replaceAll(" ", "-")}`;
    await deploy({ name, replicas: 3, maxUnavailable: 1 });
    await environment.core.admin.call("PATCH", `${DEPLOYMENTS}/${name}`, patch);
    const path = protectorPath(namespace, `deployment-${name}`);
    await eventually(environment.core, path, (one) => field(one, "spec", "minAvailable") === 3);
    await settled(name, 3);
    const pods = await podsOf(name);
    const answers = await Promise.all(pods.map((pod) => ask(environment.core, "DELETE", `${PODS}/${pod}`)));
    expect(answers.map(verdictOf)).toEqual(["denial", "denial", "denial"]);
  },
);

test("replicas that fall to one take the promise along, except that of a budget with a number", async () => {
  for (const name of ["fallen", "replaced", "floored"]) await deploy({ name, replicas: 6, maxUnavailable: 1 });
  const spec = { minAvailable: 4, selector: { matchLabels: { app: "floored" } } };
  const metadata = { name: "floor", labels: PROTECTED };
  await environment.core.admin.call("POST", BUDGETS, {
    apiVersion: "policy/v1",
    kind: "PodDisruptionBudget",
    metadata,
    spec,
  });
  await waitUntilSettled(environment.core, namespace, "poddisruptionbudget-floor", 6);
  // As kubectl apply of a manifest without `replicas`, which had it before an autoscaler came.
  for (const name of ["fallen", "floored"]) await scale(name, null);
  // As `helm upgrade --force`, `kubectl replace` and Argo CD's `Replace=true` of a manifest without `replicas`.
  const path = `${DEPLOYMENTS}/replaced`;
  const { spec: former } = v.parse(v.looseObject({ spec: v.looseObject({}) }), await environment.core.admin.get(path));
  const { replicas: _replicas, ...without } = former;
  const manifest = { apiVersion: "apps/v1", kind: "Deployment", metadata: { name: "replaced", labels: PROTECTED } };
  await environment.core.admin.call("PUT", path, { ...manifest, spec: without });
  for (const name of ["fallen", "replaced"]) {
    await environment.core.waitFor("pods to go", async () => (await podsOf(name)).length === 1);
  }
  await environment.core.waitFor("pods to go", async () => (await podsOf("floored")).length === 4);
  await waitUntilSettled(environment.core, namespace, "poddisruptionbudget-floor", 4);
  const answers = await Promise.all(
    (await podsOf("floored")).map((pod) => ask(environment.core, "DELETE", `${PODS}/${pod}`)),
  );
  expect(answers.map(verdictOf)).toEqual(["denial", "denial", "denial", "denial"]);
});
