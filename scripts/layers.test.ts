/**
 * The rules of biome.json and scripts/lint about imports, time and chance, each on examples that it must find and that
 * it must not.
 */

import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { beforeAll, describe, expect, test } from "vitest";
import { temporaryDirectory } from "../test/support/runtime/temporary-directory.ts";
import { root } from "./root.ts";

const Report = v.object({
  diagnostics: v.array(
    v.object({ message: v.string(), location: v.object({ path: v.string(), start: v.object({ line: v.number() }) }) }),
  ),
});

const imports: readonly [title: string, folder: string, source: string, expected: string | undefined][] = [
  ["decide may use schema", "shared/decide", 'import { b } from "../schema/b.ts";', undefined],
  ["a layer may use itself", "shared/decide", 'import { b } from "./b.ts";', undefined],
  ["a library", "shared/decide", 'import * as v from "valibot";', undefined],
  ["observe may use kube", "shared/observe", 'import type { B } from "../kube/b.ts";', undefined],
  ["kube must not use observe", "shared/kube", 'import type { B } from "../observe/b.ts";', "shared/kube imports"],
  ["from a folder below", "shared/kube/a", 'import type { B } from "../../observe/b.ts";', "shared/kube imports"],
  ["webhook may use kube", "webhook", 'import { b } from "../shared/kube/b.ts";', undefined],
  ["scripts may use everything", "scripts", 'import { b } from "../webhook/b.ts";', undefined],
  ["an import in a string", "shared/schema", "const a = 'import { b } from \"../kube/b.ts\"';", undefined],
  ["an import in a comment", "shared/schema", '// import { b } from "../kube/b.ts";', undefined],
  ["schema must not use decide", "shared/schema", 'import { b } from "../decide/b.ts";', "no other layer"],
  ["decide must not use runtime", "shared/decide", 'export * from "../runtime/b.ts";', "schema only"],
  ["runtime must not use kube", "shared/runtime", 'import type { B } from "../kube/b.ts";', "shared/runtime imports"],
  ["certificates must not use kube", "shared/certificates", 'import "../kube/b.ts";', "shared/certificates imports"],
  ["observe must not use recovery", "shared/observe", 'import "../recovery/b.ts";', "shared/observe imports"],
  ["recovery must not use the webhook", "shared/recovery", 'import "../../webhook/b.ts";', "shared/recovery imports"],
  ["shared must not use webhook", "shared/kube", 'await import("../../webhook/b.ts");', "shared/kube imports"],
  ["webhook must not use controllers", "webhook", 'import "../controllers/b.ts";', "the webhook imports"],
  ["respond may use request", "webhook/respond", 'import "../request/b.ts";', undefined],
  ["http must not use request", "webhook/http", 'import "../request/b.ts";', "import one way"],
  ["request must not use reserve", "webhook/request", 'import type { B } from "../reserve/b.ts";', "import one way"],
  ["probe must not use reserve", "webhook/probe", 'import "../reserve/b.ts";', "import one way"],
  ["reserve must not use respond", "webhook/reserve", 'import "../respond/b.ts";', "import one way"],
  ["respond must not use the handler", "webhook/respond", 'import "../handler.ts";', "import one way"],
  ["controllers must not use webhook", "controllers/generator", 'import "../../webhook/b.ts";', "controllers import"],
  ["a controller may use certificates", "controllers/generator", 'import "../../shared/certificates/b.ts";', undefined],
  ["aggregator, another controller", "controllers/aggregator", 'import "../generator/b.ts";', "no other controller"],
  [
    "certificates, another controller",
    "controllers/certificates",
    'import "../generator/b.ts";',
    "no other controller",
  ],
  [
    "generator, another controller",
    "controllers/generator/a",
    'import "../../aggregator/b.ts";',
    "no other controller",
  ],
  ["protectors may use sources", "controllers/generator/protectors", 'import "../sources/b.ts";', undefined],
  ["sources must not use budgets", "controllers/generator/sources", 'import "../budgets/b.ts";', "import one way"],
  [
    "budgets must not use protectors",
    "controllers/generator/budgets",
    'import "../protectors/b.ts";',
    "import one way",
  ],
  [
    "protectors must not use the wiring",
    "controllers/generator/protectors",
    'import "../observe.ts";',
    "import one way",
  ],
  [
    "eviction retry, another controller",
    "controllers/eviction-retry",
    'import "../generator/b.ts";',
    "no other controller",
  ],
  ["trigger, another controller", "controllers/update-trigger", 'import "../generator/b.ts";', "no other controller"],
  ["the plugin may use shared", "scripts/kubectl-podseidon", 'import "../../shared/kube/b.ts";', undefined],
  ["the plugin must not use scripts", "scripts/kubectl-podseidon", 'import "../root.ts";', "the plugin imports"],
  ["the plugin must not use a cluster", "scripts/kubectl-podseidon", 'import "../control-plane/b.ts";', "the plugin"],
  [
    "its page may use what is sent",
    "scripts/kubectl-podseidon/dashboard/page",
    'import "../page-messages.ts";',
    undefined,
  ],
  [
    "its page may use shared",
    "scripts/kubectl-podseidon/dashboard/page",
    'import "../../../../shared/observe/b.ts";',
    undefined,
  ],
  [
    "its page must not use the server",
    "scripts/kubectl-podseidon/dashboard/page",
    'import "../board.ts";',
    "runs in browsers",
  ],
  [
    "its page must not use Node.js",
    "scripts/kubectl-podseidon/dashboard/page",
    'import "node:http";',
    "runs in browsers",
  ],
  ["scripts do not ship", "webhook", 'import { b } from "../scripts/b.ts";', "the webhook imports"],
  [
    "scripts must not use helpers of tests",
    "scripts/demo",
    'import "../../test/support/b.ts";',
    "scripts do not import",
  ],
  ["test helpers may use scripts", "test/support", 'import "../../scripts/demo/b.ts";', undefined],
  ["the translation may use the checker", "test/histories/replay", 'import { b } from "../checker/b.ts";', undefined],
  ["the translation may use the replay", "test/histories/replay", 'import { b } from "../../spec/b.ts";', undefined],
  [
    "the translation must not use the product",
    "test/histories/replay",
    'import { b } from "../../../shared/decide/b.ts";',
    "the translation of histories imports nothing",
  ],
  [
    "the translation must not use the helpers of tests",
    "test/histories/replay",
    'import { b } from "../../support/b.ts";',
    "the translation of histories imports nothing",
  ],
  ["the checker may use itself", "test/histories/checker", 'import { b } from "./b.ts";', undefined],
  ["the checker may use Node.js", "test/histories/checker", 'import { hash } from "node:crypto";', undefined],
  [
    "the checker must not use the product",
    "test/histories/checker",
    'import { b } from "../../../shared/schema/b.ts";',
    "the checker of histories imports nothing",
  ],
  [
    "nor a library",
    "test/histories/checker",
    'import * as v from "valibot";',
    "the checker of histories imports nothing",
  ],
  ["an absolute path", "webhook", 'import { b } from "/b.ts";', "imports are relative"],
  ["a test is no library", "webhook", 'import { b } from "./b.test.ts";', "a test is not a library"],
  ["nor for a helper", "test/support", 'import { b } from "../b.test.ts";', "a test is not a library"],
  ["over several lines", "shared/schema", 'import {\n  b,\n  c,\n} from "../kube/b.ts";', "no other layer"],
];

