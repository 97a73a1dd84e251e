import { describe, expect, test } from "vitest";
import {
  AggregatorHarness,
  bucket,
  counted,
  SETTLE_MS,
  weights,
} from "../../test/support/aggregator/aggregator-harness.ts";

describe("settling", () => {
  test("R1: the reservation of a pod that is deleted goes with the count, in one write", async () => {
    const rig = await counted();
    rig.core.admit("p", "cell", bucket(rig.cell.live.get("a") ?? rig.cell.pod("a")));
    await rig.run(50);
    const writes = rig.core.writes.length;
    rig.cell.put("a", { terminating: true });
    await rig.run(50);
    expect(rig.core.writes).toHaveLength(writes + 1);
    expect(weights(rig)).toEqual([]);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(rig.settled()).toEqual(["R1"]);
  });

  test("a packed history that can't be read is reported once, and counts by its counter", async () => {
    const rig = await counted();
    const [startTime, endTime] = ["2026-05-01T12:00:00Z", "2026-05-01T12:00:01Z"];
    rig.core.admit("p", "cell", { startTime, endTime, counter: 2, packed: "1;not base64 of anything" });
    await rig.run(50);
    rig.cell.put("a", { terminating: true });
    await rig.run(50);
    expect(rig.events.filter(({ kind }) => kind === "corruptHistory")).toEqual([
      { kind: "corruptHistory", id: expect.anything(), buckets: 1 },
    ]);
    expect(rig.core.get("p").status?.summary).toMatchObject({
      aggregatedAvailableReplicas: 2,
      estimatedAvailableReplicas: 0,
    });
  });

  test("R1: in shards it is the pod's own that has to be heard, whatever the others are", async () => {
    const rig = new AggregatorHarness();
    rig.core.put("p");
    for (const name of ["a", "b"]) rig.cell.putUnseen(name);
    const heard = new Map<string, number>();
    const silent = Number.NEGATIVE_INFINITY;
    Object.assign(rig.cell.pods, { heardMs: silent, heardMsOf: (uid: string) => heard.get(uid) ?? silent });
    await rig.start();
    for (const name of ["a", "b"])
      rig.core.admit("p", "cell", bucket(rig.cell.live.get(name) ?? rig.cell.pod(name), { nonce: name }));
    await rig.run(50);
    heard.set("uid-a", rig.time.clock.monotonicMs());
    for (const name of ["a", "b"]) rig.cell.put(name, { terminating: true });
    await rig.run(50);
    expect(rig.core.entry("p")?.admissionHistory?.buckets?.map(({ podName }) => podName)).toEqual(["b"]);
    rig.confirmNow();
    await rig.run(50);
    expect(weights(rig)).toEqual([]);
  });

  test("R1: also when the pod was relabelled out of the protector before", async () => {
    const rig = await counted();
    rig.core.admit("p", "cell", bucket(rig.cell.live.get("a") ?? rig.cell.pod("a"), { operation: "EVICT" }));
    rig.cell.put("a", { labels: { app: "other" } });
    await rig.run(50);
    expect(weights(rig)).toEqual([0]);
    rig.cell.remove("a");
    await rig.run(50);
    expect(weights(rig)).toEqual([]);
  });

  test("a pod newer than the snapshot keeps its reservation, at no weight, until the snapshot shows it", async () => {
    const rig = await counted();
    const unseen = rig.cell.putUnseen("new", { labels: { app: "p" } });
    rig.core.admit("p", "cell", bucket(unseen, { operation: "EVICT" }));
    await rig.run(50);
    expect(weights(rig)).toEqual([0]);
    rig.cell.put("new");
    await rig.run(50);
    expect(weights(rig)).toEqual([1]);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(4);
  });

  test("R1: a pod that no event ever shows is dead once the position has passed it", async () => {
    const rig = await counted();
    const unseen = rig.cell.putUnseen("new", { labels: { app: "p" } });
    rig.core.admit("p", "cell", bucket(unseen));
    await rig.run(50);
    expect(weights(rig)).toEqual([0]);
    rig.cell.live.delete("new");
    rig.cell.pods.store.advance(String(rig.cell.version));
    await rig.run(200);
    expect(rig.settled()).toEqual(["R1"]);
    expect(weights(rig)).toEqual([]);
  });

  test("R2: a deletion of an older version of the pod is dropped", async () => {
    const rig = await counted();
    rig.core.admit("p", "cell", bucket(rig.cell.live.get("a") ?? rig.cell.pod("a")));
    await rig.run(50);
    rig.cell.put("a");
    await rig.run(50);
    expect(rig.settled()).toEqual(["R2"]);
  });

  test("R3: a few pods are proven alive by GETs, not before the settle period is over", async () => {
    const rig = await counted();
    rig.core.admit("p", "cell", bucket(rig.cell.live.get("a") ?? rig.cell.pod("a")));
    await rig.run(SETTLE_MS - 1_000);
    expect(rig.cell.gets).toEqual([]);
    expect(weights(rig)).toEqual([1]);
    await rig.run(2_000);
    expect(rig.cell.gets).toEqual(["a"]);
    expect(rig.settled()).toEqual(["R3"]);
    expect(weights(rig)).toEqual([]);
  });

  test("R3: many are proven alive by one LIST, once the stream has reached it", async () => {
    const rig = new AggregatorHarness();
    rig.core.put("p");
    const names = Array.from({ length: 30 }, (_, index) => `pod-${index}`);
    for (const name of names) rig.cell.putUnseen(name);
    await rig.start();
    rig.core.admit("p", "cell", ...names.map((name) => bucket(rig.cell.live.get(name) ?? rig.cell.pod(name))));
    await rig.run(SETTLE_MS + 1_000);
    expect(rig.cell.gets).toEqual([]);
    expect(rig.cell.pods.asked).toBe(1);
    expect(weights(rig)).toHaveLength(30);
    rig.confirmNow();
    await rig.run(50);
    expect(weights(rig)).toEqual([]);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(30);
  });

  test("one LIST serves every protector that waits", async () => {
    const rig = new AggregatorHarness();
    const names = Array.from({ length: 20 }, (_, index) => `p${index}`);
    for (const name of names) {
      rig.core.put(name);
      rig.cell.putUnseen(name, { labels: { app: name } });
    }
    await rig.start();
    for (const name of names) rig.core.admit(name, "cell", bucket(rig.cell.live.get(name) ?? rig.cell.pod(name)));
    await rig.run(SETTLE_MS + 1_000);
    expect(rig.cell.pods.asked).toBe(1);
    rig.confirmNow();
    await rig.run(100);
    for (const name of names) expect(rig.core.entry(name)?.admissionHistory?.buckets).toEqual([]);
  });

  test("a GET that finds the pod gone settles nothing: the snapshot has to show it", async () => {
    const rig = await counted();
    rig.core.admit("p", "cell", bucket(rig.cell.live.get("a") ?? rig.cell.pod("a")));
    await rig.run(50);
    rig.cell.live.delete("a");
    await rig.run(SETTLE_MS + 1_000);
    expect(rig.cell.gets).toEqual(["a"]);
    expect(weights(rig)).toEqual([1]);
    expect(rig.cell.pods.asked).toBe(1);
    rig.cell.pods.store.remove("ns/a", "uid-a", String(++rig.cell.version));
    await rig.run(50);
    expect(rig.settled()).toEqual(["R1"]);
  });

  test("evidence that does not come is asked for again, and nothing is looked at in between", async () => {
    const rig = await counted();
    rig.core.admit("p", "cell", { startTime: "2026-01-01T00:00:00Z", endTime: "2026-01-01T00:00:01Z", counter: 2 });
    await rig.run(SETTLE_MS + 100_000);
    expect(rig.cell.pods.asked).toBeGreaterThanOrEqual(3);
    expect(rig.cell.pods.asked).toBeLessThanOrEqual(5);
    rig.confirmNow();
    await rig.run(50);
    expect(weights(rig)).toEqual([]);
  });

  test("a write that fails keeps the evidence: the next try needs no new one", async () => {
    const rig = await counted();
    rig.core.admit("p", "cell", bucket(rig.cell.live.get("a") ?? rig.cell.pod("a")));
    await rig.run(50);
    rig.core.script.push("unavailable", "unavailable");
    await rig.run(SETTLE_MS + 3_000);
    expect(rig.cell.gets).toEqual(["a"]);
    expect(weights(rig)).toEqual([]);
  });

  test("--void-after annotates the pod, and the new version settles the reservation", async () => {
    const rig = await counted({ voidAfterMs: 3_000 });
    rig.core.admit("p", "cell", bucket(rig.cell.live.get("a") ?? rig.cell.pod("a")));
    await rig.run(2_500);
    expect(rig.cell.patches).toEqual([]);
    await rig.run(1_000);
    expect(rig.cell.patches).toHaveLength(1);
    expect(rig.settled()).toEqual(["R2"]);
  });

  test("--void-after waits calmly for a pod that the snapshot does not have yet", async () => {
    const rig = await counted({ voidAfterMs: 3_000 });
    const unseen = rig.cell.putUnseen("new", { labels: { app: "p" } });
    rig.core.admit("p", "cell", bucket(unseen));
    await rig.run(3_100);
    rig.events.length = 0;
    await rig.run(5_000);
    expect(rig.events.filter(({ kind }) => kind === "reconciled").length).toBeLessThan(10);
    rig.cell.put("new", { resourceVersion: unseen.resourceVersion });
    await rig.run(1_000);
    expect(weights(rig)).toEqual([]);
  });

  test("--void-after annotates more pods than at once, one after the other", async () => {
    const rig = await counted({ voidAfterMs: 3_000 });
    const names = Array.from({ length: 9 }, (_, index) => `pod-${index}`);
    for (const name of names) rig.core.admit("p", "cell", bucket(rig.cell.put(name), { nonce: name }));
    await rig.run(10_000);
    expect(rig.cell.patches).toHaveLength(names.length);
    expect(weights(rig)).toEqual([]);
  });
});

describe("upstream's algorithms", () => {
  test("clock: an admission is dropped by the first event after it", async () => {
    const rig = await counted({ algorithm: "clock" });
    const atMs = rig.time.clock.nowMs() + 2_000;
    const startTime = new Date(atMs).toISOString();
    rig.core.admit("p", "cell", { startTime, podUID: "uid-a", podName: "a", counter: 1 });
    await rig.run(1_000);
    expect(weights(rig)).toEqual([1]);
    await rig.run(2_000);
    rig.cell.put("b");
    await rig.run(50);
    expect(weights(rig)).toEqual([]);
    expect(rig.settled()).toEqual(["Clock"]);
  });

  test("clock: an event of a pod that no protector counts is enough", async () => {
    const rig = await counted({ algorithm: "clock" });
    const startTime = new Date(rig.time.clock.nowMs() + 1_000).toISOString();
    rig.core.admit("p", "cell", { startTime, podUID: "uid-a", podName: "a", counter: 1 });
    await rig.run(2_000);
    rig.cell.put("podseidon-update-trigger", { labels: {} });
    await rig.run(1_500);
    expect(weights(rig)).toEqual([]);
  });
});
