/** docs/defects.md names commits, seeds, scenes and tests: each of them exists. */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { isRule } from "../test/simulation/ablation/rules.ts";
import { REGRESSIONS } from "../test/simulation/seeds.ts";
import { testsNamedIn } from "../test/support/documentation.ts";
import { root } from "./root.ts";

const ROW = /^\| `([0-9a-f]{7})` +\| (.+?) +\| (.+?) +\| (.+?) +\|$/;
const SEEDS_FILE = "`test/simulation/seeds.ts`";

const page = readFileSync(join(root, "docs/defects.md"), "utf8");
const rows = page.split("\n").filter((line) => /^\| +`/.test(line));

/** A row without the spaces that align its columns. */
const textOf = (row: string): string => row.replaceAll(/ +/g, " ");

function cellsOf(row: string): { commit: string; foundBy: string; heldBy: string } {
  const [, commit = "", foundBy = "", , heldBy = ""] = ROW.exec(row) ?? [];
  return { commit, foundBy, heldBy };
}

function git(...args: readonly string[]): { status: number | null; output: string } {
  const { status, stdout } = spawnSync("git", args, { cwd: root, encoding: "utf8" });
  return { status, output: stdout.trim() };
}

test("each row has a commit, how the defect was found, and what holds it", () => {
  expect(rows.length).toBeGreaterThan(60);
  expect(rows.filter((row) => !ROW.test(row))).toEqual([]);
});

test("no defect has two rows, and no heading two tables", () => {
  const lines = page.split("\n");
  const twice = rows.map(textOf).filter((row, index, all) => all.indexOf(row) !== index);
  expect(twice).toEqual([]);
  const count = (start: string): number => lines.filter((line) => line.startsWith(start)).length;
  expect(count("| mended by")).toBe(count("## "));
  expect(new Set(lines.filter((line) => line.startsWith("## "))).size).toBe(count("## "));
});

describe("the history", () => {
  const isWhole = existsSync(join(root, ".git")) && git("rev-parse", "--is-shallow-repository").output === "false";

  test("has each commit, and the one before it, which has the defect", ({ skip }) => {
    skip(!isWhole, "a release or a shallow clone has no history");
    const commits = [...new Set(rows.map((row) => cellsOf(row).commit))];
    expect(commits.filter((commit) => git("rev-parse", "--verify", "--quiet", `${commit}^`).status !== 0)).toEqual([]);
  });
});

test("a seed that is kept is replayed, with the features of its row", () => {
  const lost = rows.map(cellsOf).filter(({ foundBy, heldBy }) => {
    if (heldBy !== SEEDS_FILE) return false;
    const [, seed, feature] = /^seed (\d+)(?:, with `(\w+)`)?$/.exec(foundBy) ?? [];
    const kept = REGRESSIONS.find((one) => one.seed === Number(seed));
    return kept === undefined || (feature !== undefined && !kept.features.some((name) => name === feature));
  });
  expect(lost).toEqual([]);
});

test("every other row is held by a scene or a test", () => {
  const loose = rows.map(cellsOf).filter(({ heldBy }) => {
    const [, scene] = /^scene `(\w+)`$/.exec(heldBy) ?? [];
    if (scene !== undefined) return !isRule(scene);
    return heldBy !== SEEDS_FILE && testsNamedIn(heldBy).length === 0;
  });
  expect(loose).toEqual([]);
});
