import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { needsExpectedCount, strictestMinimum } from "./budget-minimum.ts";
import {
  daemonSetMinimum,
  INT32_MAX,
  type IntOrPercent,
  scaledMinimum,
  statedMinimum,
  statefulSetMinimum,
} from "./workload-minimum.ts";

describe("a StatefulSet", () => {
  test.each<[string, Parameters<typeof statefulSetMinimum>[0], number]>([
    ["Recreate (KEP-3541): a quarter", { replicas: 8, strategy: "Recreate" }, 6],
    ["default", { replicas: 5 }, 4],
    ["without replicas: one", {}, 0],
    ["scaled to zero", { replicas: 0 }, 0],
    ["a number", { replicas: 5, maxUnavailable: 2 }, 3],
    ["a percentage is rounded down", { replicas: 9, maxUnavailable: "25%" }, 7],
    ["but at least 1", { replicas: 3, maxUnavailable: "10%" }, 2],
    ["more than there are", { replicas: 3, maxUnavailable: 7 }, 0],
    ["all", { replicas: 3, maxUnavailable: "100%" }, 0],
    ["a partition", { replicas: 5, partition: 3 }, 4],
    ["a partition that holds the rollout", { replicas: 5, partition: 5, maxUnavailable: 2 }, 3],
    ["OnDelete", { replicas: 5, strategy: "OnDelete", maxUnavailable: 3 }, 4],
    ["unreadable", { replicas: 5, maxUnavailable: "many" }, 4],
  ])("%s", (_, rollout, expected) => {
    expect(statefulSetMinimum(rollout).minAvailable).toBe(expected);
  });

  test("explains its minimum", () => {
    expect(statefulSetMinimum({ replicas: 9, maxUnavailable: "25%", partition: 4 }).derivation).toBe(
      "replicas 9 - maxUnavailable 2 (25% rounded down); " +
        "partition 4 changes which pods are updated, not how many may be down = minAvailable 7",
    );
  });
});

describe("a DaemonSet", () => {
  test.each<[string, Parameters<typeof daemonSetMinimum>[0], number]>([
    ["default", { replicas: 5 }, 4],
    ["no node yet", {}, 0],
    ["a percentage is rounded up", { replicas: 9, maxUnavailable: "25%" }, 6],
    ["surge", { replicas: 5, maxUnavailable: 0, maxSurge: 1 }, 5],
    ["neither", { replicas: 5, maxUnavailable: 0 }, 4],
    ["more than there are", { replicas: 2, maxUnavailable: 7 }, 0],
    ["OnDelete", { replicas: 5, strategy: "OnDelete", maxUnavailable: 3 }, 4],
    ["unreadable", { replicas: 5, maxUnavailable: "many" }, 5],
    ["an unreadable surge", { replicas: 5, maxUnavailable: 2, maxSurge: "many" }, 5],
  ])("%s", (_, rollout, expected) => {
    expect(daemonSetMinimum(rollout).minAvailable).toBe(expected);
  });
});

describe("a workload whose controller is unknown", () => {
  test.each<[number, IntOrPercent, number]>([
    [10, "25%", 8],
    [1, "25%", 0],
    [3, 0, 3],
    [3, "0%", 3],
    [3, "1%", 2],
    [3, 5, 0],
    [0, "25%", 0],
    [3, "odd", 3],
  ])("%d replicas, %s unavailable", (replicas, maxUnavailable, expected) => {
    expect(scaledMinimum(replicas, maxUnavailable).minAvailable).toBe(expected);
  });
});

describe("a workload with annotations", () => {
  test.each<[string | undefined, string | undefined, number | undefined]>([
    [undefined, undefined, undefined],
    ["5", undefined, 5],
    ["5", "50%", 5],
    ["3", "50%", 4],
    ["4", "odd", 8],
    ["odd", "50%", 8],
    ["9", undefined, 8],
    ["-1", "50%", 8],
  ])("of 8 replicas, %s available, %s unavailable", (minAvailable, maxUnavailable, expected) => {
    const stated = { minAvailable, maxUnavailable, minRunning: undefined };
    expect(statedMinimum(8, stated)?.minAvailable).toBe(expected);
  });
});

