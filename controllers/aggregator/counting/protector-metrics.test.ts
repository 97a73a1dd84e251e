import { describe, expect, test } from "vitest";
import { Metrics } from "../../../shared/observe/metrics.ts";
import type { Condition, PodProtector } from "../../../shared/schema/podprotector.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { makeCell, makeProtector, NOW_MS } from "../../../test/support/decide/fixtures.ts";
import { protectorMetrics, TROUBLES, troublesOf } from "./protector-metrics.ts";

function conditionOf([type = "", status = "", reason = ""]: readonly string[]): Condition {
  return { type, status, reason, message: "", lastTransitionTime: formatMs(NOW_MS) };
}

function withConditions(...conditions: readonly (readonly string[])[]): PodProtector {
  const protector = makeProtector([makeCell("a", 3, [], { heartbeatTime: formatMs(NOW_MS - 40_000) })]);
  const status =
    protector.status === undefined ? undefined : { ...protector.status, conditions: conditions.map(conditionOf) };
  return status === undefined ? protector : { ...protector, status };
}

describe("the trouble that a protector is in", () => {
  test.each<[string, PodProtector, readonly string[]]>([
    ["healthy", withConditions(["Healthy", "True", "EnoughAvailable"]), []],
    ["too few", withConditions(["Healthy", "False", "TooFewAvailable"]), ["belowMinimum"]],
    ["a selector that can't be read", withConditions(["Healthy", "False", "InvalidSelector"]), []],
    [
      "as many promised as there are",
      withConditions(["Healthy", "True", "EnoughAvailable"], ["DisruptionImpossible", "True", "MinAvailableTooHigh"]),
      ["disruptionImpossible"],
    ],
    [
      "no pods, stale",
      withConditions(["Healthy", "True", "x"], ["NoPodsMatched", "True", "NoPods"], ["CellStale", "True", "x"]),
      ["noPodsMatched", "cellStale"],
    ],
    ["not looked at yet", makeProtector([]), ["notCounted"]],
    ["not counted", withConditions(["Healthy", "Unknown", "NotCounted"]), ["notCounted"]],
  ])("%s", (_, protector, expected) => {
    expect(troublesOf(protector)).toEqual(expected);
  });
});

test("every kind of trouble is there at zero, and heartbeats have their age", async () => {
  const metrics = new Metrics();
  const protectors = [withConditions(["Healthy", "False", "TooFewAvailable"])];
  protectorMetrics(metrics, ["core"], () => protectors, { nowMs: () => NOW_MS });
  const { body } = await metrics.render();
  for (const trouble of TROUBLES) {
    const value = trouble === "belowMinimum" ? 1 : 0;
    expect(body).toContain(`podseidon_protectors_in_trouble{core="core",trouble="${trouble}"} ${value}\n`);
  }
  expect(body).toContain('podseidon_cell_heartbeat_age_seconds{core="core",cell="a"} 40\n');
});
