import { describe, expect, test } from "vitest";
import { Metrics } from "../../shared/observe/metrics.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import {
  AggregatorHarness,
  bucket,
  counted,
  SETTLE_MS,
  weights,
} from "../../test/support/aggregator/aggregator-harness.ts";
import { stuckReservations } from "./observe/stuck-reservations.ts";

describe("settling", () => {
  test("R1: one write removes a deleted pod from the count and its reservation from the history", async () => {
    const harness = await counted();
    harness.core.admit("p", "cell", bucket(harness.cell.live.get("a") ?? harness.cell.pod("a")));
    await harness.run(50);
    const writes = harness.core.writes.length;
    harness.cell.put("a", { terminating: true });
    await harness.run(50);
    expect(harness.core.writes).toHaveLength(writes + 1);
    expect(weights(harness)).toEqual([]);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(harness.settled()).toEqual(["R1"]);
  });

  test("a packed history that can't be read is reported once, and counts by its counter", async () => {
    const harness = await counted();
    const metrics = new Metrics();
    stuckReservations(metrics, harness.aggregator, harness.time.clock);
    const shown = async (): Promise<boolean> =>
      (await metrics.render()).body.includes('unreadable_history{core="core",namespace="ns",protector="p"} 1');
    expect(await shown()).toBe(false);
    const [startTime, endTime] = ["2026-05-01T12:00:00Z", "2026-05-01T12:00:01Z"];
    harness.core.admit("p", "cell", { startTime, endTime, counter: 2, packed: "1;not base64 of anything" });
    await harness.run(50);
    harness.cell.put("a", { terminating: true });
    await harness.run(50);
    expect(harness.events.filter(({ kind }) => kind === "corruptHistory")).toEqual([
      { kind: "corruptHistory", id: expect.anything(), buckets: 1 },
    ]);
    expect(await shown()).toBe(true);
    expect(harness.core.get("p").status?.summary).toMatchObject({
      aggregatedAvailableReplicas: 2,
      estimatedAvailableReplicas: 0,
    });
  });

  test("R1: with several shards, the shard of the pod has to be heard", async () => {
    const harness = new AggregatorHarness();
    harness.core.put("p");
    for (const name of ["a", "b"]) harness.cell.putUnseen(name);
    const heard = new Map<string, number>();
    const silent = Number.NEGATIVE_INFINITY;
    Object.assign(harness.cell.pods, { heardMs: silent, heardMsOf: (uid: string) => heard.get(uid) ?? silent });
    await harness.start();
    for (const name of ["a", "b"])
      harness.core.admit("p", "cell", bucket(harness.cell.live.get(name) ?? harness.cell.pod(name), { nonce: name }));
    await harness.run(50);
    heard.set("uid-a", harness.time.clock.monotonicMs());
    for (const name of ["a", "b"]) harness.cell.put(name, { terminating: true });
    await harness.run(50);
    expect(harness.core.entry("p")?.admissionHistory?.buckets?.map(({ podName }) => podName)).toEqual(["b"]);
    harness.confirmNow();
    await harness.run(50);
    expect(weights(harness)).toEqual([]);
  });

  test("R1: settles the reservation of a pod that was relabelled out of the protector", async () => {
    const harness = await counted();
    harness.core.admit(
      "p",
      "cell",
      bucket(harness.cell.live.get("a") ?? harness.cell.pod("a"), { operation: "EVICT" }),
    );
    harness.cell.put("a", { labels: { app: "other" } });
    await harness.run(50);
    expect(weights(harness)).toEqual([0]);
    harness.cell.remove("a");
    await harness.run(50);
    expect(weights(harness)).toEqual([]);
  });

  test("a pod newer than the snapshot has a reservation of weight 0 until the snapshot shows it", async () => {
    const harness = await counted();
    const unseen = harness.cell.putUnseen("new", { labels: { app: "p" } });
    harness.core.admit("p", "cell", bucket(unseen, { operation: "EVICT" }));
    await harness.run(50);
    expect(weights(harness)).toEqual([0]);
    harness.cell.put("new");
    await harness.run(50);
    expect(weights(harness)).toEqual([1]);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(4);
  });

  test("R1: a pod that no event has shown is dead once the position has passed its version", async () => {
    const harness = await counted();
    const unseen = harness.cell.putUnseen("new", { labels: { app: "p" } });
    harness.core.admit("p", "cell", bucket(unseen));
    await harness.run(50);
    expect(weights(harness)).toEqual([0]);
    harness.cell.live.delete("new");
    harness.cell.pods.store.advance(String(harness.cell.version));
    await harness.run(200);
    expect(harness.settled()).toEqual(["R1"]);
    expect(weights(harness)).toEqual([]);
  });

  test("R2: settles the deletion of an older version of the pod", async () => {
    const harness = await counted();
    harness.core.admit("p", "cell", bucket(harness.cell.live.get("a") ?? harness.cell.pod("a")));
    await harness.run(50);
    harness.cell.put("a");
    await harness.run(50);
    expect(harness.settled()).toEqual(["R2"]);
  });

  test("R3: a GET proves a pod alive, not before the settle period has ended", async () => {
    const harness = await counted();
    harness.core.admit("p", "cell", bucket(harness.cell.live.get("a") ?? harness.cell.pod("a")));
    await harness.run(SETTLE_MS - 1_000);
    expect(harness.cell.gets).toEqual([]);
    expect(weights(harness)).toEqual([1]);
    await harness.run(2_000);
    expect(harness.cell.gets).toEqual(["a"]);
    expect(harness.settled()).toEqual(["R3"]);
    expect(weights(harness)).toEqual([]);
  });

  test("R3: one LIST proves many pods alive, once the stream has reached it", async () => {
    const harness = new AggregatorHarness();
    harness.core.put("p");
    const names = Array.from({ length: 30 }, (_, index) => `pod-${index}`);
    for (const name of names) harness.cell.putUnseen(name);
    await harness.start();
    harness.core.admit(
      "p",
      "cell",
      ...names.map((name) => bucket(harness.cell.live.get(name) ?? harness.cell.pod(name))),
    );
    await harness.run(SETTLE_MS + 1_000);
    expect(harness.cell.gets).toEqual([]);
    expect(harness.cell.pods.asked).toBe(1);
    expect(weights(harness)).toHaveLength(30);
    harness.confirmNow();
    await harness.run(50);
    expect(weights(harness)).toEqual([]);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(30);
  });

  test("one LIST serves every waiting protector", async () => {
    const harness = new AggregatorHarness();
    const names = Array.from({ length: 20 }, (_, index) => `p${index}`);
    for (const name of names) {
      harness.core.put(name);
      harness.cell.putUnseen(name, { labels: { app: name } });
    }
    await harness.start();
    for (const name of names)
      harness.core.admit(name, "cell", bucket(harness.cell.live.get(name) ?? harness.cell.pod(name)));
    await harness.run(SETTLE_MS + 1_000);
    expect(harness.cell.pods.asked).toBe(1);
    harness.confirmNow();
    await harness.run(100);
    for (const name of names) expect(harness.core.entry(name)?.admissionHistory?.buckets).toEqual([]);
  });

  test("a GET that finds the pod gone settles nothing until the snapshot shows it", async () => {
    const harness = await counted();
    harness.core.admit("p", "cell", bucket(harness.cell.live.get("a") ?? harness.cell.pod("a")));
    await harness.run(50);
    harness.cell.live.delete("a");
    await harness.run(SETTLE_MS + 1_000);
    expect(harness.cell.gets).toEqual(["a"]);
    expect(weights(harness)).toEqual([1]);
    expect(harness.cell.pods.asked).toBe(1);
    harness.cell.pods.store.remove("ns/a", "uid-a", String(++harness.cell.version));
    await harness.run(50);
    expect(harness.settled()).toEqual(["R1"]);
  });

  test.each<[string, Partial<Pod>]>([
    ["the pod finished", { phase: "Failed" }],
    ["another pod of the name", { uid: "uid-next" }],
  ])("a GET that finds %s settles nothing: the snapshot that has the pod alive counts it", async (_, change) => {
    const harness = await counted();
    const pod = harness.cell.live.get("a") ?? harness.cell.pod("a");
    harness.core.admit("p", "cell", bucket(pod));
    await harness.run(50);
    harness.cell.live.set("a", { ...pod, ...change });
    await harness.run(SETTLE_MS + 1_000);
    expect(harness.cell.gets).toEqual(["a"]);
    expect(weights(harness)).toEqual([1]);
    expect(harness.cell.pods.asked).toBe(1);
    harness.cell.put("a", change);
    await harness.run(50);
    expect(harness.settled()).toEqual(["R1"]);
  });

  test("evidence that does not arrive is requested again, without reconciles in between", async () => {
    const harness = await counted();
    harness.core.admit("p", "cell", { startTime: "2026-01-01T00:00:00Z", endTime: "2026-01-01T00:00:01Z", counter: 2 });
    await harness.run(SETTLE_MS + 100_000);
    expect(harness.cell.pods.asked).toBeGreaterThanOrEqual(3);
    expect(harness.cell.pods.asked).toBeLessThanOrEqual(5);
    harness.confirmNow();
    await harness.run(50);
    expect(weights(harness)).toEqual([]);
  });

  test("a failed write keeps its evidence for the next try", async () => {
    const harness = await counted();
    harness.core.admit("p", "cell", bucket(harness.cell.live.get("a") ?? harness.cell.pod("a")));
    await harness.run(50);
    harness.core.script.push("unavailable", "unavailable");
    await harness.run(SETTLE_MS + 3_000);
    expect(harness.cell.gets).toEqual(["a"]);
    expect(weights(harness)).toEqual([]);
  });

  test("--void-after annotates the pod, and the new version settles the reservation", async () => {
    const harness = await counted({ voidAfterMs: 3_000 });
    harness.core.admit("p", "cell", bucket(harness.cell.live.get("a") ?? harness.cell.pod("a")));
    await harness.run(2_500);
    expect(harness.cell.patches).toEqual([]);
    await harness.run(1_000);
    expect(harness.cell.patches).toHaveLength(1);
    expect(harness.settled()).toEqual(["R2"]);
  });

  test("--void-after waits for a pod that the snapshot lacks without reconciling in a loop", async () => {
    const harness = await counted({ voidAfterMs: 3_000 });
    const unseen = harness.cell.putUnseen("new", { labels: { app: "p" } });
    harness.core.admit("p", "cell", bucket(unseen));
    await harness.run(3_100);
    harness.events.length = 0;
    await harness.run(5_000);
    expect(harness.events.filter(({ kind }) => kind === "reconciled").length).toBeLessThan(10);
    harness.cell.put("new", { resourceVersion: unseen.resourceVersion });
    await harness.run(1_000);
    expect(weights(harness)).toEqual([]);
  });

  test("--void-after annotates four pods at a time, and none once another process may lead", async () => {
    let patches = 0;
    const harness: AggregatorHarness = await counted({
      voidAfterMs: 3_000,
      cellClient: {
        getPod: (...call) => harness.cell.client.getPod(...call),
        patch: () => {
          patches++;
          return new Promise(() => {});
        },
      },
    });
    const names = Array.from({ length: 9 }, (_, index) => `pod-${index}`);
    for (const name of names) harness.core.admit("p", "cell", bucket(harness.cell.put(name), { nonce: name }));
    harness.isLeader = false;
    await harness.run(5_000);
    expect(patches).toBe(0);
    harness.isLeader = true;
    await harness.run(2_000);
    expect(patches).toBe(4);
  });

  test("--void-after annotates more pods than may be patched at once", async () => {
    const harness = await counted({ voidAfterMs: 3_000 });
    const names = Array.from({ length: 9 }, (_, index) => `pod-${index}`);
    for (const name of names) harness.core.admit("p", "cell", bucket(harness.cell.put(name), { nonce: name }));
    await harness.run(10_000);
    expect(harness.cell.patches).toHaveLength(names.length);
    expect(weights(harness)).toEqual([]);
  });
});

describe("upstream's algorithms", () => {
  test("clock: the first event after an admission settles it when the window ends", async () => {
    const harness = await counted({ algorithm: "clock" });
    const atMs = harness.time.clock.nowMs() + 2_000;
    const startTime = new Date(atMs).toISOString();
    harness.core.admit("p", "cell", { startTime, podUID: "uid-a", podName: "a", counter: 1 });
    await harness.run(1_000);
    expect(weights(harness)).toEqual([1]);
    await harness.run(2_000);
    harness.cell.put("b");
    await harness.run(5_050);
    expect(weights(harness)).toEqual([]);
    expect(harness.settled()).toEqual(["Clock"]);
  });

  test("clock: so does an event of a pod that no protector counts", async () => {
    const harness = await counted({ algorithm: "clock" });
    const startTime = new Date(harness.time.clock.nowMs() + 1_000).toISOString();
    harness.core.admit("p", "cell", { startTime, podUID: "uid-a", podName: "a", counter: 1 });
    await harness.run(2_000);
    harness.cell.put("podseidon-update-trigger", { labels: {} });
    await harness.run(1_500);
    expect(weights(harness)).toEqual([1]);
    await harness.run(5_000);
    expect(weights(harness)).toEqual([]);
  });
});
