/** Leader election on a real apiserver, and what a former leader can still do; and Events. */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { Component } from "../../../scripts/environment/component.ts";
import { createHttpsTransport } from "../../../shared/kube/client/https-transport.ts";
import { loadClusterAccess } from "../../../shared/kube/credentials/kubeconfig.ts";
import { type EventNote, type EventOutcome, EventRecorder } from "../../../shared/observe/event-recorder.ts";
import { systemPorts } from "../../../shared/runtime/system-ports.ts";
import { FaultProxy } from "../../faults/proxy/proxy.ts";
import { entryOf, startAggregator, startCluster, waitForEntry } from "../../support/cluster/aggregator-cluster.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, readProtector } from "../../support/cluster/protectors.ts";

const ELECTION = ["--lease-duration=3s", "--renew-deadline=2s", "--retry-period=500ms"];
/** So long that no test waits for its expiry. */
const LONG_ELECTION = ["--lease-duration=10m", "--renew-deadline=5m", "--retry-period=500ms"];
const LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const PODS = "/api/v1/namespaces/default/pods";

let cluster: Cluster;

beforeAll(async () => {
  cluster = await startCluster();
});

afterAll(() => cluster?.stop());

async function workload(name: string, count: number): Promise<string[]> {
  const labels = { app: name };
  await createProtector(cluster, "default", name, { minAvailable: 1, selector: { matchLabels: labels } });
  return await createReadyPods(cluster, { namespace: "default", prefix: name, count, labels });
}

async function waitForCount(name: string, count: number): Promise<void> {
  await waitForEntry(cluster, name, `${count} available`, (entry) => entry.aggregation?.availableReplicas === count);
}

const remove = (pod: string): Promise<unknown> =>
  cluster.admin.call("DELETE", `${PODS}/${pod}`, { gracePeriodSeconds: 0 });

async function holder(lease: string): Promise<string> {
  return String(field(await cluster.admin.get(`${LEASES}/${lease}`), "spec", "holderIdentity") ?? "");
}

async function leads(component: Component): Promise<boolean> {
  return (await component.metric("podseidon_leader")) === 1;
}

test("a leader that is frozen during a write: the write is too late, and the leader writes nothing more", async () => {
  await using proxy = await FaultProxy.start({
    target: { host: "127.0.0.1", port: Number(new URL(cluster.url).port) },
    tls: {
      ...(await cluster.identity.servingCertificate([], ["127.0.0.1"])),
      targetCaPem: cluster.identity.certificateAuthorityPem,
    },
  });
  const core = await cluster.kubeconfigFor({ token: cluster.identity.adminToken }, { server: proxy.url });
  await using first = await startAggregator(cluster, "first", ...ELECTION, "--core", `core=${core}`);
  const pods = await workload("led", 3);
  await waitForCount("led", 3);

  const write = proxy.holdNext(({ method, path }) => method === "PUT" && path.includes("/led/status"));
  await remove(pods[0] ?? "");
  await write.seen;
  first.process.freeze();
  // Not before: on a busy machine it could lead already, and nothing would come through the proxy.
  await using second = await startAggregator(cluster, "second", ...ELECTION);
  await waitForCount("led", 2);
  await expect.poll(() => leads(second)).toBe(true);
  await remove(pods[1] ?? "");
  await waitForCount("led", 1);
  const before = await readProtector(cluster, "default", "led");

  write.release();
  await cluster.waitFor("the old leader's write to be refused", async () => proxy.statuses.includes(409));
  first.process.thaw();
  await cluster.waitFor("the old leader to know", async () => !(await leads(first)));
  expect((await readProtector(cluster, "default", "led")).metadata.resourceVersion).toBe(
    before.metadata.resourceVersion,
  );
  await remove(pods[2] ?? "");
  await waitForCount("led", 0);
  expect((await entryOf(cluster, "led"))?.aggregation?.hold).toBeUndefined();
});

test("a leader that ends releases its lease, so that nobody waits for it to expire", async () => {
  const first = await startAggregator(cluster, "leaving", ...LONG_ELECTION);
  const [pod = ""] = await workload("handed-over", 2);
  await waitForCount("handed-over", 2);
  const before = await holder("podseidon-aggregator");
  await using second = await startAggregator(cluster, "following", ...LONG_ELECTION);
  expect(await leads(second)).toBe(false);
  await first.process.kill("SIGTERM");
  await remove(pod);
  await waitForCount("handed-over", 1);
  const after = await holder("podseidon-aggregator");
  expect(after).not.toBe("");
  expect(after).not.toBe(before);
  await second.process.kill("SIGTERM");
  expect(await holder("podseidon-aggregator")).toBe("");
});

