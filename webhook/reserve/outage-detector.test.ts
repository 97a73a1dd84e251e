import { describe, expect, test } from "vitest";
import type { ReflectorEvent } from "../../shared/kube/informer/reflector-options.ts";
import type { WatchFailureTag } from "../../shared/kube/stream/watch-failure.ts";
import { raw, reflectorHarness } from "../../test/support/kube/reflector-harness.ts";
import { page, ScriptedStream } from "../../test/support/kube/scripted-transport.ts";
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

describe("a core recovers", () => {
  test.each<[string, readonly Step[], boolean]>([
    ["not after its first response", ["succeeded"], false],
    ["not after a connection that broke and works again", ["succeeded", 5_000, "failed", 100, "succeeded"], false],
    ["after failures that last longer than a connection's", ["succeeded", "failed", OUTAGE_MIN_MS, "succeeded"], true],
    ["after failures, counted from the first", ["succeeded", "failed", 600, "failed", 600, "succeeded"], true],
    ["not while it is out of reach", ["succeeded", "failed", OUTAGE_MIN_MS], false],
    ["after a silence, counted from the last response", ["succeeded", OUTAGE_MIN_MS, "silent", "succeeded"], true],
    ["after an outage that this process may have missed", ["succeeded", "assumeOutage"], true],
    ["not any more after the recovery time", ["failed", OUTAGE_MIN_MS, "succeeded", RECOVERY_MS], false],
    [
      "not after short failures with a success between",
      ["failed", 900, "succeeded", "failed", 900, "succeeded"],
      false,
    ],
  ])("%s", async (_name, steps, expected) => {
    expect(await play(steps)).toBe(expected);
  });
});

test.each<[WatchFailureTag, boolean]>([
  ["throttled", false],
  ["server-error", true],
])("a watch that failed for seconds, as %s: an outage, %s", async (tag, isOutage) => {
  const time = new VirtualTime();
  const outage = new OutageDetector(time.clock);
  outage.observe({ kind: "watching", position: "5", afterFailures: 0 });
  outage.observe({ kind: "failed", during: "watch", tag, error: new Error(tag), retryMs: 2_000 });
  const isFailing = outage.isFailing;
  await time.advance(2_000);
  outage.observe({ kind: "watching", position: "5", afterFailures: 1 });
  expect([isFailing, outage.isRecovering]).toEqual([isOutage, isOutage]);
});

const listed = { kind: "listed", mode: "pages", position: "5", objects: 1, requests: 1, durationMs: 1 } as const;

test.each<[ReflectorEvent, boolean, boolean]>([
  [{ ...listed, reason: "outage" }, false, false],
  [{ ...listed, reason: "standstill" }, false, true],
  [{ kind: "watching", position: "5", afterFailures: 1 }, false, false],
  [{ kind: "confirmed", sentMs: 1, lagMs: 1 }, false, false],
  [{ kind: "versionWentBack", from: "9", to: "5" }, true, false],
])(
  "a core that failed for less than an outage, after %j: failing %s, recovering %s",
  (event, isFailing, isRecovering) => {
    const outage = new OutageDetector(new VirtualTime().clock);
    outage.failed(false);
    outage.observe(event);
    expect([outage.isFailing, outage.isRecovering]).toEqual([isFailing, isRecovering]);
  },
);

describe("something in between that cuts each silent stream", () => {
  test.each([1_000, 3_000])("after %i ms: the core never seems to be away, and its cache is confirmed", async (ms) => {
    const outage: { detector?: OutageDetector } = {};
    const it = reflectorHarness({ confirmEveryMs: 3_000, onEvent: (event) => outage.detector?.observe(event) });
    outage.detector = new OutageDetector(it.process.clock);
    const { transport } = it;
    const [request, stream] = [transport.request.bind(transport), transport.stream.bind(transport)];
    // Others write, so that each LIST has a version that no silent stream reaches.
    let version = 10;
    transport.request = async (asked) => {
      const answer = page(`${++version}`, [raw("a", "5")]);
      transport.lists[0] = answer;
      transport.confirmations[0] = answer;
      return await request(asked);
    };
    transport.stream = async (asked) => {
      const silent = new ScriptedStream();
      transport.watches[0] = silent;
      it.process.timers.after(ms, () => silent.fail("reset"));
      return await stream(asked);
    };
    await it.start();
    let oldestMs = 0;
    let recovering = 0;
    for (let step = 0; step < 600; step++) {
      await it.time.advance(100);
      oldestMs = Math.max(oldestMs, it.process.clock.monotonicMs() - (it.source.confirmedSentMs ?? 0));
      if (outage.detector.isRecovering) recovering++;
    }
    // The webhook decides by a cache that was confirmed in the last 15 s.
    expect([oldestMs < 15_000, recovering]).toEqual([true, 0]);
    // A watch each 1.1 s, a check each 3 s, and a list each 8 s at most.
    expect(transport.requests.length).toBeLessThanOrEqual(55 + 25 + 8);
  });
});
