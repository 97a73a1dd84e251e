/**
 * Upstream podseidon's components beside this project's, on a real apiserver: whichever of them admits or counts,
 * verdicts are what upstream's rules promise, nothing crashes and no reservation stays behind. Needs upstream's
 * binaries (PODSEIDON_UPSTREAM_DIR, see scripts/bench/fixture/contenders.ts).
 */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startUpstreamWebhook, upstreamAggregator, upstreamBinaries } from "../../scripts/bench/fixture/contenders.ts";
import { BARE, Cluster, type ClusterOptions } from "../../scripts/control-plane/cluster.ts";
import type { ManagedProcess } from "../../scripts/control-plane/managed-process.ts";
import { Balancer } from "../../scripts/environment/balancer.ts";
import { Component } from "../../scripts/environment/component.ts";
import { registrations } from "../../scripts/environment/webhook-configuration.ts";
import { startWebhook } from "../../scripts/environment/webhook-process.ts";
import { eachAtMost } from "../../shared/runtime/each-at-most.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../support/cluster/protectors.ts";

const upstream = upstreamBinaries();
const CRD = resolve(import.meta.dirname, "../../crds/podseidon.kubewharf.io_podprotectors.yaml");
const PODS = 6;
const MIN_AVAILABLE = 4;

/** No pod of it runs in the core. */
const OTHER_CELL = "other";
const CLUSTER: ClusterOptions = { ...BARE, flags: { "kube-apiserver": { "request-timeout": "8s" } } };

let cluster: Cluster;
let otherCluster: Cluster;
let balancer: Balancer;
const running: ManagedProcess[] = [];

async function stopAll(): Promise<void> {
  await Promise.all(running.splice(0).map((process) => process.kill("SIGKILL")));
  balancer.endpoints = [];
}

function serve(urls: readonly string[]): void {
  balancer.endpoints = urls.map((url) => ({ host: "127.0.0.1", port: Number(new URL(url).port) }));
}

async function theirWebhook(): Promise<string> {
  const { process, url } = await startUpstreamWebhook(
    upstream?.webhook ?? "",
    cluster,
    `upstream-webhook-${running.length}`,
  );
  running.push(process);
  return url;
}

async function ourWebhook(): Promise<string> {
  const directory = join(cluster.directory, "ours");
  const replica = await startWebhook({
    name: `webhook-${running.length}`,
    directory,
    authority: cluster,
    cores: { core: cluster.kubeconfig },
    cells: { cell: cluster.kubeconfig, [OTHER_CELL]: otherCluster.kubeconfig },
  });
  running.push(replica.component.process);
  return replica.url;
}

async function ourAggregator(algorithm: string): Promise<void> {
  const args = [
    "--cell-id",
    "cell",
    "--kubeconfig",
    cluster.kubeconfig,
    "--core",
    `core=${cluster.kubeconfig}`,
    "--leader-elect=false",
    "--settle-period",
    "10s",
  ];
  const component = await Component.start({
    kind: "aggregator",
    name: `aggregator-${running.length}`,
    directory: join(cluster.directory, "ours"),
    args: [...args, "--sync-time-algorithm", algorithm],
  });
  running.push(component.process);
}

async function theirAggregator(more: readonly string[] = []): Promise<void> {
  const name = `upstream-aggregator-${running.length}`;
  const flags = ["--default-admission-history-config-aggregation-rate", "100ms", ...more];
  const { process } = await upstreamAggregator(cluster, upstream?.aggregator ?? "", name, flags).process();
  await process.start();
  running.push(process);
}

async function remove(name: string, from = cluster): Promise<number> {
  return (await from.admin.request("DELETE", `/api/v1/namespaces/default/pods/${name}`)).status;
}

/**
 * Deletes one pod after another, and waits until each deletion is settled: exactly the spare pods are allowed.
 * Upstream's webhook also denies while its cache is older than the last count, so a deletion is retried until it is
 * allowed, as kubectl drain does.
 */
async function oneByOne(app: string): Promise<void> {
  await createProtector(cluster, "default", app, { minAvailable: MIN_AVAILABLE, selector: { matchLabels: { app } } });
  const names = await createReadyPods(cluster, { namespace: "default", prefix: app, count: PODS, labels: { app } });
  await waitUntilSettled(cluster, "default", app, PODS);
  const spare = PODS - MIN_AVAILABLE;
  for (const [index, name] of names.slice(0, spare).entries()) {
    await cluster.waitFor(`${name} to be allowed`, async () => (await remove(name)) < 300);
    await waitUntilSettled(cluster, "default", app, PODS - 1 - index);
  }
  for (const name of names.slice(spare)) expect([409, 429]).toContain(await remove(name));
  await waitUntilSettled(cluster, "default", app, MIN_AVAILABLE);
}

