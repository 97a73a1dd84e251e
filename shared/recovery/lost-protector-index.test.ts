import { describe, expect, test } from "vitest";
import { protector } from "../../test/support/webhook/fixtures.ts";
import { ProtectorVersion } from "../decide/state/protector-version.ts";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION, SOURCE_NAME_LABEL } from "../schema/annotations.ts";
import { LostProtectorIndex } from "./lost-protector-index.ts";

function generated(minAvailable: number, name = "web", annotations = {}): ProtectorVersion {
  const object = protector(minAvailable, { name });
  const metadata = { ...object.metadata, annotations, finalizers: [GENERATOR_FINALIZER] };
  return new ProtectorVersion({ ...object, metadata }, 0);
}

describe("the lost protectors of a core", () => {
  test("are those that nobody released", () => {
    const recorded = new Set(["recorded"]);
    const index = new LostProtectorIndex({ isRecorded: ({ metadata }) => recorded.has(metadata.name) });
    expect(index.add(generated(1, "web"), false)).toBe(true);
    expect(index.add(generated(1, "recorded"), false)).toBe(false);
    expect(index.add(generated(1, "marked", { [RELEASED_ANNOTATION]: "" }), false)).toBe(false);
    expect([...index.values()].map(({ key }) => key)).toEqual(["default/web"]);
  });

  test.each<[string, Partial<ProtectorVersion["object"]["metadata"]>, boolean, boolean]>([
    ["made by hand is released by its deletion", {}, false, false],
    ["made by hand is lost where the core was restored", {}, true, true],
    ["whose finalizer was taken off still has its source", { labels: { [SOURCE_NAME_LABEL]: "web" } }, false, true],
  ])("one %s", (_, change, isRestored, isLost) => {
    const index = new LostProtectorIndex({ isRecorded: () => false });
    const object = protector(1);
    const version = new ProtectorVersion({ ...object, metadata: { ...object.metadata, ...change } }, 0);
    expect(index.add(version, isRestored)).toBe(isLost);
  });

  test("each have one variant for each other spec of their backups, until they are back", () => {
    const index = new LostProtectorIndex({ isRecorded: () => false });
    index.add(generated(1), false);
    expect(index.addVariant(generated(1), false)).toBeUndefined();
    const [two, three] = [generated(2), generated(3)];
    expect(index.addVariant(two, false)).toBe("default/web#0");
    expect(index.addVariant(generated(2), false)).toBeUndefined();
    expect(index.addVariant(three, false)).toBe("default/web#1");
    expect([index.get("default/web#0"), index.get("default/web#1")]).toEqual([two, three]);
    expect(index.takeVariants("default/web")).toEqual(["default/web#0", "default/web#1"]);
    expect(index.get("default/web#0")).toBeUndefined();
    // Lost again, it has none of the variants of before.
    expect(index.addVariant(three, false)).toBe("default/web#0");
  });

  test("have no more variants than there are cells that are unreachable at once", () => {
    const index = new LostProtectorIndex({ isRecorded: () => false });
    index.add(generated(0), false);
    const keys = Array.from({ length: 20 }, (_, min) => index.addVariant(generated(min + 1), false));
    expect(keys.filter((key) => key !== undefined)).toHaveLength(16);
  });

  test("are kept up to a bound; what is beyond it is told, and is not lost", () => {
    const left: string[] = [];
    const index = new LostProtectorIndex({ isRecorded: () => false, onOverflow: ({ key }) => left.push(key) });
    for (let one = 0; one < 50_000; one++) index.add(generated(1, `web-${one}`), false);
    expect(index.add(generated(1, "beyond"), false)).toBe(false);
    expect(left).toEqual(["default/beyond"]);
    expect(index.get("default/beyond")).toBeUndefined();
    const newer = generated(2, "web-0");
    expect(index.add(newer, false)).toBe(true);
    expect(index.get("default/web-0")).toBe(newer);
    index.take("default/web-1");
    expect(index.add(generated(1, "beyond"), false)).toBe(true);
  });

  const of = (namespace: string, name: string, annotation = ""): ProtectorVersion => {
    const { object } = generated(1, name, { annotation });
    return new ProtectorVersion({ ...object, metadata: { ...object.metadata, namespace } }, 0);
  };

  test("of a namespace that has most give way to those of others", () => {
    const left: string[] = [];
    const index = new LostProtectorIndex({ isRecorded: () => false, onOverflow: ({ key }) => left.push(key) });
    for (let one = 0; one < 50_000; one++) index.add(of("tenant", `web-${one}`), false);
    for (const name of ["web", "db"]) expect(index.add(of("shop", name), false)).toBe(true);
    expect(index.add(of("tenant", "another"), false)).toBe(false);
    expect(left).toEqual(["tenant/web-0", "tenant/web-1", "tenant/another"]);
    expect(["shop/web", "shop/db", "tenant/web-0"].map((key) => index.get(key) !== undefined)).toEqual([
      ...[true, true, false],
    ]);
  });

  test("of a cell that claims many give way to those of other cells, whatever their namespaces", () => {
    const index = new LostProtectorIndex({ isRecorded: () => false });
    for (let one = 0; one < 50_000; one++) index.add(of(`ns-${one}`, "web"), false, "liar");
    for (let one = 0; one < 10; one++) expect(index.add(of("shop", `web-${one}`), false, "honest")).toBe(true);
    expect(index.size).toBe(50_000);
  });

  test("whose younger version does not fit stay in force as they were", () => {
    const left: string[] = [];
    const index = new LostProtectorIndex({ isRecorded: () => false, onOverflow: ({ key }) => left.push(key) });
    for (let one = 0; one < 50_000; one++) index.add(of("shop", `web-${one}`), false);
    const before = index.get("shop/web-7");
    expect(index.add(of("shop", "web-7", "x".repeat(250_000)), false)).toBe(false);
    expect([left, index.get("shop/web-7"), index.size]).toEqual([[], before, 50_000]);
  });

  test("count for as much as they have characters", () => {
    const left: string[] = [];
    const index = new LostProtectorIndex({ isRecorded: () => false, onOverflow: ({ key }) => left.push(key) });
    const large = "x".repeat(250_000);
    for (let one = 0; one < 1_000; one++) index.add(of("tenant", `web-${one}`, large), false);
    expect(index.size).toBeLessThan(850);
    expect(index.add(of("shop", "web", large), false)).toBe(true);
    expect(index.get("tenant/web-0")).toBeUndefined();
  });
});
