import { describe, expect, test } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { OUTAGE_MIN_MS, OutageDetector, RECOVERY_MS } from "./outage-detector.ts";

type Step = "succeeded" | "assumeOutage" | "failed" | "silent" | number;

async function play(steps: readonly Step[]): Promise<boolean> {
  const time = new VirtualTime();
  const outage = new OutageDetector(time.clock);
  for (const step of steps) {
    if (typeof step === "number") await time.advance(step);
    else if (step === "succeeded") outage.succeeded();
    else if (step === "assumeOutage") outage.assumeOutage();
    else outage.failed(step === "silent");
  }
  return outage.isRecovering;
}

describe("a core that has just come back may have been restored", () => {
  test.each<[string, readonly Step[], boolean]>([
    ["after its first answer: nothing is known of it", ["succeeded"], false],
    ["a connection that broke and works again", ["succeeded", 5_000, "failed", 100, "succeeded"], false],
    ["failures for longer than a connection's", ["succeeded", "failed", OUTAGE_MIN_MS, "succeeded"], true],
    ["still out of reach", ["succeeded", "failed", OUTAGE_MIN_MS], false],
    ["silence counts from the last answer", ["succeeded", OUTAGE_MIN_MS, "silent", "succeeded"], true],
    ["one that may have passed while this process stood still", ["succeeded", "assumeOutage"], true],
    ["long enough after it", ["failed", OUTAGE_MIN_MS, "succeeded", RECOVERY_MS], false],
    ["a success in between ends it", ["failed", 900, "succeeded", "failed", 900, "succeeded"], false],
  ])("%s", async (_name, steps, expected) => {
    expect(await play(steps)).toBe(expected);
  });
});
