/**
 * The catastrophes that the project is made for (docs/design.md#purpose), each played in a core and two workers with
 * their own controllers: what was attempted, what was denied, the fewest available pods that a watch of all pods saw,
 * and how an operator recovers. docs/catastrophes.md has the table that is printed at the end.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { conditionStatus, field, items } from "../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";
import { KWOK_ANNOTATIONS } from "../../scripts/control-plane/kwok/annotations.ts";
import { AvailabilityJudge } from "../../scripts/demo/availability.ts";
import { Federation, NAMESPACE, OWNER_CRD, ownerCrd, WORKLOAD } from "../../scripts/demo/federation.ts";
import type { Component } from "../../scripts/environment/component.ts";
import type { TestEnvironment } from "../../scripts/environment/environment.ts";
import { root } from "../../scripts/root.ts";
import { wakingControllers } from "../support/cluster/denied-controllers.ts";
import { deployment } from "../support/cluster/deployments.ts";
import { REPORT_ENVIRONMENT, reported } from "../support/cluster/report.ts";
import { HistoryRecorder } from "../support/history/history-recorder.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const REPLICAS = FULL ? 100 : 10;
const PROMISED = (REPLICAS * 4) / 5;
const NODES = FULL ? 4 : 2;
const UNTIL_MS = 300_000;
const GROUP = "podseidon.kubewharf.io";
const CRD = readFileSync(join(root, "crds", `${GROUP}_podprotectors.yaml`), "utf8");
const DEPLOYMENT = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/${WORKLOAD}`;
const PROTECTOR = `/apis/${GROUP}/v1alpha1/namespaces/${NAMESPACE}/podprotectors/deployment-${WORKLOAD}`;
const CELLS = ["worker-1", "worker-2"] as const;
const OUTCOMES = ["allowed", "denied", "busy", "failed"] as const;
const REQUEST_TIMEOUT = { "kube-apiserver": { "request-timeout": "5s" } };

type Reviews = Record<(typeof OUTCOMES)[number], number>;

interface Row {
  readonly catastrophe: string;
  readonly attempted: number;
  readonly refused: number;
  readonly lowest: number;
  readonly wayOut: string;
}

let environment: TestEnvironment;
let recorder: HistoryRecorder;
let generator: Component;
let federation: Federation;
let availability: AvailabilityJudge;
let workers: readonly Cluster[];
const rows: Row[] = [];

const namespaceOf = (name: string): unknown => ({ apiVersion: "v1", kind: "Namespace", metadata: { name } });
const workload = deployment(WORKLOAD, REPLICAS, {
  namespace: NAMESPACE,
  spec: { strategy: { type: "RollingUpdate", rollingUpdate: { maxUnavailable: "20%", maxSurge: "20%" } } },
  podAnnotations: { [KWOK_ANNOTATIONS.readyAfter]: "1s", [KWOK_ANNOTATIONS.terminateAfter]: "1s" },
  podSpec: { containers: [{ name: "web", image: "web:v1" }] },
});

beforeAll(async () => {
  ({ environment, recorder } = await HistoryRecorder.start({
    cells: CELLS,
    replicas: 2,
    settle: "6s",
    environment: REPORT_ENVIRONMENT,
    core: { flags: REQUEST_TIMEOUT },
    cell: { nodes: NODES, flags: REQUEST_TIMEOUT },
    aggregatorArgs: ["--restore-after=2s", "--copy-interval=500ms"],
  }));
  workers = CELLS.map((id) => environment.cell(id));
  await environment.core.apply([namespaceOf(NAMESPACE)]);
  await Promise.all(workers.map(prepare));
  generator = await environment.startGenerator();
  await environment.core.apply([workload]);
  startFederation();
  availability = await AvailabilityJudge.watch(workers, NAMESPACE);
  await untilWhole();
});

afterAll(async () => {
  await federation?.stop();
  await availability?.stop();
  await generator?.stop();
  try {
    await recorder?.judged();
  } finally {
    await environment?.stop();
  }
  if (rows.length > 0) process.stdout.write(`${table()}\n`);
});

afterEach(untilWhole);

/** The garbage collector discovers kinds every 30 s, so the owner's CRD exists before it starts. */
async function prepare(worker: Cluster): Promise<void> {
  await worker.apply([namespaceOf(NAMESPACE), ownerCrd]);
  await worker.waitFor(`${OWNER_CRD} to be served`, async () => {
    return (await worker.admin.request("GET", "/apis/fleet.example.com/v1/workloads")).status === 200;
  });
  await worker.processes["kube-controller-manager"].restart();
}

