import { describe, expect, test } from "vitest";
import { makeCell, makeProtector, NOW_MS } from "../../../test/support/decide/fixtures.ts";
import type { CellStatus, Condition, PodProtectorSpec } from "../../schema/podprotector.ts";
import { formatMs } from "../../schema/time.ts";
import { isSuspensionOver, updateConditions } from "./conditions.ts";
import { parseProtector } from "./protector-state.ts";

function conditionsOf(
  cells: CellStatus[],
  spec: Partial<PodProtectorSpec> = {},
  previous?: readonly Condition[],
  problems: readonly string[] = [],
  nowMs = NOW_MS,
): readonly Condition[] {
  const state = parseProtector(makeProtector(cells, spec));
  return updateConditions({ state, previous, generation: 4, nowMs, staleAfterMs: 60_000, problems });
}

function statuses(conditions: readonly Condition[]): Record<string, string> {
  return Object.fromEntries(conditions.map(({ type, status }) => [type, status]));
}

const FINE = { Healthy: "True", DisruptionImpossible: "False", NoPodsMatched: "False", CellStale: "False" };

describe("conditions", () => {
  const cases: [string, CellStatus[], Partial<PodProtectorSpec>, Record<string, string>][] = [
    ["more than enough", [makeCell("a", 3)], {}, FINE],
    ["just enough", [makeCell("a", 2, [], { totalReplicas: 3 })], {}, FINE],
    ["too few available", [makeCell("a", 1, [], { totalReplicas: 3 })], {}, { ...FINE, Healthy: "False" }],
    ["minAvailable equals the number of pods", [makeCell("a", 2)], {}, { ...FINE, DisruptionImpossible: "True" }],
    [
      "minAvailable exceeds the number of pods",
      [makeCell("a", 1)],
      {},
      { ...FINE, Healthy: "False", DisruptionImpossible: "True" },
    ],
    ["minAvailable 0, no pods", [makeCell("a", 0)], { minAvailable: 0 }, { ...FINE, NoPodsMatched: "True" }],
    ["not counted", [], {}, { ...FINE, Healthy: "Unknown", NoPodsMatched: "Unknown" }],
    ["one cell is not counted", [makeCell("a", 3), { cellID: "b" }], {}, { ...FINE, CellStale: "True" }],
    [
      "a removed cell, of which only the epoch remains",
      [makeCell("a", 3), { cellID: "b", aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: 0 } }],
      {},
      FINE,
    ],
    ["on hold", [makeCell("a", 3, [], { hold: "Gone/1" })], {}, { ...FINE, CellStale: "True" }],
    ["another spec", [makeCell("a", 3, [], { specHash: "other" })], {}, { ...FINE, CellStale: "True" }],
    ["heartbeat in time", [makeCell("a", 3, [], { heartbeatTime: formatMs(NOW_MS - 60_000) })], {}, FINE],
    [
      "heartbeat too old",
      [makeCell("a", 3, [], { heartbeatTime: formatMs(NOW_MS - 60_001) })],
      {},
      { ...FINE, CellStale: "True" },
    ],
  ];
  test.each(cases)("%s", (_, cells, spec, expected) => {
    expect(statuses(conditionsOf(cells, spec))).toEqual(expected);
  });

  test("does not say that enough are available while a hold lets none of them go", () => {
    const onHold = makeCell("a", 3, [], { hold: "Gone/1" });
    expect(conditionsOf([onHold])[0]).toMatchObject({
      ...{ status: "True", reason: "OnHold" },
      message: "3 of 3 available pods are in cells on hold: none may be disrupted until it ends",
    });
    expect(conditionsOf([onHold, makeCell("b", 3)])[0]).toMatchObject({ reason: "EnoughAvailable" });
    expect(conditionsOf([onHold, makeCell("b", 2)])[0]).toMatchObject({ reason: "OnHold" });
    expect(conditionsOf([onHold], { minAvailable: 4 })[0]).toMatchObject({ reason: "TooFewAvailable" });
  });

  test("does not say that there are more pods than must be available while there are none", () => {
    expect(conditionsOf([makeCell("a", 0)])[1]).toMatchObject({ status: "False", reason: "NoPods" });
    expect(conditionsOf([])[1]).toMatchObject({ status: "False", reason: "NotCounted" });
  });

  test("a selector that can't be read makes the protector unhealthy and says why", () => {
    const [healthy] = conditionsOf([makeCell("a", 3)], {}, undefined, ["operator Gt of label app is unknown"]);
    expect(healthy).toMatchObject({
      status: "False",
      reason: "InvalidSelector",
      message: "operator Gt of label app is unknown",
    });
  });

  test("a message stays within the apiserver's limit, however many findings there are", () => {
    const cells = Array.from({ length: 1024 }, (_, index) =>
      makeCell(`${index}-${"c".repeat(248)}`, 3, [], { specHash: "before the edit" }),
    );
    const problems = Array.from({ length: 1024 }, (_, index) => `operator In of label ${index} has no values`);
    const conditions = conditionsOf(cells, {}, undefined, problems);
    for (const { message } of conditions) expect(message.length).toBeLessThan(32_768);
    expect(conditions.find(({ type }) => type === "CellStale")?.message).toMatch(
      /^0-c+: not counted .*; and 1004 more$/,
    );
  });

  test("a message stays within the apiserver's limit, however exact a time is that a cell has written", () => {
    // The CRD's format of a time admits any number of digits.
    const vanishedTime = `${formatMs(NOW_MS - 1000).slice(0, -1)}${"0".repeat(40_000)}Z`;
    const vanished = conditionsOf([makeCell("a", 3, [], { vanishedPods: 1, vanishedTime })]).at(-1);
    expect(vanished).toMatchObject({ type: "PodsVanished", status: "True" });
    expect(vanished?.message.length).toBeLessThan(32_768);
  });

  test("unchanged conditions are the same object, so that nothing is written", () => {
    const first = conditionsOf([makeCell("a", 3)]);
    expect(conditionsOf([makeCell("a", 3)], {}, first, [], NOW_MS + 5000)).toBe(first);
    const others = ["SourceVanished", "Later"].map((type) => ({
      ...{ type, message: "m", status: "True" as const, reason: "R", lastTransitionTime: formatMs(1) },
    }));
    const withOthers = [...first, ...others];
    expect(conditionsOf([makeCell("a", 3)], {}, withOthers, [], NOW_MS + 5000)).toBe(withOthers);
  });

  test("of an edited spec that changes nothing else show that they are of the edit", () => {
    const state = parseProtector(makeProtector([makeCell("a", 3)]));
    const at = (generation: number, previous?: readonly Condition[]): readonly Condition[] =>
      updateConditions({ state, previous, generation, nowMs: NOW_MS, staleAfterMs: 60_000, problems: [] });
    expect(new Set(at(5, at(4)).map(({ observedGeneration }) => observedGeneration))).toEqual(new Set([5]));
  });

  test("cells that are stale are told in order, whichever comes first in the object", () => {
    const [b, a] = ["b", "a"].map((cellID) => ({ cellID }));
    const found = conditionsOf([b, a].flatMap((cell) => cell ?? []));
    expect(found[3]?.message).toBe("a: not counted yet; b: not counted yet");
  });

  test("a suspension shows its end and its reason, and shows that it has ended", () => {
    const until = formatMs(NOW_MS + 1000);
    const spec = { suspend: { enabled: true, until, reason: "moving" } };
    const first = conditionsOf([makeCell("a", 3)], spec);
    expect(first.at(-1)).toMatchObject({
      type: "Suspended",
      status: "True",
      message: `Every disruption is allowed until ${until}: moving`,
    });
    const facts = parseProtector(makeProtector([], spec)).spec;
    expect([NOW_MS, NOW_MS + 1000].map((nowMs) => isSuspensionOver(facts, first, nowMs))).toEqual([false, true]);
    const second = conditionsOf([makeCell("a", 3)], spec, first, [], NOW_MS + 1000);
    expect(second.at(-1)).toMatchObject({ type: "Suspended", status: "False", reason: "Expired" });
    expect(isSuspensionOver(facts, second, NOW_MS + 2000)).toBe(false);
    const third = conditionsOf([makeCell("a", 3)], {}, second, [], NOW_MS + 2000);
    expect(third.at(-1)).toMatchObject({ type: "Suspended", status: "False", reason: "NotSuspended" });
    const forever = conditionsOf([makeCell("a", 3)], { suspend: { enabled: true } });
    expect(forever.at(-1)?.message).toBe("Every disruption is allowed until it is switched off");
    const partly = conditionsOf([makeCell("a", 3)], { suspend: { enabled: true, cells: ["a", "b"] } });
    expect(partly.at(-1)?.message).toMatch(/^Every disruption in cells a[,;] b is allowed/);
  });

  test("a protector that shares pods names the others of all cells, and says when it shares none any more", () => {
    const cells = (...shared: string[][]): CellStatus[] =>
      shared.map((sharesPodsWith, index) => makeCell(`cell-${index}`, 3, [], { sharesPodsWith }));
    const first = conditionsOf(cells(["b", "a"], ["a", "c", "+4"], ["+2"]));
    expect(first.at(-1)).toMatchObject({
      ...{ type: "SharesPods", status: "True", reason: "PodsShared" },
      message: "Shares pods with a, b, c (+4): a disruption of such a pod needs the quota of each",
    });
    const second = conditionsOf(cells([]), {}, first);
    expect(second.at(-1)).toMatchObject({ type: "SharesPods", status: "False", reason: "NotShared" });
    expect(conditionsOf(cells(["a"]), {}, second).at(-1)).toMatchObject({ status: "True" });
    const many = cells(...Array.from({ length: 1024 }, (_, index) => [`${"p".repeat(500)}-${index}`, "+what"]));
    const { message = "" } = conditionsOf(many).at(-1) ?? {};
    expect(message.length).toBeLessThan(32_768);
    expect(message).toContain(" (+1004): ");
  });

  test("of unknown conditions, no more are kept than a newer version may have, beside those of the generator", () => {
    const one = (type: string, message = "m"): Condition => ({
      ...{ type, message, status: "True", reason: "R", lastTransitionTime: formatMs(1) },
    });
    const junk = Array.from({ length: 40 }, (_, index) => one(`X${index}`));
    // The other conditions are as they are, which is no reason to leave these.
    const known = conditionsOf([makeCell("a", 3)]);
    const stored = [...known, one("Long", "x".repeat(32_000)), ...junk, one("SourceVanished", "x".repeat(9_000))];
    const types = conditionsOf([makeCell("a", 3)], {}, stored).map(({ type }) => type);
    expect(types.filter((type) => type.startsWith("X"))).toHaveLength(16);
    expect([types.includes("Long"), types.includes("SourceVanished")]).toEqual([false, true]);
  });

  test("lastTransitionTime changes with the status only; unknown conditions are kept", () => {
    const foreign: Condition = {
      type: "Foreign",
      status: "True",
      reason: "R",
      message: "m",
      lastTransitionTime: formatMs(1),
    };
    const first = [...conditionsOf([makeCell("a", 3), { cellID: "b" }]), foreign];
    const second = conditionsOf(
      [makeCell("a", 1, [], { totalReplicas: 3 }), { cellID: "c" }],
      {},
      first,
      [],
      NOW_MS + 5000,
    );
    const timeOf = (type: string): string | undefined => second.find((one) => one.type === type)?.lastTransitionTime;
    expect(timeOf("Healthy")).toBe(formatMs(NOW_MS + 5000));
    expect(timeOf("CellStale")).toBe(formatMs(NOW_MS));
    expect(second.find(({ type }) => type === "CellStale")?.message).toBe("c: not counted yet");
    expect(second).toContain(foreign);
  });
});
