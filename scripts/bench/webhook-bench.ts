/**
 * `npm run bench -- webhook`: this project's webhook beside upstream's, on the same control plane, with the same load, in turn.
 * Prints a table of medians and ratios; only ratios of one run say anything.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { cpus, loadavg, release, tmpdir, totalmem } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { build } from "../build.ts";
import { Cluster } from "../control-plane/cluster.ts";
import {
  type AggregatorContender as AggregatorSide,
  ourSide as ourAggregator,
  theirSide as theirAggregator,
} from "./aggregator-contenders.ts";
import { BARE_CLUSTER } from "./cell-fixture.ts";
import { HEADER, row } from "./goals.ts";
import { type LoadRun, loadgen } from "./loadgen.ts";
import { buildRod, peersDirectory, rodsDirectory, unpackPeer } from "./measuring-tools.ts";
import { processFigures } from "./process-figures.ts";
import { type Pair, quotaFreeRows } from "./quota-free.ts";
import { reservedObject } from "./reserved-object.ts";
import { rolloutTable } from "./rollout-table.ts";
import { median, table } from "./table.ts";
import { ourSide, theirSide, type WebhookContender } from "./webhook-contenders.ts";
import { memoryAfterReviews } from "./webhook-memory.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const CRD = join(ROOT, "crds/podseidon.kubewharf.io_podprotectors.yaml");
const BUNDLES = join(ROOT, "dist");

const HELP = `usage: npm run bench -- webhook [--rounds 3] [--peers DIR] [--rods DIR] [--full] [--only WORK,..]

  --rounds   how often each side does each work, in turn (medians are printed)
  --peers    folder with upstream's podseidon-webhook.xz and podseidon-aggregator.xz; without them only this project is measured
  --rods     folder with the load generator's source
  --full     also what takes minutes: memory and rollout
  --only     none, hot3, hot1, wide, reserved, free; memory: after 100,000 and 200,000 reviews with 10,000 protectors watched;
             rollout: a rolling update of 200 replicas and a drain of 50 pods, with and without the project
`;

const USUAL = ["none", "hot3", "hot1", "wide", "reserved", "free"];
const LONG = ["memory", "rollout"];

/** A Ready pod's snapshot position far ahead, so that a webhook with exact accounting sees a counted cell. */
const EXTRA = '{"resourceVersion":"100000000"}';

interface Work {
  readonly name: string;
  readonly title: string;
  readonly replicas: number;
  readonly args: readonly string[];
}

const WORKS: readonly Work[] = [
  {
    name: "none",
    title: "no protector matches, c=50",
    replicas: 1,
    args: ["-mode", "none", "-n", "40000", "-c", "50"],
  },
  {
    name: "hot3",
    title: "one protector, 3 replicas, 1,000 reviews, c=100",
    replicas: 3,
    args: ["-mode", "hot", "-n", "1000", "-c", "100"],
  },
  {
    name: "hot1",
    title: "one protector, one replica, one at a time",
    replicas: 1,
    args: ["-mode", "hot", "-n", "200", "-c", "1"],
  },
  { name: "wide", title: "1,000 protectors, c=100", replicas: 1, args: ["-mode", "wide", "-n", "1000", "-c", "100"] },
];

interface Measured extends LoadRun {
  readonly cpuMsPerReview: number;
}

