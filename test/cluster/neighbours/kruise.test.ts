/**
 * In-place updates by OpenKruise's own manager (docs/design.md#status-writes): CloneSet, Advanced StatefulSet and
 * SidecarSet finish their updates within the promise. With PODSEIDON_TEST_SIZE=full only, because OpenKruise is built
 * for it; test/cluster/neighbours/in-place-gates.test.ts plays the controller otherwise.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { load } from "js-yaml";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { KWOK_ANNOTATIONS } from "../../../scripts/control-plane/kwok/annotations.ts";
import type { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { shellCommand } from "../../support/cluster/documented.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { ensureKruise, kruiseVersion } from "../../support/cluster/test-tools.ts";
import { startKruiseManager } from "../../support/neighbours/kruise-manager.ts";

const REPLICAS = 8;
const PROMISED = 6;
/** What the controllers allow themselves. */
const MAX_UNAVAILABLE = "50%";
const PODS = "/api/v1/namespaces/default/pods";
const KRUISE = "/apis/apps.kruise.io";
const CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podseidon";
const COMPONENT = join(root, "manifests/components/without-status-writes/kustomization.yaml");
const BUDGETS = "/apis/policy.kruise.io/v1alpha1/namespaces/default/podunavailablebudgets";
const KRUISE_CONFIGURATION =
  "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kruise-validating-webhook-configuration";
const PAGE = readFileSync(join(root, "docs/migration-from-podunavailablebudget.md"), "utf8");
const MERGE = { contentType: "application/merge-patch+json" };
const WAIT_MS = 5 * 60_000;

let environment: TestEnvironment;
let worker: Cluster;
let manager: ManagedProcess;

interface Workload {
  readonly objects: (name: string) => readonly unknown[];
  /** The container whose image is updated. */
  readonly container: string;
  /** What is patched: a path, and the patch that brings the image. */
  readonly update: (name: string, image: string) => { readonly path: string; readonly patch: unknown };
}

const labelled = (name: string) => ({ selector: { matchLabels: { app: name } } });
const template = (name: string, image: string) => ({
  metadata: { labels: { app: name } },
  spec: { terminationGracePeriodSeconds: 1, containers: [{ name: "app", image }] },
});

const CLONE_SET: Workload = {
  container: "app",
  objects: (name) => [
    {
      apiVersion: "apps.kruise.io/v1alpha1",
      kind: "CloneSet",
      metadata: { name, namespace: "default" },
      spec: {
        ...{ replicas: REPLICAS, ...labelled(name), template: template(name, "app:1") },
        updateStrategy: { type: "InPlaceIfPossible", maxUnavailable: MAX_UNAVAILABLE },
      },
    },
  ],
  update: (name, image) => ({
    path: `${KRUISE}/v1alpha1/namespaces/default/clonesets/${name}`,
    patch: { spec: { template: template(name, image) } },
  }),
};

const STATEFUL_SET: Workload = {
  container: "app",
  objects: (name) => {
    const { metadata, spec } = template(name, "app:1");
    const gated = { metadata, spec: { ...spec, readinessGates: [{ conditionType: "InPlaceUpdateReady" }] } };
    const rollingUpdate = { podUpdatePolicy: "InPlaceIfPossible", maxUnavailable: MAX_UNAVAILABLE };
    return [
      {
        apiVersion: "apps.kruise.io/v1beta1",
        kind: "StatefulSet",
        metadata: { name, namespace: "default" },
        spec: {
          ...{ replicas: REPLICAS, serviceName: name, ...labelled(name), template: gated },
          ...{ podManagementPolicy: "Parallel", updateStrategy: { type: "RollingUpdate", rollingUpdate } },
        },
      },
    ];
  },
  update: (name, image) => ({
    path: `${KRUISE}/v1beta1/namespaces/default/statefulsets/${name}`,
    patch: { spec: { template: { spec: { containers: [{ name: "app", image }] } } } },
  }),
};

