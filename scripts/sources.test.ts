/** Measures of the source that Biome does not check: short lines and files, and one name for one type. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { root } from "./root.ts";

const MAX_COLUMNS = 120;
const MAX_LINES = 400;

const sources = globSync("**/*.{ts,tsx,mjs}", { cwd: root, exclude: (path) => /(^|\/)(node_modules|dist)$/.test(path) })
  .sort()
  .map((file) => ({ file, lines: readFileSync(join(root, file), "utf8").trimEnd().split("\n") }));

test("no line is longer than the formatter makes it, in strings and comments either", () => {
  const long = sources.flatMap(({ file, lines }) =>
    lines.flatMap((line, index) => (line.length > MAX_COLUMNS ? [`${file}:${index + 1}`] : [])),
  );
  expect(long).toEqual([]);
});

test("no file is long", () => {
  expect(sources.filter(({ lines }) => lines.length > MAX_LINES).map(({ file }) => file)).toEqual([]);
});

test("an exported type has a name of its own", () => {
  const files = new Map<string, string[]>();
  for (const { file, lines } of sources) {
    for (const line of lines) {
      const [, name] = /^export (?:type|interface|class) ([A-Z]\w*)/.exec(line) ?? [];
      if (name !== undefined) files.set(name, [...(files.get(name) ?? []), file]);
    }
  }
  expect([...files].filter(([, places]) => places.length > 1)).toEqual([]);
});
