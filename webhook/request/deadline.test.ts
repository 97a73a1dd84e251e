import { describe, expect, test } from "vitest";
import { parseGoDurationMs, requestBudgetMs } from "./deadline.ts";

describe("Go durations", () => {
  test.each([
    ["10s", 10_000],
    ["1m30s", 90_000],
    ["1.5s", 1_500],
    ["250ms", 250],
    ["0s", 0],
    ["10", undefined],
    ["", undefined],
    ["s", undefined],
    ["-5s", undefined],
    ["10s ", undefined],
  ])("%j is %s ms", (text, expected) => {
    expect(parseGoDurationMs(text)).toBe(expected);
  });
});

describe("the time of an admission request", () => {
  test.each([
    ["the call's timeout minus half a second at most", "15s", 14_500],
    ["a tenth for short ones", "1s", 900],
    ["the default when the call has none", undefined, 9_500],
    ["the default when it can't be read", "soon", 9_500],
    ["the default when it is zero", "0s", 9_500],
    ["at most what kube-apiserver ever waits", "5m", 29_500],
  ])("%s", (_name, timeout, expected) => {
    expect(requestBudgetMs(timeout)).toBe(expected);
  });
});
