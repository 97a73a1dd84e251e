/**
 * Random Deployments, rolled out by the real Deployment controller under the protectors that the generator makes. The
 * controller's own steps are not denied once the count that they need is published, and a mass deletion at the same
 * time never goes below the minimum.
 */

import { afterAll, beforeAll, expect, test } from "vitest";
import { plugins } from "../../../controllers/generator/sources/plugins.ts";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { KWOK_ANNOTATIONS } from "../../../scripts/control-plane/kwok/annotations.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { createHttpsTransport } from "../../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { loadClusterAccess } from "../../../shared/kube/credentials/kubeconfig.ts";
import { systemPorts as ports } from "../../../shared/runtime/system-ports.ts";
import { Chance } from "../../simulation/scenario/random.ts";
import { ask } from "../../support/cluster/ask.ts";
import { AUDITED, readDeletions } from "../../support/cluster/deletions.ts";
import { wakingControllers } from "../../support/cluster/denied-controllers.ts";
import { deployment, PROTECTED } from "../../support/cluster/deployments.ts";
import { waitUntilSettled } from "../../support/cluster/protectors.ts";
import {
  GROUP,
  protectorPath,
  type RunningGenerator,
  startGenerator,
} from "../../support/generator/generator-harness.ts";
import { AvailabilityPerApp } from "../../support/generator/per-app.ts";
import { QuotaHistory } from "../../support/generator/quota-history.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const DEPLOYMENTS = FULL ? 100 : 8;
const SEED = 7;
const NAMESPACE = "default";
const MAX_REPLICAS = 9;
/** Rounds of the mass deletion. Each round deletes every pod. */
const SWEEPS = 3;
const WITHIN_MS = FULL ? 540_000 : 300_000;
const DEPLOYMENT_PATH = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`;

let environment: TestEnvironment;
let transport: Transport;
let running: RunningGenerator;
let judge: AvailabilityPerApp;

interface Rolled {
  readonly name: string;
  readonly replicas: number;
  readonly strategy: object;
}

function randomDeployment(chance: Chance, index: number): Rolled {
  const fencepost = (): number | string =>
    chance.chance(0.5) ? chance.between(0, 3) : `${chance.between(0, 10) * 10}%`;
  const [maxSurge, maxUnavailable] = [fencepost(), fencepost()];
  // The API rejects zero for both.
  const isZero = [maxSurge, maxUnavailable].every((value) => value === 0 || value === "0%");
  return {
    name: `web-${index}`,
    replicas: chance.between(1, MAX_REPLICAS),
    strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: isZero ? 1 : maxSurge, maxUnavailable } },
  };
}

const chance = new Chance(SEED);
const all = Array.from({ length: DEPLOYMENTS }, (_, index) => randomDeployment(chance, index));

beforeAll(async () => {
  environment = await TestEnvironment.start({
    cells: ["cell"],
    single: true,
    replicas: 2,
    settle: "40s",
    cell: { nodes: 3, ...AUDITED },
  });
  transport = createHttpsTransport(await loadClusterAccess(environment.core.kubeconfig), { ports, userAgent: "test" });
  running = startGenerator(transport);
  judge = new AvailabilityPerApp(transport, NAMESPACE);
  await judge.start();
});

afterAll(async () => {
  await Promise.all([running?.stop(), judge?.stop()]);
  transport?.close();
  await environment?.stop();
});

const rolled = ({ name, replicas, strategy }: Rolled) =>
  deployment(name, replicas, {
    namespace: NAMESPACE,
    spec: { strategy },
    podSpec: { terminationGracePeriodSeconds: 2 },
  });

/** Waits until every Deployment has its image, is complete, and is counted. */
async function complete(): Promise<void> {
  const wake = wakingControllers(environment.core, NAMESPACE);
  const isComplete = async (): Promise<boolean> => {
    await wake();
    const [deployments, protectors] = await Promise.all([
      environment.core.admin.get(DEPLOYMENT_PATH),
      environment.core.admin.get(protectorPath(NAMESPACE)),
    ]);
    const counted = new Map(
      items(protectors).map((one) => [
        field(one, "metadata", "name"),
        field(one, "status", "summary", "estimatedAvailableReplicas"),
      ]),
    );
    return items(deployments).every((one) => {
      const [status, replicas] = [field(one, "status"), field(one, "spec", "replicas")];
      const counts = ["updatedReplicas", "availableReplicas", "replicas"].map((key) => field(status, key));
      return (
        counts.every((count) => count === replicas) &&
        field(status, "observedGeneration") === field(one, "metadata", "generation") &&
        counted.get(`deployment-${String(field(one, "metadata", "name"))}`) === replicas
      );
    });
  };
  await environment.core.waitFor("all Deployments to be complete", isComplete, WITHIN_MS);
}

async function roll(image: string): Promise<void> {
  const spec = { template: { spec: { containers: [{ name: "app", image }] } } };
  const contentType = "application/strategic-merge-patch+json";
  for (const { name } of all) {
    await environment.core.admin.call("PATCH", `${DEPLOYMENT_PATH}/${name}`, { spec }, { contentType });
  }
}

const promises = new Map<string, number>();
const sizes = new Map<string, number>();

/** Checks each protector against what its Deployment requires now, and keeps that minimum. */
async function keepPromises(): Promise<void> {
  const plugin = plugins({ protectSelector: "", protectNonZero: true })[0];
  for (const one of items(await environment.core.admin.get(DEPLOYMENT_PATH))) {
    const name = String(field(one, "metadata", "name"));
    const required = plugin?.interpret(one).protectors[0]?.spec.minAvailable ?? Number.NaN;
    const found = await environment.core.admin.get(protectorPath(NAMESPACE, `deployment-${name}`));
    expect(field(found, "spec", "minAvailable")).toBe(required);
    promises.set(name, required);
  }
  expect(promises.size).toBe(DEPLOYMENTS);
}

test("each gets a protector with the number that its own controller keeps", async () => {
  await environment.core.apply(all.map(rolled));
  await complete();
  await keepPromises();
});

test("a rollout alone: no step is denied once the count that it needs is published", async () => {
  const history = await QuotaHistory.watch(transport, NAMESPACE);
  const before = readDeletions(environment.core).length;
  judge.from();
  await roll("app:2");
  await complete();
  const own = readDeletions(environment.core)
    .slice(before)
    .filter(({ user }) => user.endsWith(":replicaset-controller"));
  await history.stop();
  const refused = own.filter(({ code }) => code === 429);
  const late = refused.filter(({ pod, receivedMs, respondedMs }) => {
    const app = all.find(({ name }) => pod.startsWith(`${name}-`))?.name ?? "";
    return history.hadQuotaThroughout(`deployment-${app}`, receivedMs, respondedMs);
  });
  const allowed = own.filter(({ code }) => code < 300).length;
  process.stdout.write(
    `rollouts: ${DEPLOYMENTS} Deployments, ${allowed} deletions by the controller, ` +
      `${refused.length} denied until they were counted, ${late.length} denied although they were\n`,
  );
  expect(late).toEqual([]);
  for (const { name } of all) expect(judge.lowest(name)).toBeGreaterThanOrEqual(promises.get(name) ?? Number.NaN);
});

test("a rollout and a mass deletion at once: never below the minimum, and the rollout ends", async () => {
  judge.from();
  const before = readDeletions(environment.core).length;
  await roll("app:3");
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    await Promise.all(
      judge
        .pods()
        .map((pod) => environment.core.admin.request("DELETE", `/api/v1/namespaces/${NAMESPACE}/pods/${pod}`)),
    );
  }
  await complete();
  const deletions = readDeletions(environment.core).slice(before);
  const attempted = deletions.filter(({ user }) => !user.startsWith("system:"));
  const margins = all.map(({ name }) => judge.lowest(name) - (promises.get(name) ?? Number.NaN));
  process.stdout.write(
    `mass deletion in a rollout: ${attempted.length} attempts, ` +
      `${attempted.filter(({ code }) => code === 429).length} denied; ` +
      `lowest availability less minimum ${Math.min(...margins)}; ${judge.versions} pod versions seen\n`,
  );
  expect(attempted.some(({ code }) => code === 429)).toBe(true);
  for (const { name } of all) expect(judge.lowest(name), name).toBeGreaterThanOrEqual(promises.get(name) ?? Number.NaN);
});

test("replicas that change in the middle of a rollout: never below the smaller of the two minimums", async () => {
  judge.from();
  await roll("app:4");
  const before = new Map(promises);
  for (const one of all) {
    const drawn = chance.between(1, MAX_REPLICAS);
    // A number equal to the remaining pods of the old ReplicaSet would look like an endless scaling to the Deployment
    // controller.
    const replicas = drawn === before.get(one.name) ? drawn + 1 : drawn;
    sizes.set(one.name, replicas);
    await environment.core.admin.call("PATCH", `${DEPLOYMENT_PATH}/${one.name}`, { spec: { replicas } });
  }
  await complete();
  await keepPromises();
  for (const { name } of all) {
    const least = Math.min(before.get(name) ?? Number.NaN, promises.get(name) ?? Number.NaN);
    expect(judge.lowest(name), name).toBeGreaterThanOrEqual(least);
  }
});

test("a Deployment that is scaled to zero and back never hinders its controller", async () => {
  const [one] = all;
  if (one === undefined) throw new Error("there is no Deployment");
  const path = `${DEPLOYMENT_PATH}/${one.name}`;
  await environment.core.admin.call("PATCH", path, { spec: { replicas: 0 } });
  const wake = wakingControllers(environment.core, NAMESPACE);
  const isEmpty = async (): Promise<boolean> => {
    await wake();
    return judge.available(one.name) === 0;
  };
  await environment.core.waitFor("no pod to be left", isEmpty, WITHIN_MS);
  const found = await environment.core.admin.get(protectorPath(NAMESPACE, `deployment-${one.name}`));
  expect(field(found, "spec", "minAvailable")).toBe(0);
  expect(field(found, "metadata", "annotations", `${GROUP}/derivation`)).toContain("replicas 0");
  await environment.core.admin.call("PATCH", path, { spec: { replicas: sizes.get(one.name) } });
  await complete();
});

test("below a budget, dead pods go: from a tainted node, and by the rollback of a bad image", async () => {
  const { core } = environment;
  const [namespace, labels] = ["budgets", { app: "bad" }];
  const paths = {
    deployment: `/apis/apps/v1/namespaces/${namespace}/deployments/bad`,
    budget: `/apis/policy/v1/namespaces/${namespace}/poddisruptionbudgets/bad`,
    pods: `/api/v1/namespaces/${namespace}/pods`,
  };
  const rollTo = async (image: string, readyAfter: string | null): Promise<void> => {
    const metadata = { annotations: { [KWOK_ANNOTATIONS.readyAfter]: readyAfter } };
    const spec = { template: { metadata, spec: { containers: [{ name: "app", image }] } } };
    const contentType = "application/strategic-merge-patch+json";
    await core.admin.call("PATCH", paths.deployment, { spec }, { contentType });
  };
  const podsOf = async (image: string): Promise<readonly unknown[]> =>
    items(await core.admin.get(paths.pods)).filter(
      (pod) =>
        field(pod, "metadata", "deletionTimestamp") === undefined &&
        field(pod, "spec", "containers", 0, "image") === image,
    );
  const settled = (available: number): Promise<void> =>
    waitUntilSettled(core, namespace, "poddisruptionbudget-bad", available, WITHIN_MS);

  const { metadata, ...rest } = Object(rolled({ name: "bad", replicas: 3, strategy: ONE_AT_A_TIME }));
  await core.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
    { ...rest, metadata: { ...metadata, namespace, labels: {} } },
    {
      apiVersion: "policy/v1",
      kind: "PodDisruptionBudget",
      metadata: { name: "bad", namespace, labels: PROTECTED },
      spec: { minAvailable: 2, selector: { matchLabels: labels } },
    },
  ]);
  await core.waitFor(
    "the budget's protector",
    async () => (await core.admin.request("GET", protectorPath(namespace, "poddisruptionbudget-bad"))).status === 200,
    WITHIN_MS,
  );
  await settled(3);
  await rollTo("app:bad", "never");
  const bad = async (): Promise<readonly unknown[]> =>
    (await podsOf("app:bad")).filter((pod) => field(pod, "status", "phase") === "Running");
  await core.waitFor("two bad pods to run", async () => (await bad()).length === 2, WITHIN_MS);
  await settled(2);
  await core.admin.call("PATCH", paths.budget, { spec: { minAvailable: 3 } });
  await core.waitFor(
    "the budget to ask for more than there is",
    async () =>
      field(await core.admin.get(protectorPath(namespace, "poddisruptionbudget-bad")), "spec", "minAvailable") === 3,
    WITHIN_MS,
  );

  const [victim] = await bad();
  const [name, uid, node] = [field(victim, "metadata", "name"), field(victim, "metadata", "uid"), nodeOf(victim)];
  const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace } };
  const evicted = await ask(core, "POST", `${paths.pods}/${name}/eviction`, eviction);
  expect(evicted.status).toBe(429);

  const taintedMs = Date.now();
  const taints = [{ key: "example.com/lost", effect: "NoExecute" }];
  await core.admin.call("PATCH", `/api/v1/nodes/${node}`, { spec: { taints } });
  const isGone = async (): Promise<boolean> =>
    items(await core.admin.get(paths.pods)).every((pod) => field(pod, "metadata", "uid") !== uid);
  await core.waitFor("the dead pod to leave the tainted node", isGone, WITHIN_MS);
  const leftMs = Date.now();
  await core.admin.call("PATCH", `/api/v1/nodes/${node}`, { spec: { taints: null } });

  const rolledBackMs = Date.now();
  await rollTo("app:1", null);
  const wake = wakingControllers(core, namespace);
  const isRolledBack = async (): Promise<boolean> => {
    await wake();
    return (await podsOf("app:bad")).length === 0;
  };
  await core.waitFor("no bad pod to be left", isRolledBack, WITHIN_MS);
  await settled(3);
  process.stdout.write(
    `below the budget: a dead pod left its tainted node after ${leftMs - taintedMs} ms; ` +
      `a bad image was rolled back in ${Date.now() - rolledBackMs} ms\n`,
  );
});

test("under Recreate an eviction is held to a number, a deletion and a rollout are not", async () => {
  const { core } = environment;
  const [namespace, protector] = ["recreated", "deployment-once"];
  const pods = `/api/v1/namespaces/${namespace}/pods`;
  const strategic = { contentType: "application/strategic-merge-patch+json" };
  const { metadata, ...rest } = Object(rolled({ name: "once", replicas: 4, strategy: { type: "Recreate" } }));
  // Replacements do not become ready, so that nothing but the first pods is ever available.
  rest.spec.template.metadata.annotations = { [KWOK_ANNOTATIONS.readyAfter]: "never" };
  await core.apply([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
    { ...rest, metadata: { ...metadata, namespace } },
  ]);
  const first: string[] = [];
  await core.waitFor(
    "four pods, of which each is made ready",
    async () => {
      for (const pod of items(await core.admin.get(pods))) {
        const name = String(field(pod, "metadata", "name"));
        if (first.includes(name) || field(pod, "status", "phase") !== "Running") continue;
        const annotations = { [KWOK_ANNOTATIONS.readyAfter]: null };
        await core.admin.call("PATCH", `${pods}/${name}`, { metadata: { annotations } }, strategic);
        first.push(name);
      }
      return first.length === 4;
    },
    WITHIN_MS,
  );
  await core.waitFor(
    "the protector",
    async () => (await core.admin.request("GET", protectorPath(namespace, protector))).status === 200,
    WITHIN_MS,
  );
  await waitUntilSettled(core, namespace, protector, 4, WITHIN_MS);
  const evict = async (name: string | undefined): Promise<number> => {
    const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name, namespace } };
    return (await ask(core, "POST", `${pods}/${name}/eviction`, eviction)).status;
  };
  expect(await evict(first[0])).toBe(201);
  expect(await evict(first[1])).toBe(429);
  expect((await ask(core, "DELETE", `${pods}/${first[1]}`)).status).toBe(200);

  const spec = {
    metadata: { annotations: { [KWOK_ANNOTATIONS.readyAfter]: null } },
    spec: { containers: [{ name: "app", image: "app:2" }] },
  };
  const path = `/apis/apps/v1/namespaces/${namespace}/deployments/once`;
  await core.admin.call("PATCH", path, { spec: { template: spec } }, strategic);
  const isNew = (pod: unknown): boolean => field(pod, "spec", "containers", 0, "image") === "app:2";
  await core.waitFor(
    "the rollout to end",
    async () => {
      const found = items(await core.admin.get(pods));
      return found.length === 4 && found.every(isNew);
    },
    WITHIN_MS,
  );
  await waitUntilSettled(core, namespace, protector, 4, WITHIN_MS);
});

const ONE_AT_A_TIME = { type: "RollingUpdate", rollingUpdate: { maxSurge: 1, maxUnavailable: 1 } };

function nodeOf(pod: unknown): string {
  return String(field(pod, "spec", "nodeName"));
}
