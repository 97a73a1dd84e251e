import { describe, expect, test } from "vitest";
import type { Aggregation, PodProtector } from "../../shared/schema/podprotector.ts";
import {
  type AggregatorHarness,
  counted,
  HEARTBEAT_MS,
  SETTLE_MS,
} from "../../test/support/aggregator/aggregator-harness.ts";

describe("lost history", () => {
  test("a position that is newer than the snapshot is not overwritten while the stream may only lag", async () => {
    const rig = await counted();
    rig.core.edit("p", (object) => withAggregation(object, { resourceVersion: "5000", availableReplicas: 1 }));
    rig.cell.unready("a");
    await rig.run(1_000);
    expect(rig.core.entry("p")?.aggregation).toMatchObject({ resourceVersion: "5000", availableReplicas: 1 });
    expect(rig.cell.pods.asked).toBeGreaterThan(0);
    rig.cell.version = 5_001;
    rig.cell.put("a");
    await rig.run(200);
    expect(rig.core.entry("p")?.aggregation).toMatchObject({ resourceVersion: "5002", availableReplicas: 2, epoch: 0 });
  });

  test("a position that is newer than a quorum read means a restored cell: next epoch, and a hold for the settle period", async () => {
    const rig = await counted();
    rig.core.put("q");
    await rig.run(50);
    rig.core.edit("p", (object) => withAggregation(object, { resourceVersion: "5000" }));
    await rig.run(100);
    rig.confirmNow();
    await rig.run(500);
    for (const name of ["p", "q"]) {
      expect(rig.core.entry(name)?.aggregation?.epoch).toBe(1);
      expect(rig.core.entry(name)?.aggregation?.hold).toMatch(/^CellRestored\//);
    }
    await rig.run(SETTLE_MS);
    rig.confirmNow();
    await rig.run(500);
    for (const name of ["p", "q"]) expect(rig.core.entry(name)?.aggregation?.hold).toBeUndefined();
    expect(rig.core.entry("p")?.aggregation?.epoch).toBe(1);
  });

  describe("the update trigger's pod", () => {
    const NAME = "podseidon-update-trigger";
    const annotations = (counter: number, lineage = ""): Record<string, string> => ({
      "podseidon.kubewharf.io/update-trigger-counter": String(counter),
      ...(lineage === "" ? {} : { "podseidon.kubewharf.io/update-trigger-lineage": lineage }),
    });
    const hold = (rig: AggregatorHarness): string | undefined => rig.core.entry("p")?.aggregation?.hold;

    const cases: readonly [string, readonly (readonly [number, string])[], boolean][] = [
      ["counts on", [[8, "1:a"]], false],
      ["is counted on by another process", [[8, "1:a,8:b"]], false],
      ["goes back", [[6, "1:a"]], true],
      ["goes back, where nobody keeps a lineage", [[6, ""]], true],
      ["went back and has passed where it was, while nobody looked", [[20, "1:a,5:a2"]], true],
      ["was made anew by a process without memory", [[1_700_000, "1700000:b"]], false],
    ];
    test.each(cases)("%s", async (_, marks, isRestored) => {
      const rig = await counted();
      rig.cell.put(NAME, { labels: {}, annotations: annotations(7, "1:a") });
      await rig.run(100);
      for (const [counter, lineage] of marks) {
        rig.cell.put(NAME, { labels: {}, annotations: annotations(counter, lineage) });
        await rig.run(100);
      }
      // Nothing is published before a list has shown what there is.
      expect(hold(rig)).toBeUndefined();
      rig.cell.sync();
      await rig.run(100);
      if (isRestored) expect(hold(rig)).toMatch(/^CellRestored\//);
      else expect(hold(rig)).toBeUndefined();
      // The stream may have missed what was written before: what it holds is of both histories.
      expect(rig.cell.pods.distrusted).toBe(isRestored ? 1 : 0);
    });

    test("that was deleted and comes back with an older counter, too", async () => {
      const rig = await counted();
      rig.cell.put(NAME, { labels: {}, annotations: annotations(7) });
      rig.cell.remove(NAME);
      await rig.run(100);
      expect(hold(rig)).toBeUndefined();
      rig.cell.put(NAME, { labels: {}, uid: "another", annotations: annotations(5) });
      await rig.run(4_000);
      expect(hold(rig)).toBeUndefined();
      // The list does not come: the hold is more urgent.
      await rig.run(2_000);
      expect(hold(rig)).toMatch(/^CellRestored\//);
    });

    test("beyond the hold nothing is written from pods that may be of a lost history, until the list is in", async () => {
      const rig = await counted();
      rig.cell.put(NAME, { labels: {}, annotations: annotations(7, "1:a") });
      rig.cell.put(NAME, { labels: {}, annotations: annotations(20, "1:a,5:a2") });
      await rig.run(6_000);
      expect(hold(rig)).toMatch(/^CellRestored\//);
      const before = rig.core.writes.length;
      rig.core.edit("p", (object) => ({ ...object, spec: { ...object.spec, minReadySeconds: 3 } }));
      rig.cell.unready("a");
      await rig.run(2 * HEARTBEAT_MS);
      expect(rig.core.writes.length).toBe(before);
      rig.cell.sync();
      await rig.run(100);
      expect(rig.core.writes.length).toBeGreaterThan(before);
      expect(rig.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 2, epoch: 1 });
    });

    test("of another namespace is nobody's", async () => {
      const rig = await counted({ triggerNamespace: "system" });
      rig.cell.put(NAME, { labels: {}, annotations: annotations(7) });
      rig.cell.put(NAME, { labels: {}, annotations: annotations(5) });
      await rig.run(100);
      expect(hold(rig)).toBeUndefined();
    });
  });

  test("an entry that was removed is put on hold until a settle period is over", async () => {
    const rig = await counted();
    rig.core.edit("p", (object) => ({ ...object, status: { ...object.status, cells: [], summary: summary() } }));
    await rig.run(100);
    expect(rig.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 3, epoch: 1 });
    expect(rig.core.entry("p")?.aggregation?.hold).toMatch(/^Gone\//);
  });

  test("a cell that was removed while nobody led has left its epoch, by which the next leader knows", async () => {
    const rig = await counted();
    rig.core.edit("p", (object) => withAggregation(object, { epoch: 4 }));
    await rig.loseLeadership();
    rig.core.edit("p", (object) => ({
      ...object,
      status: {
        cells: [{ cellID: "cell", aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: 4 } }],
        summary: summary(),
      },
    }));
    rig.isLeader = true;
    rig.lead();
    await rig.run(100);
    rig.confirmNow();
    await rig.run(100);
    expect(rig.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 3, epoch: 5 });
    expect(rig.core.entry("p")?.aggregation?.hold).toMatch(/^CellRemoved\//);
  });

  test("a core that went back is held for every protector", async () => {
    const rig = await counted();
    const old = structuredClone(rig.core.get("p"));
    rig.cell.unready("a");
    await rig.run(50);
    rig.core.restore(new Map([["p", old]]), Number(old.metadata.resourceVersion) + 5);
    rig.aggregator.onProtectorWatch("core", { kind: "versionWentBack", from: "9999", to: "1005" });
    rig.core.sync();
    await rig.run(500);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(rig.core.entry("p")?.aggregation?.epoch).toBeGreaterThan(0);
    expect(rig.core.entry("p")?.aggregation?.hold).toBeDefined();
  });

  test("an epoch of somebody else is adopted only with a quorum list sent after it was seen", async () => {
    const rig = await counted();
    rig.core.edit("p", (object) => withAggregation(object, { epoch: 4 }));
    rig.cell.unready("a");
    await rig.run(500);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(3);
    expect(rig.cell.pods.asked).toBeGreaterThan(0);
    rig.confirmNow();
    await rig.run(100);
    expect(rig.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 2, epoch: 4 });
  });
});

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
