import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

/** However the process that started a cluster ends, nothing of the cluster is left. */

const MAIN = fileURLToPath(new URL("../../../scripts/control-plane/main.ts", import.meta.url));
const TIMEOUT_MS = 300_000;
const POLL_MS = 50;
const WITHOUT = ["controller-manager", "scheduler", "kwok"].flatMap((name) => ["--without", name]);

/** The processes that were started with a file or directory under `directory`, the reaper included. */
function processesOf(directory: string): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => {
      try {
        return Number.isInteger(pid) && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(directory);
      } catch {
        return false;
      }
    });
}

async function eventually(condition: () => boolean): Promise<void> {
  while (!condition()) await delay(POLL_MS);
}

test.each([
  ["SIGKILL", null],
  ["SIGINT", 0],
  ["SIGTERM", 0],
] as const)("after %s of the runner no process and no file is left", { timeout: TIMEOUT_MS }, async (signal, code) => {
  const runner = spawn(process.execPath, [MAIN, "up", ...WITHOUT], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => runner.once("exit", resolve));
  const kubeconfig = await new Promise<string>((resolve) => {
    createInterface({ input: runner.stdout }).on("line", (line) => {
      const found = /KUBECONFIG=(\S+)/.exec(line)?.[1];
      if (found !== undefined) resolve(found);
    });
  });
  const root = dirname(dirname(dirname(kubeconfig)));
  // etcd, kube-apiserver and the reaper.
  expect(processesOf(root)).toHaveLength(3);
  runner.kill(signal);
  expect(await ended).toBe(code);
  await eventually(() => processesOf(root).length === 0 && !existsSync(root));
});
