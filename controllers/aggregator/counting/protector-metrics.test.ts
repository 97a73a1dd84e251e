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

describe("the troubles of a protector", () => {
  test.each<[string, PodProtector, readonly string[]]>([
    ["healthy", withConditions(["Healthy", "True", "EnoughAvailable"]), []],
    ["too few available pods", withConditions(["Healthy", "False", "TooFewAvailable"]), ["belowMinimum"]],
    ["an unreadable selector", withConditions(["Healthy", "False", "InvalidSelector"]), ["selectorUnreadable"]],
    [
      "a minimum that allows no disruption",
      withConditions(["Healthy", "True", "EnoughAvailable"], ["DisruptionImpossible", "True", "MinAvailableTooHigh"]),
      ["disruptionImpossible"],
    ],
    [
      "no pods, and a stale cell",
      withConditions(["Healthy", "True", "x"], ["NoPodsMatched", "True", "NoPods"], ["CellStale", "True", "x"]),
      ["noPodsMatched", "cellStale"],
    ],
    [
      "a workload that vanished",
      withConditions(["Healthy", "True", "x"], ["SourceVanished", "True", "NotFound"]),
      ["sourceVanished"],
    ],
    ["no status yet", makeProtector([]), ["notCounted"]],
    ["not counted", withConditions(["Healthy", "Unknown", "NotCounted"]), ["notCounted"]],
  ])("%s", (_, protector, expected) => {
    expect(troublesOf(protector)).toEqual(expected);
  });
});

test("every trouble has a series from the start, and heartbeats have their age", async () => {
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

test("each protector that its owner has to look after has a series, up to a bound for each", async () => {
  const metrics = new Metrics();
  const trouble = withConditions(["Healthy", "False", "TooFewAvailable"], ["SourceVanished", "True", "NotFound"]);
  const stale = withConditions(["Healthy", "True", "x"], ["CellStale", "True", "x"]);
  const vanished = withConditions(["Healthy", "True", "x"], ["PodsVanished", "True", "x"]);
  const named = (name: string, one: PodProtector): PodProtector => ({ ...one, metadata: { ...one.metadata, name } });
  const many = Array.from({ length: 510 }, (_, at) => named(`p${at}`, trouble));
  const protectors = [named("stale", stale), ...many, named("last", vanished)];
  const others = many.map(({ metadata, ...one }) => ({
    ...one,
    metadata: { ...metadata, name: `of-${metadata.name}` },
  }));
  const cores = { core: protectors, second: [...others, named("last", vanished)] };
  protectorMetrics(
    metrics,
    Object.keys(cores),
    (core) => Object.entries(cores).find(([name]) => name === core)?.[1] ?? [],
    { nowMs: () => NOW_MS },
  );
  const { body } = await metrics.render();
  const series = body.split("\n").filter((line) => line.startsWith("podseidon_protector_trouble{"));
  expect(series).toHaveLength(2002);
  const first = `core="core",namespace="${stale.metadata.namespace}",protector="p0"`;
  for (const found of ["belowMinimum", "sourceVanished"])
    expect(series).toContain(`podseidon_protector_trouble{${first},trouble="${found}"} 1`);
  const place = `namespace="${stale.metadata.namespace}",protector="last",trouble="podsVanished"`;
  for (const core of ["core", "second"])
    expect(series).toContain(`podseidon_protector_trouble{core="${core}",${place}} 1`);
  expect(body).not.toContain('protector="stale"');
});
