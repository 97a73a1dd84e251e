import { describe, expect, test } from "vitest";
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

/** A pod with the gate: ready but for it, unless `change` says otherwise. */
function gated(ready = true, counted = false, more: Partial<Pod> = {}): Partial<Pod> {
  return {
    readinessGates: [COUNTED_CONDITION],
    conditions: [
      condition("ContainersReady", ready),
      condition("Ready", ready && counted),
      ...(counted ? [condition(COUNTED_CONDITION, true)] : []),
    ],
    ...more,
  };
}

interface GateRig extends AggregatorHarness {
  /** Pods whose gates were opened, with the reason, in order. */
  opened(): string[];
}

async function start(options: AggregatorHarnessOptions = {}, protector = true): Promise<GateRig> {
  const rig = new AggregatorHarness({ gateBoundMs: BOUND_MS, ...options });
  if (protector) for (const core of rig.cores) core.put("p");
  rig.cell.putUnseen("old");
  await rig.start();
  const opened = (): string[] =>
    rig.cell.patches.map(({ path, body }) => {
      const [one] = Object(body).status.conditions;
      expect(one).toMatchObject({ type: COUNTED_CONDITION, status: "True" });
      return `${path.split("/").at(-2) ?? ""} ${one.reason}`;
    });
  return Object.assign(rig, { opened });
}