const circles: Readonly<Record<string, string>> = {
  "webhook/chain-a.ts": 'import "./chain-b.ts";\nimport "./chain-c.ts";',
  "webhook/chain-b.ts": 'import "./chain-c.ts";',
  "webhook/chain-c.ts": "",
  "webhook/types-a.ts": 'import type { B } from "./types-b.ts";',
  "webhook/types-b.ts": 'import { a } from "./types-a.ts";',
  "scripts/demo/three-a.ts": 'import "../report/three-b.ts";',
  "scripts/report/three-b.ts": 'export * from "../three-c.ts";',
  "scripts/three-c.ts": 'import "./demo/three-a.ts";',
};

const ambient: readonly string[] = [
  "const a = Date.now();",
  "const a = new Date();",
  "setTimeout(run, 5);",
  "globalThis.setInterval(run, 5);",
  "const a = Math.random();",
  "const a = performance.now();",
  "const a = process.hrtime();",
  "const a = AbortSignal.timeout(5);",
  "const a = crypto.randomUUID();",
  'import { randomBytes } from "node:crypto";',
  `const a = \`\${Date.now()}\`;`,
  'import { setTimeout as s } from "node:timers/promises";',
];
const harmless = ["// Date.now()", "socket.setTimeout(5);", "new Date(ms)", "Date.parse(text)", "clock.nowMs()"];

const directory = temporaryDirectory();
let found: ReadonlyMap<string, readonly { readonly message: string; readonly line: number }[]>;

