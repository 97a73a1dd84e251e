import { expect, test } from "vitest";
import { KeyedJobs } from "./keyed-jobs.ts";

test("work of one key is done once at a time, beside that of other keys, and its end can be waited for", async () => {
  const jobs = new KeyedJobs();
  const told: string[] = [];
  const job = Promise.withResolvers<void>();
  const start = (key: string): void => jobs.start(key, () => job.promise.then(() => void told.push(key)));
  for (const key of ["a", "a", "b"]) start(key);
  const ended = jobs.ended().then(() => told.push("ended"));
  await Promise.resolve();
  job.resolve();
  await ended;
  start("a");
  await jobs.ended();
  expect(told).toEqual(["a", "b", "ended", "a"]);
});
