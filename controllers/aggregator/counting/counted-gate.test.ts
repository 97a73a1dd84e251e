import { describe, expect, test, vi } from "vitest";
import { COUNTED_CONDITION } from "../../../shared/schema/annotations.ts";
import type { Pod, PodCondition } from "../../../shared/schema/pod.ts";
import {
  AggregatorHarness,
  type AggregatorHarnessOptions,
} from "../../../test/support/aggregator/aggregator-harness.ts";

const BOUND_MS = 30_000;

function condition(type: string, status: boolean): PodCondition {
  return { type, status, sinceMs: 1_000 };
}

/** A pod with the gate that is otherwise ready. */
function gated(ready = true, counted = false, more: Partial<Pod> = {}): Partial<Pod> {
  return {
    readinessGates: [COUNTED_CONDITION],
    waitsForGates: ready && !counted,
    conditions: [
      condition("ContainersReady", ready),
      condition("Ready", ready && counted),
      ...(counted ? [condition(COUNTED_CONDITION, true)] : []),
    ],
    ...more,
  };
}

interface GateHarness extends AggregatorHarness {
  /** Pods whose gates were opened, with the reason, in order. */
  opened(): string[];
}

async function start(options: AggregatorHarnessOptions = {}, protector = true): Promise<GateHarness> {
  const harness = new AggregatorHarness({ gateBoundMs: BOUND_MS, ...options });
  if (protector) for (const core of harness.cores) core.put("p");
  harness.cell.putUnseen("old");
  await harness.start();
  const opened = (): string[] =>
    harness.cell.patches.map(({ path, body }) => {
      const [one] = Object(body).status.conditions;
      expect(one).toMatchObject({ type: COUNTED_CONDITION, status: "True" });
      return `${path.split("/").at(-2) ?? ""} ${one.reason}`;
    });
  return Object.assign(harness, { opened });
}