describe("a budget", () => {
  test.each<[string, Parameters<typeof strictestMinimum>[0], number, number | undefined]>([
    ["minAvailable in pods", { minAvailable: 3 }, 0, 3],
    ["minAvailable as a percentage, rounded up", { minAvailable: "50%" }, 7, 4],
    ["maxUnavailable", { maxUnavailable: 2 }, 7, 5],
    ["maxUnavailable as a percentage, rounded up", { maxUnavailable: "10%" }, 7, 6],
    ["more unavailable than there are", { maxUnavailable: 9 }, 7, 0],
    ["both: maxUnavailable counts", { minAvailable: 7, maxUnavailable: 2 }, 7, 5],
    ["neither", {}, 7, 0],
    ["unreadable", { maxUnavailable: "many" }, 7, undefined],
    ["unreadable minAvailable", { minAvailable: "many" }, 7, undefined],
  ])("%s", (_, limits, expected, minimum) => {
    expect(strictestMinimum(limits, expected, "")?.minAvailable).toBe(minimum);
  });

  test.each<[string, Parameters<typeof strictestMinimum>[0], number, string | undefined]>([
    [
      "its own",
      { minAvailable: 9, ofClusters: [{ cluster: "a", minAvailable: 8 }] },
      10,
      "minAvailable 9, as the budget says",
    ],
    [
      "a cluster's percentage",
      {
        minAvailable: 7,
        ofClusters: [
          { cluster: "a", minAvailable: 6 },
          { cluster: "b", minAvailable: "75%" },
        ],
      },
      10,
      "75% of expected 10, rounded up = minAvailable 8, as cluster b asks",
    ],
    [
      "the same number in fewer pods",
      { minAvailable: 7, ofClusters: [{ cluster: "b", minAvailable: "75%" }] },
      4,
      "minAvailable 7, as the budget says",
    ],
    [
      "no limit in a cluster",
      { minAvailable: 7, ofClusters: [{ cluster: "a" }] },
      10,
      "minAvailable 7, as the budget says",
    ],
    [
      "one that can't be read",
      { minAvailable: 7, ofClusters: [{ cluster: "a", minAvailable: "many" }] },
      10,
      undefined,
    ],
  ])("is the strictest of those of its clusters: %s", (_, limits, expected, derivation) => {
    expect(strictestMinimum(limits, expected, "")?.derivation).toBe(derivation);
  });

  test("needs the expected number of pods, unless its minAvailable is a number", () => {
    expect(needsExpectedCount({ minAvailable: 3 })).toBe(false);
    expect(needsExpectedCount({ minAvailable: "3%" })).toBe(true);
    expect(needsExpectedCount({ maxUnavailable: 3 })).toBe(true);
    expect(needsExpectedCount({})).toBe(false);
    expect(needsExpectedCount({ minAvailable: 3, ofClusters: [{ cluster: "a", maxUnavailable: 1 }] })).toBe(true);
  });
});

const limit = fc.oneof(
  fc.integer({ min: -5, max: INT32_MAX }),
  fc.integer({ min: 0, max: 200 }).map((percent) => `${percent}%`),
  fc.constantFrom("", "%", "1.5%", "many"),
);
const some = fc.option(limit, { nil: undefined });
const replicas = fc.oneof(fc.nat(200), fc.nat(INT32_MAX));

test("any minimum fits into an int32 and stands in its derivation", () => {
  fc.assert(
    fc.property(replicas, some, some, fc.nat(9), (total, a, b, partition) => {
      const minima = [
        statefulSetMinimum({ replicas: total, maxUnavailable: a, partition }),
        daemonSetMinimum({ replicas: total, maxUnavailable: a, maxSurge: b }),
        scaledMinimum(total, a ?? "25%"),
        strictestMinimum({ minAvailable: a, maxUnavailable: b }, total, ""),
      ];
      for (const minimum of minima) {
        if (minimum === undefined) continue;
        const { minAvailable, derivation } = minimum;
        expect(Number.isInteger(minAvailable) && minAvailable >= 0 && minAvailable <= INT32_MAX).toBe(true);
        expect(derivation).toContain(`minAvailable ${minAvailable}`);
      }
    }),
  );
});

test("a StatefulSet and an unknown workload can always be disrupted, and require no more than their replicas", () => {
  const percentage = fc.integer({ min: 1, max: 100 }).map((percent) => `${percent}%`);
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 5000 }), percentage, (total, maxUnavailable) => {
      for (const { minAvailable } of [
        statefulSetMinimum({ replicas: total, maxUnavailable }),
        scaledMinimum(total, maxUnavailable),
      ]) {
        expect(minAvailable).toBeLessThan(total);
      }
    }),
  );
});

test("more replicas never require fewer pods", () => {
  fc.assert(
    fc.property(fc.nat(3000), some, some, (total, a, b) => {
      const at = (count: number): (number | undefined)[] => [
        statefulSetMinimum({ replicas: count, maxUnavailable: a }).minAvailable,
        strictestMinimum({ minAvailable: a, maxUnavailable: b }, count, "")?.minAvailable,
      ];
      const [before, after] = [at(total), at(total + 1)];
      for (const [index, minimum] of before.entries()) expect(after[index] ?? 0).toBeGreaterThanOrEqual(minimum ?? 0);
    }),
  );
});
