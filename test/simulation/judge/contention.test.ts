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
  ["conflict upon conflict", many(100, 409), ["L5"]],
  ["a write now and then", [...many(30, 409), ...many(1, 200), ...many(30, 409)], []],
  ["conflicts of two protectors", [...many(30, 409), ...many(30, 409, "other")], []],
  ["what is refused for another reason", many(100, 422), []],
] as const)("%s", ([, writes, expected]) => {
  expect(found(writes)).toEqual(expected);
});
