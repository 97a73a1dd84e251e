// Runs one TypeScript script on the project's own Node, from nothing: `node scripts/bootstrap.mjs scripts/NAME.ts [args]`.
//
// Plain JavaScript that imports nothing from node_modules, because it is what puts node_modules there. The machine's Node may
// be older than the project needs; the locked package `node-linux-*` brings the right one, and Node runs TypeScript directly.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const modules = join(root, "node_modules");
const stamp = join(modules, ".podseidon-lock");
const guard = join(root, ".bootstrap-lock");
const node = join(modules, ".bin", "node");
const LOCK_STALE_MS = 10 * 60_000;

function fail(message) {
  process.stderr.write(`podseidon: ${message}\n`);
  process.exit(1);
}

function installed() {
  const wanted = createHash("sha256")
    .update(readFileSync(join(root, "package-lock.json")))
    .digest("hex");
  const found = existsSync(stamp) && existsSync(node) ? readFileSync(stamp, "utf8") : "";
  return { wanted, ok: found === wanted };
}

function sleep(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

function install() {
  for (;;) {
    try {
      mkdirSync(guard);
      break;
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
      // Another process of this clone installs; one that died is taken over once its lock is old.
      if (Date.now() - (statSync(guard, { throwIfNoEntry: false })?.mtimeMs ?? 0) > LOCK_STALE_MS)
        rmSync(guard, { recursive: true, force: true });
      sleep(200);
      if (installed().ok) return;
    }
  }
  const release = () => rmSync(guard, { recursive: true, force: true });
  process.on("exit", release);
  const { wanted, ok } = installed();
  if (!ok) {
    process.stderr.write("podseidon: installing the locked dependencies (npm ci)\n");
    const run = spawnSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], {
      cwd: root,
      stdio: ["ignore", 2, 2],
    });
    if (run.error) fail(`npm could not be started (${run.error.message}); install npm, which comes with Node.js`);
    if (run.status !== 0)
      fail(`npm ci failed with exit code ${run.status}; its messages are above. Is the package registry reachable?`);
    if (!existsSync(node))
      fail(
        `the locked Node.js is not there after npm ci; supported machines are Linux on x64 and arm64, this is ${process.platform} on ${process.arch}`,
      );
    writeFileSync(stamp, wanted);
  }
  release();
}

const [script, ...args] = process.argv.slice(2);
if (script === undefined) fail("usage: node scripts/bootstrap.mjs scripts/NAME.ts [arguments]");
if (process.platform !== "linux") fail(`the demo and the tests run on Linux, this is ${process.platform}`);
if (!installed().ok) install();

const child = spawn(node, ["--disable-warning=ExperimentalWarning", join(root, script), ...args], {
  stdio: "inherit",
  env: { ...process.env, PATH: `${join(modules, ".bin")}:${process.env.PATH}` },
});
// The terminal sends Ctrl-C to the whole group; a signal that only this process got is passed on. Either way the child decides when to end.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => fail(`${node} could not be started: ${error.message}`));
child.on("exit", (code, signal) => {
  if (signal) {
    for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.removeAllListeners(name);
    process.kill(process.pid, signal);
  } else process.exit(code ?? 1);
});
