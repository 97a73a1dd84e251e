import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { root } from "./root.ts";
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

test("a SIGTERM ends the checks that run, starts no other, and the last line says that it failed", async () => {
  const mark = `PODSEIDON_MARK_OF_A_TEST=${process.pid}-${Date.now()}`;
  const child = spawn(process.execPath, [join(root, "scripts/test.ts"), "types", "build"], {
    env: { ...process.env, [mark.split("=")[0] ?? ""]: mark.split("=")[1] },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let said = "";
  for await (const chunk of child.stdout) {
    said += String(chunk);
    if (said.includes("types of the dashboard's page ===")) child.kill("SIGTERM");
  }
  // The first of them may have ended by itself before the signal.
  expect(said).toMatch(/\n(0 passed, 3|1 passed, 2) failed\n$/);
  expect(said).not.toContain("=== bundles");
  const left = readdirSync("/proc").filter((pid) => /^\d+$/.test(pid) && environmentOf(pid).includes(mark));
  expect(left).toEqual([]);
});

function environmentOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1");
  } catch {
    return ""; // It has ended.
  }
}

describe(".ci/run", () => {
  let clone: string;

  beforeEach(() => {
    clone = mkdtempSync(join(tmpdir(), "podseidon-ci-"));
    for (const folder of [".ci", "bin", "tmp"]) mkdirSync(join(clone, folder));
    cpSync(join(root, ".ci/run"), join(clone, ".ci/run"));
  });
  afterEach(() => rmSync(clone, { recursive: true, force: true }));

  /** `npm`: a shell script in its place. */
  async function ci(npm: string, temporary: string, signal?: NodeJS.Signals) {
    writeFileSync(join(clone, "bin/npm"), `#!/bin/sh\n${npm}\n`);
    chmodSync(join(clone, "bin/npm"), 0o755);
    const PATH = `${join(clone, "bin")}${delimiter}${process.env.PATH}`;
    const child = spawn(join(clone, ".ci/run"), [], {
      env: { ...process.env, PATH, TMPDIR: temporary },
      stdio: ["ignore", "pipe", "ignore"],
    });
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      said += text;
      if (signal !== undefined && said === "begun\n") child.kill(signal);
    });
    await once(child, "close");
    return { code: child.exitCode, said, last: said.trimEnd().split("\n").at(-1) };
  }

  test.each<[string, string, number, string]>([
    ["a run that passed", "echo '3 passed, 0 failed'", 0, "3 passed, 0 failed"],
    ["a word after the sum", "echo '3 passed, 0 failed'; echo bye", 0, "3 passed, 0 failed"],
    ["a run that failed", "echo '3 passed, 1 failed'; exit 1", 1, "3 passed, 1 failed"],
    ["a run without a sum", "exit 7", 7, "0 passed, 1 failed"],
    ["a run that was killed", "kill -9 $$", 137, "0 passed, 1 failed"],
    [
      "a run that was killed after a sum of something else",
      "echo '3 passed, 0 failed'; kill -9 $$",
      137,
      "0 passed, 1 failed",
    ],
    ["a run that says that it passed, without a sum", "exit 0", 1, "0 passed, 1 failed"],
  ])("ends with a sum and an exit code that agree: %s", async (_, npm, code, last) => {
    expect(await ci(npm, join(clone, "tmp"))).toMatchObject({ code, last });
    expect(readdirSync(join(clone, "tmp"))).toEqual([]);
  });

  test("so it does without a place for temporary files", async () => {
    expect(await ci("echo '3 passed, 0 failed'", "/nonexistent")).toMatchObject({
      code: 1,
      last: "0 passed, 1 failed",
    });
  });

  test.each<NodeJS.Signals>(["SIGINT", "SIGTERM", "SIGHUP"])(
    "passes a %s on, and waits for the last words",
    async (signal) => {
      const npm = "trap 'echo ending; exit 143' TERM; echo begun; while :; do sleep 0.1; done";
      const { code, said } = await ci(npm, join(clone, "tmp"), signal);
      expect(said).toBe("begun\nending\n0 passed, 1 failed\n");
      expect(code).not.toBe(0);
    },
  );
});
