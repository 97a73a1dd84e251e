import { expect, test } from "vitest";
import { reflectorHarness } from "../../../test/support/kube/reflector-harness.ts";
import { page, ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { askIfBehind } from "./core-lag.ts";
import { isBehindAny } from "./core-versions.ts";

test.each([
  ["is asked, and not taken for restored, where only its stream lags", "12", "13", false],
  ["is asked, and older all the same, where it was restored", "12", "10", true],
  ["is not asked where its stream has reached what was noted", "10", undefined, false],
])("a core %s", async (_, noted, answer, isOlder) => {
  const it = reflectorHarness();
  await it.start(new ScriptedStream());
  if (answer !== undefined) it.transport.confirmations.push(page(answer, []));
  let isAsked = false;
  const signal = new AbortController().signal;
  void askIfBehind(it.source, ["9", noted], it.process, signal).then(() => {
    isAsked = true;
  });
  await it.time.advance(1000);
  expect(isAsked).toBe(true);
  expect(it.transport.requests.filter((request) => request === "LIST limit=1")).toHaveLength(answer ? 1 : 0);
  expect(isBehindAny(it.source.serverVersion, ["9", noted])).toBe(isOlder);
  expect(it.source.position).toBe("10");
});
