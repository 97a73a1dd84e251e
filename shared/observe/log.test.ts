import { spawnSync } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { LogLevel } from "../runtime/options/common-options.ts";
import { describeError } from "./error-fields.ts";
import { createLog, type Log, silentLog } from "./log.ts";

function capture(level: LogLevel = "trace"): { log: Log; lines: () => unknown[] } {
  const lines: string[] = [];
  const log = createLog({ component: "test", level, destination: { write: (line) => lines.push(line) } });
  return { log, lines: () => lines.map((line) => JSON.parse(line)) };
}

const TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2EifQ.c2lnbmF0dXJl";

describe("log", () => {
  it("writes one JSON object per line: level, time, component, fields, message", () => {
    const { log, lines } = capture();
    log.child({ review: "r1" }).warn({ cell: "c1" }, "a review could not be decided");
    expect(lines()).toEqual([
      {
        level: "warn",
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
        component: "test",
        review: "r1",
        cell: "c1",
        msg: "a review could not be decided",
      },
    ]);
  });

  it.each<{ level: LogLevel; written: string[] }>([
    { level: "trace", written: ["trace", "debug", "info", "warn", "error"] },
    { level: "info", written: ["info", "warn", "error"] },
    { level: "error", written: ["error"] },
  ])("leaves out lines below $level", ({ level, written }) => {
    const { log, lines } = capture(level);
    log.trace({}, "trace");
    log.debug({}, "debug");
    log.info({}, "info");
    log.warn({}, "warn");
    log.error({}, "error");
    expect(lines().map((line) => typeof line === "object" && line !== null && "msg" in line && line.msg)).toEqual(
      written,
    );
    expect(log.level).toBe(level);
  });

  it.each<{ name: string; fields: Record<string, unknown> }>([
    { name: "a token field", fields: { token: TOKEN } },
    { name: "a nested header", fields: { headers: { authorization: `Bearer ${TOKEN}` } } },
    { name: "a credential in an error", fields: { error: new Error(`401 for Authorization: Bearer ${TOKEN}`) } },
    {
      name: "a credential in a cause",
      fields: { error: new Error("no", { cause: new Error(`token ${TOKEN} expired`) }) },
    },
    { name: "a credential in an error's text", fields: { error: `Bearer ${TOKEN}` } },
    { name: "a credential in a message field", fields: { message: `Bearer ${TOKEN}` } },
  ])("does not repeat $name", ({ fields }) => {
    const { log, lines } = capture();
    log.info(fields, "x");
    const text = JSON.stringify(lines());
    expect(text).toContain("[redacted]");
    expect(text).not.toContain("c2lnbmF0dXJl");
  });

  it("loses no line when the process exits", () => {
    const script = `
      const { createLog } = await import(process.argv[1]);
      const log = createLog({ component: "short-lived" });
      for (let line = 0; line < 5000; line += 1) log.info({ line }, "line");
      process.exit(3);`;
    const args = ["--input-type=module", "-e", script, join(import.meta.dirname, "log.ts")];
    const run = spawnSync(process.execPath, args, { encoding: "utf8", maxBuffer: 2 ** 26 });
    expect(run.status).toBe(3);
    expect(
      run.stdout
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line).line),
    ).toEqual(Array.from({ length: 5000 }, (_, line) => line));
  });

  it("lets the process end while the disk behind stdout is full", () => {
    const script = `
      const { createLog } = await import(process.argv[1]);
      const log = createLog({ component: "x" });
      log.info({}, "first");
      setTimeout(() => process.exit(log.info({}, "last") ?? 3), 100);`;
    const args = ["--input-type=module", "-e", script, join(import.meta.dirname, "log.ts")];
    const full = openSync("/dev/full", "w");
    const run = spawnSync(process.execPath, args, { stdio: ["ignore", full, "ignore"], timeout: 10_000 });
    closeSync(full);
    expect(run.status).toBe(3);
  });

  it("has a silent form", () => {
    silentLog.child({}).error({}, "x");
  });
});

describe("errors as fields", () => {
  it("names tag and causes, and shows the stack of unforeseen errors only", () => {
    const error = Object.assign(
      new Error("no answer", { cause: Object.assign(new Error("socket"), { code: "ECONNRESET" }) }),
      { tag: "reset" },
    );
    expect(describeError(error)).toEqual({
      name: "Error",
      message: "no answer",
      tag: "reset",
      cause: { name: "Error", message: "socket", code: "ECONNRESET" },
    });
    expect(describeError(new TypeError("x is undefined"))).toMatchObject({
      name: "TypeError",
      stack: expect.stringContaining("log.test.ts"),
    });
  });

  it("cuts endless chains of causes, and long texts", () => {
    const loop = new Error("loop");
    loop.cause = loop;
    expect(JSON.stringify(describeError(loop)).match(/"message":"loop"/g)).toHaveLength(6);
    expect(JSON.stringify(describeError(new Error("x".repeat(1_000_000)))).length).toBeLessThan(10_000);
  });

  it.each([
    { text: "-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\n-----END EC PRIVATE KEY----- after", clean: "[redacted] after" },
    { text: "-----BEGIN PRIVATE KEY-----\ncut off", clean: "[redacted]" },
    { text: "Basic authentication is off", clean: "Basic authentication is off" },
    { text: "basic dXNlcjpwYXNzd29yZDEyMw== x", clean: "basic [redacted] x" },
  ])("cleans $text", ({ text, clean }) => {
    expect(describeError(text)).toBe(clean);
  });
});
