/** A budget that asks for more while nobody knows any more how many pods there should be. */
import { describe, expect, test } from "vitest";
import { type GivenBudget, ofDeployment, ref, resolve } from "../../../test/support/generator/resolve-budget.ts";
import type { Budget } from "../sources/protection-source.ts";
import type { Resolution } from "./resolve.ts";

const none: readonly Partial<Budget>[] = [{ maxUnavailable: "100%" }, { maxUnavailable: 12 }, { minAvailable: "0%" }];
const most: readonly Partial<Budget>[] = [{ maxUnavailable: 1 }, { maxUnavailable: "10%" }, { minAvailable: "90%" }];

function protectorsOf(resolution: Resolution) {
  return resolution.kind === "resolved" || resolution.kind === "unresolved" ? (resolution.protectors ?? []) : [];
}

describe.each([
  ["a selector", {}, { pods: { total: 5, controllers: [] } }],
  ["a targetRef", { selector: undefined, targetRef: ref("Deployment", "web") }, {}],
] as const)("a budget with %s that asks for more while the number of its pods is unknown", (_, target, unknown) => {
  /** Of ten pods while the first budget is there, and of an unknown number since. */
  const minimumAfter = async (budgets: readonly Partial<Budget>[]) => {
    let given: GivenBudget = ofDeployment;
    for (const budget of budgets) {
      const [required] = protectorsOf(await resolve({ ...target, ...budget }, given));
      const { present, derivation } = given;
      const stored = required && { present: required.spec.minAvailable, derivation: required.derivation };
      given = { ...unknown, ...(present === undefined ? {} : { present, derivation }), ...stored };
    }
    return given.present;
  };

  test.each(none.flatMap((before) => most.map((now) => ({ before, now }))))(
    "gets it of the pods that there were: $before, $now",
    async ({ before, now }) => {
      expect(await minimumAfter([before])).toBe(0);
      expect(await minimumAfter([before, before])).toBe(0);
      expect(await minimumAfter([before, now])).toBe(9);
      expect(await minimumAfter([before, before, now, now])).toBe(9);
      // One that asks for less keeps what it has.
      expect(await minimumAfter([before, now, before])).toBe(9);
      expect(await minimumAfter([now, before])).toBe(9);
    },
  );
});

test("a name that people chose is no number of pods", async () => {
  const derivation =
    "how many pods there should be is unknown (expected 90 can't be read): minAvailable 3, kept as it was";
  const pods = { total: 5, controllers: [] };
  const [required] = protectorsOf(await resolve({ maxUnavailable: 1 }, { pods, present: 3, derivation }));
  expect(required?.spec.minAvailable).toBe(3);
});

test("the number of other pods is not that of those that the budget selects now", async () => {
  const derivation = "expected 10 (Deployment web 10) - maxUnavailable 10 (100% rounded up) = minAvailable 0";
  const presentSelector = { matchLabels: { app: "other" } };
  const pods = { total: 5, controllers: [] };
  const [required] = protectorsOf(
    await resolve({ maxUnavailable: 1 }, { pods, present: 0, derivation, presentSelector }),
  );
  expect(required?.spec.minAvailable).toBe(5);
});
