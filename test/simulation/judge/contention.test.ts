import { expect, it } from "vitest";
import { Contention } from "./contention.ts";

const found = (writes: readonly (readonly [string, number])[]): string[] => {
  const violations: string[] = [];
  const contention = new Contention((invariant) => violations.push(invariant));
  for (const [index, [protector, status]] of writes.entries()) contention.wrote(protector, status, index);
  return violations;
};
const many = (count: number, status: number, name = "web"): (readonly [string, number])[] =>
  Array.from({ length: count }, () => [name, status] as const);

it.for([
  ["too many conflicts without a write violate L5", many(100, 409), ["L5"]],
  ["a write ends a row of conflicts", [...many(30, 409), ...many(1, 200), ...many(30, 409)], []],
  ["conflicts of two protectors are counted apart", [...many(30, 409), ...many(30, 409, "other")], []],
  ["other errors are no conflicts", many(100, 422), []],
] as const)("%s", ([, writes, expected]) => {
  expect(found(writes)).toEqual(expected);
});
