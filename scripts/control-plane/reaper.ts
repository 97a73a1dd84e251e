import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * Ends all child processes with this process, however this process ends. The reaper, a small process, has the other end
 * of a pipe. When the pipe closes, which the kernel does even after `kill -9`, the reaper kills every process with this
 * runner's mark in its environment and removes the runner's directory. A mark is better than a list of process ids: a
 * process has the mark from its start, children inherit it, and it is never reused.
 */
export interface Reaper {
  /** For temporary files; removed with everything in it when this process ends. */
  readonly directory: string;
  /** Environment variables of every process that ends with this one. */
  readonly environment: Readonly<Record<string, string>>;
  /** Also removes `path` when this process ends, if it still exists. */
  removeAtEnd(path: string): void;
}

const MARK_VARIABLE = "PODSEIDON_CONTROL_PLANE_RUNNER";
const REAPER_MAIN = fileURLToPath(new URL("reaper-main.ts", import.meta.url));

let shared: Reaper | undefined;

/** The reaper of this process, started on first use. It does not keep this process alive. */
export function theReaper(): Reaper {
  shared ??= start();
  return shared;
}

function start(): Reaper {
  const directory = mkdtempSync(join(tmpdir(), "podseidon-control-plane-"));
  const mark = `${process.pid}-${randomBytes(12).toString("hex")}`;
  // In its own session, so that Ctrl-C in a terminal reaches only the runner.
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", REAPER_MAIN, mark, directory], {
    stdio: ["pipe", "ignore", "inherit"],
    detached: true,
    env: { PATH: process.env.PATH },
  });
  child.on("error", (error) =>
    process.stderr.write(`control plane: the reaper could not be started: ${error.message}\n`),
  );
  child.unref();
  const pipe = child.stdin;
  pipe.on("error", () => {});
  if ("unref" in pipe && typeof pipe.unref === "function") pipe.unref();
  return {
    directory,
    environment: { [MARK_VARIABLE]: mark },
    removeAtEnd: (path) => pipe.write(`${resolve(path)}\n`),
  };
}

/** Percent. With less garbage collection a control plane starts a second sooner, and kubectl costs a quarter less. */
const GOGC = "300";

/** The few environment variables that every process of a cluster, and kubectl, gets. */
export function childEnvironment(home: string): Record<string, string> {
  const { PATH = "", NODE_COMPILE_CACHE } = process.env;
  const cache = NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE };
  return { ...theReaper().environment, HOME: home, PATH, GOGC, ...cache };
}
