import { describe, expect, test } from "vitest";
import type { CellStatus } from "../../shared/schema/podprotector.ts";
import { formatMs } from "../../shared/schema/time.ts";
import { AggregatorHarness, counted, HEARTBEAT_MS } from "../../test/support/aggregator/aggregator-harness.ts";

/** Of an aggregator that lives at this time. */
function otherCell(nowMs: number): CellStatus {
  const aggregation = { totalReplicas: 5, availableReplicas: 5, heartbeatTime: formatMs(nowMs) };
  return { cellID: "other", aggregation };
}

describe("counting", () => {
  test("the first look publishes the counts with the position of the snapshot", async () => {
    const rig = await counted();
    expect(rig.core.writes).toHaveLength(1);
    expect(rig.core.entry("p")?.aggregation).toMatchObject({
      availableReplicas: 3,
      totalReplicas: 3,
      resourceVersion: String(rig.cell.version),
    });
    expect(rig.core.get("p").status?.summary).toMatchObject({ aggregatedAvailableReplicas: 3, disruptionsAllowed: 2 });
  });

  test("a pod's change is published at once, several together in one write", async () => {
    const rig = await counted();
    rig.cell.unready("a");
    rig.cell.unready("b");
    await rig.run(20);
    expect(rig.core.writes).toHaveLength(2);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
  });

  test("a change that changes nothing is not written", async () => {
    const rig = await counted();
    rig.cell.put("a", { annotations: { x: "y" } });
    rig.core.edit("p", (object) => ({ ...object, metadata: { ...object.metadata, labels: { x: "y" } } }));
    await rig.run(1_000);
    expect(rig.core.writes).toHaveLength(1);
  });

  test("a quiet protector is written once in each heartbeat interval", async () => {
    const rig = await counted();
    await rig.run(HEARTBEAT_MS * 10);
    const heartbeats = rig.core.writes.length - 1;
    expect(heartbeats).toBeGreaterThanOrEqual(10);
    expect(heartbeats).toBeLessThanOrEqual(13);
  });

  test("a pod that matures is counted at that time, without an event", async () => {
    const rig = new AggregatorHarness();
    rig.core.put("p", { minReadySeconds: 30 });
    const nowMs = rig.time.clock.nowMs();
    rig.cell.putUnseen("a", { conditions: [{ type: "Ready", status: true, sinceMs: nowMs }] });
    await rig.start();
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
    await rig.run(29_000);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
    await rig.run(1_500);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
  });

  test("a pod that is relabelled leaves one protector and joins another", async () => {
    const rig = new AggregatorHarness();
    rig.core.put("p");
    rig.core.put("q");
    rig.cell.putUnseen("a");
    await rig.start();
    rig.cell.put("a", { labels: { app: "q" } });
    await rig.run(50);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
    expect(rig.core.entry("q")?.aggregation?.availableReplicas).toBe(1);
  });

  test("a new selector is counted at once", async () => {
    const rig = await counted();
    rig.cell.put("z", { labels: { app: "z" }, uid: "uid-z" });
    rig.core.put("p", { selector: { matchLabels: { app: "z" } } });
    await rig.run(50);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
  });

  test("a selector that can't be read counts nothing and is reported", async () => {
    const rig = await counted();
    rig.core.put("p", { selector: { matchExpressions: [{ key: "app", operator: "Almost", values: ["p"] }] } });
    await rig.run(50);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
    expect(rig.core.get("p").status?.conditions).toContainEqual(
      expect.objectContaining({ type: "Healthy", status: "False", reason: "InvalidSelector" }),
    );
    await rig.run(60_000);
    expect(rig.events.filter(({ kind }) => kind === "badSelector")).toEqual([
      { kind: "badSelector", id: expect.anything(), problems: ["operator Almost of label app is unknown"] },
    ]);
  });

  test("aggregationRateMillis spaces the writes, and none is forgotten", async () => {
    const rig = new AggregatorHarness();
    rig.core.put("p", { admissionHistoryConfig: { aggregationRateMillis: 5_000 } });
    for (const name of ["a", "b"]) rig.cell.putUnseen(name);
    await rig.start();
    rig.cell.unready("a");
    await rig.run(1_000);
    expect(rig.core.writes).toHaveLength(1);
    rig.cell.unready("b");
    await rig.run(4_500);
    expect(rig.core.writes).toHaveLength(2);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
  });

  test("a cell without a matching pod counts an entry of its own that is there already, as a webhook can leave it", async () => {
    const rig = new AggregatorHarness();
    const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
    rig.core.put("lonely");
    await rig.start();
    const cellID = rig.core.entry("lonely")?.cellID ?? "";
    rig.core.put("p", {}, { status: { cells: [{ cellID }, otherCell(rig.time.clock.nowMs())], summary } });
    await rig.run(2 * HEARTBEAT_MS);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
  });

  test("a cell without a matching pod adds no entry where another cell has one", async () => {
    const rig = new AggregatorHarness();
    const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
    rig.core.put("p", {}, { status: { cells: [{ cellID: "other" }], summary } });
    rig.core.put("lonely");
    await rig.start();
    expect(rig.core.entry("p")).toBeUndefined();
    expect(rig.core.entry("lonely")?.aggregation?.availableReplicas).toBe(0);
    rig.core.edit("p", (object) => ({
      ...object,
      status: { ...object.status, cells: [otherCell(rig.time.clock.nowMs())], summary },
    }));
    await rig.run(3 * HEARTBEAT_MS);
    expect(rig.core.entry("p")).toBeUndefined();
    // That the other one is dead is said all the same, once.
    const stale = rig.core.get("p").status?.conditions?.find(({ type }) => type === "CellStale");
    expect(stale?.status).toBe("True");
    const writes = rig.core.writes.filter(({ name }) => name === "p").length;
    await rig.run(3 * HEARTBEAT_MS);
    expect(rig.core.writes.filter(({ name }) => name === "p")).toHaveLength(writes);
    expect(rig.events).not.toContainEqual(expect.objectContaining({ kind: "fieldsDropped" }));
    rig.cell.put("a");
    await rig.run(50);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
  });
});
