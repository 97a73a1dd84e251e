/** The update trigger as a process beside a real apiserver and scheduler. */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { Component } from "../../../scripts/environment/component.ts";
import { UPDATE_TRIGGER_COUNTER_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { type Pod, parsePod } from "../../../shared/schema/pod.ts";
import { startCluster } from "../../support/cluster/aggregator-cluster.ts";

const POD = "/api/v1/namespaces/default/pods/podseidon-update-trigger";

async function start(cluster: Cluster, name: string, interval = "200ms"): Promise<Component> {
  return await Component.start({
    kind: "update-trigger",
    name,
    directory: join(cluster.directory, "triggers"),
    args: [
      "--kubeconfig",
      cluster.kubeconfig,
      "--namespace",
      "default",
      "--interval",
      interval,
      "--leader-elect=false",
    ],
  });
}

async function read(cluster: Cluster): Promise<Pod | undefined> {
  const answer = await cluster.admin.request("GET", POD);
  return answer.status === 200 ? parsePod(answer.body) : undefined;
}

const counterOf = (pod: Pod | undefined): number => Number(pod?.annotations?.[UPDATE_TRIGGER_COUNTER_ANNOTATION] ?? 0);

async function waitForPod(cluster: Cluster, what: string, isMet: (pod: Pod) => boolean): Promise<Pod> {
  let last: Pod | undefined;
  await cluster.waitFor(what, async () => {
    last = await read(cluster);
    return last !== undefined && isMet(last);
  });
  if (last === undefined) throw new Error("unreachable");
  return last;
}

describe("the dummy pod", () => {
  let cluster: Cluster;
  let trigger: Component;
  beforeAll(async () => {
    cluster = await startCluster({ controllerManager: true, scheduler: true, kwok: true, nodes: 1 });
    trigger = await start(cluster, "trigger");
  });
  afterAll(async () => {
    await trigger?.stop();
    await cluster?.stop();
  });

  test("is created, patched, and never scheduled", async () => {
    const first = await waitForPod(cluster, "the pod", () => true);
    const later = await waitForPod(cluster, "10 patches", (pod) => counterOf(pod) >= counterOf(first) + 10);
    expect(later).toMatchObject({ uid: first.uid, scheduled: false, phase: "Succeeded" });
    expect(later.labels).toEqual({ "app.kubernetes.io/part-of": "podseidon" });
  });

  test("comes back after its deletion, and its counter continues", async () => {
    const before = await waitForPod(cluster, "the pod", () => true);
    await cluster.admin.call("DELETE", POD, { gracePeriodSeconds: 0 });
    const after = await waitForPod(cluster, "another pod", (pod) => pod.uid !== before.uid);
    expect(counterOf(after)).toBeGreaterThan(counterOf(before));
  });

  test("is adopted by the next process", async () => {
    await trigger.process.kill("SIGTERM");
    const before = await waitForPod(cluster, "the pod", () => true);
    await trigger.process.start();
    const after = await waitForPod(cluster, "a patch", (pod) => counterOf(pod) > counterOf(before));
    expect(after.uid).toBe(before.uid);
  });

  test("is admitted where pod security is restricted", async () => {
    await cluster.admin.call("PATCH", "/api/v1/namespaces/default", {
      metadata: { labels: { "pod-security.kubernetes.io/enforce": "restricted" } },
    });
    const before = await waitForPod(cluster, "the pod", () => true);
    await cluster.admin.call("DELETE", POD, { gracePeriodSeconds: 0 });
    await waitForPod(cluster, "another pod", (pod) => pod.uid !== before.uid);
  });

  test("is patched again after an outage of the apiserver, which is reported and harms nothing", async () => {
    const before = await waitForPod(cluster, "the pod", () => true);
    await cluster.processes["kube-apiserver"].kill("SIGKILL");
    await cluster.waitFor("a failure in the metrics", async () => {
      return ((await trigger.metric("podseidon_update_trigger_updates_total", { outcome: "failed" })) ?? 0) > 0;
    });
    await cluster.processes["kube-apiserver"].start();
    await waitForPod(cluster, "a patch", (pod) => counterOf(pod) > counterOf(before));
    expect(trigger.process.running).toBe(true);
  });

  test("is not needed on this server, and the trigger says so", async () => {
    await trigger.stop();
    trigger = await start(cluster, "slow-trigger", "5s");
    await cluster.waitFor("the answer", async () => (await trigger.metric("podseidon_update_trigger_needed")) === 0);
  });
});