const SIDECAR_SET: Workload = {
  container: "sidecar",
  objects: (name) => [
    {
      apiVersion: "apps.kruise.io/v1alpha1",
      kind: "SidecarSet",
      metadata: { name },
      spec: {
        ...{ namespace: "default", ...labelled(name), containers: [{ name: "sidecar", image: "sidecar:1" }] },
        updateStrategy: { type: "RollingUpdate", maxUnavailable: MAX_UNAVAILABLE },
      },
    },
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name, namespace: "default" },
      spec: { replicas: REPLICAS, ...labelled(name), template: template(name, "app:1") },
    },
  ],
  update: (name, image) => ({
    path: `${KRUISE}/v1alpha1/sidecarsets/${name}`,
    patch: { spec: { containers: [{ name: "sidecar", image }] } },
  }),
};

async function pods(name: string): Promise<readonly unknown[]> {
  return items(await worker.admin.get(`${PODS}?labelSelector=app%3D${name}`));
}

/** Eight Ready pods, counted by a protector that promises six. */
async function deploy(name: string, { objects, container }: Workload): Promise<void> {
  for (const object of objects(name)) await worker.apply([object]);
  await untilAllRun(name, container, `${container}:1`);
  const spec = { minAvailable: PROMISED, protectedOperations: ["DELETE", "EVICT", "UPDATE"], ...labelled(name) };
  await createProtector(environment.core, "default", name, spec);
  await waitUntilSettled(environment.core, "default", name, REPLICAS, WAIT_MS);
}

async function untilAllRun(name: string, container: string, image: string): Promise<void> {
  const runs = (pod: unknown): boolean => {
    const statuses = field(pod, "status", "containerStatuses");
    const all = Array.isArray(statuses) ? statuses : [];
    return all.some((one) => one.name === container && one.image === image) && conditionStatus(pod, "Ready") === "True";
  };
  await worker.waitFor(
    `all pods of ${name} to be Ready with ${image}`,
    async () => {
      const found = await pods(name);
      return found.length === REPLICAS && found.every(runs);
    },
    WAIT_MS,
  );
}

/** Containers that start from now on get ready when the test wants it, however slow the machine is. */
async function holdRestarts(name: string, held: boolean): Promise<void> {
  const annotations = { [KWOK_ANNOTATIONS.readyAfter]: held ? "never" : null };
  for (const pod of await pods(name))
    await worker.admin.call(
      "PATCH",
      `${PODS}/${String(field(pod, "metadata", "name"))}`,
      { metadata: { annotations } },
      MERGE,
    );
}

async function denials(): Promise<number> {
  const counts = environment.webhooks.map(({ component }) =>
    component.metric("podseidon_webhook_reviews_total", { outcome: "denied" }),
  );
  return (await Promise.all(counts)).reduce<number>((sum, count) => sum + (count ?? 0), 0);
}

interface Outcome {
  readonly lowest: number;
  readonly denied: number;
}

/** Updates the image of all pods. The first restarts last until `until` resolves to true. */
async function updateInPlace(
  name: string,
  { container, update }: Workload,
  until: (now: () => Promise<Outcome>) => Promise<boolean>,
): Promise<Outcome> {
  const before = await pods(name);
  await holdRestarts(name, true);
  const deniedBefore = await denials();
  await using availability = await AvailabilityJudge.watch([worker], "default", `app=${name}`);
  availability.from();
  const now = async (): Promise<Outcome> => {
    return { lowest: availability.lowest, denied: (await denials()) - deniedBefore };
  };
  const { path, patch } = update(name, `${container}:2`);
  await worker.admin.call("PATCH", path, patch, MERGE);
  await worker.waitFor(`the update of ${name} to come as far as it can`, () => until(now), WAIT_MS);
  await holdRestarts(name, false);
  await untilAllRun(name, container, `${container}:2`);
  await availability.catchUp();
  const outcome = await now();
  process.stdout.write(`${name}: lowest ${outcome.lowest} of ${PROMISED} promised, denied ${outcome.denied}\n`);
  const uids = (all: readonly unknown[]): unknown[] => all.map((pod) => field(pod, "metadata", "uid")).sort();
  expect(uids(await pods(name)), "the pods are the same").toEqual(uids(before));
  return outcome;
}

