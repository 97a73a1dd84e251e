import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BuiltPart, build, overBudget, sizeTable } from "./build.ts";
import { pinned } from "./pin-bases.ts";
import { root } from "./root.ts";

const Lock = v.object({ packages: v.record(v.string(), v.looseObject({ version: v.optional(v.string()) })) });

function lockedNode(): string {
  const { packages } = v.parse(Lock, JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")));
  const versions = ["x64", "arm64"].map((kind) => packages[`node_modules/node-linux-${kind}`]?.version);
  expect(new Set(versions).size).toBe(1);
  return versions[0] ?? "";
}

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

afterAll(() => rm(directory, { recursive: true, force: true }));

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
    const packages = components.filter(({ purl }) => purl.startsWith("pkg:npm/"));
    const names = packages.map(({ purl }) => /^pkg:npm\/([^@]+)@/.exec(purl)?.[1] ?? purl);
    expect(names).toEqual(expect.arrayContaining(["%40kubernetes/client-node", "js-yaml", "pino", "valibot"]));
    expect(names.filter((name) => /^(hono|vitest|esbuild|typescript|%40types\/.*)$/.test(name))).toEqual([]);
    const locked = v.parse(Lock, JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8"))).packages;
    for (const { purl, version, licenses } of packages) {
      const name = decodeURIComponent(/^pkg:npm\/([^@]+)@/.exec(purl)?.[1] ?? "");
      const versions = Object.entries(locked).filter(([path]) => path.endsWith(`node_modules/${name}`));
      expect(versions.map(([, found]) => found.version)).toContain(version);
      expect(licenses).not.toEqual([]);
    }
  });

  test("lists Node.js, which is the version that the lock file names", () => {
    const { components } = v.parse(Bill, JSON.parse(billOf("first")));
    const others = components.filter(({ purl }) => !purl.startsWith("pkg:npm/")).map(({ purl }) => purl);
    expect(others).toEqual([`pkg:generic/node@${lockedNode()}`]);
  });

  test("is not written for a Node.js that does not know the flags of the manifests", async () => {
    const node = join(directory, "old-node");
    writeFileSync(node, '#!/bin/sh\necho "$0: bad option: $1" >&2\nexit 9\n', { mode: 0o755 });
    const built = build({ only: ["update-trigger"], outdir: join(directory, "old"), sbom: true, node });
    await expect(built).rejects.toThrow("bad option: --max-old-space-size-percentage=75");
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

describe("the bases of the image", () => {
  const containerfile = readFileSync(join(root, "Containerfile"), "utf8");
  const bases = [...containerfile.matchAll(/^ARG (\w+)_BASE=(.*)$/gm)].map(([, name, image]) => [name, image]);

  test("have the Node.js of the lock file, and a digest", () => {
    const digest = "@sha256:[0-9a-f]{64}$";
    const version = lockedNode();
    expect(bases).toEqual([
      ["BUILD", expect.stringMatching(`^docker\\.io/library/node:${version}-trixie-slim${digest}`)],
      ["RUN", expect.stringMatching(`^gcr\\.io/distroless/nodejs${version.split(".")[0]}-debian13:nonroot${digest}`)],
    ]);
    expect(containerfile).toContain(`mirror.example.com/node:${version}-trixie-slim`);
  });

  test("are pinned by the digests that their registries have, and pinned again by later ones", () => {
    const digest = (digit: string): string => `sha256:${digit.repeat(64)}`;
    const once = pinned(containerfile, () => digest("a"));
    expect(once.match(/@sha256:a{64}$/gm)).toHaveLength(2);
    expect(pinned(once, () => digest("b"))).toBe(once.replaceAll(digest("a"), digest("b")));
    expect(() => pinned(containerfile, () => "")).toThrow("node:");
  });
});
