import * as v from "valibot";

/** How many tests passed and failed; a check that is no test counts as one. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
}

const Report = v.object({
  numPassedTests: v.number(),
  numFailedTests: v.number(),
  testResults: v.array(v.object({ status: v.string(), assertionResults: v.array(v.object({ status: v.string() })) })),
});

/**
 * Sums vitest's JSON report. A file that failed without a failed test (it could not be loaded, or its setup failed) counts as one
 * failure, and so does an exit code other than 0 that nothing else explains. Throws when it is no report.
 */
export function countTests(report: string, exitCode: number): Counts {
  const { numPassedTests, numFailedTests, testResults } = v.parse(Report, JSON.parse(report));
  const broken = testResults.filter(
    ({ status, assertionResults }) => status === "failed" && !assertionResults.some((test) => test.status === "failed"),
  );
  const failed = numFailedTests + broken.length;
  return { passed: numPassedTests, failed: failed === 0 && exitCode !== 0 ? 1 : failed };
}
