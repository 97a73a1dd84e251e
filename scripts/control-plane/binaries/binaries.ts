import { accessSync, constants, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import * as v from "valibot";
import { messageOf } from "../../../shared/runtime/errors.ts";
import { theReaper } from "../reaper.ts";
import { download } from "./download.ts";
import { exclusively, lockNameOf } from "./exclusive.ts";
import { buildControlPlane } from "./go-build.ts";
import { type BinaryPaths, eachBinary, installedBinaries, problemWith } from "./installed.ts";
import { type BuildProgress, stderrProgress, teeProgress } from "./progress.ts";
import { BINARY_NAMES, goArchitecture, VERSIONS } from "./versions.ts";

/** The variable that moves the cache, whose default is `podseidon/control-plane` in `$XDG_CACHE_HOME` or `~/.cache`. */
export const CACHE_VARIABLE = "PODSEIDON_CONTROL_PLANE_CACHE";

/** One way to get the binaries: fills the directory, or rejects with the reason. */
export interface Way {
  readonly name: string;
  readonly fill: (directory: string, progress: BuildProgress) => Promise<void>;
}

export interface EnsureOptions {
  /** Where `KUBEBUILDER_ASSETS`, `PATH` and the cache's variables are read; the process's by default. */
  readonly environment?: NodeJS.ProcessEnv;
  readonly progress?: BuildProgress;
  /** What to try when the binaries are neither installed nor cached; a download and then a build by default. */
  readonly ways?: readonly Way[];
}

export type Binaries = BinaryPaths & {
  /** Their origin, for people: `installed` or the cache's directory. */
  readonly origin: string;
};

const DEFAULT_WAYS: readonly Way[] = [
  { name: "download of the official binaries", fill: (directory, progress) => download(directory, progress) },
  { name: "build from sources", fill: buildControlPlane },
];

const MANIFEST = "manifest.json";
const STAGING_PREFIX = "unfinished-";
const manifestSchema = v.object({ sizes: v.record(v.string(), v.number()) });

/**
 * The binaries of a control plane at the versions of {@link VERSIONS}: the installed ones, else those in the user's
 * cache, else new ones by the first way that works. New ones are cached for every clone. Concurrent processes prepare
 * them only once; an interrupted process leaves the cache unchanged. The error names each way, and why it failed.
 */
export async function ensureBinaries(options: EnsureOptions = {}): Promise<Binaries> {
  const environment = options.environment ?? process.env;
  const failures: string[] = [];
  try {
    return { ...(await installedBinaries(environment)), origin: "installed" };
  } catch (error) {
    failures.push(`installed (KUBEBUILDER_ASSETS, PATH): ${messageOf(error)}`);
  }
  const directory = cacheDirectory(environment);
  const cached = readCache(directory);
  if ("binaries" in cached) return cached.binaries;
  failures.push(`cache (${CACHE_VARIABLE} sets another place): ${cached.problem}`);
  const progress = options.progress ?? stderrProgress();
  makeWritable(directory, failures);
  return await exclusively(lockNameOf(directory), progress, async (announce) => {
    // Another process may have finished meanwhile.
    const again = readCache(directory);
    if ("binaries" in again) return again.binaries;
    return await prepare(directory, options.ways ?? DEFAULT_WAYS, failures, teeProgress(progress, announce));
  });
}

/** The directory of this user's binaries at these versions; shared by all clones. */
export function cacheDirectory(environment: NodeJS.ProcessEnv): string {
  const caches = environment.XDG_CACHE_HOME || join(environment.HOME || homedir(), ".cache");
  const root = environment[CACHE_VARIABLE] || join(caches, "podseidon", "control-plane");
  const { kubernetes, etcd, kwok } = VERSIONS;
  return resolve(root, `kubernetes-${kubernetes}_etcd-${etcd}_kwok-${kwok}_linux-${goArchitecture()}`);
}

function readCache(directory: string): { readonly binaries: Binaries } | { readonly problem: string } {
  let text: string;
  try {
    text = readFileSync(join(directory, MANIFEST), "utf8");
  } catch {
    return { problem: `${directory} is empty` };
  }
  const manifest = v.safeParse(v.pipe(v.string(), v.parseJson(), manifestSchema), text);
  const damaged = BINARY_NAMES.find((name) => {
    const stat = statSync(join(directory, name), { throwIfNoEntry: false });
    if (stat === undefined || !manifest.success) return true;
    // Archives and CI artifacts lose the mode.
    return stat.size !== manifest.output.sizes[name] || (stat.mode & constants.S_IXUSR) === 0;
  });
  if (damaged !== undefined) return { problem: `${join(directory, damaged)} is not as it was left` };
  return { binaries: { ...pathsIn(directory), origin: directory } };
}

async function prepare(
  directory: string,
  ways: readonly Way[],
  failures: readonly string[],
  progress: BuildProgress,
): Promise<Binaries> {
  const root = resolve(directory, "..");
  // Under the lock, an unfinished directory belongs to a process that has ended.
  for (const entry of readdirSync(root)) {
    if (entry.startsWith(STAGING_PREFIX)) rmSync(join(root, entry), { recursive: true, force: true });
  }
  const staging = join(root, `${STAGING_PREFIX}${process.pid}`);
  theReaper().removeAtEnd(staging);
  const problems = [...failures];
  for (const way of ways) {
    try {
      mkdirSync(staging, { recursive: true });
      await way.fill(staging, progress);
      await finish(staging, directory);
      progress.step(
        `etcd ${VERSIONS.etcd}, Kubernetes ${VERSIONS.kubernetes} and KWOK ${VERSIONS.kwok} are in ${directory}`,
      );
      return { ...pathsIn(directory), origin: directory };
    } catch (error) {
      problems.push(`${way.name}: ${messageOf(error)}`);
      progress.step(`${way.name} did not work: ${messageOf(error).split("\n", 1)[0]}`);
    } finally {
      rmSync(staging, { recursive: true, force: true });
    }
  }
  throw new Error(noWay(problems));
}

/** Asks each new binary for its version, and moves all of them into place at once. */
async function finish(staging: string, directory: string): Promise<void> {
  const problems = await Promise.all(BINARY_NAMES.map((name) => problemWith(name, join(staging, name))));
  const found = problems.filter((problem) => problem !== undefined);
  if (found.length > 0) throw new Error(found.join("; "));
  const sizes = Object.fromEntries(BINARY_NAMES.map((name) => [name, statSync(join(staging, name)).size]));
  await writeFile(join(staging, MANIFEST), `${JSON.stringify({ sizes }, null, 2)}\n`);
  rmSync(directory, { recursive: true, force: true });
  renameSync(staging, directory);
}

function makeWritable(directory: string, failures: string[]): void {
  const root = resolve(directory, "..");
  try {
    mkdirSync(root, { recursive: true });
    accessSync(root, constants.W_OK);
  } catch (error) {
    failures.push(`download and build: the cache can't be written: ${messageOf(error)}`);
    throw new Error(noWay(failures), { cause: error });
  }
}

function noWay(problems: readonly string[]): string {
  const wanted = `etcd ${VERSIONS.etcd}, Kubernetes ${VERSIONS.kubernetes} and KWOK ${VERSIONS.kwok}`;
  return [`no way to get ${wanted} worked:`, ...problems.map((problem) => `- ${problem}`)].join("\n");
}

function pathsIn(directory: string): BinaryPaths {
  return eachBinary((name) => join(directory, name));
}
