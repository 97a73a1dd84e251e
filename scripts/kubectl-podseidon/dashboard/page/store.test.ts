import { expect, test } from "vitest";
import { Store } from "./store.ts";

const HOUR_MS = 3_600_000;
const point = (atMs: number, denied: number) => ({ atMs, available: 4, required: 3, reserved: 0, missing: 0, denied });

test("the points are those of an hour, also when the machine slept meanwhile", () => {
  const store = new Store();
  const hello = { version: "1", cores: ["core"], namespace: "", startedMs: HOUR_MS, slotMs: 15_000 };
  store.greet({ ...hello, history: [point(HOUR_MS, 7)] }, HOUR_MS);
  store.apply({ atMs: 3 * HOUR_MS, point: point(3 * HOUR_MS, 1) }, 3 * HOUR_MS);
  expect(store.points.value.map(({ denied }) => denied)).toEqual([1]);
});
