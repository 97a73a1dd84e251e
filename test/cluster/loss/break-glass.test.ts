/**
 * The last row of break-glass (docs/operations.md#break-glass), and the way back without a hand: the aggregator alone
 * comes back, restores the webhook configuration, and its core refuses what it counts.
 */

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ApiAnswer, field, items } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { kubelet, untilTrusted, webhookEndpoints } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { BUNDLES } from "../../../scripts/environment/component.ts";
import { root } from "../../../scripts/root.ts";
import { ask } from "../../support/cluster/ask.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { behind, shellCommand } from "../../support/cluster/documented.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const PAGE = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
const NAMESPACE = "shop";
const PROTECTOR = "deployment-web";
const PODS = 4;
const WITHIN_MS = 300_000;
const labels = { app: "web" };
const CONFIGURATIONS = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"].map(
  (kind) => `/apis/admissionregistration.k8s.io/v1/${kind}/podseidon`,
);
const ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/podseidon-aggregator-core";
const RECORD = "/api/v1/namespaces/podseidon-system/configmaps/podseidon-registration";
const options = { startTimeoutMs: WITHIN_MS };

let cluster: Cluster;
let balancer: Balancer;
let others: DemoKubelet;
let aggregators: DemoKubelet;

const strategy = { rollingUpdate: { maxUnavailable: 1 } };
const workload = deployment("web", PODS, { namespace: NAMESPACE, spec: { strategy } });

beforeAll(async () => {
  const flags = { "kube-apiserver": { "disable-admission-plugins": "ServiceAccount" } };
  cluster = await Cluster.start({ controllerManager: false, scheduler: false, kwok: false, flags });
  balancer = await Balancer.listen([]);
  await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } }, workload]);
  const { stdout } = await cluster.kubectl(["kustomize", join(root, "manifests/overlays/single-cluster")]);
  const { code, stderr } = await cluster.kubectl(["apply", "--filename", "-"], {
    input: behind(balancer.port, stdout),
  });
  expect([code, stderr]).toEqual([0, ""]);
  others = kubelet(cluster, options);
  aggregators = kubelet(cluster, options);
  await Promise.all([
    aggregators.start(["podseidon-aggregator"]),
    others.start(["podseidon-certificates", "podseidon-generator", "podseidon-update-trigger", "podseidon-webhook"]),
  ]);
  balancer.endpoints = webhookEndpoints(others.pods);
  await createReadyPods(cluster, { namespace: NAMESPACE, prefix: "web", count: PODS, labels });
  await untilTrusted(cluster);
  await waitUntilSettled(cluster, NAMESPACE, PROTECTOR, PODS);
});

afterAll(async () => {
  await Promise.all([others, aggregators].map((one) => one?.stop()));
  await balancer?.close();
  await cluster?.stop();
});

function deletion(name: string, query = ""): Promise<ApiAnswer> {
  return ask(cluster, "DELETE", `/api/v1/namespaces/${NAMESPACE}/pods/${name}?${query}`);
}

const inDryRun = async (name: string): Promise<number> => (await deletion(name, "dryRun=All")).status;

/** What `doctor` says of a check, with its advice. */
async function doctor(check: string): Promise<string> {
  const env = { PATH: "/usr/bin:/bin", HOME: cluster.directory, KUBECONFIG: cluster.kubeconfig };
  const plugin = join(BUNDLES, "kubectl-podseidon.mjs");
  const answer = promisify(execFile)(process.execPath, [plugin, "doctor"], { env });
  // With a problem it ends with 1.
  const stdout = await answer.then((ended) => ended.stdout).catch((error: unknown) => String(field(error, "stdout")));
  return stdout
    .split("\n")
    .filter((line) => line.includes(check))
    .join("\n");
}

async function countRefusals(): Promise<number> {
  const texts = await Promise.all(aggregators.pods.map(async ({ metricsUrl }) => (await fetch(metricsUrl)).text()));
  const lines = texts.join("\n").match(/^podseidon_aggregator_reconciles_total\{.*result="failed".*\} [1-9]\d*$/gm);
  return lines?.length ?? 0;
}

/** Nobody is asked any more, and these pods go. */
async function breakGlass(...names: readonly string[]): Promise<void> {
  // Nobody ends the processes here.
  await aggregators.stop();
  const { stdout: context } = await cluster.kubectl(["config", "current-context"]);
  await shellCommand(cluster, PAGE.replaceAll("CONTEXT", context.trim()), "nobody is asked");
  for (const name of names) {
    await cluster.waitFor("nobody to be asked", async () => (await inDryRun(name)) === 200);
    expect((await deletion(name, "gracePeriodSeconds=0")).status).toBe(200);
  }
}

