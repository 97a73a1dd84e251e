/**
 * Whatever a command waits for, it says so on standard error after a second: each of them against an apiserver that
 * answers when it is told to.
 */

import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { GENERATOR_FINALIZER } from "../../../shared/schema/annotations.ts";
import { makeCell, makeProtector } from "../../../test/support/decide/fixtures.ts";
import { temporaryDirectory } from "../../../test/support/runtime/temporary-directory.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { COMMANDS, runCommandLine } from "../cli.ts";
import type { Command } from "./command.ts";
import { ProgressLine, type Terminal } from "./progress.ts";

class Screen implements Terminal {
  readonly interactive: boolean;
  printed = "";
  said = "";

  constructor(interactive: boolean) {
    this.interactive = interactive;
  }
  out(text: string): void {
    this.printed += text;
  }
  err(text: string): void {
    this.said += text;
  }
  /** The line that stands on the terminal now. */
  get line(): string {
    return this.said.split("\r\x1b[K").at(-1) ?? "";
  }
}

/** The line of a step that takes 12 s, on a terminal of 40 columns. */
async function shows(what: string, line: string): Promise<void> {
  const time = new VirtualTime();
  const screen = Object.assign(new Screen(true), { width: () => 40 });
  const work = Promise.withResolvers<void>();
  const done = new ProgressLine(screen, time).during(what, () => work.promise);
  await time.advance(12_000);
  expect(screen.line).toBe(line);
  work.resolve();
  await done;
}

describe("what is shown of work", () => {
  async function shown(interactive: boolean, workMs: number): Promise<string> {
    const time = new VirtualTime();
    const screen = new Screen(interactive);
    const { promise, resolve } = Promise.withResolvers<void>();
    const done = new ProgressLine(screen, time).during(
      "counting",
      () => promise,
      () => "1 of 2",
    );
    await time.advance(workMs);
    resolve();
    await done;
    return screen.said;
  }

  test("nothing when it is quick", async () => {
    expect(await shown(true, 900)).toBe("");
  });
  test("one line in a log", async () => {
    expect(await shown(false, 5000)).toBe("counting (1 of 2) ...\n");
  });
  test("a line on a terminal, which is taken back", async () => {
    const text = await shown(true, 2000);
    expect(text).toContain("counting (1 of 2) ... 1 s");
    expect(text.endsWith("\r\x1b[K")).toBe(true);
  });

  test("fits a narrow terminal, where a line that wraps could not be taken back", async () => {
    const what = "reading the pods of tainted nodes of arn:aws:eks:eu-west-1:1:cluster/production";
    await shows(what, "reading the pods of tainted no ... 12 s");
  });

  test("fits it with characters that take two columns each, of which none is cut in two", async () => {
    await shows(
      `reading \u751f\u4ea7\u96c6\u7fa4 ${"\u{1f680}".repeat(20)}`,
      `reading \u751f\u4ea7\u96c6\u7fa4 ${"\u{1f680}".repeat(6)} ... 12 s`,
    );
  });

  test("its part that is under way, and the whole again when that is done; quick parts add up", async () => {
    const time = new VirtualTime();
    const screen = new Screen(false);
    const progress = new ProgressLine(screen, time);
    const steps = Array.from({ length: 3 }, () => Promise.withResolvers<void>());
    const done = progress.during("all", async () => {
      await progress.during("first", () => steps[0]?.promise ?? Promise.reject());
      await progress.during("second", () => steps[1]?.promise ?? Promise.reject());
      await steps[2]?.promise;
    });
    for (const step of steps) {
      await time.advance(800);
      step.resolve();
    }
    await done;
    expect(screen.said).toBe("second ...\nall ...\n");
    expect(time.pendingTimers).toBe(0);
  });
});

test("a command that goes on for good shows nothing once it has what it waited for", async () => {
  const time = new VirtualTime();
  const screen = new Screen(true);
  const progress = new ProgressLine(screen, time);
  void progress.during("looking", () => new Promise<never>(() => {}));
  await time.advance(3000);
  progress.end();
  await time.advance(3000);
  expect([screen.line, time.pendingTimers]).toEqual(["", 0]);
});

/** Arguments with which each command does all that it can. */
const ARGUMENTS: Readonly<Record<string, readonly string[]>> = {
  status: [],
  why: ["web-0"],
  gates: ["web-0"],
  "drain-check": ["node-1", "--cell", "gone"],
  doctor: [],
  suspend: ["web", "--yes"],
  resume: ["web"],
  join: ["gone", "--core-context", "slow", "--context", "slow", "--server", "https://core:6443"],
  leave: ["gone", "--core-context", "slow", "--yes"],
  "remove-cell": ["gone", "--yes"],
  release: ["web", "--yes"],
};
/** These ask nobody anything. */
const LOCAL = ["completion", "explain"];
/** This serves until somebody ends it. */
const SERVING = "dashboard";

