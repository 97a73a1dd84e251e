import { describe, expect, test, vi } from "vitest";
import type { Aggregation, PodProtector } from "../../shared/schema/podprotector.ts";
import {
  AggregatorHarness,
  counted,
  HEARTBEAT_MS,
  SETTLE_MS,
} from "../../test/support/aggregator/aggregator-harness.ts";

describe("lost history", () => {
  test("a stored position newer than the snapshot is not overwritten while the stream may only lag", async () => {
    const harness = await counted();
    // Not even the conditions of another generation of the spec are written with such a snapshot.
    harness.core.edit("p", (object) => ({
      ...withAggregation(object, { resourceVersion: "5000", availableReplicas: 1 }),
      metadata: { ...object.metadata, generation: 2 },
    }));
    harness.cell.unready("a");
    await harness.run(1_000);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({ resourceVersion: "5000", availableReplicas: 1 });
    expect(harness.cell.pods.asked).toBeGreaterThan(0);
    // Nor has the next term counted.
    await harness.loseLeadership();
    harness.isLeader = true;
    harness.lead();
    await harness.run(1_000);
    expect(harness.countedTerms).toBe(1);
    harness.cell.version = 5_001;
    harness.cell.put("a");
    await harness.run(200);
    expect(harness.countedTerms).toBe(2);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({
      resourceVersion: "5002",
      availableReplicas: 2,
      epoch: 0,
    });
  });

  test("a stored position newer than a quorum read is a restore: next epoch, hold for a settle period", async () => {
    const harness = await counted();
    harness.core.put("q");
    await harness.run(50);
    const confirmEarlier = earlierRead(harness);
    await harness.run(50);
    harness.core.edit("p", (object) => withAggregation(object, { resourceVersion: "5000" }));
    await harness.run(100);
    confirmEarlier();
    harness.cell.unready("b");
    await harness.run(100);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({ resourceVersion: "5000", epoch: 0 });
    const confirm = earlierRead(harness);
    await harness.run(100);
    confirm();
    await harness.run(500);
    for (const name of ["p", "q"]) {
      expect(harness.core.entry(name)?.aggregation?.epoch).toBe(1);
      expect(harness.core.entry(name)?.aggregation?.hold).toMatch(/^CellRestored\//);
    }
    await harness.run(SETTLE_MS);
    harness.confirmNow();
    await harness.run(500);
    for (const name of ["p", "q"]) expect(harness.core.entry(name)?.aggregation?.hold).toBeUndefined();
    expect(harness.core.entry("p")?.aggregation?.epoch).toBe(1);
  });

  describe("the update trigger's pod", () => {
    const NAME = "podseidon-update-trigger";
    const annotations = (counter: number, lineage = ""): Record<string, string> => ({
      "podseidon.kubewharf.io/update-trigger-counter": String(counter),
      ...(lineage === "" ? {} : { "podseidon.kubewharf.io/update-trigger-lineage": lineage }),
    });
    const hold = (harness: AggregatorHarness): string | undefined => harness.core.entry("p")?.aggregation?.hold;

    const cases: readonly [string, readonly (readonly [number, string])[], boolean][] = [
      ["goes on counting", [[8, "1:a"]], false],
      ["goes on counting from another process", [[8, "1:a,8:b"]], false],
      ["goes back", [[6, "1:a"]], true],
      ["goes back, without a lineage", [[6, ""]], true],
      ["went back and passed its old value unseen", [[20, "1:a,5:a2"]], true],
      ["was created again by a process without memory", [[1_700_000, "1700000:b"]], false],
    ];
    test.each(cases)("%s", async (_, marks, isRestored) => {
      const harness = await counted();
      harness.cell.put(NAME, { labels: {}, annotations: annotations(7, "1:a") });
      await harness.run(100);
      for (const [counter, lineage] of marks) {
        harness.cell.put(NAME, { labels: {}, annotations: annotations(counter, lineage) });
        await harness.run(100);
      }
      // Nothing is published before the relist.
      expect(hold(harness)).toBeUndefined();
      harness.cell.sync();
      await harness.run(100);
      if (isRestored) expect(hold(harness)).toMatch(/^CellRestored\//);
      else expect(hold(harness)).toBeUndefined();
      // The stream may have missed writes of either history, so the snapshot mixes both.
      expect(harness.cell.pods.distrusted).toBe(isRestored ? 1 : 0);
    });

    test("was deleted and comes back with an older counter", async () => {
      const harness = await counted();
      harness.cell.put(NAME, { labels: {}, annotations: annotations(7) });
      harness.cell.remove(NAME);
      await harness.run(100);
      expect(hold(harness)).toBeUndefined();
      harness.cell.put(NAME, { labels: {}, uid: "another", annotations: annotations(5) });
      await harness.run(4_000);
      expect(hold(harness)).toBeUndefined();
      // The list does not arrive, and the hold does not wait for it.
      await harness.run(2_000);
      expect(hold(harness)).toMatch(/^CellRestored\//);
    });

    test("makes pods doubtful: until the relist, only the hold is written", async () => {
      const harness = await counted();
      harness.cell.put(NAME, { labels: {}, annotations: annotations(7, "1:a") });
      harness.cell.put(NAME, { labels: {}, annotations: annotations(20, "1:a,5:a2") });
      await harness.run(6_000);
      expect(hold(harness)).toMatch(/^CellRestored\//);
      const before = harness.core.writes.length;
      harness.core.edit("p", (object) => ({ ...object, spec: { ...object.spec, minReadySeconds: 3 } }));
      harness.cell.unready("a");
      await harness.run(2 * HEARTBEAT_MS);
      expect(harness.core.writes.length).toBe(before);
      harness.cell.sync();
      await harness.run(100);
      expect(harness.core.writes.length).toBeGreaterThan(before);
      expect(harness.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 2, epoch: 1 });
    });

    test("is no second sign of a restore that the stream has shown, until the relist", async () => {
      const harness = await counted();
      const restores = (): number => harness.events.filter(({ kind }) => kind === "cellRestored").length;
      harness.cell.put(NAME, { labels: {}, annotations: annotations(7, "1:a") });
      harness.aggregator.onPodWatch({ kind: "versionWentBack", from: "100", to: "50" });
      harness.cell.put(NAME, { labels: {}, annotations: annotations(6, "1:a") });
      expect(restores()).toBe(1);
      harness.cell.sync();
      harness.cell.put(NAME, { labels: {}, annotations: annotations(5, "1:a") });
      expect(restores()).toBe(2);
    });

    test("makes no count of a relist that is applied in part", async () => {
      const harness = await counted();
      harness.cell.put(NAME, { labels: {}, annotations: annotations(7, "1:a") });
      harness.cell.put(NAME, { labels: {}, annotations: annotations(20, "1:a,5:a2") });
      await harness.run(1_000);
      for (let index = 0; index < 300; index++) harness.cell.putUnseen(`x${index}`);
      harness.cell.sync();
      await harness.run(1_000);
      const counts = harness.core.writes.map(({ status }) => status.cells[0]?.aggregation?.totalReplicas);
      expect(counts).toEqual([3, 303]);
    });

    test("a protector that is deleted before the relist is written no more", async () => {
      const harness = await counted();
      harness.cell.put(NAME, { labels: {}, annotations: annotations(7, "1:a") });
      harness.cell.put(NAME, { labels: {}, annotations: annotations(20, "1:a,5:a2") });
      await harness.run(1_000);
      const { attempts } = harness.core;
      harness.core.remove("p");
      await harness.run(10_000);
      expect(harness.core.attempts).toBe(attempts);
    });

    test("is ignored in another namespace", async () => {
      const harness = await counted({ triggerNamespace: "system" });
      harness.cell.put(NAME, { labels: {}, annotations: annotations(7) });
      harness.cell.put(NAME, { labels: {}, annotations: annotations(5) });
      await harness.run(100);
      expect(hold(harness)).toBeUndefined();
    });
  });

  test.each([
    ["that this leader has written", false],
    ["that this leader has only read", true],
  ])("an entry %s and that was removed comes back on hold", async (_, isNew) => {
    const harness = await counted();
    if (isNew) {
      await harness.loseLeadership();
      harness.isLeader = true;
      harness.lead();
      await harness.run(50);
      expect(harness.core.writes).toHaveLength(1);
    }
    harness.core.edit("p", (object) => ({ ...object, status: { ...object.status, cells: [], summary: summary() } }));
    await harness.run(100);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 3, epoch: 1 });
    expect(harness.core.entry("p")?.aggregation?.hold).toMatch(/^Gone\//);
  });

  test("an entry that was removed without a leader leaves its epoch, and the next leader holds the cell", async () => {
    const harness = await counted();
    harness.core.edit("p", (object) => withAggregation(object, { epoch: 4 }));
    await harness.loseLeadership();
    harness.core.edit("p", (object) => ({
      ...object,
      status: {
        cells: [{ cellID: "cell", aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: 4 } }],
        summary: summary(),
      },
    }));
    harness.isLeader = true;
    harness.lead();
    await harness.run(100);
    harness.confirmNow();
    await harness.run(100);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 3, epoch: 5 });
    expect(harness.core.entry("p")?.aggregation?.hold).toMatch(/^CellRemoved\//);
  });

  test("after a restore of the core every protector is on hold", async () => {
    const harness = await counted();
    const old = structuredClone(harness.core.get("p"));
    harness.cell.unready("a");
    await harness.run(50);
    harness.core.restore(new Map([["p", old]]), Number(old.metadata.resourceVersion) + 5);
    harness.aggregator.onProtectorWatch("core", { kind: "versionWentBack", from: "9999", to: "1005" });
    harness.core.sync();
    await harness.run(500);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(harness.core.entry("p")?.aggregation?.epoch).toBeGreaterThan(0);
    expect(harness.core.entry("p")?.aggregation?.hold).toBeDefined();
  });

  test("after a restore of the core, no version that this process has written before is believed", async () => {
    const harness = await counted();
    const before = new Map(harness.core.objects);
    harness.core.streams = false;
    harness.cell.unready("a");
    await harness.run(50);
    harness.core.restore(before, 1_500);
    const { attempts } = harness.core;
    harness.aggregator.coreRestored("core");
    await harness.run(50);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 2, epoch: 1 });
    expect(harness.core.attempts).toBe(attempts + 1);
  });

  test("a restore that is noticed while a write is in flight is answered by the next write", async () => {
    const harness = await counted();
    harness.core.script.push("late");
    harness.cell.unready("a");
    await harness.run(20);
    harness.aggregator.coreRestored("core");
    await harness.run(3_000);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(harness.core.entry("p")?.aggregation?.hold).toMatch(/^CoreRestored\//);
  });

  test("a protector that is created again while a conflict is resolved is on hold", async () => {
    const harness = await counted();
    harness.core.script.push(...Array.from({ length: 5 }, () => "conflict" as const));
    harness.cell.unready("a");
    while (harness.core.attempts < 5) await harness.run(1);
    harness.core.remove("p");
    // The read after the conflict finds the new protector before the watch delivers it.
    harness.core.streams = false;
    harness.core.put("p");
    await harness.run(100);
    harness.core.streams = true;
    harness.core.sync();
    await harness.run(500);
    expect(harness.core.entry("p")?.aggregation?.hold).toMatch(/^Recreated\//);
  });

  test("another writer's epoch is adopted with a quorum list that was sent after it was seen", async () => {
    const harness = await counted();
    const confirmEarlier = earlierRead(harness);
    await harness.run(50);
    harness.core.edit("p", (object) => withAggregation(object, { epoch: 4 }));
    harness.cell.unready("a");
    await harness.run(500);
    confirmEarlier();
    harness.cell.unready("b");
    await harness.run(100);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(3);
    expect(harness.cell.pods.asked).toBeGreaterThan(0);
    // Of an epoch after the next one, this read says nothing either.
    const confirmBetween = earlierRead(harness);
    await harness.run(50);
    harness.core.edit("p", (object) => withAggregation(object, { epoch: 5 }));
    await harness.run(50);
    confirmBetween();
    await harness.run(100);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(3);
    const confirm = earlierRead(harness);
    await harness.run(100);
    confirm();
    await harness.run(100);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 1, epoch: 5 });
  });

  test.each<[string, Partial<Aggregation>]>([
    ["epoch", { epoch: 3 }],
    ["position", { resourceVersion: "50" }],
  ])("an entry of a raised epoch whose %s goes back is on hold", async (_, change) => {
    const harness = await counted();
    harness.core.edit("p", (object) => withAggregation(object, { epoch: 4 }));
    await harness.run(50);
    harness.confirmNow();
    harness.cell.unready("a");
    await harness.run(50);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 2, epoch: 4 });
    harness.core.edit("p", (object) => withAggregation(object, change));
    await harness.run(50);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({ epoch: 5, hold: expect.stringMatching(/^Behind\//) });
  });

  test("each successor of several deleted protectors is on hold, within some settle periods", async () => {
    const harness = new AggregatorHarness();
    const names = ["first", "second", "third"];
    for (const name of names) harness.core.put(name);
    await harness.start();
    for (const name of names.slice(0, 2)) harness.core.remove(name);
    await harness.run(50);
    harness.core.put("first");
    await harness.run(50);
    expect(harness.core.entry("first")?.aggregation?.hold).toMatch(/^Recreated\//);
    await harness.run(5 * SETTLE_MS);
    harness.core.remove("third");
    harness.core.put("second");
    await harness.run(50);
    expect(harness.core.entry("second")?.aggregation?.hold).toBeUndefined();
  });

  test("the deletion of many protectors does not look at all that were deleted before, for each of them", async () => {
    const harness = new AggregatorHarness();
    const names = Array.from({ length: 300 }, (_, index) => `p${index}`);
    for (const name of names) harness.core.put(name);
    await harness.start();
    await harness.run(1_000);
    const entriesOf = Map.prototype.entries;
    let steps = 0;
    const spy = vi.spyOn(Map.prototype, Symbol.iterator).mockImplementation(function* (this: Map<unknown, unknown>) {
      for (const entry of { [Symbol.iterator]: () => entriesOf.call(this) }) {
        steps++;
        yield entry;
      }
      return undefined;
    });
    for (const name of names) harness.core.remove(name);
    spy.mockRestore();
    // Each of 300 with those before it would be 45,000.
    expect(steps).toBeLessThan(3_000);
  });
});

/** Sends a quorum read now. The result says that the stream has reached it. */
function earlierRead(harness: AggregatorHarness): () => void {
  const sentMs = harness.time.clock.monotonicMs();
  return () => harness.cell.pods.confirm(sentMs);
}

function summary(): { totalReplicas: number; aggregatedAvailableReplicas: number; estimatedAvailableReplicas: number } {
  return { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
}

function withAggregation(object: PodProtector, change: Partial<Aggregation>): PodProtector {
  const cells = (object.status?.cells ?? []).map((cell) => ({
    ...cell,
    aggregation: { totalReplicas: 0, availableReplicas: 0, ...cell.aggregation, ...change },
  }));
  return { ...object, status: { ...(object.status ?? { summary: summary() }), cells } };
}