const problemsOf = (file: string): readonly string[] => (found.get(file) ?? []).map(({ message }) => message);

/** All examples in one tree with the project's own configuration, checked in one run. */
beforeAll(() => {
  for (const path of ["biome.json", ".gitignore", "scripts/lint"])
    cpSync(join(root, path), join(directory, path), { recursive: true });
  const write = (file: string, source: string): void => {
    mkdirSync(dirname(join(directory, file)), { recursive: true });
    writeFileSync(join(directory, file), source);
  };
  for (const [index, [, folder, source]] of imports.entries()) {
    write(`${folder}/import-${index}.ts`, source);
    write(`${folder}/import-${index}.test.ts`, source.replace(".test.ts", ".ts"));
  }
  for (const [file, source] of Object.entries(circles)) write(file, source);
  for (const [index, source] of ambient.entries()) {
    for (const name of ["a.ts", "a.test.ts"]) write(`webhook/ambient-${index}-${name}`, `\n${source}\n`);
    write(`scripts/ambient-${index}.ts`, source);
  }
  write("shared/runtime/system-ports.ts", ambient.slice(1, 8).join("\n"));
  for (const [index, source] of harmless.entries()) write(`webhook/harmless-${index}.ts`, source);
  found = lint();
}, 60_000);

function lint(): typeof found {
  const rules = ["style/noRestrictedGlobals", "style/noRestrictedImports", "suspicious/noImportCycles", "plugin"];
  const only = rules.map((rule) => `--only=${rule}`);
  const args = ["lint", "--reporter=json", "--max-diagnostics=none", ...only, "."];
  const { stdout, stderr } = spawnSync(join(root, "node_modules/.bin/biome"), args, {
    cwd: directory,
    encoding: "utf8",
  });
  expect(stdout, stderr).toContain("diagnostics");
  const problems = new Map<string, { readonly message: string; readonly line: number }[]>();
  for (const { message, location } of v.parse(Report, JSON.parse(stdout)).diagnostics) {
    problems.set(location.path, [...(problems.get(location.path) ?? []), { message, line: location.start.line }]);
  }
  return problems;
}

describe("imports", () => {
  test.each(imports.map((row, index) => [...row, index] as const))("%s", (_, folder, _source, expected, index) => {
    const problems = problemsOf(`${folder}/import-${index}.ts`);
    expect(problems).toEqual(expected === undefined ? [] : [expect.stringContaining(expected)]);
  });

  test("of tests beside the code are free", () => {
    expect(imports.flatMap(([, folder], index) => problemsOf(`${folder}/import-${index}.test.ts`))).toEqual([]);
  });
});

test("circles of files are found, of types and over folders too; a chain is none", () => {
  const within = Object.keys(circles).filter((file) => problemsOf(file).length > 0);
  expect(within).toEqual(Object.keys(circles).filter((file) => !file.includes("chain")));
});

describe("time and chance", () => {
  test.each(ambient.map((source, index) => [source, index] as const))("found outside of the ports: %s", (_, index) => {
    expect(found.get(`webhook/ambient-${index}-a.ts`)).toEqual([expect.objectContaining({ line: 2 })]);
    expect(problemsOf(`webhook/ambient-${index}-a.test.ts`)).toEqual([]);
    expect(problemsOf(`scripts/ambient-${index}.ts`)).toEqual([]);
  });

  test("are for the ports to use", () => {
    expect(problemsOf("shared/runtime/system-ports.ts")).toEqual([]);
  });

  test.each(harmless.map((source, index) => [source, index] as const))("not confused with: %s", (_, index) => {
    expect(problemsOf(`webhook/harmless-${index}.ts`)).toEqual([]);
  });
});

test("a file outside of the project can't be imported", () => {
  const project = join(directory, "scripts", "project");
  mkdirSync(project, { recursive: true });
  for (const path of ["package.json", "tsconfig.json"]) cpSync(join(root, path), join(project, path));
  symlinkSync(join(root, "node_modules"), join(project, "node_modules"));
  mkdirSync(join(project, "scripts"));
  writeFileSync(join(project, "scripts/a.ts"), 'import { x } from "../../outside.ts";\nexport const y = x;\n');
  writeFileSync(join(project, "../outside.ts"), "export const x = 1;\n");
  const { stdout } = spawnSync(join(root, "node_modules/.bin/tsc"), ["--noEmit"], { cwd: project, encoding: "utf8" });
  expect(stdout).toContain("outside.ts' is not under 'rootDir'");
});
