import fc from "fast-check";
import { expect, test } from "vitest";
import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import type { LabelSelector } from "../../../shared/schema/podprotector.ts";
import { withoutIgnored } from "./resolve.ts";

const web: LabelSelector = { matchLabels: { app: "web" } };

test("without ignored pods the selector stays", () => {
  expect(withoutIgnored(web, undefined)).toEqual({ selector: web, note: "" });
});

test("several requirements can't be negated in one selector: it stays, and the note says so", () => {
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

test("a single requirement is negated: the selected pods without the ignored ones", () => {
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
