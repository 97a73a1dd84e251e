/**
 * `npm test`: every check there is, the quick ones first, and a last line with the sum. `npm test -- unit build` runs some of them;
 * what follows `unit` or `cluster` and looks like a file goes to vitest. `--full` runs the same tests at their full sizes.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "./root.ts";
import { countTests, type TestCounts } from "./test-report.ts";

interface Step {
  readonly name: string;
  readonly title: string;
  /** Runs it, output to the terminal. */
  readonly run: (files: readonly string[]) => Promise<TestCounts>;
}

const STEPS: readonly Step[] = [
  { name: "lint", title: "lint and format", run: () => script("lint") },
  { name: "types", title: "types", run: () => check(join(root, "node_modules/.bin/tsc"), ["--noEmit"]) },
  { name: "layers", title: "imports point one way", run: () => script("layers") },
  { name: "generated", title: "generated files", run: () => script("generate", "--check") },
  { name: "unit", title: "unit, property and simulation tests", run: (files) => vitest("unit", files) },
  { name: "build", title: "bundles and their sizes", run: () => script("build") },
  { name: "cluster", title: "tests on real clusters", run: (files) => vitest("cluster", files) },
];

/** Resolves with the exit code; a process that was killed counts as failed. */
function run(command: string, args: readonly string[]): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, [...args], { cwd: root, stdio: "inherit" });
    child.on("error", reject);
    child.on("close", (code) => resolve(code ?? 1));
  });
}

async function check(command: string, args: readonly string[]): Promise<TestCounts> {
  const code = await run(command, args);
  return code === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };
}

function script(name: string, ...args: readonly string[]): Promise<TestCounts> {
  return check(process.execPath, [join(root, `scripts/${name}.ts`), ...args]);
}

async function vitest(project: string, files: readonly string[]): Promise<TestCounts> {
  const directory = mkdtempSync(join(tmpdir(), "podseidon-test-"));
  const report = join(directory, "report.json");
  const main = join(root, "node_modules/vitest/vitest.mjs");
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
  try {
    const code = await run(process.execPath, [main, "run", "--project", project, ...reporters, ...files]);
    return countTests(readFileSync(report, "utf8"), code);
  } catch (error) {
    console.error(error);
    return { passed: 0, failed: 1 };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function main(args: readonly string[]): Promise<number> {
  if (args.includes("--full")) process.env.PODSEIDON_TEST_SIZE = "full";
  const words = args.filter((word) => word !== "--full");
  const names = STEPS.map(({ name }) => name);
  const chosen = words.filter((word) => names.includes(word));
  const files = words.filter((word) => !names.includes(word));
  if (files.some((file) => file.startsWith("-")) || (files.length > 0 && chosen.length === 0)) {
    console.error(`usage: npm test -- [--full] [${names.join("|")} ...] [files of unit or cluster]`);
    return 2;
  }
  const total = { passed: 0, failed: 0 };
  const summary: string[] = [];
  const failures: string[] = [];
  for (const { name, title, run: runStep } of STEPS) {
    if (chosen.length > 0 && !chosen.includes(name)) continue;
    console.log(`\n=== ${title} ===`);
    const startedMs = performance.now();
    const { passed, failed, failures: told = [] } = await runStep(files);
    const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
    total.passed += passed;
    total.failed += failed;
    failures.push(...told);
    summary.push(
      `${`${failed > 0 ? "FAILED" : "ok"}`.padEnd(8)}${title}: ${passed} passed, ${failed} failed (${seconds} s)`,
    );
  }
  // Last, so that they are in what is kept of a long output.
  if (failures.length > 0) console.log(`\n=== what failed ===\n${failures.join("\n")}`);
  console.log(`\n${summary.join("\n")}\n${total.passed} passed, ${total.failed} failed`);
  return total.failed === 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
