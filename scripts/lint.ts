/** Lints and checks the format: `npm run lint`; `-- --write` mends what can be mended. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { root } from "./root.ts";

const args = ["check", "--error-on-warnings", ...process.argv.slice(2)];
const { status, error } = spawnSync(join(root, "node_modules/.bin/biome"), args, { cwd: root, stdio: "inherit" });
if (error !== undefined) throw error;
process.exitCode = status ?? 1;
