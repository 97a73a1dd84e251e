/** What is built with Go for one test or another, beside the control plane: built once, and kept in the cache. */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { cacheDirectory } from "./binaries.ts";
import { exclusively, lockNameOf } from "./exclusive.ts";
import { type BuildProgress, stderrProgress } from "./progress.ts";

export interface BuiltOnce {
  /** Of its directory in the cache; has the version. */
  readonly name: string;
  /** What is said before it is built, such as `promtool with Go from sources (about 4 minutes, once)`. */
  readonly title: string;
  /** Puts it into the directory. */
  readonly build: (directory: string, progress: BuildProgress) => Promise<void>;
}

/** Resolves with the directory in which it is, complete, whoever built it; rejects like its `build`. */
export async function builtOnce({ name, title, build }: BuiltOnce): Promise<string> {
  const directory = join(dirname(cacheDirectory(process.env)), name);
  const progress = stderrProgress();
  return await exclusively(lockNameOf(directory), progress, async () => {
    if (existsSync(directory)) return directory;
    const staging = `${directory}.unfinished`;
    rmSync(staging, { recursive: true, force: true });
    mkdirSync(staging, { recursive: true });
    progress.step(`building ${title}`);
    await build(staging, progress);
    renameSync(staging, directory);
    return directory;
  });
}

/** The version, without a leading `v`, at which the go.mod of `build/MODULE` requires a path. Throws when it does not. */
export function pinnedVersion(module: string, path: string): string {
  const file = fileURLToPath(new URL(`build/${module}/go.mod`, import.meta.url));
  const lines = readFileSync(file, "utf8").split("\n");
  const words = lines.map((line) =>
    line
      .trim()
      .replace(/^require /, "")
      .split(" "),
  );
  const version = words.find(([required, version]) => required === path && version?.startsWith("v"))?.[1];
  if (version === undefined) throw new Error(`${file} requires no ${path}`);
  return version.slice(1);
}