/**
 * Deletes all pods at once: nothing crashes, and in the end nothing is reserved. The weaker rule decides how many are
 * allowed.
 */
async function allAtOnce(app: string): Promise<void> {
  await createProtector(cluster, "default", app, { minAvailable: MIN_AVAILABLE, selector: { matchLabels: { app } } });
  const names = await createReadyPods(cluster, { namespace: "default", prefix: app, count: PODS, labels: { app } });
  await waitUntilSettled(cluster, "default", app, PODS);
  await eachAtMost(PODS, names, async (name) => void (await remove(name)));
  const list = await cluster.admin.get(`/api/v1/namespaces/default/pods?labelSelector=app%3D${app}`);
  const items: unknown = Reflect.get(Object(list), "items");
  await waitUntilSettled(cluster, "default", app, Array.isArray(items) ? items.length : -1);
  expect(running.every((process) => process.running)).toBe(true);
}

/** As {@link oneByOne}, with half of the pods in each cell: one pod of each can be spared. */
async function overTwoCells(app: string): Promise<void> {
  await createProtector(cluster, "default", app, { minAvailable: MIN_AVAILABLE, selector: { matchLabels: { app } } });
  const pods = { namespace: "default", prefix: app, count: PODS / 2, labels: { app } };
  const cells = [cluster, otherCluster];
  const names = await createReadyPods(cluster, pods);
  await createReadyPods(otherCluster, pods);
  await waitUntilSettled(cluster, "default", app, PODS);
  for (const [index, cell] of cells.entries()) {
    await cell.waitFor(`${names[index]} to be allowed`, async () => (await remove(names[index] ?? "", cell)) < 300);
    await waitUntilSettled(cluster, "default", app, PODS - 1 - index);
  }
  for (const cell of cells) expect([409, 429]).toContain(await remove(names[2] ?? "", cell));
  await waitUntilSettled(cluster, "default", app, MIN_AVAILABLE);
}

describe.runIf(upstream !== undefined)("beside upstream's components", () => {
  beforeAll(async () => {
    [cluster, otherCluster] = await Promise.all([
      Cluster.start({ name: "interop", ...CLUSTER }),
      Cluster.start({ name: OTHER_CELL, ...CLUSTER }),
    ]);
    await cluster.apply(readFileSync(CRD, "utf8"));
    balancer = await Balancer.listen([]);
    const url = `https://127.0.0.1:${balancer.port}`;
    const caPem = cluster.identity.certificateAuthorityPem;
    for (const [cell, where] of [["cell", cluster] as const, [OTHER_CELL, otherCluster] as const]) {
      const [validating] = registrations({ cell, url, caPem });
      await where.apply([validating]);
    }
  });

  afterAll(async () => {
    await stopAll();
    await balancer?.close();
    await Promise.all([cluster, otherCluster].map((one) => one?.stop()));
  });

  for (const algorithm of ["clock", "exact"]) {
    it(`upstream's webhook with this aggregator (${algorithm})`, async () => {
      serve([await theirWebhook()]);
      await ourAggregator(algorithm);
      await oneByOne(`theirs-${algorithm}`);
      await allAtOnce(`theirs-${algorithm}-burst`);
      await stopAll();
    });
  }

  it("this webhook with upstream's aggregator", async () => {
    serve([await ourWebhook()]);
    await theirAggregator();
    await oneByOne("their-count");
    await allAtOnce("their-count-burst");
    await stopAll();
  });

  it("both webhooks at once with upstream's aggregator", async () => {
    serve([await ourWebhook(), await theirWebhook()]);
    await theirAggregator();
    await oneByOne("both-their-count");
    await allAtOnce("both-their-count-burst");
    await stopAll();
  });

  for (const [whose, webhook] of [["this", ourWebhook] as const, ["upstream's", theirWebhook] as const]) {
    it(`${whose} webhook with a cell of this aggregator and a cell of upstream's`, async () => {
      serve([await webhook()]);
      await ourAggregator("exact");
      await theirAggregator([`--worker-kube-config=${otherCluster.kubeconfig}`, "--aggregator-cell-id", OTHER_CELL]);
      await overTwoCells(whose === "this" ? "cells-ours" : "cells-theirs");
      await stopAll();
    });
  }

  for (const algorithm of ["clock", "exact"]) {
    it(`both webhooks at once with this aggregator (${algorithm})`, async () => {
      serve([await ourWebhook(), await theirWebhook()]);
      await ourAggregator(algorithm);
      await oneByOne(`both-${algorithm}`);
      await allAtOnce(`both-${algorithm}-burst`);
      await stopAll();
    });
  }
});
