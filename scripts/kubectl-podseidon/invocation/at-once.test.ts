import { expect, test } from "vitest";
import { mapAtOnce } from "./at-once.ts";

const progress = { during: <T>(_: string, work: () => Promise<T>): Promise<T> => work() };
const items = Array.from({ length: 100 }, (_, index) => index);

test("a few calls are under way at once, and the results keep the order", async () => {
  let underWay = 0;
  let most = 0;
  const results = await mapAtOnce({ progress }, "trying", items, async (item) => {
    most = Math.max(most, ++underWay);
    await new Promise((resolve) => setImmediate(resolve));
    underWay--;
    return item * 2;
  });
  expect(results).toEqual(items.map((item) => item * 2));
  expect(most).toBe(8);
});

test("after a failure nothing else begins", async () => {
  const begun: number[] = [];
  const failing = mapAtOnce({ progress }, "trying", items, async (item) => {
    begun.push(item);
    await new Promise((resolve) => setImmediate(resolve));
    if (item === 3) throw new Error("forbidden");
  });
  await expect(failing).rejects.toThrow("forbidden");
  await new Promise((resolve) => setImmediate(resolve));
  expect(Math.max(...begun)).toBeLessThan(16);
});
