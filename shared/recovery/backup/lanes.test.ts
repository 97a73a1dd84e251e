import { expect, test } from "vitest";
import { Lanes } from "./lanes.ts";

test("work of one key is done once at a time, beside that of other keys, and its end can be waited for", async () => {
  const lanes = new Lanes();
  const started: string[] = [];
  const jobs = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const start = (key: string, job = 0): void => {
    lanes.start(key, async () => {
      started.push(key);
      await jobs[job]?.promise;
    });
  };
  for (const key of ["a", "a", "b"]) start(key);
  expect(started).toEqual(["a", "b"]);
  jobs[0]?.resolve();
  await lanes.ended();
  start("a", 1);
  let hasEnded = false;
  const ended = lanes.ended().then(() => {
    hasEnded = true;
  });
  await Promise.resolve();
  expect([started, hasEnded]).toEqual([["a", "b", "a"], false]);
  jobs[1]?.resolve();
  await ended;
});
