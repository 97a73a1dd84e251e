import { messageOf } from "../../shared/runtime/errors.ts";
import { misused, readOptions } from "../options.ts";
import { CACHE_VARIABLE, cacheDirectory, ensureBinaries } from "./binaries/binaries.ts";
import { VERSIONS } from "./binaries/versions.ts";
import { Cluster } from "./cluster.ts";

const HELP = `Usage: npm run control-plane -- COMMAND [OPTIONS]

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

/** A shell's exit code for a command that Ctrl-C ended. */
const INTERRUPTED = 130;
const LONG_MS = 2 ** 30;
const COMPONENTS = ["controller-manager", "scheduler", "kwok"];

async function up(args: readonly string[]): Promise<number> {
  const options = readOptions(args, HELP, {
    clusters: { type: "string", default: "1" },
    nodes: { type: "string", default: "2" },
    without: { type: "string", multiple: true, default: [] },
  });
  if (typeof options === "number") return options;
  const { without } = options;
  const [count, nodes] = [Number(options.clusters), Number(options.nodes)];
  if (!isWholeNumber(count, 1, 50)) return misused("--clusters: a whole number from 1 to 50 is wanted", HELP);
  if (!isWholeNumber(nodes, 0, 1000)) return misused("--nodes: a whole number from 0 to 1000 is wanted", HELP);
  const unknown = without.find((name) => !COMPONENTS.includes(name));
  if (unknown !== undefined) return misused(`--without ${unknown}: known are ${COMPONENTS.join(", ")}`, HELP);
  const stop = new Promise<void>((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, resolve);
  });
  // From here on all processes end with this one.
  const binaries = await Promise.race([ensureBinaries(), stop]);
  if (binaries === undefined) return INTERRUPTED;
  const starts = Array.from({ length: count }, (_, index) =>
    Cluster.start({
      binaries,
      name: `cluster-${index + 1}`,
      address: `127.0.0.${index + 1}`,
      nodes: without.includes("kwok") ? 0 : nodes,
      controllerManager: !without.includes("controller-manager"),
      scheduler: !without.includes("scheduler"),
      kwok: !without.includes("kwok"),
    }),
  );
  const clusters = await Promise.race([Promise.all(starts), stop]);
  if (clusters === undefined) return INTERRUPTED;
  for (const cluster of clusters) {
    process.stdout.write(`${cluster.name}  ${cluster.url}\n  export KUBECONFIG=${cluster.kubeconfig}\n`);
  }
  process.stdout.write(`kubectl ${VERSIONS.kubernetes}: ${binaries.kubectl}\nCtrl-C stops everything.\n`);
  const alive = setInterval(() => {}, LONG_MS);
  await stop;
  clearInterval(alive);
  await Promise.all(clusters.map((cluster) => cluster.stop()));
  return 0;
}

function isWholeNumber(value: number, least: number, most: number): boolean {
  return Number.isInteger(value) && value >= least && value <= most;
}

async function ensure(args: readonly string[]): Promise<number> {
  const options = readOptions(args, HELP, {});
  if (typeof options === "number") return options;
  const { origin, ...paths } = await ensureBinaries();
  process.stderr.write(
    `control plane: Kubernetes ${VERSIONS.kubernetes}, etcd ${VERSIONS.etcd}, KWOK ${VERSIONS.kwok}: ${origin}\n`,
  );
  for (const [name, path] of Object.entries(paths)) process.stdout.write(`${name}\t${path}\n`);
  return 0;
}

async function main([command = "help", ...args]: readonly string[]): Promise<number> {
  if (command === "ensure") return await ensure(args);
  if (command === "up") return await up(args);
  if (!["help", "--help", "-h"].includes(command)) return misused(`there is no command ${command}`, HELP);
  process.stdout.write(HELP);
  return 0;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`control plane: ${messageOf(error)}\n`);
  process.exitCode = 1;
}
process.exit();