const pod = {
  metadata: { namespace: "default", name: "web-0", uid: "uid-web-0", resourceVersion: "1", labels: { app: "web" } },
  spec: { nodeName: "node-1", containers: [] },
  status: { phase: "Running" },
};
const node = {
  metadata: { name: "node-1", uid: "uid-node-1", resourceVersion: "1" },
  spec: { taints: [{ key: "broken", effect: "NoExecute" }] },
};
const protector = makeProtector([makeCell("gone", 3)]);
const managed = { ...protector.metadata, namespace: "default", name: "web", finalizers: [GENERATOR_FINALIZER] };

function answer(path: string, isPatched: boolean): unknown {
  const list = (...all: readonly unknown[]): unknown => ({ metadata: { resourceVersion: "1" }, items: all });
  // The generator acts at once.
  const metadata = { ...managed, finalizers: isPatched ? [] : managed.finalizers };
  if (path.endsWith("/podprotectors/web")) return { ...protector, metadata };
  if (path.endsWith("/podprotectors")) return list({ ...protector, metadata: managed });
  if (path.endsWith("/pods")) return list(pod);
  if (path.endsWith("/nodes")) return list(node);
  if (path.endsWith("/version")) return { gitVersion: "v1.36.3", minor: "36" };
  if (path.endsWith("/subjectaccessreviews")) return { status: { allowed: true } };
  if (path.endsWith("/deployments")) return list();
  if (path.endsWith("/token")) return { status: { token: "x" } };
  return path.endsWith("/pods/web-0") ? pod : { metadata: { name: "one", uid: "u", resourceVersion: "1" } };
}

describe("every command that asks a cluster says so when it takes longer than a second", () => {
  const directory = temporaryDirectory();
  let server: Server;
  let kubeconfig: string;

  beforeAll(async () => {
    server = createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    kubeconfig = join(directory, "kubeconfig");
    const { port } = server.address() as AddressInfo;
    writeFileSync(
      kubeconfig,
      "current-context: slow\ncontexts: [{name: slow, context: {cluster: c}}]\n" +
        `clusters: [{name: c, cluster: {server: "http://127.0.0.1:${port}"}}]\n`,
    );
  });
  afterAll(() => {
    server.close();
  });

  /** Runs it; each request is answered only after more than a second, and `whileWaiting` is told of each. */
  async function run(command: Command, screen: Screen, whileWaiting: (path: string) => void, more: readonly string[]) {
    const time = new VirtualTime();
    const held: [string, ServerResponse][] = [];
    let came = Promise.withResolvers<void>();
    let requests = 0;
    let isPatched = false;
    const hold = (request: IncomingMessage, response: ServerResponse): void => {
      isPatched ||= request.method === "PATCH";
      held.push([(request.url ?? "").split("?")[0] ?? "", response]);
      came.resolve();
    };
    server.on("request", hold);
    const args = [command.name, ...(ARGUMENTS[command.name] ?? []), "--kubeconfig", kubeconfig, ...more];
    const running = runCommandLine(args, { terminal: screen, ports: time, environment: {} });
    const ended = running.then(() => undefined);
    try {
      for (;;) {
        const over = await Promise.race([came.promise.then(() => false), ended.then(() => true)]);
        if (over) break;
        came = Promise.withResolvers<void>();
        await time.advance(1500);
        for (const [path, response] of held.splice(0)) {
          requests++;
          whileWaiting(path);
          response.end(JSON.stringify(answer(path, isPatched)));
        }
      }
    } finally {
      server.off("request", hold);
    }
    return { code: await running, requests };
  }

  const asking = COMMANDS.filter(({ name }) => name !== SERVING && !LOCAL.includes(name));

  test("and this list knows each of them", () => {
    expect(Object.keys(ARGUMENTS).sort()).toEqual(asking.map(({ name }) => name).sort());
  });

  test.each(asking)("$name, at each of its requests, with a line that goes away", async (command) => {
    const screen = new Screen(true);
    const { code, requests } = await run(
      command,
      screen,
      (path) => expect([path, screen.line]).toEqual([path, expect.stringMatching(/^\w.* \.\.\. \d+ s$/)]),
      [],
    );
    expect(requests).toBeGreaterThan(0);
    expect([code, screen.line]).not.toEqual([2, expect.anything()]);
    expect(screen.line).toBe("");
  });

  test.each(asking)("$name -o json in a script, which reads nothing but JSON", async (command) => {
    const screen = new Screen(false);
    const { code } = await run(command, screen, () => expect(screen.said).toMatch(/^\w.* \.\.\.\n/), ["-o", "json"]);
    expect([code, screen.said]).not.toEqual([2, expect.anything()]);
    expect(() => JSON.parse(screen.printed)).not.toThrow();
    const lines = screen.said.trimEnd().split("\n");
    expect(new Set(lines).size).toBe(lines.length);
  });
});
