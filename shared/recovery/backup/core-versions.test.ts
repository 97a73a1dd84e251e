import { expect, test } from "vitest";
import { reflectorHarness } from "../../../test/support/kube/reflector-harness.ts";
import { page, ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { askIfBehind } from "./core-lag.ts";
import { CoreVersions, isBehindAny, isBumped } from "./core-versions.ts";

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

/** Each observation: `POSITION@MS=HIGHEST` afterwards, with a `!` while the core counts as restored. */
test.each([
  ["rises", "100@0=100 101@1=101 x@2=101", []],
  [
    "is above all others for a settle period after a restore, which is told once, and is the lower one then",
    "100@0=100 90@10=100090! 91@1009=100091! 92@1010=92 80@1020=100080!",
    ["100 > 90", "92 > 80"],
  ],
  [
    "is above all others for a settle period, too, where the core passes that of before its restore",
    "100@0=100 90@1=100090! 101@2=100101! 102@1001=102",
    ["100 > 90"],
  ],
  [
    "from before a restore stays while it is high enough",
    "9000000@0=9000000 90@1=9000000! 91@1001=91",
    ["9000000 > 90"],
  ],
  [
    "stays for a settle period where it was raised, which loses no history",
    "1@0=1 900000001@1=1! 900000001@1001=900000001",
    [],
  ],
  [
    "that another leader has left above all others is told as a restore once more, and ends a settle period later",
    "100090@0=100090 95@1=100095! 96@1000=100096! 97@1001=97 98@1002=98",
    ["100090 > 95"],
  ],
  ["rises by as much as writes make", "1@0=1 900000000@1=900000000", []],
])("the highest version that was seen of a core %s", (_, observed, told) => {
  const restored: string[] = [];
  const onRestored = (_core: string, from: string, to: string) => restored.push(`${from} > ${to}`);
  const versions = new CoreVersions({ settleMs: 1_000, wentBackMs: new Map(), onRestored });
  for (const one of observed.split(" ")) {
    const [, position = "", atMs, expected] = /(.+)@(.+)=(.+)/.exec(one) ?? [];
    versions.observe("core", position, Number(atMs));
    expect(`${versions.highest.core}${versions.isRestored("core") ? "!" : ""}`).toBe(expected);
  }
  expect(restored).toEqual(told);
});

test("versions were raised where they are far above all that was noted", () => {
  const raised = [["5", "100"], ["100", "101"], [], ["x"]].map((noted) => isBumped("900000100", noted));
  expect([...raised, isBumped(undefined, ["5"])]).toEqual([true, false, false, false, false]);
});
