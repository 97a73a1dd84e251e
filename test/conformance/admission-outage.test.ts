/**
 * How the webhook responds when a cluster that it needs is out of reach, and which requests need none
 * (docs/design.md#several-cores).
 */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ApiAnswer } from "../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { Component, servingFiles } from "../../scripts/environment/component.ts";
import { registrations } from "../../scripts/environment/webhook-configuration.ts";
import { startWebhook, type WebhookReplica } from "../../scripts/environment/webhook-process.ts";
import { AdmissionHarness, CELL, NAMESPACE } from "../support/cluster/admission-harness.ts";
import { messageOf, verdictOf } from "../support/cluster/ask.ts";
import { ended } from "../support/runtime/ended.ts";

/** The second core cluster, which fails. The first one, which is also the cell, stays. */
let second: Cluster;
let harness: AdmissionHarness;
let replica: WebhookReplica;

const CRD_FILE = "crds/podseidon.kubewharf.io_podprotectors.yaml";

beforeAll(async () => {
  harness = await AdmissionHarness.start({ replicas: 0 });
  harness.isPatient = false;
  second = await Cluster.start({ name: "second", ...BARE });
  await second.apply(readFileSync(CRD_FILE, "utf8"));
  replica = await startWebhook({
    name: "webhook-two-cores",
    directory: harness.cluster.directory,
    authority: harness.cluster,
    cores: { first: harness.cluster.kubeconfig, second: second.kubeconfig },
    cells: { [CELL]: harness.cluster.kubeconfig, blind: "" },
  });
  await register(CELL);
});

afterAll(async () => {
  await replica?.component.stop();
  await second?.stop();
  await harness?.[Symbol.asyncDispose]();
});

async function register(cell: string): Promise<void> {
  await harness.cluster.apply(registrations({ cell, url: replica.url, caPem: replica.caPem }));
}

async function unready(): Promise<string> {
  const response = await fetch(`${replica.component.healthUrl}/readyz?verbose`);
  return response.status === 200 ? "" : await response.text();
}

async function givenPod(setting = {}): Promise<string> {
  const name = harness.unique("pod");
  await harness.pod(name, name, setting);
  return name;
}

async function decide(setting = {}): Promise<ApiAnswer> {
  return harness.delete(await givenPod(setting));
}

describe.each([
  ["killed", (cluster: Cluster) => cluster.processes["kube-apiserver"].kill()],
  ["frozen", (cluster: Cluster) => cluster.processes["kube-apiserver"].freeze()],
])("a core cluster that is %s", (_name, disturb) => {
  beforeAll(async () => {
    await disturb(second);
    await harness.cluster.waitFor("the replica to be unready", async () => (await unready()) !== "");
  });

  afterAll(async () => {
    const apiserver = second.processes["kube-apiserver"];
    if (apiserver.running) apiserver.thaw();
    else await apiserver.start();
    await harness.cluster.waitFor("the replica to be ready again", async () => (await unready()) === "");
    expect(verdictOf(await decide())).toBe("allow");
  });

  test("readyz names the core", async () => {
    expect(await unready()).toMatch(/core cluster second .*unreachable/);
  });

  test("a Ready pod gets an error, so that failurePolicy decides", async () => {
    const answer = await decide();
    expect(answer.status).toBe(500);
    expect(messageOf(answer)).toMatch(/failed calling webhook .*second/);
  });

  test("a denial by a protector of the other core stands", async () => {
    const name = await givenPod();
    await harness.protector(name, { minAvailable: 1, selector: { matchLabels: { app: name } } });
    await harness.count(name, { available: 1 });
    await expect.poll(async () => verdictOf(await harness.delete(name, undefined, "?dryRun=All"))).toBe("denial");
    await harness.removeProtector(name);
  });

  test.each([
    ["a finished pod", { phase: "Failed" }],
    ["a pending pod", { phase: "Pending", ready: false }],
    ["a mirror pod", { annotations: { "kubernetes.io/config.mirror": "x" }, scheduled: true }],
  ])("%s is allowed", async (_name, setting) => {
    expect(verdictOf(await decide(setting))).toBe("allow");
  });

  test("a terminating pod is allowed", async () => {
    const name = await givenPod({ scheduled: true, phase: "Failed" });
    const path = `/api/v1/namespaces/${NAMESPACE}/pods/${name}`;
    await harness.cluster.admin.call("PATCH", path, { metadata: { finalizers: ["test.example.com/hold"] } });
    await harness.delete(name, { gracePeriodSeconds: 0 });
    await harness.cluster.admin
      .call("PATCH", `${path}/status`, { status: { phase: "Running" } })
      .catch(() => undefined);
    expect(verdictOf(await harness.delete(name, { gracePeriodSeconds: 0 }))).toBe("allow");
    await harness.cluster.admin.call("PATCH", path, { metadata: { finalizers: null } });
  });
});

