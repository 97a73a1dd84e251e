import { describe, expect, test } from "vitest";
import { entriesOf, listsOf, parseTemplate, readTemplate, type Template } from "./object-paths.ts";

const object = {
  metadata: { name: "web", labels: { "app.kubernetes.io/name": "shop" } },
  spec: {
    size: 3,
    none: null,
    groups: [
      { name: "a", size: 1 },
      { name: "b,c!=d", size: 2 },
    ],
    odd: { "x.y": "z" },
  },
};

function template(text: string): Template {
  const found = parseTemplate(text);
  if (found === undefined) throw new Error(`not a template: ${text}`);
  return found;
}

describe("a template", () => {
  test.each<[string, unknown]>([
    [".spec.size", 3],
    [".metadata.labels['app.kubernetes.io/name']", "shop"],
    [".spec['odd']['x.y']", "z"],
    [".spec.groups[1].size", 2],
    [".spec.groups[2].size", undefined],
    [".spec.groups", object.spec.groups],
    [".spec.none", undefined],
    [".spec.none.deeper", undefined],
    [".spec.size.deeper", undefined],
    [".constructor", undefined],
    [".spec.groups.length", undefined],
    ["{.spec.size}", 3],
    ["db", "db"],
    ["app={.metadata.name},tier={.spec.groups[0].name}", "app=web,tier=a"],
    ["app={.metadata.name},size={.spec.size}", "app=web,size=3"],
    ["app={.metadata.missing}", undefined],
    // A value adds no requirement of its own to a selector.
    ["app={.spec.groups[1].name}", undefined],
    ["app={.spec.groups}", undefined],
  ])("%s", (text, expected) => {
    expect(readTemplate(template(text), object, undefined)).toEqual(expected);
  });

  test.each(["", ".", ".spec.", "..spec", ".spec[", ".spec[x]", ".a[*].b[*]", "{", "a}b", "{spec}", "a{}", "{.a}}"])(
    "is not %j",
    (text) => {
      expect(parseTemplate(text)).toBeUndefined();
    },
  );

  test("with [*] reads each entry of its list", () => {
    const name = template("{.metadata.name}-{.spec.groups[*].name}");
    expect(listsOf(name)).toEqual([".spec.groups[*]"]);
    const entries = entriesOf(object, [template(".spec.size"), name]) ?? [];
    expect(entries).toEqual(object.spec.groups);
    expect(readTemplate(name, object, entries[0])).toBe("web-a");
    expect(readTemplate(template(".spec.groups[*].size"), object, entries[1])).toBe(2);
    expect(entriesOf(object, [template(".spec.size[*].name")])).toBeUndefined();
    expect(entriesOf(object, [template(".spec.size")])).toBeUndefined();
  });
});
