import { describe, expect, it } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { sleep } from "./clock.ts";
import { Lifecycle, type LifecycleEvent, type Part, type StopSignal } from "./lifecycle.ts";

const GRACE_MS = 30_000;
const UNREADY_MS = 5000;

function setup(options: { graceMs?: number; unreadyMs?: number } = {}) {
  const time = new VirtualTime();
  const log: string[] = [];
  const exits: number[] = [];
  let signal: (name: StopSignal) => void = () => expect.unreachable();
  let uncaught: (error: Error) => void = () => expect.unreachable();
  let held = 0;
  const lifecycle = new Lifecycle({
    ports: time,
    process: {
      onSignal: (handler) => {
        signal = handler;
      },
      onUncaught: (handler) => {
        uncaught = handler;
      },
      hold: () => {
        held += 1;
        return () => {
          held -= 1;
        };
      },
      exit: (code) => exits.push(code),
    },
    graceMs: GRACE_MS,
    unreadyMs: UNREADY_MS,
    onEvent: (event) => log.push(`${time.elapsedMs} ${textOf(event)}`),
    ...options,
  });
  const part = (name: string, more: Partial<Part> = {}): Part => ({
    name,
    start: () => void log.push(`${time.elapsedMs} start ${name}`),
    stop: () => void log.push(`${time.elapsedMs} stop ${name}`),
    ...more,
  });
  let code: number | undefined;
  const run = async (): Promise<void> => {
    void lifecycle.run().then((result) => {
      code = result;
    });
    await time.settle();
  };
  return {
    time,
    log,
    exits,
    lifecycle,
    part,
    run,
    signal: (name: StopSignal) => signal(name),
    uncaught: (error: Error) => uncaught(error),
    code: () => code,
    held: () => held,
  };
}

function textOf(event: LifecycleEvent): string {
  switch (event.kind) {
    case "stopping":
      return `stopping: ${event.reason}`;
    case "stop-failed":
      return `stop-failed ${event.part}: ${event.error.message}`;
    case "grace-exceeded":
      return `grace-exceeded ${event.part}`;
    case "fatal":
      return `fatal: ${event.reason}: ${event.error.message}`;
    case "exit":
      return `exit ${event.code}`;
    default:
      return event.kind;
  }
}

const problems = (lifecycle: Lifecycle): string[] =>
  lifecycle.readiness().flatMap(({ name, problem }) => (problem === undefined ? [] : [`${name}: ${problem}`]));