function startFederation(): void {
  federation = new Federation(environment.core, workers);
  federation.start();
}

async function until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  await environment.core
    .waitFor(what, async () => await condition(), UNTIL_MS)
    .catch((cause: unknown) => {
      throw new Error(`${what}; counted ${JSON.stringify(availability.counts())}`, { cause });
    });
}

/** Waits until all pods are available and none is terminating, with all protectors complete and no cell on hold. */
async function untilWhole(): Promise<void> {
  const wakes = workers.map((worker) => wakingControllers(worker, NAMESPACE));
  await until("everything to be whole again", async () => {
    for (const wake of wakes) await wake();
    const { total, pods, terminating } = availability.counts();
    if (total !== REPLICAS || pods !== REPLICAS || terminating !== 0) return false;
    const { status, body } = await environment.core.admin.request("GET", PROTECTOR);
    const cells = field(body, "status", "cells");
    if (status !== 200 || field(body, "spec", "minAvailable") !== PROMISED || !Array.isArray(cells)) return false;
    const sum = cells.reduce((all: number, cell: unknown) => {
      return all + Number(field(cell, "aggregation", "availableReplicas") ?? 0);
    }, 0);
    return sum === REPLICAS && cells.every((cell) => field(cell, "aggregation", "hold") === undefined);
  });
}

async function reviews(): Promise<Reviews> {
  const counts: Reviews = { allowed: 0, denied: 0, busy: 0, failed: 0 };
  for (const { component } of environment.webhooks) {
    for (const outcome of OUTCOMES) {
      counts[outcome] += (await component.metric("podseidon_webhook_reviews_total", { outcome })) ?? 0;
    }
  }
  return counts;
}

/**
 * Plays one catastrophe and adds its row to the table. The lowest availability counts until everything is complete
 * again.
 */
async function play(catastrophe: string, wayOut: string, act: () => Promise<void>, recover: () => Promise<void>) {
  availability.from();
  const before = await reviews();
  let after = before;
  const file = `catastrophe-${rows.length + 1}`;
  const what = { file, title: catastrophe, namespace: NAMESPACE, labels: `app=${WORKLOAD}`, promised: PROMISED };
  await reported(environment, what, async (fault) => {
    fault(catastrophe);
    await recorder.during(catastrophe, act);
    after = await reviews();
    await recorder.during("recovery", recover);
    await untilWhole();
  });
  const { lowest } = availability;
  const count = (outcome: (typeof OUTCOMES)[number]): number => after[outcome] - before[outcome];
  const refused = count("denied") + count("busy") + count("failed");
  rows.push({ catastrophe, attempted: refused + count("allowed"), refused, lowest, wayOut });
  expect(lowest).toBeGreaterThanOrEqual(PROMISED);
  expect(refused).toBeGreaterThan(0);
}

function table(): string {
  const lines = rows.map(
    ({ catastrophe, attempted, refused, lowest, wayOut }) =>
      `| ${catastrophe} | ${attempted} | ${refused} | ${lowest} of ${REPLICAS}, ${PROMISED} promised | ${wayOut} |`,
  );
  const head = [
    "| catastrophe | attempted | refused | fewest available | way out |",
    "| ----------- | --------: | ------: | ---------------- | ------- |",
  ];
  return ["", ...head, ...lines, ""].join("\n");
}

/** Resolves when the controllers have been denied so many times more. */
async function untilRefused(times: number): Promise<void> {
  const before = await reviews();
  await until(`${times} refusals`, async () => {
    const now = await reviews();
    return now.denied + now.busy + now.failed - before.denied - before.busy - before.failed >= times;
  });
}

