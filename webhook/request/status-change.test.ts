import { expect, test } from "vitest";
import { DEFAULT_STATUS_RULES, statusChange } from "./status-change.ts";

test("a pod with many gates and many conditions does not cost their product", () => {
  const readsOf = (count: number): number => {
    let reads = 0;
    const conditions = Array.from({ length: count }, () => ({
      get type() {
        reads++;
        return "example.com/other";
      },
    }));
    const readinessGates = Array.from({ length: count }, () => ({ conditionType: "KruisePodReady" }));
    const pod = { spec: { readinessGates }, status: { conditions } };
    expect(statusChange({ oldObject: pod, object: pod }, DEFAULT_STATUS_RULES)).toBeUndefined();
    return reads;
  };
  expect(readsOf(40)).toBeGreaterThan(0);
  expect(readsOf(80)).toBeLessThan(3 * readsOf(40));
});
