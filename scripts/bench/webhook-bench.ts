/**
 * `npm run bench -- webhook`: this project's webhook and upstream's, on the same control plane, with the same load,
 * alternately. Prints a table of medians and ratios; only ratios of one run are meaningful.
 */
import { mkdtempDisposable } from "node:fs/promises";
import { cpus, loadavg, release, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { build } from "../build.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { misused, readOptions } from "../options.ts";
import { root } from "../root.ts";
import { bareCluster, createProtector, each } from "./fixture/cell-fixture.ts";
import {
  type AggregatorContender,
  BEFORE_HELP,
  type OtherSide,
  otherSide,
  ownAggregator,
  ownWebhooks,
  UPSTREAM_HELP,
  type WebhookContender,
} from "./fixture/contenders.ts";
import { HEADER, median, processFigures, row, table } from "./fixture/figures.ts";
import { buildLoadGenerator, generateLoad, type LoadRun } from "./fixture/load-generator.ts";
import { hostileTables } from "./hostile.ts";
import { type Pair, quotaFreeRows } from "./quota-free.ts";
import { reservedObject } from "./reserved-object.ts";
import { rolloutTable } from "./rollout.ts";

const HELP = `usage: npm run bench -- webhook [options]

  --rounds N          how often each contender does each work, in turn (default 3; medians are printed)
${UPSTREAM_HELP}${BEFORE_HELP}  --full              also what takes minutes: memory and rollout
  --only WORK,..      none, hot3, hot1, wide, reserved, free; memory: after 100,000 and 200,000 reviews with 10,000
                      protectors watched; rollout: a rolling update of 200 replicas and a drain of 50 pods, with and
                      without the project; hostile: honest reviews beside large ones
`;

const USUAL = ["none", "hot3", "hot1", "wide", "reserved", "free"];
const LONG = ["memory", "rollout", "hostile"];

const BEFORE_HEADER = ["work", "figure", "this project", "before", "ratio"];
const WITHOUT_GOALS = BEFORE_HEADER.length;

/** A Ready pod's snapshot position far ahead, so that a webhook with exact accounting sees a counted cell. */
const EXTRA = '{"resourceVersion":"100000000"}';

interface Work {
  readonly name: string;
  readonly title: string;
  readonly replicas: number;
  readonly args: readonly string[];
}

const load = (mode: string, reviews: number, concurrency: number): readonly string[] => {
  return ["-mode", mode, "-n", String(reviews), "-c", String(concurrency)];
};

const WORKS: readonly Work[] = [
  { name: "none", title: "no protector matches, c=50", replicas: 1, args: load("none", 40_000, 50) },
  { name: "hot3", title: "one protector, 3 replicas, 1,000 reviews, c=100", replicas: 3, args: load("hot", 1000, 100) },
  { name: "hot1", title: "one protector, one replica, one at a time", replicas: 1, args: load("hot", 200, 1) },
  { name: "wide", title: "1,000 protectors, c=100", replicas: 1, args: load("wide", 1000, 100) },
];

interface Measured extends LoadRun {
  readonly cpuMsPerReview: number;
}

interface MeasuredReplicas {
  readonly urls: readonly string[];
  readonly pids: readonly number[];
}

/** Rounds that are not counted, so that no round measures the compiler. */
const WARM_UP_ROUNDS = 3;

export async function run(args: readonly string[]): Promise<number> {
  const options = readOptions(args, HELP, {
    rounds: { type: "string", default: "3" },
    "upstream-dir": { type: "string" },
    before: { type: "string" },
    full: { type: "boolean", default: false },
    only: { type: "string" },
  });
  if (typeof options === "number") return options;
  const wanted = new Set(options.only?.split(",") ?? (options.full ? [...USUAL, ...LONG] : USUAL));
  const unknown = [...wanted].filter((name) => ![...USUAL, ...LONG].includes(name));
  if (unknown.length > 0) return misused(`--only: unknown work: ${unknown.join(", ")}`, HELP);
  const description = machine();
  const { before } = options;
  const other = otherSide(options["upstream-dir"], before);
  await using directory = await mkdtempDisposable(join(tmpdir(), "podseidon-bench-"));
  const generator = await buildLoadGenerator(directory.path);
  await build({ only: ["webhook", "aggregator"] });
  const rows = await sideBySide(wanted, Number(options.rounds), generator, other);
  // The goals are ratios to upstream.
  const shown = before === undefined ? rows : rows.map((cells) => cells.slice(0, WITHOUT_GOALS));
  const header = before === undefined ? HEADER : BEFORE_HEADER;
  if (rows.length > 0) process.stdout.write(`\n${description}\n\n${table(header, shown)}\n`);
  if (wanted.has("hostile")) process.stdout.write(`\n${await hostileTables()}\n`);
  if (wanted.has("rollout")) process.stdout.write(`\n${await rolloutTable()}\n`);
  return 0;
}

async function sideBySide(
  wanted: ReadonlySet<string>,
  rounds: number,
  generator: string,
  side: OtherSide | undefined,
): Promise<string[][]> {
  if ([...wanted].every((name) => name === "rollout" || name === "hostile")) return [];
  await using cluster = await bareCluster();
  const own = await ownWebhooks(cluster);
  const upstream = await side?.webhooks(cluster);
  const rows: string[][] = [];
  for (const work of WORKS)
    if (wanted.has(work.name)) rows.push(...(await compare(work, rounds, generator, cluster, own, upstream)));
  if (wanted.has("reserved")) rows.push(...(await reservedObject(cluster, own.urls[0] ?? "")));
  if (wanted.has("free")) {
    const pair = ({ urls }: WebhookContender, aggregator: AggregatorContender): Pair => ({
      webhook: new URL(urls[0] ?? "").origin,
      aggregator,
    });
    const other = side && upstream && pair(upstream, side.aggregator(cluster));
    rows.push(...(await quotaFreeRows(cluster, pair(own, ownAggregator(cluster, join(root, "dist"))), other)));
  }
  if (wanted.has("memory")) rows.push(...(await memoryAfterReviews(cluster, generator, own, upstream)));
  return rows;
}

function machine(): string {
  const [first] = cpus();
  const memory = (totalmem() / 1024 ** 3).toFixed(0);
  return (
    `${cpus().length} x ${first?.model ?? "?"}, ${memory} GiB, Linux ${release()}, Node ${process.version}, load ` +
    `before ${loadavg()[0]?.toFixed(1)}; the control plane and the load generator run on the same processors.`
  );
}

async function compare(
  work: Work,
  rounds: number,
  generator: string,
  cluster: Cluster,
  own: WebhookContender,
  upstream: WebhookContender | undefined,
): Promise<string[][]> {
  const results = new Map<WebhookContender, Measured[]>();
  const contenders = upstream === undefined ? [own] : [upstream, own];
  for (let round = -WARM_UP_ROUNDS; round < rounds; round += 1)
    for (const contender of round % 2 === 0 ? contenders : contenders.toReversed()) {
      const measured = await once(work, generator, cluster, replicasOf(contender, work, round));
      if (round < 0) continue;
      results.set(contender, [...(results.get(contender) ?? []), measured]);
      process.stdout.write(`${work.name} ${contender.name}: ${measured.output.trim()}\n`);
    }
  const figures: readonly [string, (run: Measured) => number, number][] = [
    ["reviews/s", (one) => one.requestsPerSecond, 0],
    ["p50 ms", (one) => one.p50Ms, 2],
    ["p99 ms", (one) => one.p99Ms, 1],
    ["CPU us per review", (one) => one.cpuMsPerReview * 1000, 0],
    ["writes + conflicts", (one) => one.writes + one.conflicts, 0],
    ["not allowed", (one) => one.refused + one.errors, 0],
  ];
  return figures.map(([name, of, digits], index) => {
    const figure = { work: work.name, title: index === 0 ? work.title : "", name, digits };
    const medianOf = (contender: WebhookContender | undefined): number =>
      contender === undefined ? Number.NaN : median((results.get(contender) ?? []).map(of));
    return row({ ...figure, own: medianOf(own), upstream: medianOf(upstream) });
  });
}

/**
 * The replicas that a round measures. With one replica, each round uses another process: two processes of the same
 * bundle differ by up to a tenth, because the compiler sees other calls first, so one pair does not compare bundles.
 */
function replicasOf({ urls, pids }: WebhookContender, work: Work, round: number): MeasuredReplicas {
  const first = work.replicas === 1 ? (round + WARM_UP_ROUNDS) % urls.length : 0;
  const chosen = <Value>(values: readonly Value[]): readonly Value[] => values.slice(first, first + work.replicas);
  return { urls: chosen(urls), pids: chosen(pids()) };
}

async function once(work: Work, generator: string, cluster: Cluster, replicas: MeasuredReplicas): Promise<Measured> {
  const cpuMs = (): number => replicas.pids.reduce((sum, pid) => sum + processFigures(pid).cpuMs, 0);
  const before = cpuMs();
  const args = ["-urls", replicas.urls.join(","), "-compact", "100", "-extra", EXTRA, ...work.args];
  const result = await generateLoad(generator, cluster, args);
  const reviews = result.allowed + result.refused + result.errors;
  return { ...result, cpuMsPerReview: (cpuMs() - before) / reviews };
}

/** The memory of a replica that watches this many protectors, idle, and after 100,000 and 200,000 reviews. */
const PROTECTORS_COUNT = 10_000;
const REVIEWS = 100_000;
/** Both contenders get this long to receive the protectors. */
const CATCH_UP_MS = 15_000;
const TITLES = ["10,000 protectors watched, idle", "after 100,000 reviews", "after 200,000 reviews"];

async function memoryAfterReviews(
  cluster: Cluster,
  generator: string,
  own: WebhookContender,
  upstream: WebhookContender | undefined,
): Promise<string[][]> {
  await each(PROTECTORS_COUNT, async (index) => {
    const matchLabels = { app: `memory-${index}`, tier: "web", env: "prod", team: `t${index % 20}` };
    await createProtector(cluster.admin, `memory-${index}`, matchLabels);
  });
  await delay(CATCH_UP_MS);
  const other = upstream === undefined ? [] : await residentMegabytes(cluster, generator, upstream);
  const mine = await residentMegabytes(cluster, generator, own);
  return mine.map((value, index) => {
    const title = TITLES[index] ?? "";
    const figure = { work: index === 0 ? "idle" : "memory", title, name: "resident MB", digits: 0 };
    return row({ ...figure, own: value, upstream: other[index] ?? Number.NaN });
  });
}

/** The memory of the first replica: idle, and after each load. */
async function residentMegabytes(cluster: Cluster, generator: string, contender: WebhookContender): Promise<number[]> {
  const megabytes = (): number => processFigures(contender.pids()[0] ?? 0).residentBytes / 1024 / 1024;
  const after = [megabytes()];
  for (const _ of [1, 2]) {
    const args = ["-urls", contender.urls[0] ?? "", ...load("none", REVIEWS, 50), "-setup=false"];
    await generateLoad(generator, cluster, args);
    after.push(megabytes());
  }
  return after;
}
