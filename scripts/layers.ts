/**
 * Imports point one way (ARCHITECTURE, layers), and only the files of the real ports touch time and chance. Run by `npm test`.
 */
import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { root } from "./root.ts";

const SHARED = ["schema", "decide", "runtime", "certificates", "kube", "observe", "recovery"].map(
  (name) => `shared/${name}`,
);

/** What each layer may import beside itself; a file belongs to the layer with the longest matching folder. */
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  "shared/schema": [],
  "shared/decide": ["shared/schema"],
  "shared/runtime": ["shared/schema", "shared/decide"],
  "shared/certificates": ["shared/schema", "shared/runtime"],
  "shared/kube": ["shared/schema", "shared/decide", "shared/runtime"],
  // Events are objects of the API, so that what observes stands above what talks to apiservers.
  "shared/observe": ["shared/schema", "shared/decide", "shared/runtime", "shared/kube"],
  "shared/recovery": ["shared/schema", "shared/decide", "shared/runtime", "shared/kube", "shared/observe"],
  webhook: SHARED,
  controllers: SHARED,
  // It runs on an operator's machine and not in a cluster, so it lies among the scripts; but it ships.
  "scripts/kubectl-podseidon": SHARED,
};

/** The only files that may use {@link AMBIENT}: the real ports. */
const PORTS_FILES = ["shared/runtime/system-ports.ts", "shared/runtime/system-process.ts"];

/** Ways to time and chance that a simulation could not follow. */
const AMBIENT =
  /(?<![\w$.])(?:globalThis\.)?(?:Date\.now|new Date\(\s*\)|performance\.now|process\.hrtime|Math\.random|AbortSignal\.timeout|(?:setTimeout|setInterval)(?=\s*\()|(?:crypto\.)?(?:randomUUID|randomBytes|getRandomValues))|["']node:timers(?:\/promises)?["']/g;

const IMPORT = /\b(?:import|export)\b[^"';]*?\bfrom\s*["']([^"']+)["']|\bimport\s*\(?\s*["']([^"']+)["']/g;

export interface LayerProblem {
  readonly file: string;
  readonly line: number;
  readonly problem: string;
}

/** Comments and strings with blanks in them become blank, so that positions stay; other strings may be imports. */
function withoutComments(source: string): string {
  const token = /\/\*[\s\S]*?\*\/|\/\/[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/g;
  return source.replace(token, (found) =>
    found.startsWith("/") || found.includes(" ") ? found.replace(/[^\n]/g, " ") : found,
  );
}

function layerOf(file: string): string | undefined {
  return Object.keys(LAYERS)
    .filter((layer) => file.startsWith(`${layer}/`))
    .sort((a, b) => b.length - a.length)[0];
}

function importProblem(file: string, specifier: string): string | undefined {
  if (specifier.startsWith("/") || specifier.startsWith("file:")) return `imports an absolute path, ${specifier}`;
  if (!specifier.startsWith(".")) return undefined;
  const target = normalize(join(dirname(file), specifier));
  if (target.startsWith("..")) return `imports ${specifier}, which is outside of the project`;
  const isTest = /\.test\.ts$/;
  if (isTest.test(target) && !isTest.test(file)) return `imports the test ${target}`;
  const from = layerOf(file);
  // Tests beside the code may use test helpers; they ship nothing.
  if (from === undefined || isTest.test(file)) return undefined;
  const to = layerOf(target);
  if (to === undefined) return `imports ${target}, which does not ship`;
  if (to === from || LAYERS[from]?.includes(to)) return undefined;
  return `imports ${target}: ${from} may not depend on ${to}`;
}

/** Returns what is wrong with one file; `file` is relative to the project. */
export function checkFile(file: string, source: string): LayerProblem[] {
  const code = withoutComments(source);
  const at = (index: number, problem: string): LayerProblem => ({
    file,
    line: code.slice(0, index).split("\n").length,
    problem,
  });
  const problems: LayerProblem[] = [];
  for (const found of code.matchAll(IMPORT)) {
    const problem = importProblem(file, found[1] ?? found[2] ?? "");
    if (problem !== undefined) problems.push(at(found.index + found[0].length, problem));
  }
  const ships = layerOf(file) !== undefined && !file.endsWith(".test.ts");
  if (ships && !PORTS_FILES.includes(file)) {
    for (const found of code.matchAll(AMBIENT)) {
      problems.push(at(found.index, `uses ${found[0]} directly; take it from the ports (shared/runtime/clock.ts)`));
    }
  }
  return problems;
}

/** The files of the project that a file imports, with the position of each import in `code`. */
function importedFiles(file: string, code: string): { readonly target: string; readonly index: number }[] {
  return [...code.matchAll(IMPORT)].flatMap((found) => {
    const specifier = found[1] ?? found[2] ?? "";
    if (!specifier.startsWith(".")) return [];
    return [{ target: normalize(join(dirname(file), specifier)), index: found.index + found[0].length }];
  });
}

/** Returns each import that closes a circle of files; types count too, because a reader has to follow them all the same. */
export function checkCircles(sources: ReadonlyMap<string, string>): LayerProblem[] {
  const problems: LayerProblem[] = [];
  const done = new Set<string>();
  const path: string[] = [];
  const visit = (file: string): void => {
    const source = sources.get(file);
    if (source === undefined || done.has(file)) return;
    path.push(file);
    const code = withoutComments(source);
    for (const { target, index } of importedFiles(file, code)) {
      const start = path.indexOf(target);
      if (start < 0) visit(target);
      else {
        const circle = [...path.slice(start), target].join(" -> ");
        problems.push({ file, line: code.slice(0, index).split("\n").length, problem: `closes a circle: ${circle}` });
      }
    }
    path.pop();
    done.add(file);
  };
  for (const file of sources.keys()) visit(file);
  return problems;
}

/** Checks every TypeScript file of the project. */
export function checkLayers(): LayerProblem[] {
  const files = globSync("{shared,webhook,controllers,scripts,test}/**/*.ts", { cwd: root }).sort();
  const sources = new Map(files.map((file) => [file, readFileSync(join(root, file), "utf8")]));
  const shipped = new Map([...sources].filter(([file]) => !file.startsWith("test/")));
  return [...sources].flatMap(([file, source]) => checkFile(file, source)).concat(checkCircles(shipped));
}

if (import.meta.main) {
  const problems = checkLayers();
  for (const { file, line, problem } of problems) console.error(`${file}:${line}: ${problem}`);
  console.log(problems.length === 0 ? "imports point one way" : `${problems.length} problems`);
  process.exitCode = problems.length === 0 ? 0 : 1;
}