test("a core without space: a deletion fails with the words of etcd, and passes once there is space", async () => {
  const { cluster } = harness;
  const name = await givenPod();
  await harness.protector(name, { minAvailable: 1, selector: { matchLabels: { app: name } } }, { available: 2 });
  const known = async () => (await replica.component.metric("podseidon_webhook_protectors")) === 1;
  await cluster.waitFor("the replica to know the protector", known);
  await cluster.etcd.outOfSpace(true);
  try {
    const answer = await harness.delete(name);
    expect(answer.status).toBe(500);
    expect(messageOf(answer)).toMatch(/failed calling webhook .*podprotectors.*database space exceeded/);
  } finally {
    await cluster.etcd.outOfSpace(false);
  }
  expect(verdictOf(await harness.delete(name))).toBe("allow");
  await harness.removeProtector(name);
});

describe("an eviction whose pod cannot be read", () => {
  afterAll(() => register(CELL));

  test("a cell without a kubeconfig gets an error that says what is missing", async () => {
    await register("blind");
    const name = await givenPod();
    await expect.poll(async () => messageOf(await harness.evict(name))).toMatch(/failed calling webhook .*kubeconfig/);
    expect(verdictOf(await harness.delete(name))).toBe("allow");
  });
});

describe("a configuration that cannot work ends the process with what to do", () => {
  const run = async (args: readonly string[]): Promise<{ code: number; text: string }> => {
    const none = ["--health-probe-bind-address=0", "--metrics-bind-address=0"];
    const { code, stderr } = await ended(spawn(process.execPath, ["dist/webhook.mjs", ...args, ...none]));
    return { code, text: stderr };
  };
  const usual = async (change: Readonly<Record<string, string>>): Promise<readonly string[]> => {
    const files = await servingFiles(harness.cluster, `${harness.cluster.directory}/usual`);
    const flags = {
      core: `core=${harness.cluster.kubeconfig}`,
      cell: CELL,
      "bind-address": "127.0.0.1",
      "secure-port": "0",
      "tls-cert-file": files.certFile,
      "tls-private-key-file": files.keyFile,
      ...change,
    };
    return Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
  };

  test.each<[string, () => readonly string[] | Promise<readonly string[]>, RegExp]>([
    ["nothing given", () => [], /--core: is required[\s\S]*--tls-cert-file: is required/],
    ["a kubeconfig that is missing", () => usual({ core: "core=/nowhere" }), /--core core: .*\/nowhere/],
    ["a kubeconfig that is a directory", () => usual({ core: "core=/tmp" }), /--core core: .*\/tmp/],
    ["a file that is no kubeconfig", () => usual({ core: "core=/etc/hostname" }), /--core core: .*\/etc\/hostname/],
    ["a certificate that is missing", () => usual({ "tls-cert-file": "/nowhere" }), /certificate file .*\/nowhere/],
    [
      "a key of another certificate",
      async () => {
        const other = await servingFiles(harness.cluster, `${harness.cluster.directory}/other`);
        return usual({ "tls-private-key-file": other.keyFile });
      },
      /does not belong to the certificate/,
    ],
    [
      "a port that is taken",
      () => usual({ "secure-port": new URL(replica.url).port }),
      /listen EADDRINUSE: address already in use 127\.0\.0\.1:\d+; choose another --secure-port/,
    ],
    [
      "an address in brackets, which is no name",
      () => usual({ "bind-address": "[::1]" }),
      /\[::1\]; choose another .*--bind-address/,
    ],
    [
      "a kubeconfig for metrics that is missing",
      () => usual({ "metrics-auth": "/nowhere" }),
      /--metrics-auth: .*\/nowhere/,
    ],
  ])("%s", async (_name, args, text) => {
    const { code, text: said } = await run(await args());
    expect(said).toMatch(text);
    expect(code).toBe(2);
  });

  test("a kubeconfig without a server: the process lives, is not ready, and says why", async () => {
    const kubeconfig = await harness.cluster.kubeconfigFor(
      { token: "x" },
      { server: "https://127.0.0.1:9", path: `${harness.cluster.directory}/nowhere.kubeconfig` },
    );
    const component = await Component.describe({
      kind: "webhook",
      name: "webhook-nowhere",
      directory: harness.cluster.directory,
      args: await usual({ core: `core=${kubeconfig}` }),
    });
    const started = component.process.start().catch(() => undefined);
    await harness.cluster.waitFor("readyz to say why", async () => {
      const answer = await fetch(`${component.healthUrl}/readyz?verbose`).catch(() => undefined);
      return answer?.status === 500 && /core cluster core have not been read yet/.test(await answer.text());
    });
    await component.stop();
    await started;
  });
});
