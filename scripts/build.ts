/**
 * Bundles each part into `dist/NAME.mjs`, and what a part loads only on demand into `dist/chunks`: `npm run build`. Prints the sizes
 * and fails when a part's start loads more than its budget.
 */
import { existsSync, readFileSync } from "node:fs";
import { chmod, cp, rm } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { build as bundle, type Metafile, type Plugin } from "esbuild";
import { root } from "./root.ts";

const KB = 1000;
const CONTROLLER_BUDGET = 2500 * KB;

/** Each part's entry and the most that its start may load, in bytes. */
const PARTS = {
  webhook: { entry: "webhook/main.ts", budget: 300 * KB },
  generator: { entry: "controllers/generator/main.ts", budget: CONTROLLER_BUDGET },
  aggregator: { entry: "controllers/aggregator/main.ts", budget: CONTROLLER_BUDGET },
  "update-trigger": { entry: "controllers/update-trigger/main.ts", budget: CONTROLLER_BUDGET },
  certificates: { entry: "controllers/certificates/main.ts", budget: CONTROLLER_BUDGET },
  "kubectl-podseidon": { entry: "scripts/kubectl-podseidon/main.ts", budget: CONTROLLER_BUDGET },
} as const;

/** Installed by copying them somewhere on the PATH, so it is one file and what kubectl calls it by. */
const PLUGIN = "kubectl-podseidon";
const PLUGIN_COMMANDS = ["kubectl-podseidon", "kubectl_complete-podseidon"];

export type PartName = keyof typeof PARTS;
export const PART_NAMES: readonly PartName[] = [
  "webhook",
  "generator",
  "aggregator",
  "update-trigger",
  "certificates",
  PLUGIN,
];

export interface BuildOptions {
  /** The parts to build; all by default. */
  readonly only?: readonly PartName[];
  /** `dist` by default. Only a build of all parts empties it first. */
  readonly outdir?: string;
}

export interface BuiltPart {
  readonly name: PartName;
  /** Absolute path of the bundle. */
  readonly path: string;
  /** Bytes that are loaded by a start: the bundle and what it imports. */
  readonly startBytes: number;
  /** Bytes of the chunks that are loaded only on demand. */
  readonly onDemandBytes: number;
  readonly budgetBytes: number;
  /** Packages of node_modules of which some code is in the bundle or its chunks, by their path in the lock file; sorted. */
  readonly packages: readonly string[];
}

/** Builds the parts; rejects when one does not compile. Whether budgets hold is the caller's to look at. */
export async function build(options: BuildOptions = {}): Promise<readonly BuiltPart[]> {
  const outdir = resolve(root, options.outdir ?? "dist");
  if (options.only === undefined) await rm(outdir, { recursive: true, force: true });
  return Promise.all((options.only ?? PART_NAMES).map((name) => buildPart(name, outdir)));
}

/**
 * Modules that libraries load at their start for features that nothing here uses: prom-client for exemplars, summaries, clusters of processes
 * and pushing; pino for redaction by path (the log has its own), for transports in worker threads and for objects in circles, whose line
 * then says so; hono's server for websockets. They would be a seventh of what the webhook may load.
 */
const LEFT_OUT = /^(@opentelemetry\/api|tdigest|thread-stream|@pinojs\/redact|safe-stable-stringify|hono\/ws)$/;
const LEFT_OUT_FILES: Readonly<Record<string, RegExp>> = {
  pino: /^\.\/(lib\/)?(transport|multistream)$/,
  "prom-client": /^\.\/lib\/(pushgateway|cluster|summary)$/,
};

/** Loads, and throws when it is used after all. */
function leftOut(path: string): string {
  const message = JSON.stringify(`${path} is left out of the bundle`);
  const fail = `function () { throw new Error(${message}); }`;
  if (path === "hono/ws") return `export const defineWebSocketHelper = () => ${fail};`;
  if (path === "safe-stable-stringify") return `exports.configure = () => ${fail};`;
  return `module.exports = ${fail};`;
}

const leaveOut: Plugin = {
  name: "leave-out",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: LEFT_OUT }, ({ path }) => ({ path, namespace: "left-out" }));
    for (const [library, filter] of Object.entries(LEFT_OUT_FILES)) {
      onResolve({ filter }, ({ path, resolveDir }) =>
        resolveDir.includes(`node_modules/${library}`)
          ? { path: `${library}/${path}`, namespace: "left-out" }
          : undefined,
      );
    }
    onLoad({ filter: /.*/, namespace: "left-out" }, ({ path }) => ({ contents: leftOut(path) }));
  },
};

/**
 * node:http, required instead of imported: an import reads every property of the module, and some of them load Node's whole
 * implementation of fetch when they are read, which is a third of the time from exec to the webhook's first answer.
 */
const requiredHttp: Plugin = {
  name: "required-http",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(node:)?http$/ }, ({ kind }) =>
      kind === "import-statement" ? { path: "http", namespace: "required-http" } : undefined,
    );
    onLoad({ filter: /.*/, namespace: "required-http" }, () => ({
      contents: 'module.exports = require("node:http");',
    }));
  },
};

/** The sentences of PodProtector's schema are for the CRD, which is made from the source: no program says them. */
const undescribedSchema: Plugin = {
  name: "undescribed-schema",
  setup({ onLoad }) {
    onLoad({ filter: /shared\/schema\/podprotector(-status)?\.ts$/ }, ({ path }) => ({
      contents: readFileSync(path, "utf8").replaceAll(/"[^"\n]*[a-z] [^"\n]*\."/g, '""'),
      loader: "ts",
    }));
  },
};

