/**
 * The steps of a roll-out (docs/tutorials/roll-out-to-production.md) on a real cluster, applied one after the other as
 * an operator does: what each lets pass while the webhook answers, and while it does not.
 */

import { execFile } from "node:child_process";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual, promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { kubelet, untilTrusted, webhookEndpoints } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { BUNDLES } from "../../../scripts/environment/component.ts";
import { root } from "../../../scripts/root.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { behind } from "../../support/cluster/documented.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { waitUntilSettled } from "../../support/cluster/protectors.ts";

const PODS = 2;
const WITHIN_MS = 300_000;
const options = { startTimeoutMs: WITHIN_MS };
const LABEL = "podseidon.kubewharf.io/enforced-namespace";
const labels = { app: "web" };

let cluster: Cluster;
let balancer: Balancer;
/** Everything but the webhook, which each step starts with its own flags. */
let others: DemoKubelet;
let webhooks: DemoKubelet;
let generators: DemoKubelet;

const namespaced = (name: string, more: object = {}): unknown => ({
  ...{ apiVersion: "v1", kind: "Namespace" },
  metadata: { name, ...more },
});

/** Promises both pods. */
const workload = (name: string, namespace: string) =>
  deployment(name, PODS, { namespace, spec: { strategy: { rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } } } });

beforeAll(async () => {
  const flags = { "kube-apiserver": { "disable-admission-plugins": "ServiceAccount" } };
  cluster = await Cluster.start({ controllerManager: false, scheduler: false, kwok: false, flags });
  balancer = await Balancer.listen([]);
  const free = [{ apiVersion: "v1", kind: "Node", metadata: { name: "node-1" } }];
  await cluster.apply([namespaced("shop", { labels: { [LABEL]: "true" } }), namespaced("bank"), ...free]);
  await apply("1-ignore");
  others = kubelet(cluster, options);
  await others.start(["podseidon-certificates", "podseidon-aggregator", "podseidon-update-trigger"]);
  for (const namespace of ["shop", "bank"]) {
    await createReadyPods(cluster, { namespace, prefix: "web", count: PODS, labels });
    await createReadyPods(cluster, { namespace, prefix: "free", count: 1, labels: { app: "free" } });
  }
});

afterAll(async () => {
  await Promise.all([others, webhooks, generators].map((one) => one?.stop()));
  await balancer?.close();
  await cluster?.stop();
});

/** What a client meets that would take a pod or a node away: a status, and whether it is warned. */
async function asked(method: string, path: string, body?: unknown): Promise<string> {
  const { status, headers } = await cluster.admin.request(method, `${path}?dryRun=All`, body);
  return `${status === 201 ? 200 : status}${headers.warning === undefined ? "" : " warned"}`;
}

interface Met {
  readonly inShop: string;
  readonly evictedInShop: string;
  readonly inBank: string;
  readonly unprotected: string;
  readonly node: string;
}

async function met(): Promise<Met> {
  const pod = (namespace: string, name: string): string => `/api/v1/namespaces/${namespace}/pods/${name}`;
  const eviction = { ...{ apiVersion: "policy/v1", kind: "Eviction" }, metadata: { name: "web-0", namespace: "shop" } };
  return {
    inShop: await asked("DELETE", pod("shop", "web-0")),
    evictedInShop: await asked("POST", `${pod("shop", "web-0")}/eviction`, eviction),
    inBank: await asked("DELETE", pod("bank", "web-0")),
    unprotected: await asked("DELETE", pod("bank", "free-0")),
    node: await asked("DELETE", "/api/v1/nodes/node-1"),
  };
}

/** kube-apiserver sees another webhook configuration some moments later. */
async function becomes(expected: Met): Promise<void> {
  let last: Met | undefined;
  const isSo = async (): Promise<boolean> => {
    last = await met();
    return isDeepStrictEqual(last, expected);
  };
  await cluster.waitFor("the step", isSo).catch(() => undefined);
  expect(last).toEqual(expected);
}

/** The step as an operator applies it, with the balancer in place of the webhook's Service. */
async function apply(step: string): Promise<void> {
  const rendered = await cluster.kubectl([
    "kustomize",
    join(root, "manifests/overlays/rollout", step, "single-cluster"),
  ]);
  const input = behind(balancer.port, rendered.stdout);
  const { code, stderr } = await cluster.kubectl(["apply", "--filename", "-"], { input });
  expect([code, stderr]).toEqual([0, ""]);
}

