/**
 * `npm test`: every check, the quick ones first, and a last line with the sum. `npm test -- unit build` runs some of
 * them; words that are not steps are files for vitest. `--full` runs the same tests at their full sizes. `npm test --
 * changed` checks what a change can break at once: lint, types, and the unit tests that import what differs from the
 * branch `main`. `npm test -- security` runs the attacks.
 */
import { type ChildProcess, type StdioOptions, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempDisposableSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { stripVTControlCharacters } from "node:util";
import * as v from "valibot";
import { theReaper } from "./control-plane/reaper.ts";
import { root } from "./root.ts";
import { printScorecard } from "./scorecard.ts";

/** How many tests passed and failed; a check without tests counts as one. */
interface TestCounts {
  readonly passed: number;
  readonly failed: number;
  /** Each failed test with the beginning of its message. */
  readonly failures?: readonly string[];
  /** How long each test file took. */
  readonly files?: readonly { readonly name: string; readonly seconds: number }[];
}

interface Step {
  readonly name: string;
  readonly title: string;
  readonly run: (files: readonly string[]) => Promise<TestCounts>;
}

const LAYER_RULES = ["plugin", "suspicious/noImportCycles", "style/noRestrictedGlobals", "style/noRestrictedImports"];

/** The page runs in browsers: other globals, and JSX. */
const DASHBOARD_PAGE = "scripts/kubectl-podseidon/dashboard/page/tsconfig.json";

const STEPS: readonly Step[] = [
  { name: "lint", title: "lint and format", run: () => tool("biome", "check", "--error-on-warnings") },
  { name: "types", title: "types", run: () => tool("tsc", "--noEmit") },
  { name: "types", title: "types of the dashboard's page", run: () => tool("tsc", "--noEmit", "-p", DASHBOARD_PAGE) },
  {
    name: "layers",
    title: "imports point one way",
    run: () => tool("biome", "lint", "--diagnostic-level=error", ...LAYER_RULES.map((rule) => `--only=${rule}`)),
  },
  { name: "unused", title: "nothing is unused", run: () => tool("knip", "--no-progress") },
  { name: "generated", title: "generated files", run: () => script("generate", "--check") },
  { name: "unit", title: "unit and property tests", run: (files) => vitest("unit", files) },
  { name: "simulation", title: "simulation", run: (files) => vitest("simulation", files) },
  { name: "build", title: "bundles and their sizes", run: () => script("build") },
  { name: "cluster", title: "tests on real clusters", run: clusterTests },
];

/** Steps of some seconds. */
const CHECKS = ["lint", "types", "layers", "unused", "generated", "changed"];

/** Clusters mostly wait, so the simulation uses the remaining processor time. */
const BESIDE_CLUSTERS = "simulation";

/** The steps of `changed`, which run concurrently; only the whole `npm test` runs longer steps. */
const CHANGED_STEPS: readonly Step[] = [
  ...STEPS.filter(({ name }) => ["lint", "types"].includes(name)),
  { name: "changed", title: "unit tests of what changed", run: () => vitest("unit", ["--changed", base()]) },
];

/** Attacks on the processes as they ship. */
const SECURITY_STEPS = STEPS.filter(({ name }) => ["build", "cluster"].includes(name));

/** Enough for a comparison of two objects. */
const MESSAGE_LINES = 20;
const SLOWEST_FILES = 10;

/** The branch that a change is compared with; a clone without it compares with its last commit. */
function base(): string {
  const { status } = spawnSync("git", ["rev-parse", "--verify", "--quiet", "main"], { cwd: root });
  return status === 0 ? "main" : "HEAD";
}

/** To compile the modules again takes each process of a test, and of podseidon in it, a third of its start. */
const NODE_COMPILE_CACHE = join(root, "node_modules", ".cache", "compiled");

/** The running processes. A signal ends them, and no other is started. */
const children = new Set<ChildProcess>();
let isEnded = false;

function endAll(signal: NodeJS.Signals): void {
  isEnded = true;
  for (const child of children) child.kill(signal);
}

function start(command: string, args: readonly string[], stdio: StdioOptions): ChildProcess {
  // Processes that a test started end with this process, even if the test could not end them.
  const env = { NODE_COMPILE_CACHE, ...process.env, ...theReaper().environment };
  const child = spawn(command, [...args], { cwd: root, stdio, env });
  children.add(child);
  return child.on("close", () => children.delete(child));
}

/** Resolves with the exit code; a killed process counts as failed. */
async function exitCode(child: ChildProcess): Promise<number> {
  const [code]: (number | null)[] = await once(child, "close");
  return code ?? 1;
}

function run(command: string, args: readonly string[]): Promise<number> {
  return exitCode(start(command, args, "inherit"));
}

/** As {@link run}, but the output appears when the command ends, because others run concurrently. */
async function runBeside(command: string, args: readonly string[]): Promise<number> {
  const child = start(command, args, ["ignore", "pipe", "pipe"]);
  const output: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk: Buffer) => output.push(chunk));
  const code = await exitCode(child);
  process.stdout.write(Buffer.concat(output));
  return code;
}