async function buildPart(name: PartName, outdir: string): Promise<BuiltPart> {
  const { entry, budget } = PARTS[name];
  if (!existsSync(join(root, entry))) throw new Error(`${entry} is not there`);
  const { metafile } = await bundle({
    absWorkingDir: root,
    entryPoints: { [name]: entry },
    outdir,
    bundle: true,
    splitting: name !== PLUGIN,
    chunkNames: `chunks/${name}-[name]-[hash]`,
    outExtension: { ".js": ".mjs" },
    format: "esm",
    platform: "node",
    target: "node24",
    minify: true,
    // For stack traces in the logs, which need positions and not the sources; a command line says what is wrong in a sentence.
    sourcemap: name === PLUGIN ? false : "linked",
    sourcesContent: false,
    metafile: true,
    legalComments: "none",
    logLevel: "error",
    plugins: [leaveOut, requiredHttp, undescribedSchema],
    // The libraries' own switch to their shipping form.
    define: { PODSEIDON_VERSION: JSON.stringify(packageVersion()), "process.env.NODE_ENV": '"production"' },
    // Libraries in CommonJS require Node's own modules; in ESM there is no require but this one.
    banner: { js: 'import{createRequire as __cr}from"node:module";const require=__cr(import.meta.url);' },
  });
  if (name === PLUGIN) await addCommands(outdir);
  return {
    name,
    path: join(outdir, `${name}.mjs`),
    budgetBytes: budget,
    ...sizes(metafile, `${name}.mjs`),
    packages: packagesIn(metafile),
  };
}

/** What kubectl looks for on the PATH: scripts that run the bundle beside them. */
async function addCommands(outdir: string): Promise<void> {
  for (const command of PLUGIN_COMMANDS) {
    await cp(join(root, "scripts/kubectl-podseidon/bin", command), join(outdir, command));
    await chmod(join(outdir, command), 0o755);
  }
}

function packagesIn({ outputs }: Metafile): readonly string[] {
  const packages = new Set<string>();
  for (const { inputs } of Object.values(outputs)) {
    for (const [path, { bytesInOutput }] of Object.entries(inputs)) {
      // As the lock file has it: from the first node_modules to the last.
      const found = /node_modules\/(?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+/.exec(path)?.[0];
      if (found !== undefined && bytesInOutput > 0) packages.add(found);
    }
  }
  return [...packages].sort();
}

function packageVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const holds = typeof manifest === "object" && manifest !== null && "version" in manifest;
  if (!holds || typeof manifest.version !== "string") throw new Error("package.json has no version");
  return manifest.version;
}

/**
 * Modules that only some configurations load, or that are loaded when the port is open and the first answers are given. Any other
 * dynamic import counts as part of the start.
 */
const ON_DEMAND = [
  "node_modules/js-yaml/",
  "shared/kube/credentials/plugin-credentials.ts",
  "webhook/recovery.ts",
  "webhook/probe/",
  "webhook/request/bypass.ts",
  "webhook/request/bypass-permission.ts",
  "webhook/respond/pending-mark.ts",
  "webhook/request/counted-gate.ts",
  "webhook/request/in-place-change.ts",
];

/** What a start loads is the bundle and whatever it imports, directly or not, but for what is on demand. */
function sizes(metafile: Metafile, entry: string): { startBytes: number; onDemandBytes: number } {
  const { outputs } = metafile;
  const code = Object.keys(outputs).filter((path) => path.endsWith(".mjs"));
  const first = code.find((path) => basename(path) === entry);
  const started = new Set<string>();
  const visit = (path: string): void => {
    if (started.has(path)) return;
    started.add(path);
    for (const { path: imported, external } of outputs[path]?.imports ?? []) {
      const source = outputs[imported]?.entryPoint ?? "";
      if (external !== true && !ON_DEMAND.some((part) => source.includes(part))) visit(imported);
    }
  };
  if (first !== undefined) visit(first);
  const bytesOf = (paths: readonly string[]): number =>
    paths.reduce((sum, path) => sum + (outputs[path]?.bytes ?? 0), 0);
  return {
    startBytes: bytesOf([...started]),
    onDemandBytes: bytesOf(code.filter((path) => !started.has(path))),
  };
}

/** Returns the parts whose start loads too much. */
export function overBudget(parts: readonly BuiltPart[]): readonly BuiltPart[] {
  return parts.filter(({ startBytes, budgetBytes }) => startBytes > budgetBytes);
}

/** The sizes as lines of text. */
export function sizeTable(parts: readonly BuiltPart[]): string {
  const kb = (bytes: number): string => `${(bytes / KB).toFixed(1)} KB`.padStart(12);
  const lines = parts.map(
    ({ name, startBytes, onDemandBytes, budgetBytes }) =>
      `${name.padEnd(16)}${kb(startBytes)}${kb(budgetBytes)}${kb(onDemandBytes)}${startBytes > budgetBytes ? "  OVER BUDGET" : ""}`,
  );
  const head = `${"part".padEnd(16)}${"start loads".padStart(12)}${"budget".padStart(12)}${"on demand".padStart(12)}`;
  return [head, ...lines].join("\n");
}

function isPartName(name: string): name is PartName {
  return Object.hasOwn(PARTS, name);
}

async function main(args: readonly string[]): Promise<number> {
  const unknown = args.filter((name) => !isPartName(name));
  if (unknown.length > 0) {
    console.error(`there is no part ${unknown.join(", ")}; the parts are ${PART_NAMES.join(", ")}`);
    return 2;
  }
  const only = args.filter(isPartName);
  try {
    const parts = await build(only.length > 0 ? { only } : {});
    console.log(sizeTable(parts));
    return overBudget(parts).length === 0 ? 0 : 1;
  } catch (error) {
    // What the bundler found is on the terminal already, with the lines that it is about.
    console.error(error instanceof Error ? error.message.split("\n")[0] : error);
    return 1;
  }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
