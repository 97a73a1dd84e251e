// Runs one TypeScript script on the project's own Node, from nothing: node scripts/bootstrap.mjs scripts/NAME.ts [args]
//
// Plain JavaScript that imports nothing from node_modules, because it creates node_modules. The machine's Node may be
// older than the project needs; the locked package `node-linux-*` has the right one, and Node runs TypeScript directly.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const modules = join(root, "node_modules");
const stamp = join(modules, ".podseidon-lock");
// The locked package is for Linux. Elsewhere this process's own Node builds; what starts clusters needs Linux.
const isLinux = process.platform === "linux";
const node = isLinux ? join(modules, ".bin", "node") : process.execPath;
const ANYWHERE = ["scripts/build.ts", "scripts/generate.ts"];
const FIRST_NODE = [24, 6];
const PARENT_EVERY_MS = 500;
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

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

/**
 * Runs `work` while no other process of this clone does. The process that listens on an abstract Unix socket holds the
 * lock, as in scripts/control-plane/binaries/exclusive.ts: the kernel frees the name when the process ends, in whatever
 * way. Node.js before 20.8 and some sandboxes have no such names: there the installation runs without a lock.
 */
async function exclusively(work) {
  const clone = createHash("sha256").update(root).digest("hex").slice(0, 24);
  const path = `\0podseidon-install-${process.getuid()}-${clone}`;
  for (let waited = false; ; waited = true) {
    const server = createServer();
    const free = await new Promise((told) => {
      server.once("listening", () => told(true));
      server.once("error", (error) => told(error.code !== "EADDRINUSE"));
      server.listen({ path });
    });
    if (free) return work().finally(() => server.close());
    if (!waited) process.stderr.write("podseidon: another process installs the locked dependencies; waiting for it\n");
    await delay(200);
  }
}

/** Ends with the exit code or the signal of a child. */
function endLike(code, signal) {
  if (!signal) process.exit(code ?? 1);
  for (const name of SIGNALS) process.removeAllListeners(name);
  process.kill(process.pid, signal);
}

/**
 * Starts a child whose end ends this process. The terminal sends Ctrl-C to both; other signals are passed on.
 */
function start(command, words, options) {
  const child = spawn(command, words, options);
  for (const signal of SIGNALS) process.removeAllListeners(signal).on(signal, () => child.kill(signal));
  // Whoever kills npm kills the shell between npm and this process, too, and that shell tells nobody.
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent || !process.env.npm_lifecycle_event) return;
    clearInterval(timer);
    child.kill("SIGTERM");
  }, PARENT_EVERY_MS).unref();
  return child;
}

async function install() {
  const { wanted, ok } = installed();
  if (ok) return;
  process.stderr.write("podseidon: installing the locked dependencies (npm ci)\n");
  // Whatever NODE_ENV and npm's settings omit: esbuild is a development dependency, Node.js an optional one, which is
  // found by its link in .bin, and runs what needs a newer Node.js than this one.
  const all = ["--include=dev", "--include=optional", "--no-engine-strict", "--bin-links"];
  const words = ["ci", ...all, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
  const npm = start("npm", words, { cwd: root, stdio: ["ignore", 2, 2] });
  npm.on("error", (error) =>
    fail(`npm could not be started (${error.message}); install npm, which comes with Node.js`),
  );
  const [code, signal] = await new Promise((ended) => npm.on("exit", (...how) => ended(how)));
  if (signal) return endLike(code, signal);
  if (code !== 0)
    fail(`npm ci failed with exit code ${code}; its messages are above. Is the package registry reachable?`);
  if (!existsSync(node))
    fail(
      "the locked Node.js is not there after npm ci; supported machines are Linux on " +
        `x64 and arm64, this is ${process.platform} on ${process.arch}`,
    );
  writeFileSync(stamp, wanted);
}

const [script, ...args] = process.argv.slice(2);
if (script === undefined) fail("usage: node scripts/bootstrap.mjs scripts/NAME.ts [arguments]");
if (!isLinux) {
  if (!ANYWHERE.some((one) => script.endsWith(one)))
    fail(`the demo, the tests and releases run on Linux, this is ${process.platform}; npm run build works here`);
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major < FIRST_NODE[0] || (major === FIRST_NODE[0] && minor < FIRST_NODE[1]))
    fail(`on ${process.platform} this needs Node.js ${FIRST_NODE.join(".")} or later, and this is ${process.version}`);
}
if (!installed().ok) await exclusively(install);

const child = start(node, ["--disable-warning=ExperimentalWarning", join(root, script), ...args], {
  stdio: "inherit",
  env: { ...process.env, PATH: `${join(modules, ".bin")}:${process.env.PATH}` },
});
child.on("error", (error) => fail(`${node} could not be started: ${error.message}`));
child.on("exit", endLike);