const FREE = { inShop: "200", evictedInShop: "200", inBank: "200", unprotected: "200", node: "200" };
const WARNED = { ...FREE, inShop: "200 warned", evictedInShop: "200 warned", inBank: "200 warned" };
const BROKEN = { inShop: "500", evictedInShop: "500", inBank: "500", unprotected: "500", node: "500" };

/** What `doctor` has to say of the step, but that these workloads promise all of their pods. */
async function found(): Promise<readonly string[]> {
  const env = { PATH: "/usr/bin:/bin", HOME: cluster.directory, KUBECONFIG: cluster.kubeconfig };
  const plugin = join(BUNDLES, "kubectl-podseidon.mjs");
  const answer = promisify(execFile)(process.execPath, [plugin, "doctor"], { env });
  // With a problem it ends with 1.
  const stdout = await answer.then((ended) => ended.stdout).catch((error: unknown) => String(field(error, "stdout")));
  const lines = stdout.split("\n").filter((line) => /^(?:FAIL|WARN|\?)/.test(line));
  const checks = lines.map((line) => /^\S+ +\S+ +(.+?) {2}/.exec(line)?.[1] ?? line);
  return checks.filter((check) => check !== "protectors");
}

describe.each([
  ["1-ignore", WARNED, FREE, ["enforcement", "workload deletions", "webhook configuration"]],
  ["2-dry-run", WARNED, BROKEN, ["enforcement", "workload deletions"]],
  [
    "3-enforced-namespaces",
    { ...FREE, inShop: "429", evictedInShop: "429" },
    { ...FREE, inShop: "500", evictedInShop: "500" },
    ["webhook configuration", "enforced namespaces"],
  ],
  ["4-fail", { ...FREE, inShop: "429", evictedInShop: "429", inBank: "429" }, BROKEN, []],
])("step %s", (step, up, down, told) => {
  beforeAll(async () => {
    await apply(step);
    [webhooks, generators] = [kubelet(cluster, options), kubelet(cluster, options)];
    await Promise.all([webhooks.start(["podseidon-webhook"]), generators.start(["podseidon-generator"])]);
    balancer.endpoints = webhookEndpoints(webhooks.pods);
    await untilTrusted(cluster);
    await cluster.apply([workload("web", "shop"), workload("web", "bank")]);
    for (const namespace of ["shop", "bank"]) await waitUntilSettled(cluster, namespace, "deployment-web", PODS);
  });

  test("with a webhook that answers", async () => {
    await becomes(up);
    // The generator of the step before may lead for some seconds more.
    await expect.poll(found, { timeout: WITHIN_MS }).toEqual(told);
  });

  test("deletes a workload, or says that it does not", async () => {
    // Another one in each step: a protector that comes back under its name puts the cell on hold.
    const path = `/apis/apps/v1/namespaces/bank/deployments/of-${step}`;
    await cluster.apply([workload(`of-${step}`, "bank")]);
    const read = () => cluster.admin.request("GET", path);
    await cluster.waitFor(
      "its finalizer",
      async () => items(field((await read()).body, "metadata"), "finalizers").length > 0,
    );
    const { status, headers } = await cluster.admin.request("DELETE", path);
    const dry = up === WARNED;
    expect([status, headers.warning !== undefined]).toEqual(dry ? [200, true] : [403, false]);
    if (dry) await cluster.waitFor("it to be gone", async () => (await read()).status === 404);
  });

  test("with a webhook that is down", async () => {
    balancer.endpoints = [];
    await Promise.all([webhooks.stop(), generators.stop()]);
    await becomes(down);
  });
});

test.each([
  ["3-enforced-namespaces", { ...FREE, inShop: "500", evictedInShop: "500" }],
  ["1-ignore", FREE],
])("back to step %s while the webhook is down: what it lets pass passes, and stays so", async (step, down) => {
  await apply(step);
  await becomes(down);
  // Longer than an aggregator takes to put back what was altered.
  await delay(5_000);
  expect(await met()).toEqual(down);
});
