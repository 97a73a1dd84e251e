/** The aggregator as a process beside a real apiserver. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import {
  admit,
  buckets,
  entryOf,
  readPod,
  startAggregator,
  startCluster,
  waitForEntry,
} from "../../support/cluster/aggregator-cluster.ts";
import { createReadyPods, setReady } from "../../support/cluster/pods.ts";
import { createProtector } from "../../support/cluster/protectors.ts";

const STRATEGIC = { contentType: "application/strategic-merge-patch+json" };

const available = (count: number) => (entry: Awaited<ReturnType<typeof entryOf>>) =>
  entry?.aggregation?.availableReplicas === count;

/** Creates a protector with `count` Ready pods; resolves to their names. */
async function workload(
  cluster: Cluster,
  name: string,
  count: number,
  spec: Record<string, unknown> = {},
): Promise<string[]> {
  const labels = { app: name };
  await createProtector(cluster, "default", name, { minAvailable: 1, selector: { matchLabels: labels }, ...spec });
  return await createReadyPods(cluster, { namespace: "default", prefix: name, count, labels });
}

const remove = (cluster: Cluster, name: string): Promise<unknown> =>
  cluster.admin.call("DELETE", `/api/v1/namespaces/default/pods/${name}`, { gracePeriodSeconds: 0 });

