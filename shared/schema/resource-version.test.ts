import { expect, test } from "vitest";
import { hasReached, MAX_SHARDS, oldestComponent, positionComponents } from "./resource-version.ts";

test("a position has a component for each shard", () => {
  const versions = Array.from({ length: MAX_SHARDS }, (_, shard) => String(shard + 5));
  expect(positionComponents(versions.join(","))).toEqual(versions);
  expect(oldestComponent(versions.join(","))).toBe("5");
});

// Every decision about a pod of the cell asks for the oldest component of what its aggregator has stored.
test.each([
  ["commas", "1,".repeat(500_000)],
  ["components", `${"1,".repeat(500_000)}1`],
  ["digits", "9".repeat(1_000_000)],
])("a position of a megabyte of %s is none, and is not read to its end", (_, position) => {
  for (let decision = 0; decision < 500; decision++) {
    expect(oldestComponent(position)).toBeUndefined();
    expect(hasReached(position, "1")).toBe(false);
  }
});
