/** Pods that are gone without a deletion (docs/design.md#vanished-pods). */
import { describe, expect, test } from "vitest";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtectorSpec } from "../../shared/schema/podprotector.ts";
import { type AggregatorHarness, bucket, counted } from "../../test/support/aggregator/aggregator-harness.ts";

function vanished(harness: AggregatorHarness): readonly string[] {
  return harness.events.flatMap((event) => (event.kind === "vanished" ? event.names : []));
}

function condition(harness: AggregatorHarness): string | undefined {
  return harness.core.get("p").status?.conditions?.find(({ type }) => type === "PodsVanished")?.status;
}

const live = (harness: AggregatorHarness, name: string): Pod => harness.cell.live.get(name) ?? harness.cell.pod(name);

test("a pod that is gone without a record is told at once, and for an hour", async () => {
  const harness = await counted();
  harness.cell.remove("a");
  await harness.run(50);
  expect(vanished(harness)).toEqual(["a"]);
  expect(harness.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 2, vanishedPods: 1 });
  expect(condition(harness)).toBe("True");
  harness.cell.remove("b");
  await harness.run(50);
  expect(harness.core.entry("p")?.aggregation).toMatchObject({ availableReplicas: 1, vanishedPods: 2 });
  await harness.run(3_590_000);
  expect(condition(harness)).toBe("True");
  await harness.run(150_000);
  expect(condition(harness)).toBe("False");
  expect(harness.core.entry("p")?.aggregation).not.toHaveProperty("vanishedTime");
  expect(vanished(harness)).toEqual(["a", "b"]);
});

test("where another pod takes its place in the count, it is told all the same", async () => {
  const harness = await counted();
  harness.cell.remove("a");
  harness.cell.put("d");
  await harness.run(50);
  expect(vanished(harness)).toEqual(["a"]);
  expect(harness.core.entry("p")?.aggregation?.availableReplicas).toBe(3);
});

test("it is told once the snapshot has caught up with the stored position", async () => {
  const harness = await counted();
  harness.core.edit("p", (object) => {
    const cells = (object.status?.cells ?? []).map((cell) =>
      cell.aggregation == null ? cell : { ...cell, aggregation: { ...cell.aggregation, resourceVersion: "5000" } },
    );
    return object.status === undefined ? object : { ...object, status: { ...object.status, cells } };
  });
  harness.cell.remove("a");
  await harness.run(50);
  expect(vanished(harness)).toEqual([]);
  harness.cell.version = 5_000;
  harness.cell.put("b");
  await harness.run(200);
  expect(vanished(harness)).toEqual(["a"]);
});

test("a hundred pods of one protector are remembered, and five are named", async () => {
  const harness = await counted();
  for (let index = 0; index < 120; index++) harness.cell.put(`x${index}`);
  await harness.run(50);
  for (let index = 0; index < 120; index++) harness.cell.remove(`x${index}`);
  await harness.run(50);
  const events = harness.events.filter(({ kind }) => kind === "vanished");
  expect(events).toMatchObject([{ pods: 100, names: ["x0", "x1", "x2", "x3", "x4"] }]);
});

describe("nothing is told", () => {
  const deleted = (change: Partial<Pod>) => async (harness: AggregatorHarness) => {
    harness.cell.put("a", change);
    harness.cell.remove("a");
  };
  const under =
    (spec: Partial<PodProtectorSpec>, change: Partial<Pod> = {}) =>
    async (harness: AggregatorHarness) => {
      harness.core.put("p", spec);
      await harness.run(50);
      await deleted(change)(harness);
    };
  test.each<[string, (harness: AggregatorHarness) => Promise<void>]>([
    ["of an ordinary deletion", deleted({ terminating: true })],
    ["of a pod that is finished", deleted({ phase: "Failed" })],
    ["of a pod that did not count", deleted({ conditions: [] })],
    ["of a pod that may be bypassed", deleted({ annotations: { "podseidon.kubewharf.io/force-delete": "x" } })],
    ["of a pod that its labels take out of the protector", deleted({ labels: { app: "other" } })],
    ["under a suspension", under({ suspend: { enabled: true } })],
    ["while the protector only warns", under({ enforcement: "Warn" })],
    ["while it is off", under({ enforcement: "Off" })],
    ["where nothing is promised", under({ minAvailable: 0 })],
    ["where deletions are not protected", under({ protectedOperations: ["EVICT"] })],
    ["of ignored pods", under({ ignoredPodSelector: { matchLabels: { app: "p" } } })],
    ["of pods that are counted alone", under({ selector: { matchLabels: { a: "b" } }, aggregationSelector: {} })],
    [
      "of a deletion by force that was admitted, though the watch of the core lags",
      async (harness) => {
        harness.core.streams = false;
        harness.core.admit("p", "cell", bucket(live(harness, "a")));
        harness.cell.remove("a");
        await harness.run(50);
        harness.core.streams = true;
        harness.core.sync();
      },
    ],
    [
      "of several that were admitted, and settled by one write",
      async (harness) => {
        for (const name of ["a", "b"]) harness.core.admit("p", "cell", bucket(live(harness, name), { nonce: name }));
        await harness.run(50);
        for (const name of ["a", "b"]) harness.cell.remove(name);
      },
    ],
    [
      "of what a relist finds",
      async (harness) => {
        harness.cell.live.delete("a");
        harness.cell.version++;
        harness.cell.sync();
      },
    ],
  ])("%s", async (_, story) => {
    const harness = await counted();
    await story(harness);
    await harness.run(200);
    expect([vanished(harness), condition(harness)]).toEqual([[], undefined]);
    // The story was about a pod that is gone from the count.
    expect(harness.core.entry("p")?.aggregation?.totalReplicas).toBeLessThan(3);
  });

  test.each([[{ isAsked: () => false }], [{ algorithm: "clock" as const }]])("with %j", async (options) => {
    const harness = await counted(options);
    harness.cell.remove("a");
    await harness.run(10_000);
    expect([vanished(harness), condition(harness)]).toEqual([[], undefined]);
  });

  test("while the cell is on hold", async () => {
    const harness = await counted();
    harness.aggregator.onPodWatch({ kind: "versionWentBack", from: "100", to: "50" });
    await harness.run(50);
    expect(harness.core.entry("p")?.aggregation?.hold).toContain("CellRestored");
    harness.cell.remove("a");
    await harness.run(50);
    expect([vanished(harness), condition(harness)]).toEqual([[], undefined]);
  });
});
