import { stripVTControlCharacters } from "node:util";
import * as v from "valibot";

/** How many tests passed and failed; a check that is no test counts as one. */
export interface TestCounts {
  readonly passed: number;
  readonly failed: number;
  /** Each failed test with the beginning of what it said. */
  readonly failures?: readonly string[];
}

/** Enough for a comparison of two objects. */
const MESSAGE_LINES = 20;

const Report = v.object({
  numPassedTests: v.number(),
  numFailedTests: v.number(),
  testResults: v.array(
    v.object({
      name: v.string(),
      status: v.string(),
      message: v.optional(v.string()),
      assertionResults: v.array(
        v.object({
          status: v.string(),
          fullName: v.string(),
          failureMessages: v.optional(v.nullable(v.array(v.string()))),
        }),
      ),
    }),
  ),
});

/**
 * Sums vitest's JSON report. A file that failed without a failed test (it could not be loaded, or its setup failed) counts as one
 * failure, and so does an exit code other than 0 that nothing else explains. Throws when it is no report.
 */
export function countTests(report: string, exitCode: number): TestCounts {
  const { numPassedTests, numFailedTests, testResults } = v.parse(Report, JSON.parse(report));
  const broken = testResults.filter(
    ({ status, assertionResults }) => status === "failed" && !assertionResults.some((test) => test.status === "failed"),
  );
  const failed = numFailedTests + broken.length;
  const failures = testResults.flatMap(({ name, assertionResults }) =>
    assertionResults
      .filter(({ status }) => status === "failed")
      .map(({ fullName, failureMessages }) => describe(`${name}: ${fullName}`, failureMessages?.join("\n") ?? "")),
  );
  failures.push(...broken.map(({ name, message }) => describe(name, message ?? "")));
  return { passed: numPassedTests, failed: failed === 0 && exitCode !== 0 ? 1 : failed, failures };
}

function describe(what: string, message: string): string {
  const lines = stripVTControlCharacters(message)
    .split("\n")
    .filter((line) => !line.includes("/node_modules/"))
    .slice(0, MESSAGE_LINES);
  return [what, ...lines.map((line) => `    ${line}`)].join("\n");
}
