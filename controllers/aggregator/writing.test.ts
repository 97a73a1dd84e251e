import { describe, expect, test } from "vitest";
import { COUNTED_CONDITION } from "../../shared/schema/annotations.ts";
import { STALE_AFTER_MS } from "../../shared/schema/podprotector.ts";
import {
  AggregatorHarness,
  bucket,
  counted,
  HEARTBEAT_MS,
  SETTLE_MS,
  weights,
} from "../../test/support/aggregator/aggregator-harness.ts";
import { LATE_MS } from "../../test/support/aggregator/fake-clusters.ts";

describe("writing", () => {
  test("after a conflict the stored object is read and the write repeated at once", async () => {
    const harness = await counted();
    harness.core.streams = false;
    harness.core.edit("p", (object) => ({ ...object, metadata: { ...object.metadata, labels: { x: "y" } } }));
    harness.cell.unready("a");
    await harness.run(20);
    expect(harness.core.reads).toBe(1);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(harness.core.get("p").metadata.labels).toEqual({ x: "y" });
    // What a response has shown, a list of the same core has to contain.
    const known = [1_003, 1_004, 1_005].map((version) => `ns/p ${version}`);
    expect(harness.core.protectors.known).toEqual(known);
  });

  test("a selector that only the read after a conflict has shown waits for its pods", async () => {
    const harness = await counted();
    harness.cell.put("z", { labels: { app: "z" } });
    harness.core.streams = false;
    harness.core.put("p", { selector: { matchLabels: { app: "z" } } });
    harness.cell.unready("a");
    await harness.run(1_000);
    expect(harness.core.reads).toBe(1);
    expect(harness.core.writes).toHaveLength(1);
    harness.core.streams = true;
    harness.core.sync();
    await harness.run(200);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
  });

  test("after many conflicts in a row the write is retried later", async () => {
    const harness = await counted();
    harness.core.script.push(...Array.from({ length: 30 }, () => "conflict" as const));
    harness.cell.unready("a");
    await harness.run(2_000);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
  });

  test("a write whose response is lost is found by a read", async () => {
    const harness = await counted();
    harness.core.streams = false;
    harness.core.script.push("lost");
    harness.cell.unready("a");
    await harness.run(2_000);
    expect(harness.core.writes).toHaveLength(2);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 2, epoch: 0 });
    expect(harness.core.entry("p")?.aggregation?.hold).toBeUndefined();
  });

  test("on a slow core, pods that change all the time leave webhooks the time of two writes", async () => {
    const harness = await counted();
    harness.core.answer = "late";
    const { length: before } = harness.core.writes;
    for (let change = 0; change < 300; change++) {
      harness.cell.put("a", { conditions: [{ type: "Ready", status: change % 2 === 0, sinceMs: 0 }] });
      await harness.run(LATE_MS / 10);
    }
    const times = harness.core.writes.slice(before).map(({ atMs }) => atMs);
    const gaps = times.slice(1).map((atMs, index) => atMs - (times[index] ?? 0));
    expect(gaps.length).toBeGreaterThan(5);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(3 * LATE_MS);
    expect(Math.max(...gaps)).toBeLessThan(4.2 * LATE_MS);
  });

  test("pods that change all the time leave a webhook its turn that is ten times as far from the core", async () => {
    const harness = await counted();
    harness.core.answer = "late";
    harness.core.lateMs = 10;
    let isReady = true;
    const changing = async (ms: number): Promise<void> => {
      for (let passed = 0; passed < ms; passed += 5) {
        isReady = !isReady;
        harness.cell.put("a", { conditions: [{ type: "Ready", status: isReady, sinceMs: 0 }] });
        await harness.run(5);
      }
    };
    let won = 0;
    for (let tries = 0; tries < 50; tries++) {
      const { resourceVersion } = harness.core.get("p").metadata;
      await changing(100);
      if (harness.core.get("p").metadata.resourceVersion === resourceVersion) won++;
      // The answer, and the next read.
      await changing(100);
    }
    expect(won).toBeGreaterThan(3);
  });

  test("pods that change all the time are counted each second, also where the core is far away", async () => {
    const harness = await counted();
    harness.core.answer = "late";
    harness.core.lateMs = 150;
    const { length: before } = harness.core.writes;
    for (let change = 0; change < 600; change++) {
      harness.cell.put("a", { conditions: [{ type: "Ready", status: change % 2 === 0, sinceMs: 0 }] });
      await harness.run(50);
    }
    const times = harness.core.writes.slice(before).map(({ atMs }) => atMs);
    const gaps = times.slice(1).map((atMs, index) => atMs - (times[index] ?? 0));
    // One in eight is longer than the others, of three to four times 150 ms.
    expect(gaps.filter((gapMs) => gapMs > 4.2 * 150).length).toBeGreaterThan(3);
    expect(Math.max(...gaps)).toBeLessThan(1_000);
  });

  test("an outage of the core sees at most ten writes in ten seconds, and the count follows it", async () => {
    const harness = await counted();
    harness.core.answer = "unavailable";
    const before = harness.core.attempts;
    harness.cell.unready("a");
    for (let tenth = 0; tenth < 100; tenth++) {
      harness.cell.put("b", { annotations: { tenth: String(tenth) } });
      await harness.run(100);
    }
    expect(harness.core.attempts - before).toBeLessThanOrEqual(10);
    harness.core.answer = "ok";
    await harness.run(20_000);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
  });

  test("the end of a suspension is written without any other reason", async () => {
    const harness = await counted();
    const until = new Date(harness.time.clock.nowMs() + 5_000).toISOString();
    harness.core.edit("p", (object) => ({
      ...object,
      metadata: { ...object.metadata, generation: (object.metadata.generation ?? 0) + 1 },
      spec: { ...object.spec, suspend: { enabled: true, until } },
    }));
    await harness.run(50);
    const suspended = (): string | undefined =>
      harness.core.get("p").status?.conditions?.find(({ type }) => type === "Suspended")?.status;
    expect(suspended()).toBe("True");
    const writes = harness.core.writes.length;
    await harness.run(4_000);
    expect(suspended()).toBe("True");
    await harness.run(1_500);
    expect(suspended()).toBe("False");
    expect(harness.core.writes.length).toBe(writes + 1);
  });

  test("an immature pod beside a lagging shard is written once, when the shard has caught up", async () => {
    const harness = new AggregatorHarness();
    harness.core.put("p", { minReadySeconds: 600 });
    harness.cell.sync();
    harness.cell.pods.store.advance("100,100");
    await harness.start();
    harness.cell.pods.store.advance("100,100");
    await harness.run(50);
    const sinceMs = harness.time.clock.nowMs();
    harness.cell.put("a", { conditions: [{ type: "Ready", status: true, sinceMs }] });
    harness.cell.pods.store.advance("101,100");
    await harness.run(50);
    const writes = harness.core.writes.length;
    for (let edit = 0; edit < 20; edit++) {
      harness.core.edit("p", (object) => object);
      await harness.run(50);
    }
    expect(harness.core.writes.length).toBe(writes);
    harness.cell.pods.store.advance("101,105");
    await harness.run(500);
    expect(harness.core.writes.length).toBe(writes + 1);
    expect(harness.core.entry("p")?.aggregation?.resourceVersion).toBe("101,105");
  });

  test("a core that hangs does not delay the others", async () => {
    const harness = await counted({ coreNames: ["hanging", "sound"] });
    const [hanging, sound] = harness.cores;
    if (hanging !== undefined) hanging.answer = "hang";
    harness.cell.unready("a");
    await harness.run(50);
    expect(sound?.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(hanging?.entry("p")?.aggregation?.availableReplicas).toBe(3);
  });

  test("writes in flight are bounded, and every protector gets its turn", async () => {
    const harness = new AggregatorHarness({ writeConcurrency: 2 });
    for (let index = 0; index < 10; index++) harness.core.put(`p${index}`);
    harness.core.answer = "hang";
    await harness.start();
    expect(harness.core.attempts).toBe(2);
    harness.core.answer = "ok";
    await harness.run(30_000);
    expect(new Set(harness.core.writes.map(({ name }) => name)).size).toBe(10);
  });

  test("a protector that is created again is counted again", async () => {
    const harness = await counted();
    harness.core.remove("p");
    await harness.run(50);
    harness.core.put("p");
    await harness.run(50);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(3);
  });

  test("in a core that drops positions, upstream's clock rule settles", async () => {
    const harness = new AggregatorHarness();
    harness.core.dropped = ["resourceVersion", "specHash", "maturityCutoff", "epoch"];
    harness.core.put("p");
    harness.cell.putUnseen("a");
    await harness.start();
    expect(harness.events.filter(({ kind }) => kind === "fieldsDropped")).toHaveLength(1);
    harness.cell.put("b");
    await harness.run(4_800);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(1);
    await harness.run(300);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(harness.events.some(({ kind }) => kind === "held")).toBe(false);
  });

  test("once the core keeps positions again, each reservation is settled exactly", async () => {
    const harness = new AggregatorHarness();
    harness.core.dropped = ["resourceVersion", "specHash", "notReady"];
    harness.core.put("p");
    for (const name of ["a", "b"]) harness.cell.putUnseen(name);
    await harness.start();
    const writes = harness.core.attempts;
    await harness.run(2 * HEARTBEAT_MS);
    expect(harness.core.attempts - writes).toBeLessThan(5);
    expect(harness.core.entry("p")?.aggregation?.resourceVersion).toBeUndefined();
    harness.core.dropped = [];
    await harness.run(HEARTBEAT_MS);
    expect(harness.events.filter(({ kind }) => kind === "fieldsKept")).toHaveLength(1);
    harness.cell.unready("a");
    await harness.run(50);
    const { aggregation } = harness.core.entry("p") ?? {};
    expect(aggregation).toMatchObject({ availableReplicas: 1, resourceVersion: harness.cell.pods.position });
    expect(aggregation).not.toHaveProperty("notReady");
    expect(harness.events.some(({ kind }) => kind === "held")).toBe(false);
  });

  test("a field of a newer version, which an older CRD drops, is not missed", async () => {
    const harness = await counted();
    const { aggregation, ...entry } = harness.core.entry("p") ?? { cellID: "cell" };
    const cells = [{ ...entry, aggregation: aggregation && { ...aggregation, newer: 1 } }];
    harness.core.edit("p", ({ status, ...rest }) => ({ ...rest, ...(status && { status: { ...status, cells } }) }));
    harness.core.dropped = ["newer"];
    await harness.run(50);
    harness.cell.unready("a");
    await harness.run(50);
    expect(harness.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 2 });
    expect(harness.core.entry("p")?.aggregation).not.toHaveProperty("newer");
    expect(harness.events.some(({ kind }) => kind === "fieldsDropped")).toBe(false);
  });

  test("a core that drops a newer field is told of, and keeps its positions, until it keeps the field", async () => {
    const harness = await counted();
    harness.core.dropped = ["notReady"];
    const met = (type: string) => ({ type, status: true, sinceMs: 0 });
    const gated = { readinessGates: [COUNTED_CONDITION], waitsForGates: true };
    harness.cell.put("d", { ...gated, conditions: [met("ContainersReady")] });
    await harness.run(50);
    const told = () => harness.events.filter(({ kind }) => kind === "fieldsDropped" || kind === "fieldsKept");
    expect(told()).toEqual([{ kind: "fieldsDropped", core: "core", fields: ["notReady"] }]);
    harness.cell.put("d", { waitsForGates: false, conditions: [met("ContainersReady"), met("Ready")] });
    await harness.run(3 * HEARTBEAT_MS);
    expect(told()).toHaveLength(1);
    expect(harness.core.entry("p")?.aggregation?.resourceVersion).toBe(harness.cell.pods.position);
    harness.core.dropped = [];
    await harness.run(HEARTBEAT_MS);
    expect(told().at(-1)).toEqual({ kind: "fieldsKept", core: "core" });
  });
});

