/** promtool, which checks and tests alert rules: the installed one, else one that is built once and kept in the cache. */
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { builtOnce, pinnedVersion } from "./built-once.ts";
import { buildPromtool } from "./go-build.ts";

/** Resolves with the path of promtool; builds it with Go when it is not there, which takes some minutes once. */
export async function ensurePromtool(): Promise<string> {
  for (const directory of (process.env.PATH ?? "").split(delimiter)) {
    if (existsSync(join(directory, "promtool"))) return join(directory, "promtool");
  }
  const directory = await builtOnce({
    name: `promtool-v${pinnedVersion("promtool", "github.com/prometheus/prometheus")}`,
    title: "promtool with Go from sources (about 4 minutes, once)",
    build: buildPromtool,
  });
  return join(directory, "promtool");
}
