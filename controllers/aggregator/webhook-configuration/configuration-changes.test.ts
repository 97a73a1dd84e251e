import { expect, test } from "vitest";
import { changesBetween } from "./configuration-changes.ts";

const RULE = { apiGroups: [""], apiVersions: ["v1"], operations: ["DELETE"], resources: ["pods"] };
const CONDITION = { name: "not-terminating", expression: "true" };
const before = {
  name: "pods",
  clientConfig: { service: { namespace: "a" } },
  failurePolicy: "Fail",
  timeoutSeconds: 10,
  rules: [RULE],
  matchConditions: [CONDITION],
  namespaceSelector: { matchExpressions: [{ key: "a", operator: "Exists" }] },
};

test.each<[string, Readonly<Record<string, unknown>>, string, boolean]>([
  ["failures that let pass", { failurePolicy: "Ignore" }, "failurePolicy of pods is Ignore, it was Fail", true],
  ["another webhook", { clientConfig: { service: { namespace: "b" } } }, "clientConfig of pods is another", true],
  ["another timeout", { timeoutSeconds: 7 }, "timeoutSeconds of pods is 7, it was 10", false],
  ["fewer rules", { rules: [] }, "rules of pods is another", true],
  ["more rules", { rules: [RULE, { ...RULE, operations: ["UPDATE"] }] }, "rules of pods is another", false],
  ["fewer conditions", { matchConditions: [] }, "matchConditions of pods is another", false],
  [
    "more conditions",
    { matchConditions: [CONDITION, { name: "never", expression: "false" }] },
    "matchConditions of pods is another",
    true,
  ],
  ["a selector of objects", { objectSelector: { matchLabels: { a: "b" } } }, "objectSelector of pods is another", true],
  [
    "no selector of namespaces",
    { namespaceSelector: { matchExpressions: [] } },
    "namespaceSelector of pods is another",
    false,
  ],
])("%s", (_name, change, text, isWeaker) => {
  expect(changesBetween([before], [{ ...before, ...change }])).toEqual([{ text, isWeaker }]);
});

test("a webhook that is gone is weaker, and a new one is not", () => {
  expect(changesBetween([before], [{ name: "other" }])).toEqual([
    { text: "pods is missing", isWeaker: true },
    { text: "other is new", isWeaker: false },
  ]);
  expect(changesBetween([before, { name: "a" }], [{ name: "a" }, before])).toEqual([]);
});
