import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { withoutManagedFields } from "./managed-fields.ts";

const cut = (json: string): string => withoutManagedFields(Buffer.from(json)).toString();

/** The reference, by parsing. */
function emptied(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(emptied);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [
      name,
      name === "managedFields" && Array.isArray(one) ? [] : emptied(one),
    ]),
  );
}

describe("withoutManagedFields", () => {
  test.each([
    [
      "an object of an apiserver",
      '{"a":1,"managedFields":[{"fieldsV1":{"k:{\\"x\\":\\"]}\\"}":{}}}],"b":2}',
      '{"a":1,"managedFields":[],"b":2}',
    ],
    ["the first name of its object", '{"managedFields":[[1],[2]]}', '{"managedFields":[]}'],
    [
      "several of them",
      '[{"managedFields":["é"]},{"n":"é","managedFields":["\\\\"]}]',
      '[{"managedFields":[]},{"n":"é","managedFields":[]}]',
    ],
    ["none", '{"a":[]}', '{"a":[]}'],
    ["an empty one", '{"managedFields":[]}', '{"managedFields":[]}'],
    ["one that is no array", '{"managedFields":null}', '{"managedFields":null}'],
    ["a text that looks like one", '{"a":",\\"managedFields\\":[1]"}', '{"a":",\\"managedFields\\":[1]"}'],
    ["a name that ends like one", '{"\\"managedFields":[1]}', '{"\\"managedFields":[1]}'],
  ])("%s", (_, json, expected) => {
    expect(cut(json)).toBe(expected);
  });

  test.each([
    ["cut in the array", '{"managedFields":[{"a"'],
    ["cut in a text", '{"managedFields":["a'],
    ["cut behind a backslash", '{"managedFields":["a\\'],
    ["cut behind the array", '{"managedFields":[1]'],
    ["a bracket too many", '{"managedFields":[1]]}'],
  ])("invalid JSON stays invalid: %s", (_, json) => {
    expect(() => JSON.parse(cut(json))).toThrow(SyntaxError);
  });

  test("equals parsing, emptying and writing", () => {
    const name = fc.oneof(fc.constant("managedFields"), fc.string());
    const { tree } = fc.letrec((tie) => ({
      tree: fc.oneof(
        { depthSize: "small" },
        fc.oneof(
          fc.string({ unit: "grapheme" }),
          fc.constantFrom('"managedFields":[', ',"managedFields":[', "]", "\\"),
          fc.integer(),
        ),
        fc.array(tie("tree"), { maxLength: 4 }),
        fc.dictionary(name, tie("tree"), { maxKeys: 4 }),
      ),
    }));
    fc.assert(
      fc.property(tree, (value) => {
        expect(JSON.parse(cut(JSON.stringify(value)))).toEqual(emptied(JSON.parse(JSON.stringify(value))));
      }),
    );
  });
});