describe("the counted gate", () => {
  test("opens once the count that contains the pod is stored, and not before", async () => {
    const rig = await start();
    rig.core.answer = "hang";
    rig.cell.put("new", gated());
    await rig.run(1_000);
    expect(rig.opened()).toEqual([]);
    rig.core.answer = "ok";
    await rig.run(10_000);
    expect(rig.core.entry("p")?.aggregation?.availableReplicas).toBe(2);
    expect(rig.opened()).toEqual(["new Counted"]);
    expect(rig.events.filter(({ kind }) => kind === "gateOpened")).toMatchObject([
      { podName: "new", reason: "Counted" },
    ]);
  });

  test("waits for the pod's containers and its other gates", async () => {
    const rig = await start();
    rig.cell.put("new", gated(false));
    rig.cell.put("other", { ...gated(), readinessGates: [COUNTED_CONDITION, "example.com/warm"] });
    await rig.run(1_000);
    expect(rig.opened()).toEqual([]);
    rig.cell.put("new", gated());
    await rig.run(100);
    expect(rig.opened()).toEqual(["new Counted"]);
  });

  test("opens when the stored count needs no change, because another pod went at the same moment", async () => {
    const rig = await start();
    rig.cell.put("new", gated());
    rig.cell.remove("old");
    await rig.run(100);
    expect(rig.opened()).toEqual(["new Counted"]);
  });

  test("opens at once where no protector counts the pod", async () => {
    const rig = await start();
    rig.cell.put("new", gated(true, false, { labels: { app: "nobody" } }));
    await rig.run(5);
    expect(rig.opened()).toEqual(["new Unprotected"]);
  });

  test("waits for every core", async () => {
    const rig = await start({ coreNames: ["quick", "slow"] });
    const [, slow] = rig.cores;
    if (slow !== undefined) slow.answer = "hang";
    rig.cell.put("new", gated());
    await rig.run(1_000);
    expect(rig.opened()).toEqual([]);
    if (slow !== undefined) slow.answer = "ok";
    await rig.run(10_000);
    expect(rig.opened()).toEqual(["new Counted"]);
  });

  test("opens after the bound when the core is out of reach, and says so", async () => {
    const rig = await start();
    rig.core.answer = "unavailable";
    rig.cell.put("new", gated());
    await rig.run(BOUND_MS - 100);
    expect(rig.opened()).toEqual([]);
    expect(rig.aggregator.gate?.waiting).toBe(1);
    await rig.run(200);
    expect(rig.opened()).toEqual(["new Overdue"]);
  });

  test("opens after the bound where a core was never listed: that no protector is known says nothing", async () => {
    const rig = new AggregatorHarness({ gateBoundMs: BOUND_MS });
    rig.cell.sync();
    rig.lead();
    await rig.run(50);
    rig.cell.put("new", gated());
    await rig.run(BOUND_MS - 100);
    expect(rig.cell.patches).toHaveLength(0);
    await rig.run(200);
    expect(rig.cell.patches).toHaveLength(1);
  });

  test("does not open in the middle of a list: the protector that counts the pod may be the last one in it", async () => {
    const rig = new AggregatorHarness({ gateBoundMs: BOUND_MS });
    rig.cell.sync();
    rig.lead();
    rig.cell.put("new", gated());
    await rig.run(50);
    rig.core.put("other", { selector: { matchLabels: { app: "nobody" } } });
    rig.core.put("p");
    rig.core.answer = "hang";
    rig.core.sync();
    await rig.run(1_000);
    expect(rig.cell.patches).toEqual([]);
  });

  test("does not open in the middle of a relist that shows the protector made anew", async () => {
    const rig = await start();
    rig.core.answer = "hang";
    rig.cell.put("new", gated());
    await rig.run(50);
    rig.core.streams = false;
    rig.core.remove("p");
    rig.core.put("p");
    rig.core.sync();
    await rig.run(1_000);
    expect(rig.opened()).toEqual([]);
  });

  test("that could not be opened waits for a protector that has come to count the pod since", async () => {
    const rig = await start({}, false);
    rig.core.put("other", { selector: { matchLabels: { app: "nobody" } } });
    rig.cell.patchAnswers.push({ kind: "unavailable", error: new Error("no answer"), sent: false });
    rig.cell.put("new", gated());
    await rig.run(20);
    expect(rig.opened()).toEqual(["new Unprotected"]);
    rig.core.answer = "hang";
    rig.core.put("p");
    await rig.run(10_000);
    expect(rig.opened()).toHaveLength(1);
    rig.core.answer = "ok";
    await rig.run(10_000);
    expect(rig.opened()).toEqual(["new Unprotected", "new Counted"]);
  });

  test("is set again when the condition was lost, and not again when it is there", async () => {
    const rig = await start();
    rig.cell.put("new", gated());
    await rig.run(100);
    await rig.run(10_000);
    expect(rig.opened()).toHaveLength(1);
    rig.cell.put("new", gated());
    await rig.run(100);
    expect(rig.opened()).toEqual(["new Counted", "new Counted"]);
  });

  test("is forgotten with a pod that goes, or becomes unready, before its count is stored", async () => {
    const rig = await start();
    rig.core.answer = "hang";
    rig.cell.put("gone", gated());
    rig.cell.put("unready", gated());
    await rig.run(100);
    rig.cell.remove("gone");
    rig.cell.put("unready", gated(false));
    rig.core.answer = "ok";
    await rig.run(BOUND_MS + 1_000);
    expect(rig.opened()).toEqual([]);
    expect(rig.aggregator.gate?.waiting).toBe(0);
  });

  test("of pods that waited before this process led is opened by it, and by nobody who does not lead", async () => {
    const rig = await start();
    await rig.loseLeadership();
    rig.cell.put("new", gated());
    await rig.run(BOUND_MS + 1_000);
    expect(rig.opened()).toEqual([]);
    rig.isLeader = true;
    rig.lead();
    await rig.run(100);
    expect(rig.opened()).toEqual(["new Counted"]);
  });

  test.each([
    ["on the pod's next version", true, 100],
    ["after a while, as when a restore of the cell has taken it back", false, 20_000],
  ])("that nothing shows to be open is opened again %s", async (_, isSeen, withinMs) => {
    const rig = await start();
    rig.cell.patchAnswers.push({ kind: "conflict", message: "it was set in vain" });
    rig.cell.put("new", gated());
    await rig.run(20_000);
    expect(rig.opened()).toEqual(["new Counted"]);
    if (isSeen) rig.cell.put("new", gated());
    await rig.run(withinMs);
    expect(rig.opened()).toEqual(["new Counted", "new Counted"]);
    await rig.run(60_000);
    expect(rig.opened()).toHaveLength(2);
  });

  test("that can't be opened is tried again", async () => {
    const rig = await start();
    rig.cell.patchAnswers.push({ kind: "unavailable", error: new Error("no"), sent: false });
    rig.cell.put("new", gated());
    await rig.run(5_000);
    expect(rig.opened()).toEqual(["new Counted", "new Counted"]);
    expect(rig.events.some(({ kind }) => kind === "gateFailed")).toBe(true);
  });
});
