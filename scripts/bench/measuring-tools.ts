/**
 * What the side-by-side benchmarks measure with: upstream's binaries and the Go load generators. They are not part of this
 * project; `--peers` and `--rods` (or PODSEIDON_PEERS, PODSEIDON_RODS) say where they are. By default they are looked for in a
 * folder `shared` beside the clone.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const ROOT = resolve(import.meta.dirname, "../..");

export function peersDirectory(given: string | undefined): string {
  return resolve(given ?? process.env.PODSEIDON_PEERS ?? join(ROOT, "../shared/peers"));
}

export function rodsDirectory(given: string | undefined): string {
  return resolve(given ?? process.env.PODSEIDON_RODS ?? join(ROOT, "../shared/bench"));
}

/** Unpacks `NAME.xz` into `workDirectory`; undefined when the peer is not there. Throws when it can't be unpacked. */
export function unpackPeer(directory: string, name: string, workDirectory: string): string | undefined {
  const packed = join(directory, `${name}.xz`);
  if (!existsSync(packed)) return undefined;
  mkdirSync(workDirectory, { recursive: true });
  const run = spawnSync("xz", ["-dc", packed], { maxBuffer: 512 * 1024 * 1024 });
  if (run.status !== 0)
    throw new Error(
      `${packed} could not be unpacked: ${run.error?.message ?? run.stderr.toString()} (is xz installed?)`,
    );
  const target = join(workDirectory, name);
  writeFileSync(target, run.stdout, { mode: 0o755 });
  return target;
}

/** Builds the Go program in `directory/NAME`. Throws with the compiler's message. */
export function buildRod(directory: string, name: string, workDirectory: string): string {
  const source = join(directory, name);
  if (!existsSync(source))
    throw new Error(`the load generator ${name} is not in ${directory}; say where it is with --rods`);
  mkdirSync(workDirectory, { recursive: true });
  const target = join(workDirectory, name);
  const run = spawnSync("go", ["build", "-o", target, "."], { cwd: source, encoding: "utf8" });
  if (run.status !== 0) throw new Error(`go build of ${source} failed: ${run.error?.message ?? run.stderr}`);
  return target;
}