async function deleteAllPods(): Promise<number> {
  const path = `/api/v1/namespaces/${NAMESPACE}/pods`;
  const statuses = await Promise.all(
    workers.map(async (worker) => {
      const names = items(await worker.admin.get(path)).map((pod) => String(field(pod, "metadata", "name")));
      return await Promise.all(
        names.map(async (name) => (await worker.admin.request("DELETE", `${path}/${name}`)).status),
      );
    }),
  );
  return statuses.flat().filter((status) => status < 300).length;
}

async function everyWorker(act: (worker: Cluster) => Promise<unknown>): Promise<void> {
  await Promise.all(workers.map(act));
}

it("the CRD of the owner is deleted, and everything that it owns with it", async () => {
  await play(
    "CRD of the owner deleted in every cluster, with cascade",
    "apply the CRD again; the federation makes its objects, old pods go as new ones are ready",
    async () => {
      await everyWorker((worker) => worker.kubectl(["delete", "crd", OWNER_CRD]));
      await until("the workloads to be gone", async () => {
        const lists = await Promise.all(
          workers.flatMap(({ admin }) =>
            ["deployments", "replicasets"].map((kind) => admin.get(`/apis/apps/v1/namespaces/${NAMESPACE}/${kind}`)),
          ),
        );
        return lists.every((list) => items(list).length === 0);
      });
      await until("the promise to be all that is left", () => availability.counts().total === PROMISED);
      await untilRefused(3);
    },
    () => everyWorker((worker) => worker.apply([ownerCrd])),
  );
});

it("the workload is erased from etcd, in the core and in every cluster", async () => {
  await play(
    "Workload erased from etcd, in the core and in every cluster",
    "apply the workload again; its protector is adopted, old pods go as new ones are ready",
    async () => {
      await environment.core.etcd.deleteKey(`/registry/deployments/${NAMESPACE}/${WORKLOAD}`);
      await everyWorker(async (worker) => {
        const sets = items(await worker.admin.get(`/apis/apps/v1/namespaces/${NAMESPACE}/replicasets`));
        await worker.etcd.deleteKey(`/registry/deployments/${NAMESPACE}/${WORKLOAD}`);
        for (const set of sets) {
          await worker.etcd.deleteKey(`/registry/replicasets/${NAMESPACE}/${String(field(set, "metadata", "name"))}`);
        }
      });
      await until("the promise to be all that is left", () => availability.counts().total === PROMISED);
      await untilRefused(3);
    },
    () => environment.core.apply([workload]),
  );
});

it("a wrong spec is copied over every cluster", async () => {
  const wrong = {
    spec: {
      strategy: { rollingUpdate: { maxUnavailable: "100%", maxSurge: 0 } },
      template: {
        metadata: { annotations: { [KWOK_ANNOTATIONS.readyAfter]: "3600s" } },
        spec: { containers: [{ name: "web", image: "web:broken" }] },
      },
    },
  };
  const merge = { contentType: "application/strategic-merge-patch+json" };
  await play(
    "Wrong spec (never ready, `maxUnavailable: 100%`) copied over every cluster",
    "copy the right spec; what is not ready goes freely",
    async () => {
      await federation.stop();
      await everyWorker(({ admin }) => admin.call("PATCH", DEPLOYMENT, wrong, merge));
      await until("the promise to be all that is left", () => availability.counts().total === PROMISED);
      await untilRefused(3);
      await until("a ReplicaSet to say how long its controller waits", async () => {
        const lists = workers.map(({ admin }) => admin.get(`/api/v1/namespaces/${NAMESPACE}/events`));
        const events = (await Promise.all(lists)).flatMap((list) => items(list));
        const isHeldBack = (event: unknown): boolean =>
          field(event, "involvedObject", "kind") === "ReplicaSet" &&
          String(field(event, "message")).includes("repeats this by itself, at most 1000 s");
        return events.some(isHeldBack);
      });
    },
    async () => startFederation(),
  );
});

