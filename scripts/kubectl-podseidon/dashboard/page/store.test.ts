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

test("each refusal is announced once, whenever it happened and arrived; those from before the page are not", () => {
  const store = new Store();
  const refusal = (id: string, count: number, lastMs: number) => {
    return {
      core: 0,
      id,
      namespace: "shop",
      name: id,
      what: "denied",
      reason: "",
      message: "",
      count,
      firstMs: 0,
      lastMs,
    };
  };
  const announced = () => store.takeUnannounced().map(({ id }) => id);
  const hello = { version: "1", cores: ["core"], namespace: "", startedMs: 0, slotMs: 15_000, history: [] };
  store.greet(hello, 0);
  store.apply({ atMs: 0, refusals: [refusal("old", 1, 0)] }, 0);
  expect(announced()).toEqual([]);
  store.apply({ atMs: 10_000, refusals: [refusal("web", 1, 4_000), refusal("old", 2, 5_000)] }, 10_000);
  expect(announced()).toEqual(["old", "web"]);
  store.apply({ atMs: 20_000, refusals: [refusal("late", 1, 4_500)] }, 20_000);
  expect([announced(), announced()]).toEqual([["late"], []]);
  store.greet(hello, 30_000);
  store.apply({ atMs: 30_000, refusals: [refusal("old", 2, 5_000), refusal("web", 2, 25_000)] }, 30_000);
  expect(announced()).toEqual(["web"]);
});