describe("lifecycle", () => {
  it("starts in order, one after the other, and stops in reverse", async () => {
    const { time, log, lifecycle, part, run, signal, code, held } = setup();
    lifecycle
      .add(part("a", { start: () => sleep(time, 100) }))
      .add(part("b"))
      .add(part("c"));
    await run();
    expect(problems(lifecycle)).toEqual(["process: the process is starting"]);
    await time.advance(100);
    expect(problems(lifecycle)).toEqual([]);
    expect(held()).toBe(1);
    signal("SIGTERM");
    expect(problems(lifecycle)).toEqual(["process: the process is shutting down"]);
    await time.advance(GRACE_MS);
    expect(code()).toBe(0);
    expect(held()).toBe(0);
    expect(time.pendingTimers).toBe(0);
    expect(log.filter((line) => !/starting|stopped/.test(line))).toEqual([
      "100 start b",
      "100 start c",
      "100 started",
      "100 stopping: SIGTERM",
      "5100 stop c",
      "5100 stop b",
      "5100 stop a",
      "5100 exit 0",
    ]);
  });

  it("waits for a part to stop, then aborts its signal, then leaves it behind", async () => {
    const { time, log, lifecycle, part, run, signal, code } = setup({ unreadyMs: 0 });
    let hurriedAtMs = 0;
    lifecycle
      .add(part("never reached"))
      .add(
        part("stuck", {
          stop: (abort) => {
            abort.addEventListener("abort", () => {
              hurriedAtMs = time.elapsedMs;
            });
            return new Promise(() => {});
          },
        }),
      )
      .add(part("slow", { stop: () => sleep(time, 10_000) }));
    await run();
    signal("SIGINT");
    await time.advance(GRACE_MS - 1);
    expect(code()).toBeUndefined();
    await time.advance(1);
    expect(code()).toBe(1);
    expect(hurriedAtMs).toBe(GRACE_MS - 1000);
    expect(log.slice(-2)).toEqual(["30000 grace-exceeded stuck", "30000 exit 1"]);
  });

  it("stops the other parts when one fails to stop", async () => {
    const { time, log, lifecycle, part, run, signal, code } = setup({ unreadyMs: 0 });
    lifecycle.add(part("a")).add(part("b", { stop: () => Promise.reject(new Error("broken pipe")) }));
    await run();
    signal("SIGTERM");
    await time.advance(0);
    expect(code()).toBe(0);
    expect(log).toContain("0 stop-failed b: broken pipe");
    expect(log).toContain("0 stop a");
  });

  it.each([
    { name: "an error", error: new Error("no disk"), code: 1 },
    {
      name: "an error that knows its exit code",
      error: Object.assign(new Error("port in use"), { exitCode: 2 }),
      code: 2,
    },
  ])("stops the started parts when one can't start: $name", async ({ error, code: expected }) => {
    const { time, log, lifecycle, part, run, code } = setup();
    lifecycle
      .add(part("a"))
      .add(part("b", { start: () => Promise.reject(error) }))
      .add(part("c"));
    await run();
    await time.advance(0);
    expect(code()).toBe(expected);
    expect(log).toContain(`0 fatal: b could not start: ${error.message}`);
    expect(log.filter((line) => / (start|stop) /.test(line))).toEqual(["0 start a", "0 stop b", "0 stop a"]);
  });

  it("can be stopped while it starts", async () => {
    const { time, log, lifecycle, part, run, signal, code } = setup();
    lifecycle.add(part("waits for ever", { start: () => new Promise(() => {}) })).add(part("b"));
    await run();
    signal("SIGTERM");
    await time.advance(0);
    expect(code()).toBe(0);
    expect(log.filter((line) => / (start|stop) /.test(line))).toEqual(["0 stop waits for ever"]);
  });

  it.each<{ second: StopSignal; code: number }>([
    { second: "SIGTERM", code: 143 },
    { second: "SIGINT", code: 130 },
  ])("exits at once at a second signal ($second)", async ({ second, code }) => {
    const { time, exits, lifecycle, part, run, signal } = setup();
    lifecycle.add(part("a"));
    await run();
    signal("SIGTERM");
    await time.advance(10);
    expect(exits).toEqual([]);
    signal(second);
    expect(exits).toEqual([code]);
  });

  it("reports an uncaught error and exits", async () => {
    const { log, exits, run, uncaught } = setup();
    await run();
    uncaught(new Error("undefined is not a function"));
    expect(exits).toEqual([1]);
    expect(log.slice(-2)).toEqual(["0 fatal: an error that nobody caught: undefined is not a function", "0 exit 1"]);
  });

  it("exits with the highest requested code", async () => {
    const { time, lifecycle, part, run, code } = setup();
    lifecycle.add(part("a"));
    await run();
    lifecycle.shutdown("the lease was lost", 0);
    lifecycle.shutdown("something worse", 3);
    lifecycle.shutdown("something mild", 1);
    await time.advance(GRACE_MS);
    expect(code()).toBe(3);
  });

  it("reports each part's readiness and liveness, a check that throws included", async () => {
    const { lifecycle, part, run } = setup();
    let synced = false;
    lifecycle.add(part("pods", { ready: () => (synced ? undefined : "the first list is not complete") })).add(
      part("index", {
        live: () => {
          throw new Error("no index");
        },
      }),
    );
    await run();
    expect(problems(lifecycle)).toEqual(["pods: the first list is not complete"]);
    synced = true;
    expect(problems(lifecycle)).toEqual([]);
    expect(lifecycle.liveness()).toEqual([
      { name: "process", problem: undefined },
      { name: "index", problem: "the check failed: no index" },
    ]);
  });

  it("rejects a second run, and parts that are added too late", async () => {
    const { lifecycle, part, run } = setup();
    await run();
    expect(() => lifecycle.add(part("late"))).toThrow("already runs");
    await expect(lifecycle.run()).rejects.toThrow("runs once");
  });
});
