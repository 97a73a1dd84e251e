import { describe, expect, test } from "vitest";
import type { Ports } from "../../shared/runtime/clock.ts";
import { type CellStatus, STALE_AFTER_MS } from "../../shared/schema/podprotector.ts";
import { formatMs } from "../../shared/schema/time.ts";
import { AggregatorHarness, bucket, counted, HEARTBEAT_MS } from "../../test/support/aggregator/aggregator-harness.ts";
import type { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";

/** The entry of another cell whose aggregator was alive at this time. */
function otherCell(nowMs: number): CellStatus {
  const aggregation = { totalReplicas: 5, availableReplicas: 5, heartbeatTime: formatMs(nowMs) };
  return { cellID: "other", aggregation };
}

/** As on a machine, a timer fires up to a millisecond early, and the clock goes on while the process works. */
function machinePorts(time: VirtualTime): Ports {
  const { random } = time;
  let [instantMs, readMs] = [0, 0];
  const monotonicMs = (): number => {
    readMs = instantMs === time.elapsedMs ? readMs + 0.1 : time.elapsedMs;
    instantMs = time.elapsedMs;
    return readMs;
  };
  const after: Ports["timers"]["after"] = (delayMs, callback) =>
    time.timers.after(Math.max(1, delayMs - random.fraction()), callback);
  return { clock: { ...time.clock, monotonicMs }, timers: { after }, random };
}

describe("counting", () => {
  test("the first reconcile publishes the counts with the position of the snapshot", async () => {
    const harness = await counted();
    expect(harness.core.writes).toHaveLength(1);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({
      availableReplicas: 3,
      totalReplicas: 3,
      resourceVersion: String(harness.cell.version),
    });
    expect(harness.core.get("p").status?.summary).toMatchObject({
      aggregatedAvailableReplicas: 3,
      disruptionsAllowed: 2,
    });
  });

  test.each([0, 1, 2, 3])(
    "a burst that comes %i promises before a count is in it as a whole, or not at all",
    async (hops) => {
      const harness = await counted();
      const { cell, core } = harness;
      const gone = ["a", "b"].map((name) => cell.put(name));
      await harness.run(100);
      const before = core.writes.length;
      core.admit("p", "cell", ...gone.map((pod) => bucket(pod)));
      for (let hop = 0; hop <= hops; hop++) await Promise.resolve();
      // More pods than are applied in one turn, and the deletions that were admitted.
      for (let index = 0; index < 120; index++) cell.put(`other-${index}`, { labels: {} });
      for (const { name } of gone) cell.remove(name);
      await harness.run(1_000);
      const spare = core.writes.slice(before).map(({ status: { cells } }) => {
        const [{ aggregation, admissionHistory } = otherCell(0)] = cells;
        return (aggregation?.availableReplicas ?? 0) - (admissionHistory?.buckets?.length ?? 0);
      });
      expect(new Set(spare)).toEqual(new Set([1]));
    },
  );

  test("says that it has counted once every core has the count of each protector", async () => {
    const none = await new AggregatorHarness({ coreNames: ["east", "west"] }).start();
    expect(none.countedTerms).toBe(1);

    const harness = new AggregatorHarness({ coreNames: ["east", "west"], writeConcurrency: 1 });
    const [east, west] = harness.cores;
    for (const name of ["p", "q"]) east?.put(name);
    east?.script.push("ok", "hang");
    west?.put("p");
    west?.script.push("unavailable");
    await harness.start();
    expect(harness.countedTerms).toBe(0);
    await harness.run(6_000);
    expect(harness.countedTerms).toBe(1);
    await harness.run(2 * HEARTBEAT_MS);
    expect(harness.countedTerms).toBe(1);
  });

  test("a count that is not stored is none: its write fails, or waits for the aggregation rate", async () => {
    const harness = new AggregatorHarness();
    const { core, cell } = harness;
    const told = (): unknown => [harness.countedTerms, core.entry("p")?.aggregation?.availableReplicas];
    const nextTerm = async (change: () => void): Promise<void> => {
      await harness.loseLeadership();
      change();
      harness.isLeader = true;
      harness.lead();
    };
    core.put("p", { admissionHistoryConfig: { aggregationRateMillis: 5_000 } });
    for (const name of ["a", "b", "c"]) cell.put(name);
    await harness.start();
    expect(told()).toEqual([1, 3]);

    await nextTerm(() => cell.remove("a"));
    await harness.run(4_000);
    expect(told()).toEqual([1, 3]);
    await harness.run(2_000);
    expect(told()).toEqual([2, 2]);

    await nextTerm(() => {
      core.answer = "unavailable";
      cell.remove("b");
    });
    await harness.run(10_000);
    expect(told()).toEqual([2, 2]);
    core.answer = "ok";
    await harness.run(60_000);
    expect(told()).toEqual([3, 1]);
  });

  test("a first count waits until its namespace is marked; what was counted before is counted on", async () => {
    let waitMs = 500;
    const asked: string[] = [];
    const marker = {
      firstCountInMs(namespace: string): number {
        asked.push(namespace);
        return waitMs;
      },
      forget: (): void => {},
      stop: async () => {},
    };
    const harness = await counted({ namespaceMarker: async () => marker });
    harness.cell.unready("a");
    await harness.run(2_000);
    expect(harness.core.writes).toEqual([]);
    waitMs = 0;
    await harness.run(1_000);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    waitMs = 500;
    harness.cell.unready("b");
    await harness.run(20);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
    expect(new Set(asked)).toEqual(new Set(["ns"]));
  });

  test("the first pods of a namespace that is new in the cell wait for its mark, too", async () => {
    let waitMs = 500;
    const firstCountInMs = (_: string, hasPods: boolean): number => (hasPods ? waitMs : 0);
    const marker = { firstCountInMs, forget: (): void => {}, stop: async () => {} };
    const harness = new AggregatorHarness({ namespaceMarker: async () => marker });
    harness.core.put("p");
    await harness.start();
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
    harness.cell.put("a");
    await harness.run(2_000);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
    waitMs = 0;
    await harness.run(1_000);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
  });

  test("a protector with other labels than asked for is left as it is, until it has them again", async () => {
    const harness = await counted({ selects: ({ fleet }) => fleet === undefined });
    const label = (labels: Record<string, string>): void => {
      harness.core.edit("p", (object) => ({ ...object, metadata: { ...object.metadata, labels } }));
    };
    label({ fleet: "green" });
    await harness.run(20);
    harness.cell.unready("a");
    await harness.run(2 * HEARTBEAT_MS);
    expect(harness.core.writes).toHaveLength(1);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(3);
    label({});
    await harness.run(20);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(harness.core.entry("p")?.aggregation?.hold).toBeUndefined();
  });

  test("pod changes are published at once, several of them in one write", async () => {
    const harness = await counted();
    harness.cell.unready("a");
    harness.cell.unready("b");
    await harness.run(20);
    expect(harness.core.writes).toHaveLength(2);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
  });

  test("a change that leaves the entry the same is not written", async () => {
    const harness = await counted();
    harness.cell.put("a", { annotations: { x: "y" } });
    harness.core.edit("p", (object) => ({ ...object, metadata: { ...object.metadata, labels: { x: "y" } } }));
    await harness.run(1_000);
    expect(harness.core.writes).toHaveLength(1);
  });

  test("a timer that fires a moment early, as those of Node do, lets no heartbeat fall out", async () => {
    const harness = new AggregatorHarness({ portsIn: machinePorts });
    harness.core.put("p");
    await harness.start();
    await harness.run(100 * HEARTBEAT_MS);
    const times = harness.core.writes.map(({ atMs }) => atMs);
    const gaps = times.slice(1).map((atMs, index) => atMs - (times[index] ?? 0));
    expect(Math.max(...gaps)).toBeLessThan(HEARTBEAT_MS + 1000);
  });

  test("a protector without changes is written once per heartbeat interval", async () => {
    const harness = await counted();
    await harness.run(HEARTBEAT_MS * 10);
    const heartbeats = harness.core.writes.length - 1;
    expect(heartbeats).toBeGreaterThanOrEqual(10);
    expect(heartbeats).toBeLessThanOrEqual(13);
  });

  test("a pod is counted when it matures, without an event", async () => {
    const harness = new AggregatorHarness();
    harness.core.put("p", { minReadySeconds: 30 });
    const nowMs = harness.time.clock.nowMs();
    harness.cell.putUnseen("a", { conditions: [{ type: "Ready", status: true, sinceMs: nowMs }] });
    await harness.start();
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
    await harness.run(29_000);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
    await harness.run(1_500);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
  });

  test("a relabelled pod leaves one protector and joins another", async () => {
    const harness = new AggregatorHarness();
    harness.core.put("p");
    harness.core.put("q");
    harness.cell.putUnseen("a");
    await harness.start();
    harness.cell.put("a", { labels: { app: "q" } });
    await harness.run(50);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
    expect(harness.core.entry("q")?.aggregation?.availableReplicas).toBe(1);
  });

  test("a list that is half applied is not counted", async () => {
    const harness = new AggregatorHarness();
    harness.core.put("p");
    for (let index = 0; index < 300; index++) harness.cell.putUnseen(`pod-${index}`);
    await harness.start();
    for (let index = 0; index < 290; index++) harness.cell.live.delete(`pod-${index}`);
    harness.cell.version++;
    harness.cell.sync();
    harness.core.put("p", { minAvailable: 2 });
    await harness.run(100);
    const counts = harness.core.writes.map(({ status }) => status.summary.aggregatedAvailableReplicas);
    expect(counts).toEqual([300, 10]);
  });

  test("a new selector is counted at once", async () => {
    const harness = await counted();
    harness.cell.put("z", { labels: { app: "z" }, uid: "uid-z" });
    harness.core.put("p", { selector: { matchLabels: { app: "z" } } });
    await harness.run(50);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
  });

  test("a protector with an unreadable selector counts no pods and reports it", async () => {
    const harness = await counted();
    harness.core.put("p", { selector: { matchExpressions: [{ key: "app", operator: "Almost", values: ["p"] }] } });
    await harness.run(50);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
    expect(harness.core.get("p").status?.conditions).toContainEqual(
      expect.objectContaining({ type: "Healthy", status: "False", reason: "InvalidSelector" }),
    );
    await harness.run(60_000);
    expect(harness.events.filter(({ kind }) => kind === "badSelector")).toEqual([
      { kind: "badSelector", id: expect.anything(), problems: ["operator Almost of label app is unknown"] },
    ]);
  });

  describe("aggregationRateMillis", () => {
    const RATE = { admissionHistoryConfig: { aggregationRateMillis: 5_000 } };
    const available = (harness: AggregatorHarness): number | undefined =>
      harness.core.entry("p")?.aggregation?.availableReplicas;

    test("writes the counts of one burst together, a window after its first change", async () => {
      const harness = new AggregatorHarness();
      harness.core.put("p", RATE);
      for (const name of ["a", "b", "c"]) harness.cell.putUnseen(name);
      await harness.start();
      await harness.run(60_000);
      harness.core.streams = false;
      const { length: before } = harness.core.writes;
      harness.cell.unready("a");
      await harness.run(4_000);
      harness.cell.unready("b");
      await harness.run(900);
      expect(harness.core.writes).toHaveLength(before);
      await harness.run(200);
      expect(harness.core.writes).toHaveLength(before + 1);
      expect(available(harness)).toBe(1);
      const wrote = harness.events.findLast((event) => event.kind === "wrote");
      expect(wrote?.latencyMs).toBeGreaterThanOrEqual(5_000);
      harness.cell.unready("c");
      await harness.run(4_900);
      expect(harness.core.writes).toHaveLength(before + 1);
    });

    test("delays no count that rises, no settled reservation and no heartbeat", async () => {
      const harness = new AggregatorHarness();
      harness.core.put("p", { admissionHistoryConfig: { aggregationRateMillis: 1_000_000 } });
      for (const name of ["a", "b"]) harness.cell.putUnseen(name);
      await harness.start();
      harness.cell.put("c");
      await harness.run(50);
      expect(available(harness)).toBe(3);
      const pod = harness.cell.podByUid("uid-c");
      if (pod === undefined) throw new Error("there is a pod c");
      harness.core.admit("p", "cell", bucket(pod));
      await harness.run(50);
      harness.cell.remove("c");
      await harness.run(50);
      expect(harness.core.entry("p")?.admissionHistory?.buckets ?? []).toEqual([]);
      expect(available(harness)).toBe(2);
      harness.cell.unready("a");
      await harness.run(HEARTBEAT_MS);
      expect(available(harness)).toBe(1);
    });

    test.each(["clock", "status"] as const)("is 5 s by default, for everything, under %s", async (algorithm) => {
      const harness = new AggregatorHarness({ algorithm });
      harness.core.put("p");
      for (const name of ["a", "b"]) harness.cell.putUnseen(name);
      await harness.start();
      await harness.run(10_000);
      harness.cell.put("c");
      await harness.run(4_800);
      expect(available(harness)).toBe(2);
      await harness.run(300);
      expect(available(harness)).toBe(3);
    });
  });

  test("a cell without matching pods counts the entry that a webhook has added for it", async () => {
    const harness = new AggregatorHarness();
    const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
    harness.core.put("lonely");
    await harness.start();
    const cellID = harness.core.entry("lonely")?.cellID ?? "";
    harness.core.put("p", {}, { status: { cells: [{ cellID }, otherCell(harness.time.clock.nowMs())], summary } });
    await harness.run(2 * HEARTBEAT_MS);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(0);
  });

  test("a cell that lives reports the moment that another one is stale", async () => {
    const harness = new AggregatorHarness();
    harness.cell.put("a");
    harness.core.put("p");
    await harness.start();
    const status = harness.core.get("p").status;
    const [own] = status?.cells ?? [];
    const heartbeatTime = formatMs(harness.time.clock.nowMs());
    const other = { ...own, cellID: "other", aggregation: own?.aggregation && { ...own.aggregation, heartbeatTime } };
    const cells = [...(status?.cells ?? []), other];
    if (status !== undefined) harness.core.edit("p", (object) => ({ ...object, status: { ...status, cells } }));
    const stale = () => harness.core.get("p").status?.conditions?.find(({ type }) => type === "CellStale")?.status;
    await harness.run(STALE_AFTER_MS - 1_000);
    expect(stale()).toBe("False");
    await harness.run(2_000);
    expect(stale()).toBe("True");
    const written = harness.core.writes.length;
    await harness.run(10_000);
    expect(harness.core.writes).toHaveLength(written);
  });

  test("a cell without matching pods adds no entry where another cell has one", async () => {
    const harness = new AggregatorHarness();
    const summary = { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
    harness.core.put("p", {}, { status: { cells: [{ cellID: "other" }], summary } });
    harness.core.put("lonely");
    await harness.start();
    expect(harness.core.entry("p")).toBeUndefined();
    expect(harness.core.entry("lonely")?.aggregation?.availableReplicas).toBe(0);
    harness.core.edit("p", (object) => ({
      ...object,
      status: { ...object.status, cells: [otherCell(harness.time.clock.nowMs())], summary },
    }));
    await harness.run(3 * HEARTBEAT_MS);
    expect(harness.core.entry("p")).toBeUndefined();
    // The conditions report once that the other cell is dead.
    const stale = harness.core.get("p").status?.conditions?.find(({ type }) => type === "CellStale");
    expect(stale?.status).toBe("True");
    const writes = harness.core.writes.filter(({ name }) => name === "p").length;
    await harness.run(3 * HEARTBEAT_MS);
    expect(harness.core.writes.filter(({ name }) => name === "p")).toHaveLength(writes);
    expect(harness.events).not.toContainEqual(expect.objectContaining({ kind: "fieldsDropped" }));
    harness.cell.put("a");
    await harness.run(50);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
  });
});
