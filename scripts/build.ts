/**
 * `npm run build`: bundles each part into `dist/NAME.mjs`, and its modules that are loaded on demand into
 * `dist/chunks`. Prints the sizes and fails when the start of a part loads more than its budget. `--sbom` also writes
 * `dist/sbom.cdx.json`: which packages are in the bundles, and the Node.js that runs them (`--node=PATH`).
 */

import { execFile } from "node:child_process";
import { existsSync, mkdtempDisposableSync, readFileSync, writeFileSync } from "node:fs";
import { chmod, cp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { promisify } from "node:util";
import { build as bundle, type Metafile } from "esbuild";
import * as v from "valibot";
import manifest from "../package.json" with { type: "json" };
import { messageOf } from "../shared/runtime/errors.ts";
import { bundlePage } from "./kubectl-podseidon/dashboard/bundle-page.ts";
import { root } from "./root.ts";

const KB = 1000;

/**
 * The entry of each part, and the bytes that its start may load: a twentieth more than it needs
 * (docs/decisions/0007-the-build-changes-nothing.md).
 */
const PARTS = {
  webhook: { entry: "webhook/main.ts", budget: 410 * KB },
  generator: { entry: "controllers/generator/main.ts", budget: 374 * KB },
  aggregator: { entry: "controllers/aggregator/main.ts", budget: 410 * KB },
  "update-trigger": { entry: "controllers/update-trigger/main.ts", budget: 240 * KB },
  "eviction-retry": { entry: "controllers/eviction-retry/main.ts", budget: 255 * KB },
  certificates: { entry: "controllers/certificates/main.ts", budget: 590 * KB },
  "kubectl-podseidon": { entry: "scripts/kubectl-podseidon/main.ts", budget: 1890 * KB },
} as const;

/** The plugin is copied to a folder in PATH: one file, beside the two commands that kubectl searches. */
const PLUGIN = "kubectl-podseidon";
export const PLUGIN_COMMANDS = ["kubectl-podseidon", "kubectl_complete-podseidon"];

type PartName = keyof typeof PARTS;

interface BuildOptions {
  readonly only?: readonly PartName[];
  /** `dist` by default. Only a build of all parts empties it first. */
  readonly outdir?: string;
  readonly sbom?: boolean;
  /** Of package.json by default. */
  readonly version?: string;
  /** The Node.js that the bill of materials names; by default that of this process. */
  readonly node?: string;
}

export interface BuiltPart {
  readonly name: PartName;
  readonly path: string;
  /** Bytes that a start loads: the bundle and its imports. */
  readonly startBytes: number;
  /** Bytes of the chunks that are loaded only on demand. */
  readonly onDemandBytes: number;
  readonly budgetBytes: number;
  readonly metafile: Metafile;
}

/** Builds the parts. Rejects when one does not compile. The caller has to check the budgets. */
export async function build(options: BuildOptions = {}): Promise<readonly BuiltPart[]> {
  const outdir = resolve(root, options.outdir ?? "dist");
  if (options.only === undefined) await rm(outdir, { recursive: true, force: true });
  const names = options.only ?? Object.keys(PARTS).filter(isPartName);
  const parts = await Promise.all(names.map((name) => buildPart(name, outdir, options.version ?? manifest.version)));
  if (options.sbom) {
    const path = join(outdir, "sbom.cdx.json");
    await writeBillOfMaterials(parts, path);
    await addNode(path, options.node ?? process.execPath);
  }
  return parts;
}

async function buildPart(name: PartName, outdir: string, version: string): Promise<BuiltPart> {
  const { entry, budget } = PARTS[name];
  if (!existsSync(join(root, entry))) throw new Error(`${entry} is not there`);
  const page = name === PLUGIN ? await bundlePage() : undefined;
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
    // For stack traces in logs, which need positions but no sources. The plugin only prints sentences.
    sourcemap: name === PLUGIN ? false : "linked",
    sourcesContent: false,
    metafile: true,
    legalComments: "none",
    logLevel: "error",
    // NODE_ENV is the libraries' own switch to their shipping form.
    define: {
      PODSEIDON_VERSION: JSON.stringify(version),
      PODSEIDON_DASHBOARD_SCRIPT: JSON.stringify(page?.script ?? ""),
      PODSEIDON_DASHBOARD_STYLE: JSON.stringify(page?.style ?? ""),
      "process.env.NODE_ENV": '"production"',
    },
    // Libraries in CommonJS require Node's own modules; an ES module has no `require` but this one.
    banner: { js: 'import{createRequire as __cr}from"node:module";const require=__cr(import.meta.url);' },
  });
  if (name === PLUGIN) await addCommands(outdir);
  // The page's modules ship in the plugin.
  Object.assign(metafile.inputs, page?.metafile.inputs);
  return { name, path: join(outdir, `${name}.mjs`), budgetBytes: budget, ...sizes(metafile, `${name}.mjs`), metafile };
}

async function addCommands(outdir: string): Promise<void> {
  for (const command of PLUGIN_COMMANDS) {
    await cp(join(root, "scripts/kubectl-podseidon/bin", command), join(outdir, command));
    await chmod(join(outdir, command), 0o755);
  }
}

/** Writes the packages in the bundles, in CycloneDX. Equal bundles give equal files. */
async function writeBillOfMaterials(parts: readonly BuiltPart[], path: string): Promise<void> {
  using directory = mkdtempDisposableSync(join(tmpdir(), "podseidon-sbom-"));
  const all: Metafile = { inputs: {}, outputs: {} };
  for (const { metafile } of parts) {
    Object.assign(all.inputs, metafile.inputs);
    Object.assign(all.outputs, metafile.outputs);
  }
  const merged = join(directory.path, "metafile.json");
  writeFileSync(merged, JSON.stringify(all));
  const args = ["--output-reproducible", "--spec-version", "1.6", "--output-file", path, merged];
  await promisify(execFile)(join(root, "node_modules/.bin/cyclonedx-esbuild"), args, { cwd: root });
}