/** A check without tests. */
async function check(command: string, args: readonly string[]): Promise<TestCounts> {
  const code = await runBeside(command, args);
  return code === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };
}

function tool(name: string, ...args: readonly string[]): Promise<TestCounts> {
  return check(join(root, "node_modules/.bin", name), args);
}

function script(name: string, ...args: readonly string[]): Promise<TestCounts> {
  return check(process.execPath, [join(root, `scripts/${name}.ts`), ...args]);
}

async function vitest(project: string, args: readonly string[]): Promise<TestCounts> {
  using directory = mkdtempDisposableSync(join(tmpdir(), "podseidon-test-"));
  const report = join(directory.path, "report.json");
  const main = join(root, "node_modules/vitest/vitest.mjs");
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
  try {
    const command = [main, "run", "--project", project, ...reporters, ...args];
    const code =
      project === BESIDE_CLUSTERS
        ? await runBeside("nice", ["-n", "19", process.execPath, ...command])
        : await run(process.execPath, command);
    return countTests(readFileSync(report, "utf8"), code);
  } catch (error) {
    console.error(error);
    return { passed: 0, failed: 1 };
  }
}

/** All cluster tests together must make each kind of request; some files alone do not. */
async function clusterTests(files: readonly string[]): Promise<TestCounts> {
  using directory = mkdtempDisposableSync(join(tmpdir(), "podseidon-scorecard-"));
  process.env.PODSEIDON_SCORECARD = directory.path;
  const counts = await vitest("cluster", files);
  const missing = printScorecard(directory.path).map((row) => `what no test has met: ${row}`);
  if (files.length > 0) return counts;
  const { passed, failed, failures = [] } = counts;
  return { ...counts, passed, failed: failed + missing.length, failures: [...failures, ...missing] };
}

