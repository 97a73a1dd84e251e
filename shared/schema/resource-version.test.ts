import { expect, test } from "vitest";
import {
  hasReached,
  isBehind,
  isOlderVersion,
  MAX_SHARDS,
  oldestComponent,
  positionComponents,
} from "./resource-version.ts";

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

test.each<[string | undefined, string | undefined, boolean]>([
  ["9", "10", true],
  ["10", "10", false],
  ["11", "10", false],
  ["10", "9", false],
  ["x", "10", false],
  ["9", "x", false],
  [undefined, "10", false],
  ["9", undefined, false],
])("version %s is older than %s: %s", (version, than, expected) => {
  expect(isOlderVersion(version, than)).toBe(expected);
  const areComparable = /^\d+$/.test(version ?? "") && /^\d+$/.test(than ?? "");
  expect(hasReached(version, than)).toBe(areComparable && !expected);
});

test.each<[string | undefined, string | undefined, boolean]>([
  ["9", "10", true],
  ["10", "10", false],
  ["11,20", "10,20", false],
  ["11,19", "10,20", true],
  ["9,21", "10,20", true],
  // Of another number of shards.
  ["20,21", "20", false],
  ["19,21", "20", true],
  ["20", "10,20", false],
  ["19", "10,20", true],
  ["19", "20,10", true],
  ["x", "10", false],
  ["9,x", "10", false],
  ["9", "x", false],
  ["", "10", false],
  ["9", undefined, false],
  [undefined, "10", false],
])("position %s is behind the stored %s: %s", (next, stored, expected) => {
  expect(isBehind(next, stored)).toBe(expected);
});

test("the oldest of a position is that of any shard", () => {
  expect(["7,9,8", "9,7,8", "9,8,7"].map(oldestComponent)).toEqual(["7", "7", "7"]);
  expect(oldestComponent("7,x")).toBeUndefined();
});
