/** Measures that Biome does not check: short lines of source and prose, short files, and one name for one type. */
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

const pages = globSync("**/*.md", { cwd: root, exclude: (path) => /(^|\/)(node_modules|dist)$/.test(path) }).sort();

/** The lines of a page, without its tables, blocks of code, and targets of links, none of which can be broken. */
function proseOf(markdown: string): readonly string[] {
  return markdown
    .replace(/^(\s*)(```|~~~)[\s\S]*?^\1\2\s*$/gm, (block) => block.replace(/[^\n]/g, ""))
    .split("\n")
    .map((line) => (/^\s*\|/.test(line) ? "" : line.replaceAll(/\]\([^()\s]*\)/g, "]()")));
}

test("no line of prose is longer than those of the source", () => {
  const long = pages.flatMap((file) =>
    proseOf(readFileSync(join(root, file), "utf8")).flatMap((line, index) =>
      line.length > MAX_COLUMNS ? [`${file}:${index + 1}`] : [],
    ),
  );
  expect(long).toEqual([]);
});

test.each<[string, number]>([
  [`${"word ".repeat(30)}\n`, 150],
  [`| ${"cell ".repeat(30)} |\n`, 0],
  [`  \`\`\`sh\n  ${"word ".repeat(30)}\n  \`\`\`\n`, 0],
  [`[page](${"x".repeat(150)})\n`, 8],
])("the prose of %j", (markdown, columns) => {
  expect(Math.max(...proseOf(markdown).map(({ length }) => length))).toBe(columns);
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

// Files of one process share modules: a hook of a shared module would belong to the first file that imports it alone.
test("only test files have hooks at the top level", () => {
  const hook = /^(?:before|after)(?:Each|All)\(/;
  const shared = sources.filter(
    ({ file, lines }) => !file.endsWith(".test.ts") && lines.some((line) => hook.test(line)),
  );
  expect(shared.map(({ file }) => file)).toEqual([]);
});