describe("one aggregator", () => {
  let cluster: Cluster;
  let aggregator: Awaited<ReturnType<typeof startAggregator>>;
  beforeAll(async () => {
    cluster = await startCluster();
    aggregator = await startAggregator(cluster, "aggregator", "--leader-elect=false");
  });
  afterAll(async () => {
    await aggregator?.stop();
    await cluster?.stop();
  });

  test("counts pods as they come, go and change, at versions of their collection", async () => {
    const pods = await workload(cluster, "counted", 4);
    const first = await waitForEntry(cluster, "counted", "4 available", available(4));
    await setReady(cluster, "default", pods[0] ?? "", false);
    await remove(cluster, pods[1] ?? "");
    const second = await waitForEntry(cluster, "counted", "2 available", available(2));
    expect(second.aggregation?.totalReplicas).toBe(3);
    expect(Number(second.aggregation?.resourceVersion)).toBeGreaterThan(Number(first.aggregation?.resourceVersion));
    expect(second.aggregation?.hold).toBeUndefined();
  });

  test("protectors that share pods say so, and say when they share none any more", async () => {
    const [pod = ""] = await workload(cluster, "shared", 2);
    await waitForEntry(cluster, "shared", "2 available", available(2));
    await createProtector(cluster, "default", "both", {
      minAvailable: 1,
      selector: { matchExpressions: [{ key: "app", operator: "In", values: ["shared", "nothing"] }] },
    });
    await waitForEntry(cluster, "both", "2 available", available(2));
    await setReady(cluster, "default", pod, false);
    await waitForEntry(cluster, "shared", "1 available", available(1));
    const path = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors";
    const conditionOf = async (name: string): Promise<unknown> =>
      items(await cluster.admin.get(`${path}/${name}`).then((found) => field(found, "status")), "conditions").find(
        (condition) => field(condition, "type") === "SharesPods",
      );
    const text = ": a disruption of such a pod needs the quota of each";
    expect(await conditionOf("both")).toMatchObject({ status: "True", message: `Shares pods with shared${text}` });
    expect(await conditionOf("shared")).toMatchObject({ status: "True", message: `Shares pods with both${text}` });
    const followed = (): Promise<number | undefined> => aggregator.metric("podseidon_aggregator_protectors");
    const before = Number(await followed());
    await cluster.admin.call("DELETE", `${path}/both`);
    // It comes by another stream than the pod's change, which may be counted first.
    await expect.poll(followed).toBe(before - 1);
    await setReady(cluster, "default", pod, true);
    await waitForEntry(cluster, "shared", "2 available", available(2));
    expect(await conditionOf("shared")).toMatchObject({ status: "False", reason: "NotShared" });
  });

  test("a pod whose times are out of range leaves the count, and comes back", async () => {
    const [odd = ""] = await workload(cluster, "odd", 2, { minReadySeconds: 1 });
    await waitForEntry(cluster, "odd", "2 available", available(2));
    const path = `/api/v1/namespaces/default/pods/${odd}`;
    // kube-apiserver stores it in UTC, which is in the year 10000.
    const ready = { type: "Ready", status: "True", lastTransitionTime: "9999-12-31T23:59:59-14:00" };
    const patch = (conditions: unknown): Promise<unknown> =>
      cluster.admin.call("PATCH", `${path}/status`, { status: { conditions: [conditions] } });
    await patch(ready);
    expect(JSON.stringify(await cluster.admin.get(path))).toContain("10000-01-01T13:59:59Z");
    const entry = await waitForEntry(cluster, "odd", "1 available", available(1));
    expect(entry.aggregation?.totalReplicas).toBe(2);
    await setReady(cluster, "default", odd, true);
    await waitForEntry(cluster, "odd", "2 available", available(2));
  });

  test("removes the reservation of a deleted pod in the write that counts the pod out", async () => {
    const [victim = ""] = await workload(cluster, "deleted", 2);
    await waitForEntry(cluster, "deleted", "2 available", available(2));
    await admit(cluster, "deleted", [await readPod(cluster, victim)]);
    await remove(cluster, victim);
    const entry = await waitForEntry(cluster, "deleted", "1 available", available(1));
    expect(buckets(entry)).toEqual([]);
  });

  test("removes reservations of deletions that never happened after the settle period, by GET and LIST", async () => {
    const few = await workload(cluster, "few", 1);
    const many = await workload(cluster, "many", 15);
    await waitForEntry(cluster, "few", "1 available", available(1));
    await waitForEntry(cluster, "many", "15 available", available(15));
    const beforeMs = performance.now();
    for (const [name, pods] of [
      ["few", few],
      ["many", many],
    ] as const) {
      await admit(cluster, name, await Promise.all(pods.map((pod) => readPod(cluster, pod))));
    }
    for (const [name, count] of [
      ["few", 1],
      ["many", 15],
    ] as const) {
      const entry = await waitForEntry(cluster, name, "no reservation", (one) => buckets(one).length === 0);
      expect(performance.now() - beforeMs).toBeGreaterThan(3_000);
      expect(entry.aggregation?.availableReplicas).toBe(count);
    }
    expect(
      await aggregator.metric("podseidon_aggregator_evidence_total", { method: "get", found: "alive" }),
    ).toBeGreaterThan(0);
    expect(await aggregator.metric("podseidon_aggregator_evidence_total", { method: "list" })).toBeGreaterThan(0);
  });

  test("settles a change whose image has another name at the runtime by the restart, and not before", async () => {
    const [changed = "", other = ""] = await workload(cluster, "resolved", 2);
    const path = `/api/v1/namespaces/default/pods/${changed}`;
    const containerName = String(field(await cluster.admin.get(path), "spec", "containers", 0, "name"));
    const run = async (observedGeneration: number, containerID: string): Promise<void> => {
      const image = {
        image: "quay.io/library/busybox:2",
        imageID: "sha256:1",
        containerID: `containerd://${containerID}`,
      };
      const running = { name: containerName, ...image, ready: true, restartCount: 0, state: { running: {} } };
      const status = { observedGeneration, containerStatuses: [running] };
      await cluster.admin.call("PATCH", `${path}/status`, { status }, STRATEGIC);
    };
    await run(1, "before");
    await waitForEntry(cluster, "resolved", "2 available", available(2));
    const pod = await readPod(cluster, changed);
    await admit(cluster, "resolved", [pod], { operation: "UPDATE", podGeneration: pod.generation });
    const spec = { containers: [{ name: containerName, image: "busybox:2" }] };
    await cluster.admin.call("PATCH", path, { spec }, STRATEGIC);
    await run(2, "before");
    // A deletion that never happens is settled when a settle period is over. The change is not.
    await admit(cluster, "resolved", [await readPod(cluster, other)]);
    const entry = await waitForEntry(cluster, "resolved", "one reservation", (one) => buckets(one).length === 1);
    expect(buckets(entry)).toMatchObject([{ operation: "UPDATE", podName: changed }]);
    await run(2, "after");
    await waitForEntry(cluster, "resolved", "no reservation", (one) => buckets(one).length === 0);
  });

  test("settles a bucket of upstream without version and operation, and a compacted one", async () => {
    const [pod = ""] = await workload(cluster, "foreign", 2);
    await waitForEntry(cluster, "foreign", "2 available", available(2));
    const { uid, name } = await readPod(cluster, pod);
    const startTime = "2026-01-01T00:00:00.000000Z";
    const plain = { startTime, podUID: uid, podName: name };
    await putBuckets(cluster, "foreign", [plain, { startTime, endTime: startTime, counter: 2 }]);
    await waitForEntry(cluster, "foreign", "no reservation", (one) => buckets(one).length === 0);
    expect((await entryOf(cluster, "foreign"))?.aggregation?.availableReplicas).toBe(2);
  });

  test("counts a pod that matures without an event", async () => {
    await workload(cluster, "maturing", 2, { minReadySeconds: 3 });
    const entry = await waitForEntry(cluster, "maturing", "2 available", available(2));
    expect(entry.aggregation?.maturityCutoff).toBeDefined();
  });

  test("continues after its apiserver was killed and its watches have expired", async () => {
    const pods = await workload(cluster, "surviving", 3);
    await waitForEntry(cluster, "surviving", "3 available", available(3));
    await cluster.processes["kube-apiserver"].kill("SIGKILL");
    await cluster.processes["kube-apiserver"].start();
    await remove(cluster, pods[0] ?? "");
    await waitForEntry(cluster, "surviving", "2 available", available(2));
    await cluster.expireVersions();
    await remove(cluster, pods[1] ?? "");
    const entry = await waitForEntry(cluster, "surviving", "1 available", available(1));
    expect(entry.aggregation).toMatchObject({ epoch: 0 });
    expect(aggregator.process.running).toBe(true);
  });
});

