/**
 * `npm run bench -- aggregator`: this project's aggregator and upstream's on a real control plane, alternately, with
 * the same cell. Without upstream's binary, only this project is measured.
 */
import { mkdtempDisposable } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "../build.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { readOptions } from "../options.ts";
import {
  changeLatencies,
  clearStatuses,
  eventLoopDelayMs,
  restoreReadiness,
  timeToCounted,
  underLoad,
} from "./aggregator-measure.ts";
import { type BenchSize, bareCluster } from "./fixture/cell-fixture.ts";
import {
  type AggregatorContender,
  BEFORE_HELP,
  CELL,
  otherSide,
  ownAggregator,
  UPSTREAM_HELP,
} from "./fixture/contenders.ts";
import { median, processFigures, quantile, ratio, table } from "./fixture/figures.ts";
import { ProtectorWatch } from "./fixture/protector-watch.ts";
import { storeCell } from "./fixture/stored-cell.ts";

const HELP = `usage: npm run bench -- aggregator [options]

  --pods N          pods of the cell (default 1000; 10000 with --full)
  --protectors N    protectors (default 100; 1000 with --full)
  --flips N         readiness changes that are timed (default 50; 200 with --full)
  --rate N          readiness changes a second under load (default 200)
  --seconds N       how long (default 10; 60 with --full)
  --rounds N        starts of each contender (default 2; 3 with --full)
  --full            the sizes of the goals, and this project alone with 30,000 and 100,000 pods
  --parts A,B,..    only some of: start, changes, load, large (default all; large is with --full)
${UPSTREAM_HELP}${BEFORE_HELP}`;

const MEGABYTE = 1024 * 1024;

const PARTS = ["start", "changes", "load", "large"] as const;
type Part = (typeof PARTS)[number];
/** Upstream takes seconds for each change, so few changes are enough. */
const UPSTREAM_FLIPS = 12;

interface Work {
  readonly size: BenchSize;
  readonly parts: ReadonlySet<Part>;
  readonly flips: number;
  readonly rate: number;
  readonly seconds: number;
}

export async function run(args: readonly string[]): Promise<number> {
  const text = { type: "string" } as const;
  const options = readOptions(args, HELP, {
    pods: text,
    protectors: text,
    flips: text,
    rate: text,
    seconds: text,
    rounds: text,
    full: { type: "boolean", default: false },
    parts: text,
    "upstream-dir": text,
    before: text,
  });
  if (typeof options === "number") return options;
  const number = (given: string | undefined, small: number, full: number): number =>
    Number(given ?? (options.full ? full : small));
  const work: Work = {
    size: { pods: number(options.pods, 1000, 10_000), protectors: number(options.protectors, 100, 1000) },
    parts: partsOf(options.parts ?? PARTS.join(",")),
    flips: number(options.flips, 50, 200),
    rate: number(options.rate, 200, 200),
    seconds: number(options.seconds, 10, 60),
  };
  const other = otherSide(options["upstream-dir"], options.before)?.aggregator;
  await using bundles = await mkdtempDisposable(join(tmpdir(), "podseidon-bench-"));
  await build({ only: ["aggregator"], outdir: bundles.path });
  await using cluster = await bareCluster();
  const own = ownAggregator(cluster, bundles.path);
  const contenders = other === undefined ? [own] : [own, other(cluster)];
  const rounds = work.parts.has("start") ? number(options.rounds, 2, 3) : 1;
  if (work.parts.size > 1 || !work.parts.has("large")) {
    await fill(cluster, work.size);
    await compare(cluster, contenders, work, rounds);
  }
  if (options.full && work.parts.has("large")) await growing(cluster, own);
  return 0;
}

function partsOf(names: string): ReadonlySet<Part> {
  const given = names.split(",");
  const unknown = given.filter((name) => !PARTS.some((part) => part === name));
  if (unknown.length > 0) throw new Error(`--parts: no ${unknown.join(", ")}; there are ${PARTS.join(", ")}`);
  return new Set(PARTS.filter((part) => given.includes(part)));
}

async function fill(cluster: Cluster, size: BenchSize): Promise<void> {
  const startMs = performance.now();
  await storeCell(cluster, size);
  const seconds = ((performance.now() - startMs) / 1000).toFixed(0);
  process.stdout.write(`${size.pods} pods and ${size.protectors} protectors are there after ${seconds} s\n`);
}

async function compare(
  cluster: Cluster,
  contenders: readonly AggregatorContender[],
  work: Work,
  rounds: number,
): Promise<void> {
  const results = new Map<AggregatorContender, Figures[]>();
  for (let round = 0; round < rounds; round++) {
    for (const contender of round % 2 === 0 ? contenders.toReversed() : contenders) {
      // Long measurements run once, starts in each round.
      await clearStatuses(cluster.admin, work.size);
      const figures = await measure(cluster, contender, work, round === 0);
      results.set(contender, [...(results.get(contender) ?? []), figures]);
      process.stdout.write(
        `${contender.name}: counted after ${figures.countedMs.toFixed(0)} ms, ` +
          `peak ${megabytes(figures.peakBytes)} MB\n`,
      );
    }
  }
  report(contenders, results, work);
}

type Figures = Awaited<ReturnType<typeof measure>>;

