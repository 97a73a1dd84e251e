import { describe, expect, test } from "vitest";
import {
  AggregatorHarness,
  bucket,
  counted,
  HEARTBEAT_MS,
  SETTLE_MS,
  weights,
} from "../../test/support/aggregator/aggregator-harness.ts";

describe("writing", () => {
  test("after a conflict what is stored is read, and the write follows at once", async () => {
    const rig = await counted();
    rig.core.streams = false;
    rig.core.edit("p", (object) => ({ ...object, metadata: { ...object.metadata, labels: { x: "y" } } }));
    rig.cell.unready("a");
    await rig.run(20);
    expect(rig.core.reads).toBe(1);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(rig.core.get("p").metadata.labels).toEqual({ x: "y" });
  });

  test("conflict after conflict is given up for a while, and not forgotten", async () => {
    const rig = await counted();
    rig.core.script.push(...Array.from({ length: 30 }, () => "conflict" as const));
    rig.cell.unready("a");
    await rig.run(2_000);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
  });

  test("a write whose response is lost is found to be made", async () => {
    const rig = await counted();
    rig.core.streams = false;
    rig.core.script.push("lost");
    rig.cell.unready("a");
    await rig.run(2_000);
    expect(rig.core.writes).toHaveLength(2);
    expect(rig.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 2, epoch: 0 });
    expect(rig.core.entry("p")?.aggregation?.hold).toBeUndefined();
  });

  test("an outage of the core is met with at most ten tries in ten seconds, and ends by itself", async () => {
    const rig = await counted();
    rig.core.answer = "unavailable";
    const before = rig.core.attempts;
    rig.cell.unready("a");
    for (let tenth = 0; tenth < 100; tenth++) {
      rig.cell.put("b", { annotations: { tenth: String(tenth) } });
      await rig.run(100);
    }
    expect(rig.core.attempts - before).toBeLessThanOrEqual(10);
    rig.core.answer = "ok";
    await rig.run(20_000);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
  });

  test("a suspension that ends by itself is written without any other reason", async () => {
    const rig = await counted();
    const until = new Date(rig.time.clock.nowMs() + 5_000).toISOString();
    rig.core.edit("p", (object) => ({
      ...object,
      metadata: { ...object.metadata, generation: (object.metadata.generation ?? 0) + 1 },
      spec: { ...object.spec, suspend: { enabled: true, until } },
    }));
    await rig.run(50);
    const suspended = (): string | undefined =>
      rig.core.get("p").status?.conditions?.find(({ type }) => type === "Suspended")?.status;
    expect(suspended()).toBe("True");
    const writes = rig.core.writes.length;
    await rig.run(4_000);
    expect(suspended()).toBe("True");
    await rig.run(1_500);
    expect(suspended()).toBe("False");
    expect(rig.core.writes.length).toBe(writes + 1);
  });

  test("an immature pod beside a shard that is behind is written once that has caught up, and not with each look", async () => {
    const rig = new AggregatorHarness();
    rig.core.put("p", { minReadySeconds: 600 });
    rig.cell.sync();
    rig.cell.pods.store.advance("100,100");
    await rig.start();
    rig.cell.pods.store.advance("100,100");
    await rig.run(50);
    const sinceMs = rig.time.clock.nowMs();
    rig.cell.put("a", { conditions: [{ type: "Ready", status: true, sinceMs }] });
    rig.cell.pods.store.advance("101,100");
    await rig.run(50);
    const writes = rig.core.writes.length;
    for (let edit = 0; edit < 20; edit++) {
      rig.core.edit("p", (object) => object);
      await rig.run(50);
    }
    expect(rig.core.writes.length).toBe(writes);
    rig.cell.pods.store.advance("101,105");
    await rig.run(500);
    expect(rig.core.writes.length).toBe(writes + 1);
    expect(rig.core.entry("p")?.aggregation?.resourceVersion).toBe("101,105");
  });

  test("a core that hangs does not hold up the others", async () => {
    const rig = await counted({ coreNames: ["hanging", "sound"] });
    const [hanging, sound] = rig.cores;
    if (hanging !== undefined) hanging.answer = "hang";
    rig.cell.unready("a");
    await rig.run(50);
    expect(sound?.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(hanging?.entry("p")?.aggregation?.availableReplicas).toBe(3);
  });

  test("at most so many writes are under way at once, and no protector is passed over", async () => {
    const rig = new AggregatorHarness({ writeConcurrency: 2 });
    for (let index = 0; index < 10; index++) rig.core.put(`p${index}`);
    rig.core.answer = "hang";
    await rig.start();
    expect(rig.core.attempts).toBe(2);
    rig.core.answer = "ok";
    await rig.run(30_000);
    expect(new Set(rig.core.writes.map(({ name }) => name)).size).toBe(10);
  });

  test("a protector that is deleted is forgotten, one that is created again is counted afresh and held", async () => {
    const rig = await counted();
    rig.core.remove("p");
    await rig.run(50);
    rig.core.put("p");
    await rig.run(50);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(3);
  });

  test("a core that drops the position is accounted for by upstream's clock rule, and says so", async () => {
    const rig = new AggregatorHarness();
    rig.core.dropped = ["resourceVersion", "specHash", "maturityCutoff", "epoch"];
    rig.core.put("p");
    rig.cell.putUnseen("a");
    await rig.start();
    expect(rig.events.filter(({ kind }) => kind === "fieldsDropped")).toHaveLength(1);
    rig.cell.put("b");
    await rig.run(50);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(rig.events.some(({ kind }) => kind === "held")).toBe(false);
  });
});

describe("leading", () => {
  test("nothing is written once the lease may have passed on", async () => {
    const rig = await counted();
    rig.isLeader = false;
    rig.cell.unready("a");
    await rig.run(10_000);
    expect(rig.core.writes).toHaveLength(1);
    await rig.loseLeadership();
    await rig.run(HEARTBEAT_MS * 2);
    expect(rig.core.attempts).toBe(1);
  });

  test("a new term counts everything again and starts the settle timers anew", async () => {
    const rig = await counted();
    rig.core.admit("p", "cell", bucket(rig.cell.live.get("a") ?? rig.cell.pod("a")));
    await rig.run(SETTLE_MS - 1_000);
    await rig.loseLeadership();
    rig.cell.unready("b");
    await rig.run(5_000);
    rig.isLeader = true;
    rig.lead();
    await rig.run(1_000);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(weights(rig)).toEqual([1]);
    await rig.run(SETTLE_MS - 2_000);
    expect(rig.cell.gets).toEqual([]);
    await rig.run(2_000);
    expect(rig.settled()).toEqual(["R3"]);
  });

  test("a term that ends with a write under way ends", async () => {
    const rig = await counted();
    rig.core.answer = "hang";
    rig.cell.unready("a");
    await rig.run(50);
    await rig.loseLeadership();
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(3);
  });
});
