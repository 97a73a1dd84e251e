import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { gaugeOf } from "./gauge.ts";
import { Metrics } from "./metrics.ts";

async function series(metrics: Metrics): Promise<string[]> {
  const { body } = await metrics.render();
  return body.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
}

const OUTCOMES = ["allowed", "denied"] as const;

describe("metrics", () => {
  it("has every combination of closed labels at zero from the start", async () => {
    const metrics = new Metrics();
    metrics.counter({
      name: "reviews_total",
      help: "Reviews.",
      labels: { outcome: OUTCOMES, kind: ["delete", "evict"] },
    });
    metrics.counter({ name: "defects_total", help: "Defects." });
    metrics.gauge({ name: "leader", help: "Leader.", labels: { lease: ["a"] } });
    metrics.histogram({ name: "wait_seconds", help: "Wait.", labels: { outcome: ["allowed"] }, buckets: [1] });
    expect(await series(metrics)).toEqual([
      'podseidon_reviews_total{outcome="allowed",kind="delete"} 0',
      'podseidon_reviews_total{outcome="allowed",kind="evict"} 0',
      'podseidon_reviews_total{outcome="denied",kind="delete"} 0',
      'podseidon_reviews_total{outcome="denied",kind="evict"} 0',
      "podseidon_defects_total 0",
      'podseidon_leader{lease="a"} 0',
      'podseidon_wait_seconds_bucket{le="1",outcome="allowed"} 0',
      'podseidon_wait_seconds_bucket{le="+Inf",outcome="allowed"} 0',
      'podseidon_wait_seconds_sum{outcome="allowed"} 0',
      'podseidon_wait_seconds_count{outcome="allowed"} 0',
    ]);
  });

  it("creates all outcomes of an open value at zero on its first use, and those of known values at once", async () => {
    const metrics = new Metrics();
    const writes = metrics.counter({
      name: "writes_total",
      help: "Writes.",
      labels: { core: { max: 3, known: ["known"] }, outcome: OUTCOMES },
    });
    expect(await series(metrics)).toEqual([
      'podseidon_writes_total{core="known",outcome="allowed"} 0',
      'podseidon_writes_total{core="known",outcome="denied"} 0',
    ]);
    writes.inc({ core: "new", outcome: "denied" }, 2);
    expect((await series(metrics)).slice(2)).toEqual([
      'podseidon_writes_total{core="new",outcome="allowed"} 0',
      'podseidon_writes_total{core="new",outcome="denied"} 2',
    ]);
  });

  it("bounds the series of an open label", async () => {
    const metrics = new Metrics();
    const writes = metrics.counter({ name: "writes_total", help: "Writes.", labels: { cell: { max: 2 } } });
    for (const cell of ["a", "b", "c", "d", "a"]) writes.inc({ cell });
    expect(await series(metrics)).toEqual([
      'podseidon_writes_total{cell="a"} 2',
      'podseidon_writes_total{cell="b"} 1',
      'podseidon_writes_total{cell="other"} 2',
    ]);
  });

  it("counts, sets and observes", async () => {
    const metrics = new Metrics();
    const gauge = metrics.gauge({ name: "depth", help: "Depth.", labels: { queue: { max: 5 } } });
    gauge.set({ queue: "a" }, 5);
    gauge.inc({ queue: "a" });
    gauge.dec({ queue: "a" }, 2);
    gauge.set({ queue: "b" }, 1);
    gauge.remove({ queue: "b" });
    const histogram = metrics.histogram({ name: "wait_seconds", help: "Wait.", buckets: [1, 5] });
    histogram.observe({}, 3);
    expect(await series(metrics)).toEqual([
      'podseidon_depth{queue="a"} 4',
      'podseidon_wait_seconds_bucket{le="1"} 0',
      'podseidon_wait_seconds_bucket{le="5"} 1',
      'podseidon_wait_seconds_bucket{le="+Inf"} 1',
      "podseidon_wait_seconds_sum 3",
      "podseidon_wait_seconds_count 1",
    ]);
  });

  it("shows no gauge whose value nobody knows, as of a standby, whose zero would be an alert", async () => {
    const metrics = new Metrics();
    let kept: boolean | undefined;
    gaugeOf(metrics, "kept", "Whether it is kept.", () => kept);
    const shown = async (): Promise<string[]> => (await metrics.render()).body.match(/^podseidon_kept .+$/gm) ?? [];
    expect(await shown()).toEqual([]);
    kept = false;
    expect(await shown()).toEqual(["podseidon_kept 0"]);
    kept = undefined;
    expect(await shown()).toEqual([]);
  });

  it("reads gauges at each scrape, and drops old series", async () => {
    const metrics = new Metrics();
    let cells = ["a", "b", "c"];
    metrics.gaugeFrom({ name: "cell_age_seconds", help: "Age.", labels: { cell: { max: 2 } } }, (set) => {
      for (const cell of cells) set({ cell }, 1);
    });
    expect(await series(metrics)).toEqual([
      'podseidon_cell_age_seconds{cell="a"} 1',
      'podseidon_cell_age_seconds{cell="b"} 1',
      'podseidon_cell_age_seconds{cell="other"} 1',
    ]);
    cells = ["c", "d"];
    expect(await series(metrics)).toEqual([
      'podseidon_cell_age_seconds{cell="c"} 1',
      'podseidon_cell_age_seconds{cell="d"} 1',
    ]);
  });

  it("keeps the metrics of two processes apart, and rejects the same name twice in one", () => {
    const metrics = new Metrics();
    metrics.counter({ name: "a_total", help: "A." });
    new Metrics().counter({ name: "a_total", help: "A." });
    expect(() => metrics.counter({ name: "a_total", help: "A." })).toThrow("already been registered");
  });

  it("has the process's own metrics under their usual names", async () => {
    const names = (await series(new Metrics({ processMetrics: true }))).map((line) => line.split(/[ {]/)[0]);
    expect(names).toEqual(
      expect.arrayContaining([
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        // PodseidonRegistrationChanged asks for it.
        "process_start_time_seconds",
        "nodejs_eventloop_lag_p99_seconds",
      ]),
    );
  });

  it("keeps label values that look like others apart", async () => {
    const metrics = new Metrics();
    const counter = metrics.counter({ name: "a_total", help: "A.", labels: { x: { max: 9 }, y: { max: 9 } } });
    counter.inc({ x: 'a","b', y: "" });
    counter.inc({ x: "a", y: 'b",""' });
    expect(await series(metrics)).toHaveLength(2);
  });

  it("holds nothing of counts of zero, which no scrape may ever collect", async () => {
    const metrics = new Metrics();
    const counter = metrics.counter({ name: "events_total", help: "Events." });
    const labels = {};
    counter.inc(labels, 0);
    setFlagsFromString("--expose-gc");
    const collect: () => void = runInNewContext("gc");
    collect();
    const before = process.memoryUsage().heapUsed;
    for (let times = 0; times < 5_000_000; times++) counter.inc(labels, 0);
    collect();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(20_000_000);
    counter.inc(labels, 2);
    expect(await series(metrics)).toEqual(["podseidon_events_total 2"]);
  });
});