async function measure(cluster: Cluster, contender: AggregatorContender, work: Work, isLong: boolean) {
  const { admin } = cluster;
  await using watch = await ProtectorWatch.start(cluster.kubeconfig, CELL);
  const { process: aggregator, component } = await contender.process();
  try {
    const startMs = performance.now();
    await aggregator.launch();
    const countedMs = await timeToCounted(watch, work.size, startMs);
    const pid = aggregator.pid ?? 0;
    const counted = processFigures(pid);
    const loopDelayMs = await eventLoopDelayMs(component);
    const flips = component === undefined ? Math.min(UPSTREAM_FLIPS, work.flips) : work.flips;
    const isFlipped = isLong && work.parts.has("changes");
    const flipsMs = isFlipped ? await changeLatencies(admin, watch, work.size, flips) : undefined;
    const flipLoopDelayMs = isFlipped ? await eventLoopDelayMs(component) : undefined;
    const isLoaded = isLong && work.parts.has("load");
    const load = isLoaded ? await underLoad(admin, watch, work.size, work.rate, work.seconds, pid) : undefined;
    const loadLoopDelayMs = isLoaded ? await eventLoopDelayMs(component) : undefined;
    const finalBytes = processFigures(pid).peakResidentBytes;
    if (isLoaded) await restoreReadiness(admin, work.size);
    return {
      countedMs,
      countedCpuMs: counted.cpuMs,
      peakBytes: counted.peakResidentBytes,
      loopDelayMs,
      flipsMs,
      flipLoopDelayMs,
      load,
      loadLoopDelayMs,
      finalBytes,
    };
  } finally {
    await aggregator.kill("SIGKILL");
  }
}

function megabytes(bytes: number): string {
  return (bytes / MEGABYTE).toFixed(0);
}

function report(
  contenders: readonly AggregatorContender[],
  results: ReadonlyMap<AggregatorContender, readonly Figures[]>,
  work: Work,
): void {
  const rows: string[][] = [];
  const row = (name: string, of: (figures: Figures) => number | undefined, digits: number): void => {
    const values = contenders.map((contender) => {
      const known = (results.get(contender) ?? []).map(of).filter((value) => value !== undefined);
      return median(known.filter((value) => !Number.isNaN(value)));
    });
    const shown = values.map((value) => (Number.isNaN(value) ? "-" : value.toFixed(digits)));
    if (shown.every((text) => text === "-")) return;
    rows.push([name, shown[0] ?? "-", shown[1] ?? "-", ratio(values[0] ?? Number.NaN, values[1] ?? Number.NaN)]);
  };
  const { size, flips, rate, seconds } = work;
  row(`all counted after start, ms (${size.pods} pods, ${size.protectors} protectors)`, (one) => one.countedMs, 0);
  row("CPU until then, ms", (one) => one.countedCpuMs, 0);
  row("peak memory until then, MB", (one) => one.peakBytes / MEGABYTE, 0);
  row("longest event-loop delay until then, ms", (one) => one.loopDelayMs, 0);
  row(
    `pod change to status, p50 ms (${flips} changes; of upstream's at most ${UPSTREAM_FLIPS})`,
    (one) => one.flipsMs && quantile(one.flipsMs, 0.5),
    1,
  );
  row("the same, p99 ms", (one) => one.flipsMs && quantile(one.flipsMs, 0.99), 1);
  row("longest event-loop delay meanwhile, ms", (one) => one.flipLoopDelayMs, 0);
  row(`${rate} changes/s for ${seconds} s: sent/s`, (one) => one.load?.sentPerSecond, 0);
  row("writes/s to the core", (one) => one.load?.writesPerSecond, 0);
  row("change to status, p50 ms", (one) => one.load && quantile(one.load.latenciesMs, 0.5), 1);
  row("change to status, p99 ms", (one) => one.load && quantile(one.load.latenciesMs, 0.99), 1);
  row("backlog after the last change, ms", (one) => one.load?.backlogMs, 0);
  row("CPU meanwhile, %", (one) => one.load?.cpuPercent, 0);
  row("longest event-loop delay meanwhile, ms", (one) => one.loadLoopDelayMs, 0);
  row("peak memory in the end, MB", (one) => (one.load === undefined ? undefined : one.finalBytes / MEGABYTE), 0);
  const machine = `${cpus().length} x ${cpus()[0]?.model ?? "unknown CPU"}, control plane and load on the same machine`;
  process.stdout.write(
    `\n${machine}\n${table(["work", "this project", contenders[1]?.name ?? "upstream", "ratio"], rows)}\n`,
  );
}

/** How start-up grows with the cell, for this project alone. */
async function growing(cluster: Cluster, own: AggregatorContender): Promise<void> {
  const rows: string[][] = [];
  for (const pods of [10_000, 30_000, 100_000]) {
    const size = { pods, protectors: pods / 10 };
    await fill(cluster, size);
    const figures = await measure(cluster, own, { size, parts: new Set(), flips: 0, rate: 0, seconds: 0 }, false);
    rows.push([
      String(pods),
      String(size.protectors),
      (figures.countedMs / 1000).toFixed(1),
      (figures.countedCpuMs / 1000).toFixed(1),
      ((figures.countedCpuMs * 1000) / pods).toFixed(0),
      megabytes(figures.peakBytes),
      figures.loopDelayMs?.toFixed(0) ?? "-",
    ]);
  }
  const header = ["pods", "protectors", "counted s", "CPU s", "CPU us per pod", "peak MB", "loop delay ms"];
  process.stdout.write(`\n${table(header, rows)}\n`);
}
