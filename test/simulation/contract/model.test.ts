import { describe, expect, it } from "vitest";
import { modelServer } from "./model.ts";
import { type Observation, observe } from "./script.ts";

/** `test/conformance/apiserver-model.test.ts` holds the model to the real kube-apiserver with the same script. */
describe("the API server model", () => {
  it("gives the same observations twice, and runs the whole script", async () => {
    const first = await observe(modelServer());
    expect(await observe(modelServer())).toEqual(first);
    const statusOf = (step: string): unknown => first.find((one: Observation) => one.step === step)?.seen.code;
    expect(statusOf("put status at an old version")).toBe(409);
    expect(statusOf("evict an absent pod")).toBe(404);
    expect(first.filter(({ step }) => step === "watched").map(({ seen }) => seen.type)).toEqual([
      "ADDED",
      "MODIFIED",
      "DELETED",
    ]);
    const shards = first.filter(({ step }) => step.includes("a shard"));
    expect(shards).toHaveLength(9);
    for (const { seen } of shards) expect(seen.isExact ?? true).toBe(true);
  });
});
