import { expect, test } from "vitest";
import { hasTooManyValues, valueCounter } from "./json-values.ts";

test.each<[string, string, number]>([
  ["names and values", '{"a":1,"b":[true]}', 5],
  ["a text that looks like JSON", JSON.stringify({ note: '[{"a":1},{}]\\' }), 2],
  ["a text that ends with an escape", String.raw`["\\",{}]`, 3],
])("counts the beginnings of %s, wherever chunks end", (_, text, expected) => {
  const bytes = Buffer.from(text);
  for (let at = 0; at <= bytes.length; at++) {
    const valuesIn = valueCounter();
    expect(valuesIn(bytes.subarray(0, at)) + valuesIn(bytes.subarray(at))).toBe(expected);
  }
});

test("a text of megabytes inside an object is one value", () => {
  expect(hasTooManyValues(Buffer.from(JSON.stringify({ text: "{},".repeat(4_000_000) })))).toBe(false);
  expect(hasTooManyValues(Buffer.from(`[${"{},".repeat(4_000_000)}0]`))).toBe(true);
});
