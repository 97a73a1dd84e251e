import { expect, test } from "vitest";
import type { LabelSelector } from "../../../shared/schema/podprotector.ts";
import { SchemaError } from "../../../shared/schema/schema-error.ts";
import { budgetSelector } from "./budget-selector.ts";

const where = (...matchExpressions: { key: string; operator: string; values?: string[] | null }[]) => ({
  matchExpressions,
});

test.each<[string, LabelSelector]>([
  ["an empty one", {}],
  ["labels", { matchLabels: { app: "web", "example.com/tier": "" } }],
  ["each operator", where({ key: "a", operator: "In", values: ["x"] }, { key: "b", operator: "NotIn", values: ["y"] })],
  ["existence", where({ key: "a", operator: "Exists" }, { key: "b", operator: "DoesNotExist", values: null })],
])("a selector that a protector can hold is taken: %s", (_name, selector) => {
  expect(budgetSelector("selector", selector)).toBe(selector);
});

test.each<[LabelSelector, string]>([
  [where({ key: "not a key", operator: "Exists" }), 'spec.selector: "not a key" is no label key'],
  [where({ key: "a".repeat(400), operator: "Exists" }), "is no label key"],
  [{ matchLabels: { app: "not a value" } }, 'spec.selector: "not a value" is no label value'],
  [where({ key: "app", operator: "In", values: ["v".repeat(64)] }), "is no label value"],
  [where({ key: "app", operator: "Near", values: ["web"] }), "operator Near of label app is unknown"],
  [where({ key: "app", operator: "In", values: [] }), "operator In of label app has no values"],
  [where({ key: "app", operator: "Exists", values: ["web"] }), "operator Exists of label app has values"],
  [where(...Array.from({ length: 65 }, () => ({ key: "app", operator: "Exists" }))), "more than 64 requirements"],
])("%j can't be read", (selector, message) => {
  expect(() => budgetSelector("selector", selector)).toThrow(SchemaError);
  expect(() => budgetSelector("selector", selector)).toThrow(message);
});

test("without a selector there is nothing to check", () => {
  expect([budgetSelector("selector", undefined), budgetSelector("ignoredPodSelector", null)]).toEqual([
    undefined,
    undefined,
  ]);
});
