import { describe, expect, test } from "vitest";
import { countTests } from "./test.ts";

const file = (status: string, ...tests: readonly string[]): unknown => ({
  name: "some.test.ts",
  status,
  startTime: 1000,
  endTime: 3500,
  ...(tests.length === 0 ? { message: "it has no tests" } : {}),
  assertionResults: tests.map((each) => ({
    status: each,
    fullName: `that ${each}`,
    failureMessages: each === "failed" ? ["\u001b[31mexpected 1\u001b[39m\nnot 2"] : [],
  })),
});

function report(passed: number, failed: number, ...testResults: readonly unknown[]): string {
  return JSON.stringify({ numPassedTests: passed, numFailedTests: failed, testResults });
}

describe("the sum of a report", () => {
  test.each([
    ["all passed", report(2, 0, file("passed", "passed", "passed")), 0, { passed: 2, failed: 0 }],
    ["one failed", report(1, 1, file("failed", "passed", "failed")), 1, { passed: 1, failed: 1 }],
    ["a file that could not be loaded", report(0, 0, file("failed")), 1, { passed: 0, failed: 1 }],
    ["a failure outside of all files", report(1, 0, file("passed", "passed")), 1, { passed: 1, failed: 1 }],
  ])("%s", (_, text, code, expected) => {
    expect(countTests(text, code)).toMatchObject(expected);
  });

  test("says what failed, and what it said", () => {
    expect(countTests(report(1, 1, file("failed", "passed", "failed"), file("failed")), 1).failures).toEqual([
      "some.test.ts: that failed\n    expected 1\n    not 2",
      "some.test.ts\n    it has no tests",
    ]);
  });

  test("says how long each file took", () => {
    expect(countTests(report(1, 0, file("passed", "passed")), 0).files).toEqual([
      { name: expect.stringContaining("some.test.ts"), seconds: 2.5 },
    ]);
  });

  test("what is no report is no success", () => {
    expect(() => countTests("{}", 0)).toThrow();
  });
});
