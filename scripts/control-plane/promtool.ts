/** promtool, which checks and tests alert rules: the installed one, else one that is built once and kept in the cache. */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { cacheDirectory } from "./binaries.ts";
import { exclusively, lockNameOf } from "./exclusive.ts";
import { buildPromtool } from "./go-build.ts";
import { stderrProgress } from "./progress.ts";

const MODULE = fileURLToPath(new URL("build/promtool/go.mod", import.meta.url));

/** The version of Prometheus that its module pins. */
function version(): string {
  const found = /^\s*github\.com\/prometheus\/prometheus (v\S+)/m.exec(readFileSync(MODULE, "utf8"))?.[1];
  if (found === undefined) throw new Error(`${MODULE} requires no Prometheus`);
  return found;
}

/** Resolves with the path of promtool; builds it with Go when it is not there, which takes some minutes once. */
export async function ensurePromtool(): Promise<string> {
  for (const directory of (process.env.PATH ?? "").split(delimiter)) {
    if (existsSync(join(directory, "promtool"))) return join(directory, "promtool");
  }
  const directory = join(dirname(cacheDirectory(process.env)), `promtool-${version()}`);
  const binary = join(directory, "promtool");
  const progress = stderrProgress();
  return await exclusively(lockNameOf(directory), progress, async () => {
    if (existsSync(binary)) return binary;
    const staging = `${directory}.unfinished`;
    rmSync(staging, { recursive: true, force: true });
    mkdirSync(staging, { recursive: true });
    progress.step("building promtool with Go from sources (about 4 minutes, once)");
    await buildPromtool(staging, progress);
    renameSync(staging, directory);
    return binary;
  });
}
