/**
 * Selectors and labels for property tests: few keys and values, so that they match, and every shape that the API
 * allows.
 */
import fc from "fast-check";
import type { LabelSelector } from "../../../shared/schema/podprotector.ts";

const key = fc.constantFrom("app", "tier", "zone", "release", "__proto__", "constructor");
const value = fc.constantFrom("", "a", "b", "c", "d", "e");
const operator = fc.oneof(
  { weight: 12, arbitrary: fc.constantFrom("In", "NotIn", "Exists", "DoesNotExist") },
  { weight: 1, arbitrary: fc.constantFrom("in", "Gt", "") },
);

export const anyLabels: fc.Arbitrary<Readonly<Record<string, string>>> = fc.dictionary(key, value, { maxKeys: 6 });

const expression = fc.record({
  key,
  operator,
  values: fc.option(fc.array(value, { maxLength: 4 }), { nil: null, freq: 8 }),
});

export const anySelector: fc.Arbitrary<LabelSelector> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ matchLabels: fc.dictionary(key, value, { maxKeys: 4 }) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      matchLabels: fc.dictionary(key, value, { maxKeys: 2 }),
      matchExpressions: fc.array(expression, { maxLength: 4 }),
    }),
  },
  { weight: 1, arbitrary: fc.constant({}) },
);
