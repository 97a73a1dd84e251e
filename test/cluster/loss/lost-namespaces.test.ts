/**
 * Game days: the namespace of podseidon is deleted, in a worker cluster and in the core, with everything in it:
 * accounts, Leases, Secrets, backups, the release register. The promise holds, and the documented commands bring the
 * rest back.
 */

import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { applyOverlay, kubelet, SYSTEM, startPods } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { BUNDLES } from "../../../scripts/environment/component.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const CELL = "worker-1";
const NAMESPACE = "shop";
const NAME = "deployment-web";
const PROMISED = 2;
const DEPLOYMENT = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/web`;
const PODS_PATH = `/api/v1/namespaces/${NAMESPACE}/pods`;
const OPTIONS = { scheduler: false, kwok: false } as const;
const labels = { app: "web" };

let core: Cluster;
let worker: Cluster;
let balancer: Balancer;
let generator: DemoKubelet | undefined;
let cell: DemoKubelet | undefined;
let made = 0;

const applyCore = (): Promise<void> => applyOverlay(core, "core");
const applyWorker = (): Promise<void> =>
  applyOverlay(worker, "worker", {
    servicePort: balancer.port,
    replicas: { "podseidon-aggregator": 1, "podseidon-webhook": 2 },
  });

async function joinCore(): Promise<void> {
  const { kubectl } = await ensureBinaries();
  const env = { PATH: dirname(kubectl), KUBECONFIG: `${worker.kubeconfig}:${core.kubeconfig}`, HOME: core.directory };
  const words = [join(BUNDLES, "kubectl-podseidon.mjs"), "join", CELL, "--core-context", "core", "--context", CELL];
  await promisify(execFile)(process.execPath, words, { env });
}

async function startGenerator(): Promise<void> {
  generator = kubelet(core);
  await generator.start(["podseidon-generator"]);
}

async function startCell(): Promise<void> {
  cell = await startPods(worker, balancer, ["podseidon-certificates", "podseidon-webhook", "podseidon-aggregator"]);
}

beforeAll(async () => {
  [core, worker, balancer] = await Promise.all([
    Cluster.start({ name: "core", ...OPTIONS }),
    Cluster.start({ name: CELL, ...OPTIONS }),
    Balancer.listen([]),
  ]);
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
  for (const cluster of [core, worker]) await cluster.apply([namespace]);
  await Promise.all([applyCore(), applyWorker()]);
  const annotations = { "podseidon.kubewharf.io/min-available": String(PROMISED) };
  await core.apply([deployment("web", 3, { namespace: NAMESPACE, annotations, spec: { paused: true } })]);
  await joinCore();
  await startGenerator();
  await createReadyPods(worker, { namespace: NAMESPACE, prefix: "web", count: PROMISED, labels });
  await startCell();
});

afterAll(async () => {
  await Promise.all([cell?.stop(), generator?.stop()]);
  await balancer?.close();
  await Promise.all([core?.stop(), worker?.stop()]);
});

const remaining = async (): Promise<number> => items(await worker.admin.get(PODS_PATH)).length;

/** What a client reads who deletes all pods, one after the other. */
async function deleteAll(): Promise<string[]> {
  const answers: string[] = [];
  for (const pod of items(await worker.admin.get(PODS_PATH))) {
    const { status, text } = await worker.admin.request("DELETE", `${PODS_PATH}/${field(pod, "metadata", "name")}`);
    answers.push(`${status} ${text}`);
  }
  return answers;
}

/** One pod more than is promised can be deleted, and no other. */
async function expectProtection(): Promise<void> {
  await createReadyPods(worker, { namespace: NAMESPACE, prefix: `more-${++made}`, count: 1, labels });
  let last: readonly string[] = [];
  await worker
    .waitFor("the spare pod to go", async () => {
      last = await deleteAll();
      return (await remaining()) === PROMISED;
    })
    .catch((cause: unknown) => {
      throw new Error(`the last answers: ${last.join("\n")}`, { cause });
    });
  await worker.waitFor("the minimum to be told", async () => {
    last = await deleteAll();
    return last.every(
      (answer) => answer.includes("its capacity is at the minimum") || answer.includes("no more pods match"),
    );
  });
  expect(await remaining()).toBe(PROMISED);
}

async function deleteNamespace(cluster: Cluster, stop: () => Promise<void> | undefined): Promise<void> {
  expect((await cluster.kubectl(["delete", "namespace", SYSTEM, "--wait=false"])).code).toBe(0);
  await stop();
  await cluster.waitFor("the namespace to be gone", async () => {
    return (await cluster.admin.request("GET", `/api/v1/namespaces/${SYSTEM}`)).status === 404;
  });
}

const BACKUPS = `/api/v1/namespaces/${SYSTEM}/configmaps?labelSelector=podseidon.kubewharf.io/copy`;

/** Resolves to the ConfigMap; it is none of `before`. */
async function untilBackedUp(before?: string): Promise<string> {
  const { uid } = (await readProtector(core, NAMESPACE, NAME)).metadata;
  let map: unknown;
  const isBackedUp = async (): Promise<boolean> => {
    map = items(await worker.admin.get(BACKUPS)).find((one) => JSON.stringify(one).includes(uid));
    return map !== undefined && field(map, "metadata", "uid") !== before;
  };
  await worker.waitFor("a backup of the protector", isBackedUp);
  return String(field(map, "metadata", "uid"));
}

test("of a cell, the backups alone: they are written again", async () => {
  await expectProtection();
  await waitUntilSettled(core, NAMESPACE, NAME, PROMISED);
  const before = await untilBackedUp();
  await worker.waitFor("the versions of the core beside it", async () => {
    return items(await worker.admin.get(BACKUPS)).length > 1;
  });
  await worker.admin.call("DELETE", BACKUPS);
  await untilBackedUp(before);
});

const KINDS = [
  `/apis/coordination.k8s.io/v1/namespaces/${SYSTEM}/leases`,
  `/api/v1/namespaces/${SYSTEM}/configmaps`,
  `/api/v1/namespaces/${SYSTEM}/secrets`,
] as const;

/** Apply and join bring the objects back, and no process is restarted. */
async function bringBack(): Promise<void> {
  await applyWorker();
  await joinCore();
  await expectProtection();
}

test("of a cell, each Lease, ConfigMap and Secret while all runs: apply and join bring them back", async () => {
  for (const kind of KINDS) {
    for (const one of items(await worker.admin.get(kind))) {
      await worker.admin.request("DELETE", `${kind}/${field(one, "metadata", "name")}`);
      await deleteAll();
      expect(await remaining()).toBe(PROMISED);
    }
  }
  await bringBack();
});

test("the same, all at once, and again in the restart of all processes", async () => {
  const deleteObjects = () => Promise.all(KINDS.map((kind) => worker.admin.call("DELETE", kind)));
  await deleteObjects();
  await deleteAll();
  expect(await remaining()).toBe(PROMISED);
  await bringBack();
  await cell?.stop();
  await deleteObjects();
  await applyWorker();
  await joinCore();
  await startCell();
  await expectProtection();
});

test("of a cell, the ServiceAccounts: no needed pod goes, and a restart brings their tokens back", async () => {
  await worker.admin.call("DELETE", `/api/v1/namespaces/${SYSTEM}/serviceaccounts`);
  await applyWorker();
  await deleteAll();
  expect(await remaining()).toBe(PROMISED);
  await cell?.stop();
  await startCell();
  await expectProtection();
});

test("of a worker cluster: no pod is deleted, and apply and join bring it back", async () => {
  await deleteNamespace(worker, () => cell?.stop());
  const answers = await deleteAll();
  expect(answers.every((answer) => /^500 .*failed calling webhook/.test(answer))).toBe(true);
  await applyWorker();
  await joinCore();
  await startCell();
  await expectProtection();
  await untilBackedUp();
});

test("of the core: no pod is deleted, and apply and join bring it back", async () => {
  await deleteNamespace(core, () => generator?.stop());
  await deleteAll();
  expect(await remaining()).toBe(PROMISED);
  await applyCore();
  await startGenerator();
  await joinCore();
  await expectProtection();
});

test("afterwards a workload can be deleted that asks for no replicas, and its protector is released", async () => {
  const { uid } = (await readProtector(core, NAMESPACE, NAME)).metadata;
  await core.admin.call("PATCH", DEPLOYMENT, { spec: { replicas: 0 } });
  await core.admin.call("DELETE", DEPLOYMENT);
  await core.waitFor("the workload to be gone", async () => {
    return (await core.admin.request("GET", DEPLOYMENT)).status === 404;
  });
  const registers = await core.admin.get(`/api/v1/namespaces/${SYSTEM}/configmaps`);
  expect(JSON.stringify(registers)).toContain(uid);
});