describe("after a restore of etcd", () => {
  test("the aggregator raises the epoch, and holds the cell for a settle period", async () => {
    await using cluster = await startCluster();
    await using _aggregator = await startAggregator(cluster, "aggregator", "--leader-elect=false");
    await workload(cluster, "restored", 3);
    await waitForEntry(cluster, "restored", "3 available", available(3));
    const snapshot = cluster.snapshotEtcd();
    for (let index = 0; index < 30; index++) await setReady(cluster, "default", "restored-0", index % 2 === 1);
    // The aggregator has seen versions that the restored etcd does not have.
    await setReady(cluster, "default", "restored-0", false);
    await waitForEntry(cluster, "restored", "2 available", available(2));
    await setReady(cluster, "default", "restored-0", true);
    await waitForEntry(cluster, "restored", "3 available", available(3));
    await cluster.restoreEtcd(snapshot);
    const held = await waitForEntry(cluster, "restored", "hold", ({ aggregation }) => (aggregation?.epoch ?? 0) > 0);
    expect(held.aggregation?.hold).toBeDefined();
    const free = await waitForEntry(
      cluster,
      "restored",
      "no hold",
      ({ aggregation }) => aggregation?.hold === undefined,
    );
    expect(free.aggregation).toMatchObject({ availableReplicas: 3 });
  });
});

describe("of two replicas", () => {
  // A busy machine may take some seconds for a renewal, and the first one has to lead until it is frozen.
  const election = ["--lease-duration=12s", "--renew-deadline=10s", "--retry-period=500ms"];

  test("the other takes over from a killed leader, and a frozen leader writes nothing when it wakes", async () => {
    await using cluster = await startCluster();
    await using first = await startAggregator(cluster, "first", ...election);
    const pods = await workload(cluster, "led", 3);
    await waitForEntry(cluster, "led", "3 available", available(3));
    await using second = await startAggregator(cluster, "second", ...election);
    expect(await second.metric("podseidon_aggregator_writes_total")).toBe(0);

    first.process.freeze();
    await remove(cluster, pods[0] ?? "");
    await waitForEntry(cluster, "led", "2 available", available(2));
    // The write is counted when its response has come, after the protector shows it.
    await expect.poll(() => second.metric("podseidon_aggregator_writes_total")).toBeGreaterThan(0);
    first.process.thaw();
    await remove(cluster, pods[1] ?? "");
    const entry = await waitForEntry(cluster, "led", "1 available", available(1));
    expect(entry.aggregation).toMatchObject({ epoch: 0 });
    expect(entry.aggregation?.hold).toBeUndefined();

    await second.process.kill("SIGKILL");
    await remove(cluster, pods[2] ?? "");
    await waitForEntry(cluster, "led", "0 available", available(0));
  });
});

async function putBuckets(cluster: Cluster, protector: string, added: readonly unknown[]): Promise<void> {
  const entry = await entryOf(cluster, protector);
  await cluster.admin.call(
    "PATCH",
    `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors/${protector}/status`,
    { status: { cells: [{ ...entry, admissionHistory: { buckets: added } }] } },
  );
}
