import fc from "fast-check";
import { expect, test } from "vitest";
import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import type { LabelSelector } from "../../../shared/schema/podprotector.ts";
import { withoutIgnored } from "./resolve.ts";

const web: LabelSelector = { matchLabels: { app: "web" } };

test("nothing exempted: the selector itself", () => {
  expect(withoutIgnored(web, undefined)).toEqual({ selector: web, note: "" });
});

test("several requirements can't be turned round in one selector: nothing is taken out, and that is said", () => {
  const { selector, note } = withoutIgnored(web, { matchLabels: { a: "x", b: "y" } });
  expect(selector).toBe(web);
  expect(note).not.toBe("");
  expect(withoutIgnored(web, {}).selector).toBe(web);
  expect(withoutIgnored(web, { matchExpressions: [{ key: "a", operator: "Odd" }] }).selector).toBe(web);
});

const value = fc.constantFrom("x", "y", "z");
const requirement = fc.oneof(
  fc.record({
    key: fc.constantFrom("a", "b"),
    operator: fc.constantFrom("In", "NotIn"),
    values: fc.array(value, { minLength: 1 }),
  }),
  fc.record({ key: fc.constantFrom("a", "b"), operator: fc.constantFrom("Exists", "DoesNotExist") }),
);
const labels = fc.dictionary(fc.constantFrom("app", "a", "b"), fc.constantFrom("web", "x", "y", "z"));

test("one requirement: exactly the pods that the one selects and the other does not", () => {
  fc.assert(
    fc.property(requirement, labels, (one, of) => {
      const ignored = { matchExpressions: [one] };
      const matches = (selector: LabelSelector): boolean => compileSelector(selector, "fails").matches(of);
      const { selector, note } = withoutIgnored(web, ignored);
      expect(note).toBe("");
      expect(matches(selector)).toBe(matches(web) && !matches(ignored));
    }),
  );
});
