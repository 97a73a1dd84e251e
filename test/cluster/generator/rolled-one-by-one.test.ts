/**
 * StatefulSets and DaemonSets, rolled out by their real controllers under the protectors that the generator makes.
 * Those of Deployments are in `generator-rollouts.test.ts`.
 */

import { afterAll, beforeAll, expect, test } from "vitest";
import { conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import { KWOK_ANNOTATIONS } from "../../../scripts/control-plane/kwok/annotations.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { createHttpsTransport } from "../../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { loadClusterAccess } from "../../../shared/kube/credentials/kubeconfig.ts";
import { systemPorts as ports } from "../../../shared/runtime/system-ports.ts";
import { wakingControllers } from "../../support/cluster/denied-controllers.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import {
  protectorPath,
  type RunningGenerator,
  readObject,
  startGenerator,
} from "../../support/generator/generator-harness.ts";
import { AvailabilityPerApp } from "../../support/generator/per-app.ts";

const namespace = "default";
const PODS = `/api/v1/namespaces/${namespace}/pods`;
const NODES = 4;
const STRATEGIC = { contentType: "application/strategic-merge-patch+json" };
let environment: TestEnvironment;
let transport: Transport;
let generator: RunningGenerator;
let judge: AvailabilityPerApp;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1, settle: "40s" },
    cell: { nodes: NODES },
  });
  transport = createHttpsTransport(await loadClusterAccess(environment.core.kubeconfig), { ports, userAgent: "test" });
  generator = startGenerator(transport);
  judge = new AvailabilityPerApp(transport, namespace);
  await judge.start();
});

afterAll(async () => {
  await Promise.all([generator?.stop(), judge?.stop()]);
  transport?.close();
  await environment?.stop();
});

interface Rolled {
  readonly kind: "StatefulSet" | "DaemonSet";
  readonly name: string;
  readonly pods: number;
  readonly minAvailable: number;
  readonly spec?: object;
  /** How many pods a rollout leaves at the image of before. */
  readonly left?: number;
}

const update = (rollingUpdate: object): object => ({ updateStrategy: { type: "RollingUpdate", rollingUpdate } });
const PARALLEL = { podManagementPolicy: "Parallel" };
const ROLLED: readonly Rolled[] = [
  { kind: "StatefulSet", name: "ordered", pods: 5, minAvailable: 4 },
  { kind: "StatefulSet", name: "parallel", pods: 5, minAvailable: 4, spec: PARALLEL },
  { kind: "StatefulSet", name: "part", pods: 5, minAvailable: 4, spec: update({ partition: 2 }), left: 2 },
  { kind: "DaemonSet", name: "agent", pods: NODES, minAvailable: 3 },
  { kind: "DaemonSet", name: "half", pods: NODES, minAvailable: 2, spec: update({ maxUnavailable: "50%" }) },
  { kind: "DaemonSet", name: "surge", pods: NODES, minAvailable: 4, spec: update({ maxSurge: 1, maxUnavailable: 0 }) },
];
const STUCK: Rolled = {
  ...{ kind: "DaemonSet", name: "stuck", pods: NODES, minAvailable: 4 },
  spec: update({ maxSurge: 2, maxUnavailable: 0 }),
};

function objectOf({ kind, name, pods, spec }: Rolled): object {
  const podSpec = { terminationGracePeriodSeconds: 1, containers: [{ name: "app", image: "app:1" }] };
  return {
    ...{ apiVersion: "apps/v1", kind, metadata: { name, namespace, labels: PROTECTED } },
    spec: {
      ...(kind === "StatefulSet" ? { replicas: pods, serviceName: name } : {}),
      selector: { matchLabels: { app: name } },
      template: { metadata: { labels: { app: name } }, spec: podSpec },
      ...spec,
    },
  };
}

const pathOf = ({ kind, name }: Rolled): string =>
  `/apis/apps/v1/namespaces/${namespace}/${kind.toLowerCase()}s/${name}`;
const protectorOf = ({ kind, name }: Rolled): Promise<unknown> =>
  readObject(environment.core, protectorPath(namespace, `${kind.toLowerCase()}-${name}`));
