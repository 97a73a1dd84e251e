import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../../../scripts/root.ts";
import { edited } from "./patch-sources.ts";
import { RULE_NAMES, RULES } from "./rules.ts";

describe.for(RULE_NAMES)("rule %s", (name) => {
  it.for(RULES[name].edits)("its text occurs once in $file", (edit) => {
    const source = readFileSync(join(root, edit.file), "utf8");
    expect(edited(source, [edit])).not.toBe(source);
  });
});

it("an edit whose text is missing, or occurs twice, is an error", () => {
  const edit = { file: "a.ts", find: "x = 1", replace: "x = 2" };
  expect(edited("x = 1;", [edit])).toBe("x = 2;");
  expect(() => edited("y = 1;", [edit])).toThrow("a.ts does not have this text exactly once: x = 1");
  expect(() => edited("x = 1; x = 1;", [edit])).toThrow("exactly once");
});
