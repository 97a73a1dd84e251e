import { type ExecFileOptions, execFile } from "node:child_process";
import { childEnvironment, theReaper } from "./reaper.ts";

export interface KubectlOptions {
  readonly kubeconfig?: string;
  readonly input?: string;
  /** kubectl is killed after this time; two minutes by default. */
  readonly timeoutMs?: number;
}

export interface KubectlResult {
  /** 0 for success; -1 if kubectl was killed. */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

const TIMEOUT_MS = 120_000;

/** Runs kubectl to its end. Its caches are in the runner's directory, not in the user's. */
export function runKubectl(binary: string, args: readonly string[], options: KubectlOptions): Promise<KubectlResult> {
  const { kubeconfig, input = "", timeoutMs: timeout = TIMEOUT_MS } = options;
  const env = childEnvironment(theReaper().directory);
  const settings: ExecFileOptions = {
    env: kubeconfig === undefined ? env : { ...env, KUBECONFIG: kubeconfig },
    timeout,
    killSignal: "SIGKILL",
    maxBuffer: Number.POSITIVE_INFINITY,
  };
  return new Promise((resolve, reject) => {
    const child = execFile(binary, [...args], { ...settings, encoding: "utf8" }, (error, stdout, stderr) => {
      if (typeof error?.code === "string") reject(error);
      else resolve({ code: child.exitCode ?? -1, stdout, stderr });
    });
    child.stdin?.on("error", () => {}); // It may end without having read everything.
    child.stdin?.end(input);
  });
}