it("rollouts are started in all clusters at once", async () => {
  const image = {
    spec: {
      strategy: { rollingUpdate: { maxUnavailable: "60%", maxSurge: 0 } },
      template: { spec: { containers: [{ name: "web", image: "web:v2" }] } },
    },
  };
  const merge = { contentType: "application/strategic-merge-patch+json" };
  const isDone = async ({ admin }: Cluster): Promise<boolean> => {
    const { status, spec, metadata } = Object(await admin.get(DEPLOYMENT));
    const isObserved = field(status, "observedGeneration") === field(metadata, "generation");
    const counts = ["updatedReplicas", "availableReplicas", "replicas"].map((name) => field(status, name));
    return isObserved && counts.every((count) => count === field(spec, "replicas"));
  };
  await play(
    "Rollouts with `maxUnavailable: 60%` in all clusters at once",
    "none needed: each rollout goes on as new pods are ready",
    async () => {
      await federation.stop();
      await everyWorker(({ admin }) => admin.call("PATCH", DEPLOYMENT, image, merge));
      const wakes = workers.map((worker) => wakingControllers(worker, NAMESPACE));
      await until("both rollouts", async () => {
        for (const wake of wakes) await wake();
        return (await Promise.all(workers.map(isDone))).every(Boolean);
      });
    },
    async () => startFederation(),
  );
});

/** What a cloud's controller does that believes its machines to be gone: every node that has pods in use. */
async function deleteNodes(worker: Cluster): Promise<number[]> {
  const pods = items(await worker.admin.get(`/api/v1/namespaces/${NAMESPACE}/pods`));
  const inUse = pods.filter(
    (pod) => conditionStatus(pod, "Ready") === "True" && field(pod, "metadata", "deletionTimestamp") === undefined,
  );
  const names = [...new Set(inUse.map((pod) => String(field(pod, "spec", "nodeName"))))];
  expect(names).not.toEqual([]);
  const decided = async (name: string): Promise<number> => {
    let last = 0;
    // A busy apiserver gives a request up after its request timeout: nobody has decided.
    await worker.waitFor(`a decision about ${name}`, async () => {
      last = (await worker.admin.request("DELETE", `/api/v1/nodes/${name}`)).status;
      return last !== 504;
    });
    return last;
  };
  return await Promise.all(names.map(decided));
}

it("all nodes of all clusters are drained at once, and deleted", async () => {
  const nodes = async (worker: Cluster): Promise<string[]> =>
    items(await worker.admin.get("/api/v1/nodes")).map((node) => String(field(node, "metadata", "name")));
  await play(
    "All nodes of all clusters drained at once, then deleted",
    "`kubectl uncordon`; then one drain after the other",
    async () => {
      const drain = (worker: Cluster) => async (name: string) =>
        worker.kubectl(["drain", name, "--ignore-daemonsets", "--force", "--timeout=6s"]);
      await until("the drains to come to a stand", async () => {
        await everyWorker(async (worker) => Promise.all((await nodes(worker)).map(drain(worker))));
        return availability.counts().total === PROMISED;
      });
      expect(new Set((await Promise.all(workers.map(deleteNodes))).flat())).toEqual(new Set([429]));
    },
    () => everyWorker(async (worker) => worker.kubectl(["uncordon", ...(await nodes(worker))])),
  );
});

it("the core's etcd is wiped", async () => {
  await play(
    "The core's etcd wiped, every pod deleted meanwhile",
    "apply the CRD, the namespaces and the workloads again; protectors come back from the cells' copies",
    async () => {
      await environment.core.wipeEtcd();
      expect(await deleteAllPods()).toBe(0);
      await environment.core.apply(CRD);
      await environment.core.apply([namespaceOf("podseidon-system"), namespaceOf(NAMESPACE)]);
      expect(await deleteAllPods()).toBe(0);
    },
    async () => {
      // Protectors with a backup come back without the workload, and before it.
      await until(
        "the protector to be back",
        async () => (await environment.core.admin.request("GET", PROTECTOR)).status === 200,
      );
      await environment.core.apply([workload]);
    },
  );
});
