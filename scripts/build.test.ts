import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BuiltPart, build, overBudget, sizeTable } from "./build.ts";
import { root } from "./root.ts";

const Lock = v.object({ packages: v.record(v.string(), v.looseObject({ version: v.optional(v.string()) })) });

let directory: string;
let first: BuiltPart;
let second: BuiltPart;

async function buildTo(name: string): Promise<BuiltPart> {
  const [part] = await build({ only: ["update-trigger"], outdir: join(directory, name), sbom: true });
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

describe("the bill of materials", () => {
  const Bill = v.object({
    components: v.array(v.object({ purl: v.string(), version: v.string(), licenses: v.array(v.unknown()) })),
  });
  const billOf = (name: string): string => readFileSync(join(directory, name, "sbom.cdx.json"), "utf8");

  test("lists the packages in the bundles with versions and licences, and no others", () => {
    const { components } = v.parse(Bill, JSON.parse(billOf("first")));
    const names = components.map(({ purl }) => /^pkg:npm\/([^@]+)@/.exec(purl)?.[1] ?? purl);
    expect(names).toEqual(expect.arrayContaining(["%40kubernetes/client-node", "js-yaml", "pino", "valibot"]));
    expect(names.filter((name) => /^(hono|vitest|esbuild|typescript|%40types\/.*)$/.test(name))).toEqual([]);
    const locked = v.parse(Lock, JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8"))).packages;
    for (const { purl, version, licenses } of components) {
      const name = decodeURIComponent(/^pkg:npm\/([^@]+)@/.exec(purl)?.[1] ?? "");
      const versions = Object.entries(locked).filter(([path]) => path.endsWith(`node_modules/${name}`));
      expect(versions.map(([, found]) => found.version)).toContain(version);
      expect(licenses).not.toEqual([]);
    }
  });

  test("is the same for the same bundles", () => {
    expect(billOf("first")).toBe(billOf("second"));
  });
});

test("a part over its budget is found and marked", () => {
  const heavy: BuiltPart = { ...first, name: "webhook", startBytes: 300_001, budgetBytes: 300_000 };
  expect(overBudget([first, heavy])).toEqual([heavy]);
  expect(sizeTable([heavy])).toContain("OVER BUDGET");
  expect(overBudget([{ ...heavy, startBytes: 300_000 }])).toEqual([]);
});
