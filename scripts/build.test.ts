import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BuiltPart, build, overBudget, sizeTable } from "./build.ts";

let directory: string;
let first: BuiltPart;
let second: BuiltPart;

async function buildTo(name: string): Promise<BuiltPart> {
  const [part] = await build({ only: ["update-trigger"], outdir: join(directory, name) });
  if (part === undefined) throw new Error("nothing was built");
  return part;
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "podseidon-build-"));
  first = await buildTo("first");
  second = await buildTo("second");
});

afterAll(async () => {
  await rm(directory, { recursive: true, force: true });
});

describe("a bundle", () => {
  test("is the same whenever and wherever it is built", () => {
    expect(readFileSync(first.path, "utf8")).toBe(readFileSync(second.path, "utf8"));
  });

  test("counts what its start loads, and what it does not, apart", () => {
    expect(first.startBytes).toBeGreaterThanOrEqual(readFileSync(first.path).length);
    expect(first.onDemandBytes).toBeGreaterThan(0);
  });
});

test("a part over its budget is found and marked", () => {
  const heavy: BuiltPart = { ...first, name: "webhook", startBytes: 300_001, budgetBytes: 300_000 };
  expect(overBudget([first, heavy])).toEqual([heavy]);
  expect(sizeTable([heavy])).toContain("OVER BUDGET");
  expect(overBudget([{ ...heavy, startBytes: 300_000 }])).toEqual([]);
});
