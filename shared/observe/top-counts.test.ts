import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { TopCounts } from "./top-counts.ts";

function counted(top: TopCounts, names: Readonly<Record<string, number>>): string[] {
  for (const [name, times] of Object.entries(names)) for (let i = 0; i < times; i++) top.add(name, "denied");
  const { counts, gone } = top.settle();
  return [...counts.map(({ name = "(rest)", by }) => `${name} ${by}`), ...gone.map((name) => `gone ${name}`)].sort();
}

describe("the names that are counted most", () => {
  test("have places, and the others are the rest", () => {
    const top = new TopCounts(2);
    expect(counted(top, { a: 1, b: 5, c: 9, d: 1 })).toEqual(["(rest) 2", "b 5", "c 9"]);
  });

  test("a name that is quiet gives its place to one that is not", () => {
    const top = new TopCounts(2);
    expect(counted(top, { a: 9, b: 9 })).toEqual(["a 9", "b 9"]);
    expect(counted(top, { b: 9, c: 9 })).toEqual(["(rest) 9", "b 9"]);
    expect(counted(top, { b: 9, c: 9 })).toEqual(["b 9", "c 9", "gone a"]);
  });

  test("a quiet name keeps its place while nobody needs it", () => {
    const top = new TopCounts(2);
    counted(top, { a: 1 });
    for (let scrape = 0; scrape < 100; scrape++) expect(counted(top, { b: 1 })).toEqual(["b 1"]);
    expect(counted(top, { a: 1 })).toEqual(["a 1"]);
  });

  test("two that are counted alike don't swap", () => {
    const top = new TopCounts(1);
    expect(counted(top, { a: 3, b: 2 })).toEqual(["(rest) 2", "a 3"]);
    for (let scrape = 0; scrape < 20; scrape++) expect(counted(top, { a: 2, b: 3 })).toEqual(["(rest) 3", "a 2"]);
  });

  test("kinds are counted apart", () => {
    const top = new TopCounts(1);
    top.add("a", "allowed");
    top.add("a", "denied");
    top.add("a", "denied");
    expect(top.settle().counts).toEqual([
      { name: "a", kind: "allowed", by: 1 },
      { name: "a", kind: "denied", by: 2 },
    ]);
  });

  test("nothing is lost, and no more names than places have a count", () => {
    const names = fc.array(fc.nat({ max: 60 }), { maxLength: 120 });
    const check = fc.property(fc.integer({ min: 1, max: 5 }), fc.array(names, { maxLength: 20 }), (places, scrapes) => {
      const top = new TopCounts(places);
      const placed = new Set<string>();
      for (const scrape of scrapes) {
        for (const name of scrape) top.add(String(name), "");
        const { counts, gone } = top.settle();
        for (const name of gone) placed.delete(name);
        for (const { name } of counts) if (name !== undefined) placed.add(name);
        expect(counts.reduce((total, { by }) => total + by, 0)).toBe(scrape.length);
        expect(placed.size).toBeLessThanOrEqual(places);
      }
    });
    fc.assert(check);
  });
});
