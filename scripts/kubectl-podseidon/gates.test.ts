import { expect, test } from "vitest";
import { gatesOf, gatesText } from "./gates.ts";

const NOW_MS = Date.parse("2026-05-01T12:00:00Z");
const COUNTED = "podseidon.kubewharf.io/counted";

const condition = (type: string, status: string, rest: object = {}): object => ({
  ...{ type, status, lastTransitionTime: "2026-05-01T11:59:30Z", ...rest },
});
const owns = (manager: string, time: string, type: string): object => ({
  ...{ manager, time, subresource: "status" },
  fieldsV1: { "f:status": { "f:conditions": { [`k:{"type":"${type}"}`]: { ".": {}, "f:status": {} } } } },
});

function pod(gates: readonly string[], conditions: readonly object[], managedFields: readonly object[] = []): unknown {
  return {
    metadata: { name: "web-0", managedFields },
    spec: { readinessGates: gates.map((conditionType) => ({ conditionType })) },
    status: { conditions },
  };
}

test("a closed gate names who wrote it last, since when and why, and who should open it", () => {
  const report = gatesOf(
    pod(
      [COUNTED, "example.com/warm", "InPlaceUpdateReady"],
      [
        condition("Ready", "False"),
        condition("ContainersReady", "True"),
        condition("example.com/warm", "False", { reason: "Cold", message: "cache is empty" }),
        condition("InPlaceUpdateReady", "True"),
      ],
      [
        owns("old-warmer", "2026-05-01T11:00:00Z", "example.com/warm"),
        owns("warmer", "2026-05-01T11:59:30Z", "example.com/warm"),
      ],
    ),
    NOW_MS,
  );
  expect(report.gates).toMatchObject([
    { type: COUNTED, status: "missing", writtenBy: undefined, setter: expect.stringContaining("aggregator") },
    { type: "example.com/warm", status: "False", writtenBy: "warmer", ageMs: 30_000, why: "Cold: cache is empty" },
    { type: "InPlaceUpdateReady", status: "True" },
  ]);
  const text = gatesText("shop/web-0", report);
  expect(text).toContain("2 readiness gates closed, of 3; Ready is False");
  expect(text).toMatch(/example\.com\/warm +closed +False +30s +warmer +Cold: cache is empty/);
  expect(text).toContain(`- ${COUNTED}: is to be opened by podseidon's aggregator of this cell`);
  expect(text).toContain("- example.com/warm: is to be opened by warmer, which wrote it last");
  expect(text).not.toContain("ContainersReady");
});

test("a gate that nobody ever wrote, and containers that are not ready, are told", () => {
  const text = gatesText("shop/web-0", gatesOf(pod(["example.com/a"], []), NOW_MS));
  expect(text).toContain(
    "- example.com/a: is to be opened by an unknown controller of the platform, which has not written it yet",
  );
  expect(text).toContain("- its containers: ContainersReady is missing");
});

test("without gates, and before its first status, a pod has none that is closed", () => {
  expect(gatesOf({ metadata: {}, spec: {} }, NOW_MS).gates).toEqual([]);
  expect(gatesText("shop/web-0", gatesOf(pod([], [condition("Ready", "True")]), NOW_MS))).toBe(
    "Pod shop/web-0 has no readiness gates; Ready is True.\n",
  );
});