test("the cells of one cluster and the controllers of one core have a lease each, so that all lead", async () => {
  const cell = (id: string): Promise<Component> =>
    startAggregator(cluster, id, ...ELECTION, "--cell-id", id, "--namespace", id);
  await using one = await cell("one");
  await using two = await cell("two");
  await using generator = await Component.start({
    kind: "generator",
    name: "generator",
    directory: cluster.directory,
    args: ["--kubeconfig", cluster.kubeconfig, "--leader-elect-namespace", "default", ...ELECTION],
  });
  for (const component of [one, two]) await cluster.waitFor("to lead", () => leads(component));
  const leases = ["podseidon-aggregator-one", "podseidon-aggregator-two", "podseidon-generator"];
  await cluster.waitFor("every lease to be held", async () => {
    return !(await Promise.all(leases.map(holder))).includes("");
  });
  expect(new Set(await Promise.all(leases.map(holder))).size).toBe(3);
  expect(generator.process.running).toBe(true);
});

test("a missing namespace is named in the log and counted, and the lease is taken once it exists", async () => {
  await using generator = await Component.start({
    kind: "generator",
    name: "homeless",
    directory: cluster.directory,
    args: ["--kubeconfig", cluster.kubeconfig, "--leader-elect-namespace", "not-there", ...ELECTION],
  });
  const failures = (): Promise<number | undefined> =>
    generator.metric("podseidon_leader_failures_total", { call: "create" });
  await cluster.waitFor("the failure to be counted", async () => ((await failures()) ?? 0) > 0);
  // A line is written when stdout takes it, which may be after the call is counted.
  await cluster.waitFor("the missing namespace to be logged", async () =>
    readFileSync(generator.process.logFile, "utf8").includes("of the lease does not exist"),
  );
  await cluster.admin.call("POST", "/api/v1/namespaces", { metadata: { name: "not-there" } });
  await cluster.waitFor("to lead", () => leads(generator));
});

describe("Events", () => {
  test("are written, counted up while they repeat, and created again when they have expired", async () => {
    const transport = createHttpsTransport(await loadClusterAccess(cluster.kubeconfig), {
      ports: systemPorts,
      userAgent: "test",
    });
    const outcomes: EventOutcome[] = [];
    const recorder = new EventRecorder({
      transport,
      ports: systemPorts,
      component: "podseidon-test",
      onOutcome: (outcome) => outcomes.push(outcome),
    });
    await createProtector(cluster, "default", "told", { minAvailable: 1, selector: { matchLabels: { app: "told" } } });
    const { metadata } = await readProtector(cluster, "default", "told");
    const note: EventNote = {
      regarding: {
        apiVersion: "podseidon.kubewharf.io/v1alpha1",
        kind: "PodProtector",
        namespace: "default",
        name: "told",
        uid: metadata.uid,
      },
      type: "Warning",
      reason: "Held",
      message: "The cell is on hold",
    };
    const list = async (): Promise<readonly unknown[]> => {
      const answer = await cluster.admin.get(
        "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dtold",
      );
      const items = field(answer, "items");
      return Array.isArray(items) ? items : [];
    };
    const told = async (times: number): Promise<unknown> => {
      recorder.record(note);
      await cluster.waitFor("the Event", async () => outcomes.length === times);
      const found = await list();
      expect(found).toHaveLength(1);
      return found[0];
    };
    expect(await told(1)).toMatchObject({
      type: "Warning",
      reason: "Held",
      message: "The cell is on hold",
      count: 1,
      involvedObject: { kind: "PodProtector", uid: metadata.uid },
      source: { component: "podseidon-test" },
    });
    const counted = await told(2);
    expect(field(counted, "count")).toBe(2);
    await cluster.admin.call(
      "DELETE",
      `/api/v1/namespaces/default/events/${String(field(counted, "metadata", "name"))}`,
    );
    expect(field(await told(3), "count")).toBe(1);
    expect(outcomes).toEqual(["created", "counted", "created"]);
    await recorder.stop(1000);
    transport.close();
  });
});