/** What `kubectl apply` with the component does: any other change of the configuration is undone by the aggregator. */
async function withoutStatusWrites(): Promise<void> {
  const component = load(readFileSync(COMPONENT, "utf8"));
  const deleted = String(field(load(String(field(component, "patches", 0, "patch"))), "webhooks", 0, "name"));
  const live = await worker.admin.get(CONFIGURATION);
  const applied = JSON.parse(
    String(field(live, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")),
  );
  const webhooks = applied.webhooks.filter((one: { readonly name: string }) => one.name !== deleted);
  expect(webhooks).toHaveLength(applied.webhooks.length - 1);
  await worker.apply([{ ...applied, webhooks }]);
}

describe.runIf(process.env.PODSEIDON_TEST_SIZE === "full")(`with OpenKruise ${kruiseVersion()}`, () => {
  beforeAll(async () => {
    const kruise = await ensureKruise();
    environment = await TestEnvironment.start({ cells: ["worker"], replicas: 2, settle: "8s", cell: { nodes: 2 } });
    worker = environment.cell("worker");
    manager = await startKruiseManager(worker, kruise);
  }, 60 * 60_000);

  afterAll(async () => {
    await manager?.kill("SIGKILL");
    await environment?.stop();
  });

  test("refuses each change of a budget while both gates are off, until the page's step", async () => {
    const body = {
      ...{ apiVersion: "policy.kruise.io/v1alpha1", kind: "PodUnavailableBudget", metadata: { name: "web" } },
      spec: { maxUnavailable: 1, ...labelled("web") },
    };
    const refused = await worker.admin.request("POST", BUDGETS, body);
    expect(refused.status).toBe(400);
    expect(JSON.stringify(refused.body)).toContain("feature PodUnavailableBudget is invalid");
    await shellCommand(worker, PAGE, "unasked");
    const created = async () => (await worker.admin.request("POST", BUDGETS, body)).status === 201;
    await worker.waitFor("the budget to be created", created, WAIT_MS);
    // The manager writes the configuration again, from its template.
    const timeouts = async () =>
      items(await worker.admin.get(KRUISE_CONFIGURATION), "webhooks").map((one) => field(one, "timeoutSeconds"));
    const before = await timeouts();
    const operation = { op: "replace", path: "/webhooks/0/timeoutSeconds", value: 3 };
    const patch = { contentType: "application/json-patch+json" };
    await worker.admin.call("PATCH", KRUISE_CONFIGURATION, [operation], patch);
    await worker.waitFor(
      "the manager to undo the change",
      async () => JSON.stringify(await timeouts()) === JSON.stringify(before),
      WAIT_MS,
    );
    const changed = { metadata: { labels: { team: "a" } } };
    await worker.admin.call("PATCH", `${BUDGETS}/web`, changed, MERGE);
    await worker.admin.call("DELETE", `${BUDGETS}/web`);
  });

  test.each([
    ["cloneset", CLONE_SET],
    ["statefulset", STATEFUL_SET],
    ["sidecarset", SIDECAR_SET],
  ] as const)("a %s updates its pods in place within the promise", async (name, workload) => {
    await deploy(name, workload);
    const { lowest, denied } = await updateInPlace(name, workload, async (now) => (await now()).denied > 0);
    expect(denied).toBeGreaterThan(0);
    expect(lowest).toBeGreaterThanOrEqual(PROMISED);
    await waitUntilSettled(environment.core, "default", name, REPLICAS, WAIT_MS);
  });

  test("with the component without-status-writes a CloneSet goes below the promise", async () => {
    await withoutStatusWrites();
    await deploy("unreviewed", CLONE_SET);
    const { lowest } = await updateInPlace("unreviewed", CLONE_SET, async (now) => (await now()).lowest < PROMISED);
    expect(lowest).toBeLessThan(PROMISED);
  });
});
