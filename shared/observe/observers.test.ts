import { describe, expect, it } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { DONE, failed, later } from "../runtime/reconcile.ts";
import { WorkQueue } from "../runtime/work-queue.ts";
import { observeClocks } from "./clock-observer.ts";
import { createLog, type Log } from "./log.ts";
import { Metrics } from "./metrics.ts";
import {
  observeDroppedLines,
  observeKubernetesEvents,
  observeLeaderElection,
  observeLifecycle,
} from "./process-observer.ts";
import { observeReconciles } from "./reconcile-observer.ts";
import { observeListWatch } from "./watch-observer.ts";

function setup(): { metrics: Metrics; log: Log; lines: string[]; series(): Promise<string[]> } {
  const lines: string[] = [];
  const metrics = new Metrics();
  return {
    metrics,
    lines,
    log: createLog({ component: "test", level: "info", destination: { write: (line) => lines.push(line) } }),
    /** Series that are not zero. */
    async series() {
      const { body } = await metrics.render();
      return body.split("\n").filter((line) => line !== "" && !line.startsWith("#") && !/ 0$/.test(line));
    },
  };
}

describe("what observers show", () => {
  it("counts lists, failures and streams of a reflector, and shows its informer", async () => {
    const { metrics, log, lines, series } = setup();
    const time = new VirtualTime();
    await time.advance(10_000);
    const observer = observeListWatch({ metrics, log, clock: time.clock });
    const onEvent = observer.observe("pods");
    observer.track("pods", {
      size: 3,
      synced: true,
      position: "1234",
      lastContactMs: 9000,
      confirmedSentMs: undefined,
    });
    onEvent({ kind: "listed", reason: "first", position: "7", objects: 3, requests: 1, durationMs: 5 });
    onEvent({ kind: "watching", position: "7", afterFailures: 0 });
    onEvent({ kind: "ended", durationMs: 5000, events: 12, bookmarks: 2 });
    onEvent({ kind: "failed", during: "watch", tag: "reset", error: new Error("reset"), retryMs: 100 });
    onEvent({ kind: "unparsable", key: "ns/a", error: new Error("bad") });
    onEvent({ kind: "versionWentBack", from: "9", to: "4" });
    onEvent({ kind: "handlerFailed", error: new Error("defect") });
    onEvent({ kind: "confirmed", sentMs: 0, lagMs: 400 });
    expect(await series()).toEqual(
      expect.arrayContaining([
        'podseidon_watch_synced{source="pods"} 1',
        'podseidon_watch_objects{source="pods"} 3',
        'podseidon_watch_position{source="pods"} 1234',
        'podseidon_watch_silence_seconds{source="pods"} 1',
        'podseidon_watch_lists_total{source="pods",reason="first"} 1',
        'podseidon_watch_failures_total{source="pods",tag="reset"} 1',
        'podseidon_watch_streams_total{source="pods"} 1',
        'podseidon_watch_events_total{source="pods"} 12',
        'podseidon_watch_bookmarks_total{source="pods"} 2',
        'podseidon_watch_unparsable_objects_total{source="pods"} 1',
        'podseidon_watch_versions_went_back_total{source="pods"} 1',
        'podseidon_watch_handler_failures_total{source="pods"} 1',
        'podseidon_watch_confirmation_lag_seconds_sum{source="pods"} 0.4',
      ]),
    );
    expect((await series()).some((line) => line.includes("confirmed_age"))).toBe(false);
    expect(lines.map((line) => JSON.parse(line).level)).toEqual(["info", "warn", "error", "error", "error"]);
  });

  it("shows no defect of a reflector as zero, so that the first one is an increase", async () => {
    const { metrics, log } = setup();
    observeListWatch({ metrics, log, clock: new VirtualTime().clock }).observe("pods");
    expect((await metrics.render()).body).toContain('podseidon_watch_handler_failures_total{source="pods"} 0\n');
  });

  it("counts a queue's work and its outcomes", async () => {
    const { metrics, log, lines, series } = setup();
    const time = new VirtualTime();
    const observer = observeReconciles(metrics, log);
    const queue = new WorkQueue({
      name: "protectors",
      ports: time,
      maxKeys: 2,
      onEvent: observer.observe("protectors"),
    });
    observer.track("protectors", () => queue);
    queue.add("a");
    queue.add("a");
    queue.addRateLimited("b");
    queue.add("c");
    await time.advance(30);
    queue.tryTake();
    await time.advance(10);
    const outcomes = observer.outcomes<string>("protectors");
    outcomes("a", DONE);
    outcomes("a", later(1));
    outcomes("a", failed(new Error("x"), true));
    outcomes("a", failed(new Error("y"), false));
    expect(await series()).toEqual(
      expect.arrayContaining([
        'podseidon_queue_adds_total{queue="protectors"} 1',
        'podseidon_queue_merged_total{queue="protectors"} 1',
        'podseidon_queue_retries_total{queue="protectors"} 1',
        'podseidon_queue_refused_total{queue="protectors"} 1',
        'podseidon_queue_wait_seconds_sum{queue="protectors"} 0.03',
        'podseidon_queue_delayed{queue="protectors"} 1',
        'podseidon_queue_processing{queue="protectors"} 1',
        'podseidon_queue_failing{queue="protectors"} 1',
        'podseidon_queue_longest_work_seconds{queue="protectors"} 0.01',
        'podseidon_reconciles_total{queue="protectors",outcome="done"} 1',
        'podseidon_reconciles_total{queue="protectors",outcome="later"} 1',
        'podseidon_reconciles_total{queue="protectors",outcome="failed"} 1',
        'podseidon_reconciles_total{queue="protectors",outcome="given-up"} 1',
      ]),
    );
    expect(lines).toHaveLength(2);
  });

  it("counts leaderships, Events and dropped lines", async () => {
    const { metrics, log, lines, series } = setup();
    const leader = observeLeaderElection(metrics, log);
    leader.track("podseidon-generator", { isLeader: () => true });
    const onEvent = leader.observe("podseidon-generator");
    onEvent({ kind: "leading", transitions: 3 });
    onEvent({ kind: "stopped", reason: "expired" });
    onEvent({ kind: "failed", during: "update", error: new Error("no"), retryMs: 2000 });
    observeKubernetesEvents(metrics)("limited");
    observeDroppedLines(metrics)();
    expect(await series()).toEqual([
      'podseidon_leader{lease="podseidon-generator"} 1',
      'podseidon_leader_changes_total{lease="podseidon-generator",change="leading"} 1',
      'podseidon_leader_changes_total{lease="podseidon-generator",change="expired"} 1',
      'podseidon_leader_failures_total{lease="podseidon-generator",call="update"} 1',
      'podseidon_kubernetes_events_total{outcome="limited"} 1',
      "podseidon_log_lines_dropped_total 1",
    ]);
    expect(lines).toHaveLength(3);
  });

  it("logs failures of the lifecycle as errors", () => {
    const { log, lines } = setup();
    const onEvent = observeLifecycle(log);
    onEvent({ kind: "starting", part: "pods" });
    onEvent({ kind: "fatal", reason: "an error that nobody caught", error: new Error("x") });
    onEvent({ kind: "grace-exceeded", part: "pods" });
    expect(lines.map((line) => JSON.parse(line)).map(({ level, event }) => [level, event])).toEqual([
      ["info", "starting"],
      ["error", "fatal"],
      ["error", "grace-exceeded"],
    ]);
  });
});

describe("the clocks of apiservers", () => {
  it("shows how far this machine is ahead, read now and then", async () => {
    const { metrics, series } = setup();
    const time = new VirtualTime();
    let date = new Date(time.clock.nowMs() - 30_000).toUTCString();
    const silent = { status: 200, body: "" };
    const transport = observeClocks(metrics, time.clock).watch("cell", {
      request: async () => ({ ...silent, headers: date === "" ? {} : { date } }),
      stream: () => Promise.reject(new Error("no stream is asked for")),
      close: () => {},
    });
    const ask = (): Promise<unknown> => transport.request({ method: "GET", path: "/", timeoutMs: 1 });
    await ask();
    const [line = ""] = await series();
    expect(line).toMatch(/^podseidon_clock_skew_seconds\{server="cell"\} /);
    const ahead = Number(line.split(" ")[1]);
    expect(ahead).toBeGreaterThanOrEqual(29);
    expect(ahead).toBeLessThanOrEqual(31);
    date = new Date(time.clock.nowMs()).toUTCString();
    await ask();
    expect(await series()).toEqual([line]);
    await time.advance(10_000);
    date = "";
    await ask();
    expect(await series()).toEqual([line]);
  });
});
