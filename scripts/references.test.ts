/**
 * References from code, tests, manifests and documents lead somewhere: to a heading of a page, a decision record, or an
 * invariant of `docs/design.md#invariants`. `docs.test.ts` checks the links between documents.
 */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { anchorsOf } from "../test/support/documentation.ts";
import { root } from "./root.ts";

const read = (path: string): string => readFileSync(join(root, path), "utf8");

const FILES = globSync("**/*.{ts,mjs,md,yaml}", {
  cwd: root,
  exclude: (path) => /(^|\/)(node_modules|dist)$/.test(path),
}).sort();

interface Reference {
  readonly file: string;
  readonly line: number;
  readonly found: string;
  readonly groups: readonly string[];
}

function referencesIn(files: readonly string[], pattern: RegExp): readonly Reference[] {
  return files.flatMap((file) => {
    const text = read(file);
    return [...text.matchAll(pattern)].map((match) => ({
      file,
      line: text.slice(0, match.index).split("\n").length,
      found: match[0],
      groups: match.slice(1),
    }));
  });
}

const where = ({ file, line, found }: Reference): string => `${file}:${line} ${found}`;

test("every heading that is cited is there", () => {
  const anchors = new Map<string, ReadonlySet<string>>();
  const cited = referencesIn(FILES, /(?<![\w./-])((?:docs\/[\w/-]+|[A-Z]+)\.md)#([\w-]+)/g);
  const broken = cited.filter(({ groups: [page = "", anchor = ""] }) => {
    if (!anchors.has(page)) anchors.set(page, FILES.includes(page) ? anchorsOf(read(page)) : new Set());
    return anchors.get(page)?.has(anchor) !== true;
  });
  expect(broken.map(where)).toEqual([]);
});

test("every decision that is cited is there", () => {
  const records = globSync("docs/decisions/*.md", { cwd: root }).map((path) => Number(path.slice(15, 19)));
  const cited = referencesIn(FILES, /\bdecisions?[ /](\d{1,4})\b/gi);
  expect(cited.filter(({ groups: [number] }) => !records.includes(Number(number))).map(where)).toEqual([]);
});

test("every dependency has its reason", () => {
  const manifest: Partial<Record<string, Record<string, string>>> = JSON.parse(read("package.json"));
  const packages = ["dependencies", "devDependencies", "optionalDependencies"].flatMap((kind) =>
    Object.keys(manifest[kind] ?? {}),
  );
  const [, table = ""] = read("ARCHITECTURE.md").split("## Dependencies");
  expect(packages.filter((name) => !table.includes(`\`${name}\``))).toEqual([]);
});

describe("nothing cites", () => {
  test("a section by its number", () => {
    expect(referencesIn(FILES, /\b(?:design,? (?:\d|[SL]\d)|style\srule)/gi).map(where)).toEqual([]);
  });

  test("a document that the repository lacks", () => {
    expect(referencesIn(FILES, /(?:\.\.|\/work)\/shared\/[\w-]+\.md/g).map(where)).toEqual([]);
  });
});

describe("invariants", () => {
  const rows = new Map(
    read("docs/design.md")
      .split("\n")
      .flatMap((line): [string, string][] => {
        const [, id] = /^\| ([SL]\d+) +\|/.exec(line) ?? [];
        return id === undefined ? [] : [[id, line]];
      }),
  );

  test("each that code or a test names is defined", () => {
    const code = FILES.filter((file) => /^(shared|webhook|controllers|test)\/.*\.ts$/.test(file));
    const named = referencesIn(code, /(?<![\w$.#%-])([SL]\d{1,2})(?![\w-])/g);
    expect(named.filter(({ groups: [id = ""] }) => !rows.has(id)).map(where)).toEqual([]);
  });

  test.each([...rows.keys()])("%s is checked by the files of the simulation that its row names", (id) => {
    const files = [...(rows.get(id) ?? "").matchAll(/`(test\/simulation\/[^`]+(?<!\.test)\.ts)`/g)].map(
      ([, file = ""]) => file,
    );
    expect(files).not.toEqual([]);
    expect(files.filter((file) => !new RegExp(`\\b${id}\\b`).test(read(file)))).toEqual([]);
  });
});
