import { describe, expect, test } from "vitest";
import { makeSpec } from "../../../test/support/decide/fixtures.ts";
import type { LabelSelector } from "../../schema/podprotector.ts";
import { compileSelector, ignoredBy } from "./selector.ts";
import { specHash } from "./spec-facts.ts";

const WEB = { app: "web", tier: "front", empty: "" };
const expression = (operator: string, values?: string[] | null): LabelSelector => ({
  matchExpressions: [{ key: "app", operator, ...(values === undefined ? {} : { values }) }],
});

const cases: [string, LabelSelector, boolean, boolean][] = [
  ["nothing asked: everything", {}, true, true],
  ["label", { matchLabels: { app: "web" } }, true, false],
  ["labels", { matchLabels: { app: "web", tier: "back" } }, false, false],
  ["In", expression("In", ["api", "web"]), true, false],
  ["In others", expression("In", ["api"]), false, false],
  ["NotIn", expression("NotIn", ["api"]), true, true],
  ["NotIn, named", expression("NotIn", ["web"]), false, true],
  ["Exists", expression("Exists"), true, false],
  ["Exists with null", expression("Exists", null), true, false],
  ["DoesNotExist", expression("DoesNotExist"), false, true],
  [
    "a member of Object.prototype is no label",
    { matchExpressions: [{ key: "constructor", operator: "Exists" }] },
    false,
    false,
  ],
  [
    "In with an empty value is not a missing label",
    { matchExpressions: [{ key: "nowhere", operator: "In", values: [""] }] },
    false,
    false,
  ],
  [
    "NotIn with an empty value is not a missing label",
    { matchExpressions: [{ key: "nowhere", operator: "NotIn", values: [""] }] },
    true,
    true,
  ],
  ["In with an empty value", { matchExpressions: [{ key: "empty", operator: "In", values: [""] }] }, true, false],
];
test.each(cases)("%s", (_, selector, web, none) => {
  for (const unreadable of ["matches", "fails"] as const) {
    const { matches, problems } = compileSelector(selector, unreadable);
    expect([matches(WEB), matches({}), problems]).toEqual([web, none, []]);
  }
});

test.each([
  ["Gt", ["1"]],
  ["in", ["web"]],
  ["In", []],
  ["NotIn", null],
])("an unreadable requirement (%s %s) is reported, protects more, and counts less", (operator, values) => {
  const selector: LabelSelector = { ...expression(operator, values), matchLabels: { tier: "front" } };
  const [protect, count] = [compileSelector(selector, "matches"), compileSelector(selector, "fails")];
  expect([protect.matches(WEB), protect.matches({})]).toEqual([true, false]);
  expect([count.matches(WEB), count.matches({})]).toEqual([false, false]);
  expect(protect.problems).toHaveLength(1);
});

test("the spec's hash covers what the counts depend on, in any order", () => {
  const base = makeSpec({
    selector: { matchLabels: { a: "1", b: "2" }, matchExpressions: [{ key: "k", operator: "In", values: ["x", "y"] }] },
    availabilityConditions: ["p", "q"],
  });
  const same = [
    { ...base, minAvailable: 99, suspend: { enabled: true }, unhealthyPodPolicy: "IfHealthyBudget" as const },
    {
      ...base,
      selector: { ...base.selector, matchLabels: { b: "2", a: "1" } },
      availabilityConditions: ["q", "p", "q"],
    },
    { ...base, selector: { ...base.selector, matchExpressions: [{ operator: "In", values: ["y", "x"], key: "k" }] } },
    { ...base, selector: { matchLabels: { other: "x" } }, aggregationSelector: base.selector },
    { ...base, minReadySeconds: -1 },
  ];
  for (const spec of same) expect(specHash(spec)).toBe(specHash(base));
  const different = [
    { ...base, minReadySeconds: 1 },
    { ...base, availabilityConditions: ["p"] },
    { ...base, selector: { matchLabels: { a: "1" } } },
    { ...base, selector: { ...base.selector, matchExpressions: [{ key: "k", operator: "In", values: ["x", "z"] }] } },
    { ...base, aggregationSelector: {} },
    {
      ...base,
      selector: { ...base.selector, matchExpressions: [{ key: "k", operator: "NotIn", values: ["x", "y"] }] },
    },
  ];
  for (const spec of different) expect(specHash(spec)).not.toBe(specHash(base));
});

test("the spec's hash is the one that earlier versions wrote: they work beside this one during an upgrade", () => {
  const expressions = [
    { key: "z", operator: "Exists" },
    { key: "k", operator: "In", values: ["y", "x"] },
  ];
  const selector = { matchLabels: { b: "2", a: "1" }, matchExpressions: expressions };
  const spec = makeSpec({ selector, minReadySeconds: 5, availabilityConditions: ["q", "p"] });
  expect(specHash(spec)).toBe("3a4cf5a7aebdcb48");
  expect(specHash({ ...spec, healthCriterion: "Ready" })).toBe("f43e8e0dcf3cca8e");
  const turned = { ...selector, matchExpressions: expressions.toReversed() };
  expect(specHash({ ...spec, selector: turned })).toBe(specHash(spec));
});

test.each<[LabelSelector | undefined, boolean | undefined]>([
  [undefined, undefined],
  [{}, undefined],
  [{ matchLabels: { app: "web" } }, true],
  [expression("In", ["web"]), true],
  [expression("In", ["api"]), false],
  [expression("Odd"), false],
])("pods that %j ignores", (selector, expected) => {
  expect(ignoredBy(selector)?.(WEB)).toBe(expected);
});

describe("a selector beyond the bounds", () => {
  const labels = (count: number): Record<string, string> =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, "v"]));
  const values = (count: number): string[] => Array.from({ length: count }, (_, index) => `v${index}`);
  test.each<LabelSelector>([
    { matchLabels: labels(64) },
    { matchExpressions: values(64).map((key) => ({ key, operator: "DoesNotExist" })) },
    { matchExpressions: [{ key: "k0", operator: "In", values: [...values(255), "v"] }] },
  ])("as large as may be is read: %#", (selector) => {
    const { matches, problems } = compileSelector(selector, "fails");
    expect([matches(labels(64)), problems]).toEqual([true, []]);
  });

  test.each<[string, LabelSelector]>([
    ["labels", { matchLabels: labels(65) }],
    ["requirements", { matchExpressions: values(65).map((key) => ({ key, operator: "DoesNotExist" })) }],
    ["values", { matchExpressions: [{ key: "a", operator: "In", values: values(257) }] }],
  ])("has too many %s: it is reported, and the rest is enforced", (_, selector) => {
    const all = { ...labels(64), a: "other" };
    expect(compileSelector(selector, "matches").matches(all)).toBe(true);
    expect(compileSelector(selector, "fails").matches(all)).toBe(false);
    expect(compileSelector(selector, "matches").problems).toEqual([expect.stringContaining("more than")]);
  });
});