describe("leading", () => {
  test("nothing is written once another process may hold the lease", async () => {
    const harness = await counted();
    harness.isLeader = false;
    harness.cell.unready("a");
    await harness.run(10_000);
    expect(harness.core.writes).toHaveLength(1);
    await harness.loseLeadership();
    await harness.run(HEARTBEAT_MS * 2);
    expect(harness.core.attempts).toBe(1);
  });

  test("a new leader counts everything again and starts the settle periods again", async () => {
    const harness = await counted();
    harness.core.admit("p", "cell", bucket(harness.cell.live.get("a") ?? harness.cell.pod("a")));
    await harness.run(SETTLE_MS - 1_000);
    await harness.loseLeadership();
    harness.cell.unready("b");
    await harness.run(5_000);
    harness.isLeader = true;
    harness.lead();
    await harness.run(1_000);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(weights(harness)).toEqual([1]);
    await harness.run(SETTLE_MS - 2_000);
    expect(harness.cell.gets).toEqual([]);
    await harness.run(2_000);
    expect(harness.settled()).toEqual(["R3"]);
  });

  /** 500 protectors whose leader dies when their heartbeats have spread out, without a change afterwards. */
  async function abandoned(): Promise<AggregatorHarness> {
    const harness = new AggregatorHarness();
    for (let index = 0; index < 500; index++) harness.core.put(`p${index}`);
    await harness.start();
    await harness.run(20 * HEARTBEAT_MS);
    await harness.loseLeadership();
    return harness;
  }

  const stale = (harness: AggregatorHarness) =>
    [...harness.core.objects.values()].filter(({ status }) => {
      const text = status?.cells[0]?.aggregation?.heartbeatTime ?? "";
      return Date.parse(text) < harness.time.clock.nowMs() - STALE_AFTER_MS;
    }).length;

  test("a new leader goes on with the heartbeats where the last one died: none becomes stale", async () => {
    const harness = await abandoned();
    await harness.run(20_000);
    harness.isLeader = true;
    harness.lead();
    let most = 0;
    for (let second = 0; second < HEARTBEAT_MS / 1000; second++) {
      const { length } = harness.core.writes;
      await harness.run(1_000);
      most = Math.max(most, harness.core.writes.length - length);
      expect(stale(harness)).toBe(0);
    }
    // The even pace is five in a second.
    expect(most).toBeLessThan(20);
  });

  test("a leader after long silence writes its heartbeats soon, and not all at once", async () => {
    const harness = await abandoned();
    await harness.run(20 * HEARTBEAT_MS);
    harness.isLeader = true;
    harness.lead();
    const rates: number[] = [];
    while (stale(harness) > 0) {
      const { length } = harness.core.writes;
      await harness.run(1_000);
      rates.push(harness.core.writes.length - length);
    }
    expect(rates.length).toBeLessThanOrEqual(25);
    expect(Math.max(...rates)).toBeLessThan(40);
  });

  test("leadership ends while a write is in flight", async () => {
    const harness = await counted();
    harness.core.answer = "hang";
    harness.cell.unready("a");
    await harness.run(50);
    await harness.loseLeadership();
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(3);
  });
});
