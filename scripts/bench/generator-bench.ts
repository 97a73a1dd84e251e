/**
 * `npm run bench -- generator`: a generator's start in a core cluster full of Deployments, the next start, which has
 * nothing to write, and single changes.
 */
import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "../build.ts";
import type { ApiserverClient } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { Component } from "../environment/component.ts";
import { readOptions } from "../options.ts";
import { bareCluster, each, NAMESPACE } from "./fixture/cell-fixture.ts";
import { processFigures, quantile, table } from "./fixture/figures.ts";
import { ProtectorWatch } from "./fixture/protector-watch.ts";

const HELP = `usage: npm run bench -- generator [options]

  --deployments N   Deployments (default 10000)
  --changes N       changes that are timed, one after another (default 300)
  --concurrency N   the generator's --concurrency (its default otherwise)
`;

const DEPLOYMENTS = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`;
const MEGABYTE = 1024 * 1024;
const PROTECT = "podseidon.kubewharf.io/protect";
const REPLICAS = 4;
const LIMIT_MS = 300_000;
/** As in the manifests. */
const NODE_OPTIONS = "--max-semi-space-size=8";

/** Goals of the project, for the table. */
const GOALS = { startMs: 60_000, megabytes: 300, writes: 0, changeMs: 250 };

export async function run(args: readonly string[]): Promise<number> {
  const options = readOptions(args, HELP, {
    deployments: { type: "string", default: "10000" },
    changes: { type: "string", default: "300" },
    concurrency: { type: "string" },
  });
  if (typeof options === "number") return options;
  await using bundles = await mkdtempDisposable(join(tmpdir(), "podseidon-bench-"));
  await build({ only: ["generator"], outdir: bundles.path });
  await using cluster = await bareCluster();
  const extra = options.concurrency === undefined ? [] : ["--concurrency", options.concurrency];
  const start = (name: string): Promise<Component> => generator(cluster, bundles.path, name, extra);
  await measure(cluster, start, Number(options.deployments), Number(options.changes));
  return 0;
}

function deployment(index: number): object {
  const labels = { app: `web-${index}` };
  const metadata = { name: `web-${index}`, labels: { [PROTECT]: "true", team: "shop" } };
  const container = {
    name: "app",
    image: "registry.example.com/shop/web:1.2.3",
    env: Array.from({ length: 8 }, (_, number) => ({ name: `SETTING_${number}`, value: `value-${number}` })),
    resources: { requests: { cpu: "100m", memory: "128Mi" }, limits: { memory: "256Mi" } },
    readinessProbe: { httpGet: { path: "/ready", port: 8080 } },
  };
  const template = { metadata: { labels }, spec: { containers: [container] } };
  return { metadata, spec: { replicas: REPLICAS, selector: { matchLabels: labels }, template } };
}

function generator(cluster: Cluster, bundles: string, name: string, extra: readonly string[]): Promise<Component> {
  const args = [...extra, "--kubeconfig", cluster.kubeconfig, "--leader-elect=false", "--log-level", "warn"];
  const environment = { NODE_OPTIONS };
  return Component.describe({
    kind: "generator",
    name,
    directory: join(cluster.directory, "logs"),
    args,
    bundles,
    environment,
  });
}

/** How many writes to Deployments and protectors the apiserver has counted. */
async function writes(admin: ApiserverClient): Promise<number> {
  const { text } = await admin.request("GET", "/metrics");
  let sum = 0;
  for (const line of text.split("\n")) {
    const isWrite = /^apiserver_request_total\{.*verb="(POST|PUT|PATCH|APPLY|DELETE)"/.test(line);
    if (isWrite && /resource="(deployments|podprotectors)"/.test(line))
      sum += Number(line.slice(line.lastIndexOf(" ")));
  }
  return sum;
}

async function created(generator: Component): Promise<number> {
  return (await generator.metric("podseidon_generator_writes_total", { step: "created" })) ?? 0;
}

function serversCpuMs({ processes }: Cluster): number {
  return [processes["kube-apiserver"], processes.etcd].reduce(
    (sum, { pid }) => sum + processFigures(pid ?? 0).cpuMs,
    0,
  );
}

async function measure(
  cluster: Cluster,
  start: (name: string) => Promise<Component>,
  count: number,
  changes: number,
): Promise<void> {
  const { admin } = cluster;
  const fillMs = performance.now();
  await each(count, async (index) => void (await admin.call("POST", DEPLOYMENTS, deployment(index))));
  process.stdout.write(`${count} Deployments are there after ${((performance.now() - fillMs) / 1000).toFixed(0)} s\n`);

  await using watch = await ProtectorWatch.start(cluster.kubeconfig);
  const first = await start("generator-1");
  const serversMs = serversCpuMs(cluster);
  const startMs = performance.now();
  await first.process.launch();
  if (!(await watch.until(() => watch.size >= count, LIMIT_MS))) throw new Error(`only ${watch.size} protectors came`);
  const protectedMs = performance.now() - startMs;
  const serversTookMs = serversCpuMs(cluster) - serversMs;
  const firstFigures = processFigures(first.process.pid ?? 0);
  // The apiserver does not count calls without a response yet.
  await cluster.waitFor("the first to have all answers", async () => (await created(first)) >= count, LIMIT_MS);
  await first.stop();

  const before = await writes(admin);
  const second = await start("generator-2");
  const secondMs = performance.now();
  await second.process.start();
  const looked = async (): Promise<boolean> =>
    ((await second.metric("podseidon_generator_reconcile_seconds_count")) ?? 0) >= count;
  await cluster.waitFor("the second start to have looked at everything", looked, LIMIT_MS);
  const lookedMs = performance.now() - secondMs;
  const written = (await writes(admin)) - before;

  const tookMs: number[] = [];
  for (let change = 0; change < changes; change += 1) {
    const name = `web-${(change * 37) % count}`;
    const replicas = REPLICAS * (2 + change);
    const sentMs = performance.now();
    await admin.call("PATCH", `${DEPLOYMENTS}/${name}`, { spec: { replicas } });
    const isThere = (): boolean => watch.minimum(`deployment-${name}`) === replicas - Math.floor(replicas / 4);
    if (!(await watch.until(isThere, LIMIT_MS))) throw new Error(`the protector of ${name} did not follow`);
    tookMs.push(performance.now() - sentMs);
  }
  const lastFigures = processFigures(second.process.pid ?? 0);
  await second.stop();
  const megabytes = (bytes: number): string => `${(bytes / MEGABYTE).toFixed(0)} MB`;
  const peak = Math.max(firstFigures.peakResidentBytes, lastFigures.peakResidentBytes);
  const rows = [
    [`exec to ${count} protectors`, `${(protectedMs / 1000).toFixed(1)} s`, `${GOALS.startMs / 1000} s`],
    ["CPU time of the generator for that", `${(firstFigures.cpuMs / 1000).toFixed(1)} s`, ""],
    ["CPU time of apiserver and etcd for that", `${(serversTookMs / 1000).toFixed(1)} s`, ""],
    ["peak memory", megabytes(peak), `${GOALS.megabytes} MB`],
    ["next start: exec to all looked at", `${(lookedMs / 1000).toFixed(1)} s`, ""],
    ["next start: writes, as the apiserver counts them", String(written), String(GOALS.writes)],
    ["a changed Deployment to its protector, p50", `${quantile(tookMs, 0.5).toFixed(0)} ms`, ""],
    ["a changed Deployment to its protector, p99", `${quantile(tookMs, 0.99).toFixed(0)} ms`, `${GOALS.changeMs} ms`],
  ];
  process.stdout.write(`${table(["generator", "measured", "goal at most"], rows)}\n`);
}
