import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { childEnvironment } from "./reaper.ts";

/** The command line of one start; the next start may have another. */
export interface Launch {
  readonly binary: string;
  readonly args: readonly string[];
  /** In addition to {@link childEnvironment}. */
  readonly environment?: Readonly<Record<string, string>>;
}

export interface ProcessOptions {
  readonly name: string;
  readonly logFile: string;
  readonly workingDirectory: string;
  readonly launch: () => Launch;
  /** Resolves with whether the process serves; a rejection counts as "not yet". */
  readonly isReady: (signal: AbortSignal) => Promise<boolean>;
  readonly startTimeoutMs: number;
  readonly onUnexpectedEnd: (description: string) => void;
}

const READY_POLL_MS = 40;
const PROBE_TIMEOUT_MS = 2_000;
/** Longer than any component takes to end (the webhook: half a minute for its last requests). */
const TERMINATE_TIMEOUT_MS = 120_000;
const MESSAGE_LOG_LINES = 15;
const START_ATTEMPTS = 10;
/** With what processes end themselves that were not answered in time while they started: by themselves, in the end. */
const GIVING_UP = [
  // A kube-apiserver: its own caches took more than 10 s, or its first objects more than 30 s.
  /PostStartHook "[^"]+" failed: .*(?:not yet ready to handle request|timed out waiting|deadline exceeded)/,
  // A kube-controller-manager: the kube-apiserver refused it for 10 s.
  /failed to wait for apiserver being healthy/,
];
const STOP_ROUNDS = 5_000;
const STOP_ROUND_MS = 1;

/**
 * A process did not become ready: it ended, or took too long. With `portTaken`, another process listens on its port.
 */
export class StartError extends Error {
  override readonly name = "StartError";
  readonly portTaken: boolean;

  constructor(message: string, portTaken: boolean) {
    super(message);
    this.portTaken = portTaken;
  }
}

/** One process of a cluster, which can be killed, frozen and started again with its data and address. */
export class ManagedProcess {
  readonly name: string;
  readonly logFile: string;
  readonly #options: ProcessOptions;
  #child: ChildProcess | undefined;
  #ended: Promise<void> = Promise.resolve();
  #endExpected = false;

  constructor(options: ProcessOptions) {
    this.name = options.name;
    this.logFile = options.logFile;
    this.#options = options;
  }

  /** Undefined when the process is not running. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get running(): boolean {
    return this.#child !== undefined;
  }

  /**
   * Starts it and resolves when it is ready. One that gives up on a busy machine is started again, as by a
   * kubelet. Rejects with {@link StartError} and the end of its log.
   */
  async start(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      await this.launch();
      try {
        return await this.#waitReady();
      } catch (error) {
        if (this.running || attempt >= START_ATTEMPTS || !this.#gaveUp()) throw error;
      }
    }
  }

  /** Starts it again where it was ready and has given up since, as a kubelet does. */
  async revive(): Promise<void> {
    if (!this.running && this.#gaveUp()) await this.start();
  }

  #gaveUp(): boolean {
    const tail = this.logTail(MESSAGE_LOG_LINES);
    return GIVING_UP.some((words) => words.test(tail));
  }

  /** Starts it without waiting until it is ready. Does nothing when it runs. */
  async launch(): Promise<void> {
    if (this.#child !== undefined) return;
    const { binary, args, environment } = this.#options.launch();
    const log = openSync(this.logFile, "a");
    try {
      // In its own process group: Ctrl-C in a terminal reaches only the runner, which stops its clusters in order.
      const child = spawn(binary, [...args], {
        cwd: this.#options.workingDirectory,
        stdio: ["ignore", log, log],
        detached: true,
        env: { ...childEnvironment(this.#options.workingDirectory), ...environment },
      });
      this.#endExpected = false;
      this.#child = child;
      child.unref();
      this.#ended = new Promise((resolve) => {
        const finish = (description: string): void => {
          if (this.#child !== child) return;
          this.#child = undefined;
          if (!this.#endExpected) this.#options.onUnexpectedEnd(description);
          resolve();
        };
        child.once("error", (error) => finish(`${this.name} could not be started: ${error.message}`));
        child.once("exit", (code, signal) => finish(`${this.name} ended with ${signal ?? `code ${code}`}`));
      });
    } finally {
      closeSync(log);
    }
  }

  /** Resolves when it is ready; rejects with {@link StartError} when it ends or is not ready in time. */
  async #waitReady(): Promise<void> {
    const timeoutMs = this.#options.startTimeoutMs;
    const deadlineMs = performance.now() + timeoutMs;
    while (performance.now() < deadlineMs) {
      if (!this.running) throw this.#startError("ended before it was ready");
      if (await this.#probe()) return;
      await delay(READY_POLL_MS);
    }
    throw this.#startError(`was not ready after ${timeoutMs / 1000} s`);
  }

  async #probe(): Promise<boolean> {
    try {
      return await this.#options.isReady(AbortSignal.timeout(PROBE_TIMEOUT_MS));
    } catch {
      return false;
    }
  }

  /**
   * Sends a signal. After a signal that ends the process (SIGKILL, SIGTERM, SIGINT), resolves when it has ended; kills
   * it two minutes after a SIGTERM. Does nothing when the process is not running.
   */
  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    const ends = signal === "SIGKILL" || signal === "SIGTERM" || signal === "SIGINT";
    if (ends) this.#endExpected = true;
    child.kill(signal);
    if (!ends) return;
    child.kill("SIGCONT"); // A frozen process handles nothing but SIGKILL.
    const timer = setTimeout(() => child.kill("SIGKILL"), TERMINATE_TIMEOUT_MS);
    await this.#ended;
    clearTimeout(timer);
  }

  /** Freezes it (SIGSTOP): connections stay open and nothing answers. Every thread has stopped when this returns. */
  freeze(): void {
    const pid = this.#child?.pid;
    if (pid === undefined) return;
    this.#child?.kill("SIGSTOP");
    waitUntilStopped(pid);
  }

  thaw(): void {
    this.#child?.kill("SIGCONT");
  }

  /** Kills it if it runs, starts it again and resolves when it is ready. */
  async restart(): Promise<void> {
    await this.kill("SIGKILL");
    await this.start();
  }

  logTail(lines = 40): string {
    try {
      return readFileSync(this.logFile, "utf8").trimEnd().split("\n").slice(-lines).join("\n");
    } catch {
      return "";
    }
  }

  #startError(what: string): StartError {
    const tail = this.logTail(MESSAGE_LOG_LINES);
    const portTaken = !this.running && /address already in use/i.test(tail);
    return new StartError(`${this.name} ${what}; the end of its log:\n${tail}`, portTaken);
  }
}

/** A thread on another core still runs for a moment after the signal, and may write to a disk or a peer. */
function waitUntilStopped(pid: number): void {
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (let round = 0; round < STOP_ROUNDS; round++) {
    if (threadsOf(pid).every((thread) => isStopped(pid, thread))) return;
    Atomics.wait(pause, 0, 0, STOP_ROUND_MS);
  }
  throw new Error(`process ${pid} did not stop on SIGSTOP`);
}

function threadsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    return []; // It has ended.
  }
}

function isStopped(pid: number, thread: string): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, "latin1");
    // proc(5): the state follows the command's name, which is in parentheses and may contain any character.
    return ["T", "t", "Z", "X"].includes(stat.charAt(stat.lastIndexOf(")") + 2));
  } catch {
    return true; // The thread has ended.
  }
}
