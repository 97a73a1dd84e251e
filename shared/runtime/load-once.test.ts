import { expect, test } from "vitest";
import { loadOnce } from "./load-once.ts";

test("loads once, and again after a failure", async () => {
  const ends = [Promise.reject(new Error("EMFILE")), Promise.resolve("module")];
  let loads = 0;
  const load = loadOnce(() => {
    const end = ends[loads++];
    if (end === undefined) throw new Error("loaded a third time");
    return end;
  });
  await Promise.all([1, 2].map(() => expect(load()).rejects.toThrow("EMFILE")));
  expect(await Promise.all([load(), load()])).toEqual(["module", "module"]);
  expect([await load(), loads]).toEqual(["module", 2]);
});
