import { expect, test } from "vitest";
import { alternativeName, labelValue, protectorName } from "./names.ts";

const LABEL_VALUE = /^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$/;
const OBJECT_NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;

test.each([
  ["a short name as it is", "web", "web"],
  ["63 characters as they are", "a".repeat(63), "a".repeat(63)],
  ["the beginning of a longer name and a hash", "b".repeat(64), `${"b".repeat(46)}-92dc1b0b6bb1e1b3`],
  ["a cut that would end in a separator", `${"c".repeat(44)}--${"d".repeat(40)}`, `${"c".repeat(44)}-`],
  ["a name with characters that a label value may not have", "system:web", "system-web-"],
  ["a name of such characters only", ":::", ""],
])("a label value is %s", (_, name, expected) => {
  const value = labelValue(name);
  expect(value).toMatch(LABEL_VALUE);
  if (expected.length < 47 && expected !== name) expect(value.startsWith(expected)).toBe(true);
  if (name.length <= 63 && expected === name) expect(value).toBe(name);
});

test("long names that differ only at their end get different label values and names", () => {
  const [one, two] = [`deployment-${"x".repeat(250)}1`, `deployment-${"x".repeat(250)}2`];
  expect(labelValue(one)).not.toBe(labelValue(two));
  expect(protectorName(one)).not.toBe(protectorName(two));
  expect(protectorName(one)).toMatch(OBJECT_NAME);
});

test("a protector has upstream's name wherever an object may have it", () => {
  expect(protectorName("deployment-web")).toBe("deployment-web");
  expect(protectorName(`deployment-${"y".repeat(242)}`)).toHaveLength(253);
  expect(protectorName(`deployment-${"y".repeat(242)}`)).toBe(`deployment-${"y".repeat(242)}`);
});

test("the alternative to a taken name differs from source to source", () => {
  const names = ["deployment/a/web", "deployment/b/web", "scale/a/web"].map((key) =>
    alternativeName("deployment-web", key),
  );
  expect(new Set(names).size).toBe(3);
  for (const name of names) expect(name).toMatch(OBJECT_NAME);
  expect(alternativeName(`deployment-${"z".repeat(242)}`, "deployment/a/z")).toMatch(OBJECT_NAME);
});