const Report = v.object({
  numPassedTests: v.number(),
  numFailedTests: v.number(),
  testResults: v.array(
    v.object({
      name: v.string(),
      status: v.string(),
      message: v.optional(v.string()),
      startTime: v.number(),
      endTime: v.number(),
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
 * Sums vitest's JSON report. A file that failed without a failed test (it could not be loaded, or its setup failed)
 * counts as one failure, and so does an exit code other than 0 without another reason. Throws when the text is not a
 * report.
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
  const files = testResults.map(({ name, startTime, endTime }) => ({
    name: relative(root, name),
    seconds: (endTime - startTime) / 1000,
  }));
  return { passed: numPassedTests, failed: failed === 0 && exitCode !== 0 ? 1 : failed, failures, files };
}

function describe(what: string, message: string): string {
  const lines = stripVTControlCharacters(message)
    .split("\n")
    .filter((line) => !line.includes("/node_modules/"))
    .slice(0, MESSAGE_LINES);
  return [what, ...lines.map((line) => `    ${line}`)].join("\n");
}

interface Outcome extends TestCounts {
  readonly title: string;
  readonly seconds: number;
}

async function runStep({ title, run: runIt }: Step, files: readonly string[]): Promise<Outcome> {
  if (isEnded) return { title, passed: 0, failed: 1, seconds: 0 };
  console.log(`\n=== ${title} ===`);
  const startedMs = performance.now();
  const counts = await runIt(files);
  return { title, ...counts, seconds: (performance.now() - startedMs) / 1000 };
}

/** Runs the checks concurrently, then the other steps one after another, and the simulation together with the last. */
async function runSteps(steps: readonly Step[], files: readonly string[]): Promise<readonly Outcome[]> {
  const isCheck = ({ name }: Step): boolean => CHECKS.includes(name);
  const isBeside = ({ name }: Step): boolean => name === BESIDE_CLUSTERS;
  const outcomes = await Promise.all(steps.filter(isCheck).map((step) => runStep(step, files)));
  const inTurn = steps.filter((step) => !isCheck(step) && !isBeside(step));
  for (const step of inTurn.slice(0, -1)) outcomes.push(await runStep(step, files));
  const last = [...steps.filter(isBeside), ...inTurn.slice(-1)];
  outcomes.push(...(await Promise.all(last.map((step) => runStep(step, files)))));
  return outcomes;
}

/** Prints what failed, where the time went, and the sum. Returns the exit code. */
function summarize(outcomes: readonly Outcome[]): number {
  const failures = outcomes.flatMap((outcome) => outcome.failures ?? []);
  const slowest = outcomes
    .flatMap(({ files = [] }) => files)
    .sort((a, b) => b.seconds - a.seconds)
    .slice(0, SLOWEST_FILES);
  if (slowest.length > 1) {
    console.log("\n=== the slowest test files ===");
    for (const { name, seconds } of slowest) console.log(`${seconds.toFixed(1).padStart(7)} s  ${name}`);
  }
  if (failures.length > 0) console.log(`\n=== what failed ===\n${failures.join("\n")}`);
  console.log();
  // Again, without the messages: a reader of only the end of a long output sees every name.
  for (const failure of failures) console.log(`FAILED  ${failure.split("\n", 1)[0]}`);
  for (const { title, passed, failed, seconds } of outcomes) {
    const mark = (failed > 0 ? "FAILED" : "ok").padEnd(8);
    console.log(`${mark}${title}: ${passed} passed, ${failed} failed (${seconds.toFixed(1)} s)`);
  }
  const sum = (key: "passed" | "failed"): number => outcomes.reduce((total, outcome) => total + outcome[key], 0);
  console.log(`${sum("passed")} passed, ${sum("failed")} failed`);
  return sum("failed") === 0 ? 0 : 1;
}

async function main(args: readonly string[]): Promise<number> {
  if (args.includes("--full")) process.env.PODSEIDON_TEST_SIZE = "full";
  const words = args.filter((word) => word !== "--full");
  if (words.length === 1 && words[0] === "changed") return summarize(await runSteps(CHANGED_STEPS, []));
  if (words.length === 1 && words[0] === "security")
    return summarize(await runSteps(SECURITY_STEPS, ["test/security"]));
  const names = STEPS.map(({ name }) => name);
  const chosen = words.filter((word) => names.includes(word));
  const files = words.filter((word) => !names.includes(word));
  if (files.some((file) => file.startsWith("-")) || (files.length > 0 && chosen.length === 0)) {
    console.error(`usage: npm test -- [--full] [${names.join("|")} ...] [files of unit, simulation or cluster]`);
    console.error("       npm test -- changed|security");
    return 2;
  }
  const steps = chosen.length === 0 ? STEPS : STEPS.filter(({ name }) => chosen.includes(name));
  return summarize(await runSteps(steps, files));
}

if (import.meta.main) {
  for (const signal of ["SIGTERM", "SIGHUP"] as const) process.on(signal, endAll);
  process.exitCode = await main(process.argv.slice(2));
}
