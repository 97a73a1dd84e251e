import { parseArgs } from "node:util";
import { CACHE_VARIABLE, cacheDirectory, ensureBinaries } from "./binaries/binaries.ts";
import { VERSIONS } from "./binaries/versions.ts";
import { Cluster } from "./cluster.ts";

const USAGE = `Usage: npm run control-plane -- COMMAND [OPTIONS]

Real Kubernetes control planes on this machine: etcd ${VERSIONS.etcd}, Kubernetes ${VERSIONS.kubernetes}, and
KWOK ${VERSIONS.kwok} in place of kubelets.

Commands:
  ensure        Get the binaries and print where they are. In this order: KUBEBUILDER_ASSETS and PATH, when they have
                all of these versions; the cache; a download of the official binaries; a build from sources with Go.
  up            Start clusters, print how to reach them, and stop them on Ctrl-C. Nothing is left behind, even after
                kill -9.
  help          Print this.

Options of up:
  --clusters N  How many; 1 by default. The first is at 127.0.0.1, the second at 127.0.0.2, and so on.
  --nodes N     Nodes in each; 2 by default.
  --without X   Leave out controller-manager, scheduler or kwok; may be repeated.

Environment:
  ${CACHE_VARIABLE}
                Where the binaries are kept, for all clones of this user.
                Default: ${cacheDirectory({ ...process.env, [CACHE_VARIABLE]: "" })}
  PODSEIDON_LOG_DIRECTORY
                Where the logs of a cluster that could not be started are kept; the directory for temporary files by
                default.
`;

/** As a shell reports a command that Ctrl-C ended. */
const INTERRUPTED = 130;
const LONG_MS = 2 ** 30;
const COMPONENTS = ["controller-manager", "scheduler", "kwok"];

async function up(args: readonly string[]): Promise<void> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      clusters: { type: "string", default: "1" },
      nodes: { type: "string", default: "2" },
      without: { type: "string", multiple: true, default: [] },
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help) return usage();
  const count = wholeNumber("--clusters", values.clusters, 1, 50);
  const nodes = wholeNumber("--nodes", values.nodes, 0, 1000);
  const unknown = values.without.find((name) => !COMPONENTS.includes(name));
  if (unknown !== undefined) throw new UsageError(`--without ${unknown}: known are ${COMPONENTS.join(", ")}`);
  const stop = new Promise<void>((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, resolve);
  });
  // From here on all processes end with this one.
  const binaries = await Promise.race([ensureBinaries(), stop]);
  if (binaries === undefined) process.exit(INTERRUPTED);
  const starts = Array.from({ length: count }, (_, index) =>
    Cluster.start({
      binaries,
      name: `cluster-${index + 1}`,
      address: `127.0.0.${index + 1}`,
      nodes: values.without.includes("kwok") ? 0 : nodes,
      controllerManager: !values.without.includes("controller-manager"),
      scheduler: !values.without.includes("scheduler"),
      kwok: !values.without.includes("kwok"),
    }),
  );
  const clusters = await Promise.race([Promise.all(starts), stop]);
  if (clusters === undefined) process.exit(INTERRUPTED);
  for (const cluster of clusters) {
    process.stdout.write(`${cluster.name}  ${cluster.url}\n  export KUBECONFIG=${cluster.kubeconfig}\n`);
  }
  process.stdout.write(`kubectl ${VERSIONS.kubernetes}: ${binaries.kubectl}\nCtrl-C stops everything.\n`);
  const alive = setInterval(() => {}, LONG_MS);
  await stop;
  clearInterval(alive);
  await Promise.all(clusters.map((cluster) => cluster.stop()));
}

class UsageError extends Error {}

function wholeNumber(option: string, text: string, least: number, most: number): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new UsageError(`${option} ${text}: a whole number from ${least} to ${most} is wanted`);
}

async function ensure(): Promise<void> {
  const { versions, origin, ...paths } = await ensureBinaries();
  process.stderr.write(
    `control plane: Kubernetes ${versions.kubernetes}, etcd ${versions.etcd}, KWOK ${versions.kwok}: ${origin}\n`,
  );
  for (const [name, path] of Object.entries(paths)) process.stdout.write(`${name}\t${path}\n`);
}

function usage(): void {
  process.stdout.write(USAGE);
}

async function main([command, ...args]: readonly string[]): Promise<void> {
  if (command === undefined || ["help", "--help", "-h"].includes(command) || args.includes("--help")) return usage();
  if (command === "ensure" && args.length === 0) return await ensure();
  if (command === "up") return await up(args);
  throw new UsageError(`unknown: ${[command, ...args].join(" ")}`);
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const misused = error instanceof UsageError || (error instanceof TypeError && "code" in error);
  process.stderr.write(`control plane: ${error instanceof Error ? error.message : error}\n`);
  if (misused) process.stderr.write("npm run control-plane -- --help tells what there is.\n");
  process.exit(misused ? 2 : 1);
}
