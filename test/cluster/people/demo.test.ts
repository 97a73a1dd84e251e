import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { root } from "../../../scripts/root.ts";
import { block } from "../../support/cluster/documented.ts";
import { temporaryDirectory } from "../../support/runtime/temporary-directory.ts";

/** The demo as a person runs it: its exit code and its last line are what scripts rely on. */

const MAIN = join(root, "scripts/demo/main.ts");
/** What a shell behind a proxy may have, where nothing is about the demo. */
const SHELL = {
  ...{ NODE_USE_ENV_PROXY: "1", HTTP_PROXY: "http://127.0.0.1:9", HTTPS_PROXY: "http://127.0.0.1:9" },
  ...{ NO_PROXY: "localhost,127.0.0.1", KUBECONFIG: "/nowhere/my clusters" },
};
const directory = temporaryDirectory();

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the demo to its end; `interruptAt` sends SIGINT when that text has appeared. */
function demo(args: readonly string[], interruptAt?: string): Promise<Ended> {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...SHELL },
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
    if (interruptAt !== undefined && stdout.includes(interruptAt)) child.kill("SIGINT");
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, stdout, stderr }));
  });
}

describe("npm run demo", () => {
  test("-- --once holds every promise, says so in its last line, and exits with 0", async () => {
    const { code, stdout, stderr } = await demo(["--once"]);
    // The lines alone: the whole text of a failure is cut before it says which promise it was.
    expect(stdout.split("\n").filter((line) => /BROKEN/.test(line))).toEqual([]);
    expect(stdout).not.toContain("liveness probe");
    expect(stdout).toContain("10 new pods have the gate");
    const page = readFileSync(new URL("../../../docs/tutorials/survive-a-crd-deletion.md", import.meta.url), "utf8");
    for (const line of block(page, "delete the CRD of the federation").trim().split("\n"))
      expect(stdout).toContain(`$ ${line}`);
    expect(stderr).toBe("");
    const lines = stdout.trimEnd().split("\n");
    expect(lines.at(-1)).toMatch(
      new RegExp(
        "^RESULT ok: (\\d+) of \\1 promises held; lowest availability 8 of 10 with 8 promised; " +
          "\\d+ pod versions seen; \\d+ disruptions allowed, \\d+ denied, \\d+ told to retry; \\d+ s$",
      ),
    );
    expect(code).toBe(0);
  });

  test("can be ended while it starts, says nothing more, and leaves no report", async () => {
    const report = join(directory, "report.html");
    const { code, stderr } = await demo(["--report", report], "Starting a core cluster");
    expect(stderr).toBe("");
    expect(code).toBe(130);
    expect(existsSync(report)).toBe(false);
  });

  test("-- --help explains itself", async () => {
    const { code, stdout } = await demo(["--help"]);
    expect(stdout).toContain("--once");
    expect(stdout).toContain("--keep");
    expect(code).toBe(0);
  });

  test.each([[["--onec"]], [["extra"]]])("%j is a mistake, and is told", async (args) => {
    const { code, stdout, stderr } = await demo(args);
    expect(stderr).toContain(args[0]);
    expect(stderr).toContain("--help");
    expect(stdout).toBe("");
    expect(code).toBe(2);
  });
});
