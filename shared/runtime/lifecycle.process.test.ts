import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";

const children: ChildProcess[] = [];

afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
});

interface Running {
  readonly child: ChildProcess;
  readonly output: () => string;
  /** Resolves once the process has printed `text`. */
  printed(text: string): Promise<void>;
  readonly exited: Promise<{ code: number | null; signal: string | null }>;
}

function start(...args: string[]): Running {
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, "../../test/support/runtime/lifecycle-process.ts"), ...args],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  children.push(child);
  let output = "";
  child.stdout?.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  const exited = once(child, "close").then(() => ({ code: child.exitCode, signal: child.signalCode }));
  return {
    child,
    output: () => output,
    exited,
    async printed(text) {
      while (!output.includes(text)) {
        if (child.stdout === null) throw new Error("no output");
        await once(child.stdout, "data");
      }
    },
  };
}

describe("a real process", () => {
  it.each(["", "alone"])("lives until SIGTERM, then ends with code 0 %s", async (mode) => {
    const running = start(mode);
    await running.printed("started");
    running.child.kill("SIGTERM");
    expect(await running.exited).toEqual({ code: 0, signal: null });
    expect(running.output()).toMatch(/stopping\nstopped\nstopped\nexit\n$/);
  });

  // By a handler: without one, the kernel delivers no signal to the first process of a container.
  it.each(["SIGTERM", "SIGINT"] as const)("that is still starting ends with code 0 at %s", async (signal) => {
    const running = start("starting");
    await running.printed("options read");
    running.child.kill(signal);
    expect(await running.exited).toEqual({ code: 0, signal: null });
  });

  it("ends at once at the second signal", async () => {
    const running = start("stuck");
    await running.printed("started");
    running.child.kill("SIGTERM");
    await running.printed("stopping");
    running.child.kill("SIGINT");
    expect((await running.exited).code).toBe(130);
  });

  it.each([
    { mode: "throws", message: "from a timer" },
    { mode: "rejects", message: "from a promise" },
  ])("reports an uncaught error and ends with code 1 ($mode)", async ({ mode, message }) => {
    const running = start(mode);
    expect((await running.exited).code).toBe(1);
    expect(running.output()).toContain(`fatal ${message}`);
  });

  it("says which port is in use and ends with code 2", async () => {
    const occupant = createServer().listen(0, "127.0.0.1");
    await once(occupant, "listening");
    const address = occupant.address();
    const port = typeof address === "object" ? (address?.port ?? 0) : 0;
    const running = start("", String(port));
    expect((await running.exited).code).toBe(2);
    expect(running.output()).toContain(
      `listen EADDRINUSE: address already in use 127.0.0.1:${port}; choose another --health-probe-bind-address`,
    );
    occupant.close();
  });
});
