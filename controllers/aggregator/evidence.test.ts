/** What an aggregator asks for before it settles, and which pod and position it compares. */
import { expect, test } from "vitest";
import {
  AggregatorHarness,
  bucket,
  counted,
  SETTLE_MS,
  weights,
} from "../../test/support/aggregator/aggregator-harness.ts";

test("R3: a GET that was sent before a settle period ended proves nothing to its protector", async () => {
  const answers: PromiseWithResolvers<void>[] = [];
  const harness: AggregatorHarness = new AggregatorHarness({
    cellClient: {
      getPod: async (...call) => {
        const answer = Promise.withResolvers<void>();
        answers.push(answer);
        await answer.promise;
        return await harness.cell.client.getPod(...call);
      },
      patch: (...call) => harness.cell.client.patch(...call),
    },
  });
  for (const name of ["p", "q"]) harness.core.put(name, { selector: { matchLabels: { app: "p" } } });
  const pod = harness.cell.putUnseen("a");
  await harness.start();
  harness.core.admit("p", "cell", bucket(pod));
  await harness.run(2_000);
  harness.core.admit("q", "cell", bucket(pod));
  await harness.run(SETTLE_MS + 1_000);
  answers[0]?.resolve();
  await harness.run(50);
  const left = ["p", "q"].map((name) => harness.core.entry(name)?.admissionHistory?.buckets?.length);
  expect(left).toEqual([0, 1]);
});

test("with several shards, a record without a UID compares with the one that lags most", async () => {
  const harness = await counted();
  harness.cell.pods.store.advance("207,205");
  Object.assign(harness.cell.pods, { positionOf: () => "209" });
  const { cell } = harness.aggregator;
  expect([cell.position, cell.positionOf("uid-a"), cell.positionOf(undefined)]).toEqual(["207,205", "209", "205"]);
});

test("another pod of the name is not the one that a record without a UID is about", async () => {
  const { cell } = (await counted()).aggregator;
  const found = ["uid-a", "uid-before"].map((uid) => cell.podByName("ns", "a", (pod) => pod.uid === uid)?.uid);
  expect(found).toEqual(["uid-a", undefined]);
});

test("reconciles do not ask again for evidence that was just asked for", async () => {
  const harness = await counted();
  harness.core.admit("p", "cell", bucket(harness.cell.live.get("a") ?? harness.cell.pod("a")));
  await harness.run(50);
  harness.cell.live.delete("a");
  await harness.run(SETTLE_MS + 1_000);
  harness.cell.put("b");
  await harness.run(50);
  expect([harness.cell.gets, harness.cell.pods.asked]).toEqual([["a"], 1]);
});

test("a resize that the kubelet defers is told once, and keeps its reservation", async () => {
  const harness = await counted();
  const pod = harness.cell.putUnseen("a", { generation: 2 });
  const conditions = [{ type: "PodResizePending", status: "True", reason: "Deferred" }];
  harness.aggregator.cell.changes.see({ spec: { containers: [] }, status: { conditions } }, pod);
  harness.cell.pods.store.upsert("ns/a", pod, pod.resourceVersion);
  harness.core.admit("p", "cell", bucket(pod, { operation: "UPDATE", podGeneration: 1 }));
  await harness.run(50);
  harness.cell.unready("b");
  await harness.run(50);
  expect(harness.events.filter(({ kind }) => kind === "deferred")).toMatchObject([{ podName: "a" }]);
  expect(weights(harness)).toEqual([1]);
});

test("evidence that is needed sooner is asked for sooner", async () => {
  const harness = await counted();
  harness.core.admit("p", "cell", bucket(harness.cell.live.get("a") ?? harness.cell.pod("a")));
  await harness.run(50);
  const put = (change: object) =>
    harness.core.edit("p", (object) => {
      const cells = (object.status?.cells ?? []).map((cell) => {
        return cell.aggregation == null ? cell : { ...cell, aggregation: { ...cell.aggregation, ...change } };
      });
      return object.status === undefined ? object : { ...object, status: { ...object.status, cells } };
    });
  put({ resourceVersion: "5000" });
  await harness.run(50);
  expect(harness.cell.pods.asked).toBe(1);
});

test("a protector that waits for the stream no more, or is gone, is not reconciled as the stream moves", async () => {
  const harness = await counted();
  const moves = async (): Promise<number> => {
    harness.events.length = 0;
    harness.cell.pods.store.advance(String(++harness.cell.version));
    await harness.run(200);
    return harness.events.filter(({ kind }) => kind === "reconciled").length;
  };
  harness.core.admit("p", "cell", bucket(harness.cell.putUnseen("new", { labels: { app: "p" } })));
  await harness.run(50);
  harness.cell.put("new", { terminating: true });
  await harness.run(50);
  expect([weights(harness), await moves()]).toEqual([[], 0]);
  const lagging = harness.cell.putUnseen("newer", { labels: { app: "p" }, resourceVersion: "9000" });
  harness.core.admit("p", "cell", bucket({ ...lagging, resourceVersion: "9000" }));
  await harness.run(50);
  expect(await moves()).toBeGreaterThan(0);
  harness.core.remove("p");
  await harness.run(50);
  expect(await moves()).toBe(0);
  harness.cell.put("newer");
  await harness.run(50);
  expect(harness.events.filter(({ kind }) => kind === "reconciled")).toEqual([]);
});