export async function run(args: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      rounds: { type: "string", default: "3" },
      peers: { type: "string" },
      rods: { type: "string" },
      full: { type: "boolean", default: false },
      only: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  const wanted = new Set(values.only?.split(",") ?? (values.full ? [...USUAL, ...LONG] : USUAL));
  const unknown = [...wanted].filter((name) => ![...USUAL, ...LONG].includes(name));
  if (values.help || unknown.length > 0) {
    process.stdout.write(unknown.length > 0 ? `unknown work: ${unknown.join(", ")}\n\n${HELP}` : HELP);
    return unknown.length > 0 ? 2 : 0;
  }
  const description = machine();
  const work = mkdtempSync(join(tmpdir(), "podseidon-bench-"));
  try {
    const generator = buildRod(rodsDirectory(values.rods), "loadgen", work);
    const peers = peersDirectory(values.peers);
    const webhook = unpackPeer(peers, "podseidon-webhook", work);
    const aggregator = unpackPeer(peers, "podseidon-aggregator", work);
    if (webhook === undefined || aggregator === undefined)
      process.stdout.write("upstream is not there (--peers): measuring this project alone\n");
    await build({ only: ["webhook", "aggregator"] });
    const upstream = webhook === undefined || aggregator === undefined ? undefined : { webhook, aggregator };
    const rows = await sideBySide(wanted, Number(values.rounds), generator, upstream);
    if (rows.length > 0) process.stdout.write(`\n${description}\n\n${table(HEADER, rows)}\n`);
    if (wanted.has("rollout")) process.stdout.write(`\n${await rolloutTable()}\n`);
    return 0;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function sideBySide(
  wanted: ReadonlySet<string>,
  rounds: number,
  generator: string,
  upstream: { readonly webhook: string; readonly aggregator: string } | undefined,
): Promise<string[][]> {
  if ([...wanted].every((name) => name === "rollout")) return [];
  await using cluster = await Cluster.start({ name: "bench", ...BARE_CLUSTER });
  await cluster.apply(await readFile(CRD, "utf8"));
  const ours = await ourSide(cluster);
  const theirs = upstream === undefined ? undefined : await theirSide(upstream.webhook, cluster);
  const rows: string[][] = [];
  for (const one of WORKS)
    if (wanted.has(one.name)) rows.push(...(await compare(one, rounds, generator, cluster, ours, theirs)));
  if (wanted.has("reserved")) rows.push(...(await reservedObject(cluster, ours.urls[0] ?? "")));
  if (wanted.has("free")) {
    const pair = (side: WebhookContender, aggregator: AggregatorSide): Pair => ({
      webhook: new URL(side.urls[0] ?? "").origin,
      aggregator,
    });
    const other = theirs === undefined ? undefined : pair(theirs, theirAggregator(cluster, upstream?.aggregator ?? ""));
    rows.push(...(await quotaFreeRows(cluster, pair(ours, ourAggregator(cluster, BUNDLES)), other)));
  }
  if (wanted.has("memory")) rows.push(...(await memoryAfterReviews(cluster, generator, ours, theirs)));
  return rows;
}

/** What the figures are had on. */
function machine(): string {
  const [first] = cpus();
  const memory = (totalmem() / 1024 ** 3).toFixed(0);
  return `${cpus().length} x ${first?.model ?? "?"}, ${memory} GiB, Linux ${release()}, Node ${process.version}, load before ${loadavg()[0]?.toFixed(1)}; the control plane and the load generator run on the same processors.`;
}

async function compare(
  work: Work,
  rounds: number,
  generator: string,
  cluster: Cluster,
  ours: WebhookContender,
  theirs: WebhookContender | undefined,
): Promise<string[][]> {
  const results = new Map<WebhookContender, Measured[]>();
  for (let round = 0; round < rounds; round += 1) {
    for (const side of theirs === undefined ? [ours] : round % 2 === 0 ? [theirs, ours] : [ours, theirs]) {
      const measured = await once(work, generator, cluster, side);
      results.set(side, [...(results.get(side) ?? []), measured]);
      process.stdout.write(`${work.name} ${side.name}: ${measured.output.trim()}\n`);
    }
  }
  const figures: readonly [string, (run: Measured) => number, number][] = [
    ["reviews/s", (one) => one.reviewsPerSecond, 0],
    ["p50 ms", (one) => one.p50Ms, 2],
    ["p99 ms", (one) => one.p99Ms, 1],
    ["CPU us per review", (one) => one.cpuMsPerReview * 1000, 0],
    ["writes + conflicts", (one) => one.writes + one.conflicts, 0],
    ["not allowed", (one) => one.refused + one.errors, 0],
  ];
  return figures.map(([name, of, digits], index) => {
    const figure = { work: work.name, title: index === 0 ? work.title : "", name, digits };
    const other = theirs === undefined ? Number.NaN : median((results.get(theirs) ?? []).map(of));
    return row({ ...figure, ours: median((results.get(ours) ?? []).map(of)), theirs: other });
  });
}

async function once(work: Work, generator: string, cluster: Cluster, side: WebhookContender): Promise<Measured> {
  const pids = side.pids().slice(0, work.replicas);
  const cpuMs = (): number => pids.reduce((sum, pid) => sum + processFigures(pid).cpuMs, 0);
  const before = cpuMs();
  const urls = side.urls.slice(0, work.replicas).join(",");
  const result = await loadgen(generator, [
    "-api",
    cluster.url,
    "-token",
    cluster.identity.adminToken,
    "-urls",
    urls,
    "-compact",
    "100",
    "-extra",
    EXTRA,
    ...work.args,
  ]);
  const reviews = result.allowed + result.refused + result.errors;
  return { ...result, cpuMsPerReview: (cpuMs() - before) / reviews };
}
