import { expect, test } from "vitest";
import { eachAtMost } from "./each-at-most.ts";

test("works on at most so many items at a time, in their order, and on each once", async () => {
  const begun: string[] = [];
  let inFlight = 0;
  let most = 0;
  await eachAtMost(3, new Set("abcdefgh"), async (item, index) => {
    begun.push(`${index}${item}`);
    inFlight++;
    most = Math.max(most, inFlight);
    await Promise.resolve();
    inFlight--;
  });
  expect(begun).toEqual(["0a", "1b", "2c", "3d", "4e", "5f", "6g", "7h"]);
  expect(most).toBe(3);
});

test("rejects with the first failure, and begins no other item", async () => {
  const begun: number[] = [];
  const all = eachAtMost(2, [0, 1, 2, 3, 4, 5], async (item) => {
    begun.push(item);
    await Promise.resolve();
    if (item === 1) throw new Error("one");
  });
  await expect(all).rejects.toThrow("one");
  expect(begun).toEqual([0, 1, 2]);
});
