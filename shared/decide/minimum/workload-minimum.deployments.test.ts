import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { deploymentMinimum, type IntOrPercent, type Rollout, scaledValue } from "./workload-minimum.ts";

describe("a count or percentage as an absolute number", () => {
  test.each<[IntOrPercent, number, "up" | "down", number | undefined]>([
    [3, 10, "down", 3],
    [0, 10, "up", 0],
    ["25%", 10, "down", 2],
    ["25%", 10, "up", 3],
    ["20%", 10, "up", 2],
    ["100%", 7, "down", 7],
    ["0%", 7, "up", 0],
    ["1%", 1, "up", 1],
    ["1%", 1, "down", 0],
    ["150%", 4, "down", 6],
    ["10", 10, "down", undefined],
    ["ten%", 10, "down", undefined],
    ["", 10, "down", undefined],
    [2.5, 10, "down", undefined],
  ])("%s of %i, rounded %s, is %s", (value, total, rounding, expected) => {
    expect(scaledValue(value, total, rounding)).toBe(expected);
  });

  test.each([0, 10])("a percentage that is no number in Kubernetes, of %i, is unreadable", (total) => {
    expect(scaledValue(`${"9".repeat(400)}%`, total, "up")).toBeUndefined();
  });
});

describe("what a Deployment's controller keeps available", () => {
  test.each<[string, Rollout, number]>([
    ["the demo's: 20 % of 10", { replicas: 10, maxUnavailable: "20%" }, 8],
    ["the API's defaults: 25 % of 10, rounded down", { replicas: 10 }, 8],
    ["no replicas given: 1, and 25 % of it is 0", {}, 1],
    ["a percentage that rounds to 0 while surge rounds up", { replicas: 3, maxUnavailable: "25%", maxSurge: "25%" }, 3],
    [
      "no surge and a percentage that rounds to 0: the rollout takes 1",
      { replicas: 3, maxUnavailable: "25%", maxSurge: 0 },
      2,
    ],
    ["the same of 1 replica: nothing is kept", { replicas: 1, maxUnavailable: "1%", maxSurge: "0%" }, 0],
    ["surge alone", { replicas: 4, maxUnavailable: 0, maxSurge: 1 }, 4],
    ["a number", { replicas: 10, maxUnavailable: 3 }, 7],
    ["more than there are", { replicas: 2, maxUnavailable: 5 }, 0],
    ["100 %", { replicas: 9, maxUnavailable: "100%" }, 0],
    ["scaled to zero", { replicas: 0, maxUnavailable: 0, maxSurge: 0 }, 0],
    ["Recreate: a quarter may be evicted", { replicas: 10, strategy: "Recreate" }, 8],
    ["Recreate of 1 replica", { replicas: 1, strategy: "Recreate" }, 0],
    ["Recreate, scaled to zero", { replicas: 0, strategy: "Recreate" }, 0],
    ["unreadable: the controller would take none", { replicas: 10, maxUnavailable: "a fifth" }, 10],
    ["unreadable surge, too", { replicas: 10, maxUnavailable: "20%", maxSurge: "x" }, 10],
  ])("%s", (_, rollout, expected) => {
    expect(deploymentMinimum(rollout).minAvailable).toBe(expected);
  });

  test.each<[Rollout, string]>([
    [{ replicas: 10, maxUnavailable: "20%" }, "replicas 10 - maxUnavailable 2 (20% rounded down) = minAvailable 8"],
    [{ replicas: 5, maxUnavailable: 1 }, "replicas 5 - maxUnavailable 1 = minAvailable 4"],
    [
      { replicas: 3, maxUnavailable: "25%", maxSurge: 0 },
      "replicas 3 - maxUnavailable 1 (25% rounded down); with maxSurge 0 the rollout takes 1 = minAvailable 2",
    ],
    [{ replicas: 2, maxUnavailable: 5 }, "replicas 2 - maxUnavailable 2 (5, more than there are) = minAvailable 0"],
    [
      { replicas: 4, strategy: "Recreate" },
      "replicas 4 - maxUnavailable 1 (25% rounded down) = minAvailable 3; of evictions alone, because strategy " +
        "Recreate deletes all pods",
    ],
  ])("explains its minimum: %j", (rollout, expected) => {
    expect(deploymentMinimum(rollout).derivation).toBe(expected);
  });
});

const fencepost = fc.oneof(
  fc.nat(300),
  fc.nat(100).map((percent) => `${percent}%`),
);
const rollout = fc.record({ replicas: fc.nat(2000), maxSurge: fencepost, maxUnavailable: fencepost });

describe("for any Deployment that the API accepts", () => {
  test("the minimum is between 0 and replicas, and leaves a rollout some room", () => {
    fc.assert(
      fc.property(rollout, (given) => {
        const { minAvailable } = deploymentMinimum(given);
        expect(minAvailable).toBeGreaterThanOrEqual(0);
        expect(minAvailable).toBeLessThanOrEqual(given.replicas);
        const surge = scaledValue(given.maxSurge, given.replicas, "up") ?? 0;
        if (given.replicas > 0) expect(surge > 0 || minAvailable < given.replicas).toBe(true);
      }),
    );
  });

  test("allowing more never requires more, and one more replica requires at most one more", () => {
    fc.assert(
      fc.property(fc.nat(2000), fc.nat(99), (replicas, percent) => {
        const at = (n: number, p: number): number =>
          deploymentMinimum({ replicas: n, maxUnavailable: `${p}%`, maxSurge: 1 }).minAvailable;
        expect(at(replicas, percent + 1)).toBeLessThanOrEqual(at(replicas, percent));
        expect(at(replicas + 1, percent) - at(replicas, percent)).toBeLessThanOrEqual(1);
      }),
    );
  });
});
