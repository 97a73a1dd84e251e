import { describe, expect, test } from "vitest";
import { MIN_AVAILABLE_ANNOTATION, MIN_RUNNING_ANNOTATION } from "../../schema/annotations.ts";
import { PROMISE_LESS } from "./promise-less.ts";
import { runningMinimum, type StatedLimits, statedMinimum } from "./workload-minimum.ts";

describe("who promises less as the text says", () => {
  const [, maxUnavailable] = /max-unavailable=(\d+)/.exec(PROMISE_LESS) ?? [];
  const stated: StatedLimits = { minAvailable: undefined, maxUnavailable, minRunning: undefined };
  const named = (annotation: string): boolean => PROMISE_LESS.includes(annotation.replace(/.*\//, ""));

  test.each([1, 2, 3, 50])("has room in a workload of %i replicas", (replicas) => {
    expect(statedMinimum(replicas, stated)?.minAvailable).toBe(replicas - 1);
  });

  test("lowers the annotations that still promise all pods, which are named", () => {
    const all = { ...stated, minAvailable: "100%", minRunning: "100%" };
    expect([statedMinimum(3, all)?.minAvailable, runningMinimum(3, all)?.minAvailable]).toEqual([3, 3]);
    expect([MIN_AVAILABLE_ANNOTATION, MIN_RUNNING_ANNOTATION].map(named)).toEqual([true, true]);
  });
});
