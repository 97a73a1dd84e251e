/**
 * `npm run bench -- webhook`: this project's webhook beside upstream's, on the same control plane, with the same load, in turn.
 * Prints a table of medians and ratios; only ratios of one run say anything.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { build } from "../build.ts";
import { Cluster } from "../control-plane/cluster.ts";
import { startWebhook, type WebhookReplica } from "../product/webhook.ts";
import { type LoadRun, loadgen } from "./loadgen.ts";
import { processFigures } from "./process-figures.ts";
import { reservedObject } from "./reserved-object.ts";
import { buildRod, peersDirectory, rodsDirectory, unpackPeer } from "./rods.ts";
import { median, ratio, table } from "./table.ts";
import { startUpstreamWebhook, type UpstreamWebhook } from "./upstream.ts";
import { memoryAfterReviews } from "./webhook-memory.ts";

const HELP = `usage: npm run bench -- webhook [--rounds 3] [--peers DIR] [--rods DIR] [--memory] [--only WORK]

  --rounds   how often each side does each work, in turn (medians are printed)
  --peers    folder with upstream's podseidon-webhook.xz; without it only this project is measured
  --rods     folder with the load generator's source
  --memory   also the memory after 100,000 and 200,000 reviews with 10,000 protectors watched (minutes)
  --only     one work by name: none, hot3, hot1, wide, reserved
`;

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

interface Side {
  readonly name: string;
  readonly urls: readonly string[];
  readonly pids: () => readonly number[];
}

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
      memory: { type: "boolean", default: false },
      only: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  const work = mkdtempSync(join(tmpdir(), "podseidon-bench-"));
  try {
    const generator = buildRod(rodsDirectory(values.rods), "loadgen", work);
    const peer = unpackPeer(peersDirectory(values.peers), "podseidon-webhook", work);
    if (peer === undefined)
      process.stdout.write("upstream's webhook is not there (--peers): measuring this project alone\n");
    await build({ only: ["webhook"] });
    await using cluster = await Cluster.start({
      name: "bench",
      controllerManager: false,
      scheduler: false,
      kwok: false,
    });
    await cluster.apply(await crd());
    const ours = await ourSide(cluster);
    const theirs = peer === undefined ? undefined : await theirSide(peer, cluster);
    const rows: string[][] = [];
    for (const one of WORKS) {
      if (values.only !== undefined && values.only !== one.name) continue;
      rows.push(...(await compare(one, Number(values.rounds), generator, cluster, ours, theirs)));
    }
    process.stdout.write(`\n${table(["work", "figure", "this project", "upstream", "ratio"], rows)}\n`);
    if (values.only === undefined || values.only === "reserved")
      process.stdout.write(`\n${await reservedObject(cluster, ours.urls[0] ?? "")}\n`);
    if (values.memory) process.stdout.write(`\n${await memoryAfterReviews(cluster, generator, ours, theirs)}\n`);
    return 0;
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function crd(): Promise<string> {
  const { readFile } = await import("node:fs/promises");
  return readFile(resolve(import.meta.dirname, "../../crds/podseidon.kubewharf.io_podprotectors.yaml"), "utf8");
}

async function ourSide(cluster: Cluster): Promise<Side> {
  const replicas: WebhookReplica[] = [];
  for (const index of [1, 2, 3]) {
    const directory = join(cluster.directory, "ours");
    replicas.push(
      await startWebhook({
        name: `webhook-${index}`,
        directory,
        authority: cluster,
        cores: { core: cluster.kubeconfig },
        cells: { cell: "" },
      }),
    );
  }
  return {
    name: "this project",
    urls: replicas.map((one) => `${one.url}/webhook/cell`),
    pids: () => replicas.map((one) => one.component.process.pid ?? 0),
  };
}

async function theirSide(binary: string, cluster: Cluster): Promise<Side> {
  const replicas: UpstreamWebhook[] = [];
  for (const index of [1, 2, 3])
    replicas.push(await startUpstreamWebhook(binary, cluster, `upstream-webhook-${index}`));
  return {
    name: "upstream",
    urls: replicas.map((one) => `${one.url}/webhook/cell`),
    pids: () => replicas.map((one) => one.process.pid ?? 0),
  };
}

async function compare(
  work: Work,
  rounds: number,
  generator: string,
  cluster: Cluster,
  ours: Side,
  theirs: Side | undefined,
): Promise<string[][]> {
  const results = new Map<Side, Measured[]>();
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
    const mine = median((results.get(ours) ?? []).map(of));
    const other = theirs === undefined ? Number.NaN : median((results.get(theirs) ?? []).map(of));
    return [
      index === 0 ? work.title : "",
      name,
      mine.toFixed(digits),
      Number.isNaN(other) ? "-" : other.toFixed(digits),
      ratio(mine, other),
    ];
  });
}

async function once(work: Work, generator: string, cluster: Cluster, side: Side): Promise<Measured> {
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
