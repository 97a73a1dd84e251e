import { expect, it } from "vitest";
import { LOADED_ON_DEMAND } from "./preload.ts";

it("what the components load on demand is there before anything else happens", async () => {
  expect(LOADED_ON_DEMAND).toContain("webhook/request/bypass.ts");
  let isLoaded = false;
  void import("../../../webhook/request/bypass.ts").then(() => {
    isLoaded = true;
  });
  // As long as virtual time waits between two timers.
  await new Promise<void>((resolve) => process.nextTick(resolve));
  expect(isLoaded).toBe(true);
});