test("every pod goes once its last command has ended", async () => {
  await breakGlass("web-1", "web-2", "web-3");
});

/** The aggregator alone comes back; its core refuses what it counts, and takes it later. One pod is left. */
async function scaledUpAgain(): Promise<void> {
  const rules = items(await cluster.admin.get(ROLE), "rules");
  const reads = rules.filter((rule) => !String(field(rule, "resources")).includes("/status"));
  await cluster.admin.call("PATCH", ROLE, { rules: reads });
  const replicas = ["--namespace", "podseidon-system", "scale", "deployment", "podseidon-aggregator", "--replicas=2"];
  expect((await cluster.kubectl(replicas)).code).toBe(0);
  aggregators = kubelet(cluster, options);
  await aggregators.start(["podseidon-aggregator"]);
  await cluster.waitFor("a refused write", async () => (await countRefusals()) > 0);
  const read = (path: string) => cluster.admin.request("GET", path);
  await cluster.waitFor("the webhook configurations", async () => {
    return (await Promise.all(CONFIGURATIONS.map(read))).every(({ status }) => status === 200);
  });
  await cluster.waitFor("it to be in force", async () => (await inDryRun("web-0")) !== 200);
  const { status, text } = await deletion("web-0", "dryRun=All");
  expect([status, text]).toEqual([500, expect.stringContaining("certificate signed by unknown authority")]);
  expect((await readProtector(cluster, NAMESPACE, PROTECTOR)).status?.summary?.aggregatedAvailableReplicas).toBe(PODS);
  const told = await doctor("CA in the webhook configuration");
  expect(told).toMatch(/^FAIL .*there is none$/m);
  expect(told).toContain("an aggregator adds it once its term has counted the pods");

  await cluster.admin.call("PATCH", ROLE, { rules });
  await untilTrusted(cluster);
  await cluster.waitFor("the webhook to decide", async () => (await inDryRun("web-0")) === 429);
  expect((await readProtector(cluster, NAMESPACE, PROTECTOR)).status?.summary?.aggregatedAvailableReplicas).toBe(1);
}

test("an aggregator that is scaled up again lets nothing go by the counts of before, and doctor says why", async () => {
  await scaledUpAgain();
});

describe("where the CA is not podseidon's own (provided-certificate)", () => {
  const configurations = (): Promise<unknown[]> => Promise.all(CONFIGURATIONS.map((path) => cluster.admin.get(path)));

  test("a configuration that is applied first lets pods go by the counts of before", async () => {
    const patch = JSON.stringify([
      { op: "test", path: "/spec/template/spec/containers/0/args/1", value: "--ca-cluster=cell" },
      { op: "remove", path: "/spec/template/spec/containers/0/args/1" },
    ]);
    const args = ["--namespace", "podseidon-system", "patch", "deployment", "podseidon-aggregator", "--type=json"];
    expect((await cluster.kubectl([...args, "--patch", patch])).code).toBe(0);
    await aggregators.stop();
    aggregators = kubelet(cluster, options);
    await aggregators.start(["podseidon-aggregator"]);
    await createReadyPods(cluster, { namespace: NAMESPACE, prefix: "more", count: PODS - 1, labels });
    await waitUntilSettled(cluster, NAMESPACE, PROTECTOR, PODS);
    const annotations = { "pre-activity.xpdb.form3.tech/denied": "where somebody is asked" };
    await cluster.admin.call("PATCH", `/api/v1/namespaces/${NAMESPACE}/pods/more-2`, { metadata: { annotations } });
    const before = await configurations();
    // The next aggregator has the CA from the record alone.
    await cluster.waitFor("the record of the CA", async () => {
      const forms = Object.values(Object(field(await cluster.admin.get(RECORD), "data")));
      return forms.length === 2 && forms.every((form) => /"bundles":{"/.test(String(form)));
    });
    await breakGlass("more-0", "more-1");

    await cluster.apply(
      before.map((one) => ({
        ...{ apiVersion: field(one, "apiVersion"), kind: field(one, "kind"), webhooks: field(one, "webhooks") },
        metadata: { name: "podseidon" },
      })),
    );
    await cluster.waitFor("it to be in force", async () => (await inDryRun("more-2")) === 429);
    // Two pods are left of the three that are promised.
    expect(await inDryRun("web-0")).toBe(200);
  });

  test("an aggregator that is scaled up first lets none go", async () => {
    await breakGlass("more-2");
    await scaledUpAgain();
  });
});
