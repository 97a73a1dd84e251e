import { describe, expect, test } from "vitest";
import type { Aggregation, PodProtector } from "../../shared/schema/podprotector.ts";
import { counted, SETTLE_MS } from "../../test/support/aggregator-rig.ts";

describe("lost history", () => {
  test("a position that is newer than the snapshot is not overwritten while the stream may only lag", async () => {
    const rig = await counted();
    rig.core.edit("p", (object) => withAggregation(object, { resourceVersion: "5000", availableReplicas: 1 }));
    rig.cell.unready("a");
    await rig.run(1_000);
    expect(rig.core.entry("p")?.aggregation).toMatchObject({ resourceVersion: "5000", availableReplicas: 1 });
    expect(rig.cell.source.asked).toBeGreaterThan(0);
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

  test("the update trigger's counter that goes back means the same", async () => {
    const rig = await counted();
    const trigger = (counter: number): void => {
      rig.cell.put("podseidon-update-trigger", {
        labels: {},
        annotations: { "podseidon.kubewharf.io/update-trigger-counter": String(counter) },
      });
    };
    trigger(7);
    trigger(8);
    await rig.run(100);
    expect(rig.core.entry("p")?.aggregation?.hold).toBeUndefined();
    trigger(7);
    await rig.run(100);
    expect(rig.core.entry("p")?.aggregation?.hold).toMatch(/^CellRestored\//);
  });

  test("an entry that was removed is put on hold until a settle period is over", async () => {
    const rig = await counted();
    rig.core.edit("p", (object) => ({ ...object, status: { ...object.status, cells: [], summary: summary() } }));
    await rig.run(100);
    expect(rig.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 3, epoch: 1 });
    expect(rig.core.entry("p")?.aggregation?.hold).toMatch(/^Gone\//);
  });

  test("a core that went back is held for every protector", async () => {
    const rig = await counted();
    const old = structuredClone(rig.core.get("p"));
    rig.cell.unready("a");
    await rig.run(50);
    rig.core.restore(new Map([["p", old]]), Number(old.metadata.resourceVersion) + 5);
    rig.aggregator.protectorsWatched("core", { kind: "versionWentBack", from: "9999", to: "1005" });
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
    expect(rig.cell.source.asked).toBeGreaterThan(0);
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
