import { describe, expect, test } from "vitest";
import { checkCircles, checkFile } from "./layers.ts";

describe("imports", () => {
  const cases: readonly [string, string, string, string | undefined][] = [
    ["decide may use schema", "shared/decide/a.ts", 'import { b } from "../schema/b.ts";', undefined],
    ["a layer may use itself", "shared/decide/a.ts", 'import { b } from "./b.ts";', undefined],
    ["a library", "shared/decide/a.ts", 'import * as v from "valibot";', undefined],
    ["observe may use kube", "shared/observe/a.ts", 'import type { B } from "../kube/b.ts";', undefined],
    ["kube must not use observe", "shared/kube/a.ts", 'import type { B } from "../observe/b.ts";', "may not depend"],
    ["webhook may use kube", "webhook/a.ts", 'import { b } from "../shared/kube/b.ts";', undefined],
    ["scripts may use everything", "scripts/a.ts", 'import { b } from "../webhook/b.ts";', undefined],
    ["a test may use helpers", "webhook/a.test.ts", 'import { b } from "../test/support/b.ts";', undefined],
    ["an import in a string", "shared/schema/a.ts", "const a = 'import { b } from \"../kube/b.ts\"';", undefined],
    ["an import in a comment", "shared/schema/a.ts", '// import { b } from "../kube/b.ts";', undefined],
    ["schema must not use decide", "shared/schema/a.ts", 'import { b } from "../decide/b.ts";', "may not depend"],
    ["decide must not use runtime", "shared/decide/a.ts", 'export * from "../runtime/b.ts";', "may not depend"],
    ["runtime must not use kube", "shared/runtime/a.ts", 'import type { B } from "../kube/b.ts";', "may not depend"],
    ["shared must not use webhook", "shared/kube/a.ts", 'await import("../../webhook/b.ts");', "may not depend"],
    ["webhook must not use controllers", "webhook/a.ts", 'import "../controllers/b.ts";', "may not depend"],
    ["controllers must not use webhook", "controllers/x/a.ts", 'import "../../webhook/b.ts";', "may not depend"],
    ["scripts do not ship", "webhook/a.ts", 'import { b } from "../scripts/b.ts";', "does not ship"],
    ["out of the project", "scripts/a.ts", 'import { b } from "../../b.ts";', "outside of the project"],
    ["an absolute path", "webhook/a.ts", 'import { b } from "/b.ts";', "absolute path"],
    ["a test is no library", "webhook/a.ts", 'import { b } from "./b.test.ts";', "imports the test"],
    ["over several lines", "shared/schema/a.ts", 'import {\n  b,\n  c,\n} from "../kube/b.ts";', "may not depend"],
  ];
  test.each(cases)("%s", (_, file, source, expected) => {
    const problems = checkFile(file, source);
    if (expected === undefined) expect(problems).toEqual([]);
    else expect(problems).toEqual([expect.objectContaining({ file, problem: expect.stringContaining(expected) })]);
  });
});

describe("circles of files", () => {
  const check = (sources: Readonly<Record<string, string>>) =>
    checkCircles(new Map(Object.entries(sources))).map(({ problem }) => problem);

  test("a chain is none", () => {
    expect(check({ "a/x.ts": 'import "./y.ts";', "a/y.ts": 'import "../b/z.ts";', "b/z.ts": "" })).toEqual([]);
  });
  test("two ways to one file are none", () => {
    expect(check({ "a.ts": 'import "./b.ts"; import "./c.ts";', "b.ts": 'import "./c.ts";', "c.ts": "" })).toEqual([]);
  });
  test("types count", () => {
    expect(check({ "a.ts": 'import type { B } from "./b.ts";', "b.ts": 'import { a } from "./a.ts";' })).toEqual([
      "closes a circle: a.ts -> b.ts -> a.ts",
    ]);
  });
  test("over three folders", () => {
    const sources = {
      "a/x.ts": 'import "../b/y.ts";',
      "b/y.ts": 'export * from "../c/z.ts";',
      "c/z.ts": 'import("../a/x.ts");',
    };
    expect(check(sources)).toEqual(["closes a circle: a/x.ts -> b/y.ts -> c/z.ts -> a/x.ts"]);
  });
});

describe("time and chance", () => {
  const ambient = [
    "const a = Date.now();",
    "const a = new Date();",
    "setTimeout(run, 5);",
    "globalThis.setInterval(run, 5);",
    "const a = Math.random();",
    "const a = performance.now();",
    "const a = crypto.randomUUID();",
    "const a = randomBytes(3);",
    `const a = \`\${Date.now()}\`;`,
    'import { setTimeout as s } from "node:timers/promises";',
  ];
  test.each(ambient)("found outside of the ports: %s", (source) => {
    expect(checkFile("webhook/a.ts", `\n${source}\n`)).toEqual([expect.objectContaining({ line: 2 })]);
    expect(checkFile("shared/runtime/system-ports.ts", source)).toEqual([]);
    expect(checkFile("webhook/a.test.ts", source)).toEqual([]);
    expect(checkFile("scripts/a.ts", source)).toEqual([]);
  });

  const harmless = ["// Date.now()", "socket.setTimeout(5);", "new Date(ms)", "Date.parse(text)", "clock.nowMs()"];
  test.each(harmless)("not confused with: %s", (source) => {
    expect(checkFile("webhook/a.ts", source)).toEqual([]);
  });
});
