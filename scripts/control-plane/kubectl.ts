import { spawn } from "node:child_process";
import { theReaper } from "./reaper.ts";

export interface KubectlOptions {
  readonly kubeconfig?: string;
  /** Its standard input. */
  readonly input?: string;
  /** Killed after this; two minutes by default. */
  readonly timeoutMs?: number;
}

export interface KubectlResult {
  /** 0 when it succeeded; -1 when it was killed. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

const TIMEOUT_MS = 120_000;

/** Runs kubectl to its end. Its caches are in the runner's directory, not in the user's. */
export function runKubectl(binary: string, args: readonly string[], options: KubectlOptions): Promise<KubectlResult> {
  const reaper = theReaper();
  const child = spawn(binary, [...args], {
    stdio: ["pipe", "pipe", "pipe"],
    env: {
      ...reaper.environment,
      HOME: reaper.directory,
      PATH: process.env.PATH ?? "",
      ...(options.kubeconfig === undefined ? {} : { KUBECONFIG: options.kubeconfig }),
    },
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), options.timeoutMs ?? TIMEOUT_MS);
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  child.stdin.on("error", () => {}); // It may end without having read everything.
  child.stdin.end(options.input ?? "");
  return new Promise((resolve, reject) => {
    child.on("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.on("close", (code) => {
      clearTimeout(timer);
      resolve({ code: code ?? -1, stdout, stderr });
    });
  });
}