describe("the counted gate", () => {
  test("opens once the count that contains the pod is stored, and not before", async () => {
    const harness = await start();
    harness.core.answer = "hang";
    harness.cell.put("new", gated());
    await harness.run(1_000);
    expect(harness.opened()).toEqual([]);
    harness.core.answer = "ok";
    await harness.run(10_000);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(harness.opened()).toEqual(["new Counted"]);
    expect(harness.events.filter(({ kind }) => kind === "gateOpened")).toMatchObject([
      { podName: "new", reason: "Counted" },
    ]);
  });

  test("waits for the next count where the pod came while one was being written", async () => {
    const harness = await start();
    harness.core.script.push("late", "hang");
    harness.cell.put("other");
    await harness.run(500);
    harness.cell.put("new", gated());
    await harness.run(2_000);
    expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(harness.opened()).toEqual([]);
  });

  test("opens with the response to the write, where the watch of the core lags", async () => {
    const harness = await start();
    harness.core.streams = false;
    harness.cell.put("new", gated());
    await harness.run(100);
    expect(harness.opened()).toEqual(["new Counted"]);
  });

  test("stays closed until the pod's containers and other gates are ready", async () => {
    const harness = await start();
    harness.cell.put("new", gated(false));
    harness.cell.put("other", { ...gated(), readinessGates: [COUNTED_CONDITION, "example.com/warm"] });
    await harness.run(1_000);
    expect(harness.opened()).toEqual([]);
    harness.cell.put("new", gated());
    await harness.run(100);
    expect(harness.opened()).toEqual(["new Counted"]);
  });

  test("opens when the stored number stays the same, because another pod was deleted at the same moment", async () => {
    const harness = await start();
    harness.cell.put("new", gated());
    harness.cell.remove("old");
    await harness.run(100);
    expect(harness.opened()).toEqual(["new Counted"]);
  });

  test("stays closed while the stored count is of a later snapshot, which may lack the pod", async () => {
    const harness = await start();
    harness.core.edit("p", (object) => {
      const cells = (object.status?.cells ?? []).map((cell) =>
        cell.aggregation == null ? cell : { ...cell, aggregation: { ...cell.aggregation, resourceVersion: "5000" } },
      );
      return object.status === undefined ? object : { ...object, status: { ...object.status, cells } };
    });
    harness.cell.put("new", gated());
    await harness.run(1_000);
    expect(harness.opened()).toEqual([]);
    harness.cell.version = 5_000;
    harness.cell.put("old");
    await harness.run(1_000);
    expect(harness.opened()).toEqual(["new Counted"]);
  });

  test("opens at once where no protector counts the pod", async () => {
    const harness = await start();
    harness.cell.put("new", gated(true, false, { labels: { app: "nobody" } }));
    await harness.run(5);
    expect(harness.opened()).toEqual(["new Unprotected"]);
  });

  test("waits for every core", async () => {
    const harness = await start({ coreNames: ["quick", "slow"] });
    const [, slow] = harness.cores;
    if (slow !== undefined) slow.answer = "hang";
    harness.cell.put("new", gated());
    await harness.run(1_000);
    expect(harness.opened()).toEqual([]);
    if (slow !== undefined) slow.answer = "ok";
    await harness.run(10_000);
    expect(harness.opened()).toEqual(["new Counted"]);
  });

  test("opens after the bound when the core can't be reached, with reason Overdue", async () => {
    const harness = await start();
    harness.core.answer = "unavailable";
    harness.cell.put("new", gated());
    await harness.run(BOUND_MS - 100);
    expect(harness.opened()).toEqual([]);
    expect(harness.aggregator.gate?.waiting).toBe(1);
    await harness.run(200);
    expect(harness.opened()).toEqual(["new Overdue"]);
  });

  test("opens after the bound, not as unprotected, where a core was never listed", async () => {
    const harness = new AggregatorHarness({ gateBoundMs: BOUND_MS });
    harness.cell.sync();
    harness.lead();
    await harness.run(50);
    harness.cell.put("new", gated());
    await harness.run(BOUND_MS - 100);
    expect(harness.cell.patches).toHaveLength(0);
    await harness.run(200);
    expect(harness.cell.patches).toHaveLength(1);
  });

  test("does not open in the middle of a list, which may end with the protector of the pod", async () => {
    const harness = new AggregatorHarness({ gateBoundMs: BOUND_MS });
    harness.cell.sync();
    harness.lead();
    harness.cell.put("new", gated());
    await harness.run(50);
    harness.core.put("other", { selector: { matchLabels: { app: "nobody" } } });
    harness.core.put("p");
    harness.core.answer = "hang";
    harness.core.sync();
    await harness.run(1_000);
    expect(harness.cell.patches).toEqual([]);
  });

  test("does not open in the middle of a relist that shows the protector with another UID", async () => {
    const harness = await start();
    harness.core.answer = "hang";
    harness.cell.put("new", gated());
    await harness.run(50);
    harness.core.streams = false;
    harness.core.remove("p");
    harness.core.put("p");
    harness.core.sync();
    await harness.run(1_000);
    expect(harness.opened()).toEqual([]);
  });

  test("whose patch failed waits for a protector that counts the pod since", async () => {
    const harness = await start({}, false);
    harness.core.put("other", { selector: { matchLabels: { app: "nobody" } } });
    harness.cell.patchFailures.push({ kind: "unavailable", error: new Error("no answer"), sent: false });
    harness.cell.put("new", gated());
    await harness.run(20);
    expect(harness.opened()).toEqual(["new Unprotected"]);
    harness.core.answer = "hang";
    harness.core.put("p");
    await harness.run(10_000);
    expect(harness.opened()).toHaveLength(1);
    harness.core.answer = "ok";
    await harness.run(10_000);
    expect(harness.opened()).toEqual(["new Unprotected", "new Counted"]);
  });

  test("is opened again when the condition was lost, and only then", async () => {
    const harness = await start();
    harness.cell.put("new", gated());
    await harness.run(100);
    await harness.run(10_000);
    expect(harness.opened()).toHaveLength(1);
    harness.cell.put("new", gated());
    await harness.run(100);
    expect(harness.opened()).toEqual(["new Counted", "new Counted"]);
  });

  test("is not looked at again with each status of a protector, whose selector stays the same", async () => {
    const harness = await start();
    harness.core.answer = "hang";
    for (let pod = 0; pod < 50; pod++) harness.cell.put(`new-${pod}`, gated());
    await harness.run(100);
    const looks = vi.spyOn(harness.aggregator.membership, "protectorsOf");
    for (let bucket = 0; bucket < 20; bucket++)
      harness.core.admit("p", "cell", { startTime: "2026-01-01T00:00:00Z", podUID: `other-${bucket}` });
    // 20 looks at 50 pods would be 1,000.
    expect(looks.mock.calls.length).toBeLessThan(50);
    harness.core.put("p", { selector: { matchLabels: { app: "nobody" } } });
    expect(looks.mock.calls.length).toBeGreaterThanOrEqual(50);
    await harness.run(100);
    expect(harness.opened()).toContain("new-49 Unprotected");
  });

  test("is forgotten when the pod is deleted or becomes unready before its count is stored", async () => {
    const harness = await start();
    harness.core.answer = "hang";
    harness.cell.put("gone", gated());
    harness.cell.put("unready", gated());
    await harness.run(100);
    harness.cell.remove("gone");
    harness.cell.put("unready", gated(false));
    harness.core.answer = "ok";
    await harness.run(BOUND_MS + 1_000);
    expect(harness.opened()).toEqual([]);
    expect(harness.aggregator.gate?.waiting).toBe(0);
  });

  test("is that of the new pod alone where one of the same name takes the place of a pod that waits", async () => {
    const harness = await start();
    harness.core.answer = "hang";
    harness.cell.put("new", gated());
    await harness.run(100);
    harness.cell.put("new", gated(true, false, { uid: "next" }));
    expect(harness.aggregator.gate?.waiting).toBe(1);
  });

  test("is opened by the leader only, also for pods that waited before it led", async () => {
    const harness = await start();
    const { gate } = harness.aggregator;
    await harness.loseLeadership();
    harness.cell.put("new", gated());
    await harness.run(BOUND_MS + 1_000);
    expect([harness.opened(), gate?.waiting]).toEqual([[], 0]);
    harness.isLeader = true;
    harness.lead();
    await harness.run(100);
    expect(harness.opened()).toEqual(["new Counted"]);
  });

  test.each([
    ["with the pod's next version", true, 100],
    ["after a while, as after a restore of the cell", false, 20_000],
  ])("whose condition does not show is opened again %s", async (_, isSeen, withinMs) => {
    const harness = await start();
    harness.cell.patchFailures.push({ kind: "conflict", message: "it was set in vain" });
    harness.cell.put("new", gated());
    await harness.run(20_000);
    expect(harness.opened()).toEqual(["new Counted"]);
    if (isSeen) harness.cell.put("new", gated());
    await harness.run(withinMs);
    expect(harness.opened()).toEqual(["new Counted", "new Counted"]);
    await harness.run(60_000);
    expect(harness.opened()).toHaveLength(2);
  });

  test("whose patch fails is tried again", async () => {
    const harness = await start();
    harness.cell.patchFailures.push({ kind: "unavailable", error: new Error("no"), sent: false });
    harness.cell.put("new", gated());
    await harness.run(5_000);
    expect(harness.opened()).toEqual(["new Counted", "new Counted"]);
    expect(harness.events.some(({ kind }) => kind === "gateFailed")).toBe(true);
  });
});