const BillOfMaterials = v.looseObject({ components: v.array(v.unknown()) });

/** Adds the Node.js that runs the bundles. Rejects for one that does not know the flags of the manifests' commands. */
async function addNode(path: string, node: string): Promise<void> {
  const { stdout } = await promisify(execFile)(node, ["--max-old-space-size-percentage=75", "--version"]);
  const version = stdout.trim().replace(/^v/, "");
  const bill = v.parse(BillOfMaterials, JSON.parse(readFileSync(path, "utf8")));
  bill.components.push({
    ...{ type: "platform", name: "node", version, "bom-ref": `node@${version}` },
    licenses: [{ license: { id: "MIT", acknowledgement: "declared" } }],
    // Scanners find vulnerabilities by these names.
    cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`,
    purl: `pkg:generic/node@${version}`,
  });
  writeFileSync(path, `${JSON.stringify(bill, null, 2)}\n`);
}

/**
 * Modules that only some configurations load, or that are loaded after the port is open and the first responses are
 * sent. Any other dynamic import counts as part of the start.
 */
const ON_DEMAND = [
  "node_modules/jose/",
  "node_modules/js-yaml/",
  "shared/decide/availability/selector-text.ts",
  "shared/kube/client/proxy-tunnel.ts",
  "shared/kube/informer/sharded-reflector.ts",
  "shared/observe/metrics-auth.ts",
  "shared/runtime/options/option-help.ts",
  "controllers/aggregator/counting/expected-pods.ts",
  "controllers/aggregator/counting/namespace-marker.ts",
  "controllers/aggregator/observe/vanished-events.ts",
  "controllers/aggregator/counting/protector-metrics.ts",
  "controllers/aggregator/observe/protector-numbers.ts",
  "controllers/aggregator/observe/stuck-reservations.ts",
  "controllers/generator/changes/protector-changes.ts",
  "controllers/generator/cluster-budgets/",
  "controllers/generator/protectors/budget-status-writer.ts",
  "controllers/generator/protectors/remove-cells.ts",
  "controllers/generator/protectors/undone-repairs.ts",
  "shared/kube/credentials/exec-credentials.ts",
  "shared/kube/credentials/impersonation.ts",
  "shared/kube/credentials/plugin-credentials.ts",
  "shared/kube/credentials/proxy.ts",
  "shared/observe/core-tokens.ts",
  "webhook/node-handler.ts",
  "webhook/observe-names.ts",
  "webhook/recovery.ts",
  "webhook/probe/",
  "webhook/http/caller-tokens.ts",
  "webhook/http/secret-path.ts",
  "webhook/request/bypass.ts",
  "webhook/request/bypass-permission.ts",
  "webhook/respond/pending-mark.ts",
  "webhook/request/counted-gate.ts",
  "webhook/request/in-place-change.ts",
  "webhook/request/node-deletion.ts",
  "webhook/request/status-change.ts",
  "webhook/reserve/caller-shares.ts",
  "webhook/respond/dry-run.ts",
  "webhook/respond/event-notes.ts",
  "webhook/respond/health-criterion.ts",
  "webhook/respond/not-enforced.ts",
];

/** A start loads the bundle and its direct and indirect imports, except for modules that are loaded on demand. */
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
  return { startBytes: bytesOf([...started]), onDemandBytes: bytesOf(code.filter((path) => !started.has(path))) };
}

export function overBudget(parts: readonly BuiltPart[]): readonly BuiltPart[] {
  return parts.filter(({ startBytes, budgetBytes }) => startBytes > budgetBytes);
}

export function sizeTable(parts: readonly BuiltPart[]): string {
  const kb = (bytes: number): string => `${(bytes / KB).toFixed(1)} KB`.padStart(12);
  const lines = parts.map(
    ({ name, startBytes, onDemandBytes, budgetBytes }) =>
      name.padEnd(18) +
      [startBytes, budgetBytes, onDemandBytes].map(kb).join("") +
      (startBytes > budgetBytes ? "  OVER BUDGET" : ""),
  );
  const head = `${"part".padEnd(18)}${"start loads".padStart(12)}${"budget".padStart(12)}${"on demand".padStart(12)}`;
  return [head, ...lines].join("\n");
}

function isPartName(name: string): name is PartName {
  return Object.hasOwn(PARTS, name);
}

async function main(args: readonly string[]): Promise<number> {
  const names = args.filter((arg) => !/^--(sbom$|node=)/.test(arg));
  const node = args.find((arg) => arg.startsWith("--node="))?.slice("--node=".length);
  const unknown = names.filter((name) => !isPartName(name));
  if (unknown.length > 0) {
    console.error(`there is no part ${unknown.join(", ")}; the parts are ${Object.keys(PARTS).join(", ")}`);
    return 2;
  }
  const only = names.filter(isPartName);
  try {
    const parts = await build({
      ...(only.length > 0 ? { only } : {}),
      ...(node === undefined ? {} : { node }),
      sbom: args.includes("--sbom"),
    });
    console.log(sizeTable(parts));
    return overBudget(parts).length === 0 ? 0 : 1;
  } catch (error) {
    // The bundler has already printed the problems, with the lines of source.
    console.error(messageOf(error).split("\n")[0]);
    return 1;
  }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
