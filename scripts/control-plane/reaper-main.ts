import { readdirSync, readFileSync, rmSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";

/**
 * The reaper's process; see reaper.ts. Arguments: the runner's mark and its directory. Standard input: the pipe, with
 * one more path in each line.
 */

const MARK_VARIABLE = "PODSEIDON_CONTROL_PLANE_RUNNER";
const ROUNDS = 100;
const ROUND_MS = 50;

const [mark, directory] = process.argv.slice(2);
if (mark === undefined || directory === undefined) {
  process.stderr.write("usage: reaper-main.ts MARK DIRECTORY\n");
  process.exit(2);
}

/** More paths to remove, one in each line. */
let received = "";

function markedProcesses(): number[] {
  const entry = `\0${MARK_VARIABLE}=${mark}\0`;
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && pid !== process.pid)
    .filter((pid) => {
      try {
        return `\0${readFileSync(`/proc/${pid}/environ`, "latin1")}\0`.includes(entry);
      } catch {
        return false; // Ended, or of another user.
      }
    });
}

/** Kills until one round finds no process: a starting process appears in the next round. */
async function reap(): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) {
    const pids = markedProcesses();
    for (const pid of pids) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It has ended.
      }
    }
    if (pids.length === 0 && round > 0) break;
    await delay(ROUND_MS);
  }
  for (const path of [directory, ...received.split("\n")]) {
    if (path) rmSync(path, { recursive: true, force: true, maxRetries: 5, retryDelay: ROUND_MS });
  }
}

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
process.stdin.on("error", () => {});
process.stdin.on("close", () => void reap());
process.stdin.setEncoding("utf8");
process.stdin.on("data", (text: string) => {
  received += text;
});