const podsOf = async ({ name }: Rolled): Promise<readonly unknown[]> =>
  items(await environment.core.admin.get(`${PODS}?labelSelector=app%3D${name}`));

async function roll(rolled: Rolled, image: string): Promise<void> {
  const spec = { template: { spec: { containers: [{ name: "app", image }] } } };
  await environment.core.admin.call("PATCH", pathOf(rolled), { spec }, STRATEGIC);
}

async function isComplete(rolled: Rolled, image: string): Promise<boolean> {
  const [protector, pods] = [await protectorOf(rolled), await podsOf(rolled)];
  const old = pods.filter((pod) => field(pod, "spec", "containers", 0, "image") !== image);
  const counted = field(protector, "status", "summary", "estimatedAvailableReplicas");
  return counted === rolled.pods && pods.length === rolled.pods && old.length === (rolled.left ?? 0);
}

test("each rollout ends, also beside a mass deletion, and never goes below the number of its controller", async () => {
  const { core } = environment;
  const wake = wakingControllers(core, namespace);
  await core.apply(ROLLED.map(objectOf));
  const complete = (image: string, of = ROLLED): Promise<void> =>
    core.waitFor(`all to have ${image}`, async () => {
      await wake();
      for (const one of of) if (!(await isComplete(one, image))) return false;
      return true;
    });
  await complete(
    "app:1",
    ROLLED.map((one) => ({ ...one, left: 0 })),
  );
  for (const one of ROLLED) expect(field(await protectorOf(one), "spec", "minAvailable")).toBe(one.minAvailable);
  judge.from();
  for (const image of ["app:2", "app:3"]) {
    for (const one of ROLLED) await roll(one, image);
    if (image === "app:3") await Promise.all(judge.pods().map((pod) => core.admin.request("DELETE", `${PODS}/${pod}`)));
    await complete(image);
  }
  for (const { name, minAvailable } of ROLLED) expect(judge.lowest(name), name).toBeGreaterThanOrEqual(minAvailable);
});

test("a rollout with surge waits for a pod that is never available, and goes on by the annotation", async () => {
  const { core } = environment;
  await core.apply([objectOf(STUCK)]);
  await core.waitFor("its pods", async () => await isComplete(STUCK, "app:1"));
  const annotate = (path: string, annotations: object): Promise<unknown> =>
    core.admin.request("PATCH", path, { metadata: { annotations } });
  /** Each pod on one of the nodes is not ready, the new one too. */
  const spoil = async (): Promise<readonly unknown[]> => {
    const pods = await podsOf(STUCK);
    for (const pod of pods.filter((one) => field(one, "spec", "nodeName") === "node-1"))
      await annotate(`${PODS}/${String(field(pod, "metadata", "name"))}`, { [KWOK_ANNOTATIONS.unready]: "true" });
    return pods;
  };
  const isOld = (pod: unknown): boolean => field(pod, "spec", "containers", 0, "image") === "app:1";
  await spoil();
  await core.waitFor("one to be unready", async () => {
    return field(await protectorOf(STUCK), "status", "summary", "estimatedAvailableReplicas") === NODES - 1;
  });
  await roll(STUCK, "app:2");
  // The one on node-1 is not available, so it is spare.
  await core.waitFor("a refusal", async () => {
    await spoil();
    const events = await core.admin.get(`/api/v1/namespaces/${namespace}/events?fieldSelector=reason%3DFailedDelete`);
    return items(events).some((one) => String(field(one, "message")).includes("stuck needs 4 available pods, 4 are"));
  });
  expect((await spoil()).some(isOld)).toBe(true);
  await annotate(pathOf(STUCK), { "podseidon.kubewharf.io/max-unavailable": "1" });
  const wake = wakingControllers(core, namespace);
  await core.waitFor("the rollout", async () => {
    await wake();
    const pods = await spoil();
    const ready = pods.filter((pod) => conditionStatus(pod, "Ready") === "True");
    return !pods.some(isOld) && ready.length === NODES - 1;
  });
});
