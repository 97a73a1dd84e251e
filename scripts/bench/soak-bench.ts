/**
 * `npm run bench -- soak`: what all processes hold after a long life, accelerated: see `fixture/soak-churn.ts`. Prints
 * a sample of each process every half minute, and at the end the medians of the first third beside those of the last.
 * What grows from one to the other without end is a defect.
 */
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { build } from "../build.ts";
import { field, items } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { Balancer } from "../environment/balancer.ts";
import { Component, type ComponentOptions } from "../environment/component.ts";
import { TestEnvironment } from "../environment/environment.ts";
import { readOptions } from "../options.ts";
import { median, processFigures, table } from "./fixture/figures.ts";
import { SCALABLE, SoakChurn, STEADY } from "./fixture/soak-churn.ts";

const HELP = `usage: npm run bench -- soak [options]

  --minutes N   how long the churn lasts (default 25)
`;

const SYSTEM = "podseidon-system";
const SAMPLE_MS = 30_000;
/** Long enough for a garbage collection. */
const COLLECTED_MS = 1_500;
const COLLECTIONS = ["v1/configmaps", "v1/events", "v1/namespaces", "v1/pods"];

type Figures = Record<string, number>;

export async function run(args: readonly string[]): Promise<number> {
  const options = readOptions(args, HELP, { minutes: { type: "string", default: "25" } });
  if (typeof options === "number") return options;
  await using directory = await mkdtempDisposable(join(tmpdir(), "podseidon-soak-"));
  await build();
  await using stack = new AsyncDisposableStack();
  const { environment, components, proxy } = await start(directory.path, stack);
  const { core } = environment;
  const churn = new SoakChurn({ core, proxy, namespace: SYSTEM });
  const endMs = Date.now() + Number(options.minutes) * 60_000;
  const churning = churn.run(endMs);
  const samples: Figures[] = [];
  while (Date.now() < endMs) {
    await delay(SAMPLE_MS);
    const sample: Figures = {};
    for (const component of components) Object.assign(sample, await sampleOf(component, core, directory.path));
    Object.assign(sample, await storedIn(core), churn.done);
    samples.push(sample);
    process.stdout.write(`${JSON.stringify(sample)}\n`);
  }
  await churning;
  process.stdout.write(`\n${slopes(samples)}\n`);
  return 0;
}

async function start(directory: string, stack: AsyncDisposableStack) {
  const options = { NODE_OPTIONS: `--require ${preload(directory)}` };
  // Several components ask at once.
  let listening: Promise<Balancer> | undefined;
  const kubeconfig = async (name: string, { url, identity }: Cluster): Promise<string> => {
    listening ??= Balancer.listen([{ host: "127.0.0.1", port: Number(new URL(url).port) }]);
    const { port } = await listening;
    const file = join(directory, `${name}.kubeconfig`);
    return identity.kubeconfig(name, `https://127.0.0.1:${port}`, { token: identity.adminToken }, file);
  };
  const environment = stack.use(
    await TestEnvironment.start({
      ...{ cells: ["a"], single: true, replicas: 2, settle: "8s", leaseNamespace: SYSTEM, kubeconfig },
      cell: { nodes: 3 },
      environment: options,
      webhookArgs: ["--metrics-by-namespace", "--metrics-by-user", "--accepted-events", "--mark-pending-disruptions"],
      aggregatorArgs: ["--protector-metrics", "--metric-labels", "app", "--void-after", "20s"],
    }),
  );
  const { core } = environment;
  const add = async (kind: ComponentOptions["kind"], ...more: readonly string[]): Promise<Component> => {
    const args = ["--kubeconfig", await kubeconfig(kind, core), "--leader-elect-namespace", SYSTEM, ...more];
    const folder = join(core.directory, "product");
    return stack.use(await Component.start({ kind, name: kind, directory: folder, args, environment: options }));
  };
  const components = [
    ...environment.webhooks.map(({ component }) => component),
    ...environment.aggregators.values(),
    await add("generator", "--scalable", SCALABLE),
    await add("update-trigger", "--namespace", SYSTEM),
    await add("eviction-retry", "--after", "5s", "--interval", "5s"),
  ];
  const proxy = await listening;
  if (proxy === undefined) throw new Error("no component has asked for a kubeconfig");
  return { environment, components, proxy };
}

/** In each process: at SIGUSR2, collects garbage and writes what is left. */
function preload(directory: string): string {
  const file = join(directory, "preload.cjs");
  const code = `
    const { writeFileSync } = require("node:fs");
    require("node:v8").setFlagsFromString("--expose-gc");
    const collect = require("node:vm").runInNewContext("gc");
    process.on("SIGUSR2", () => {
      collect();
      const { heapUsed, external } = process.memoryUsage();
      const handles = process.getActiveResourcesInfo().length;
      writeFileSync("${directory}/" + process.pid + ".json", JSON.stringify({ heapUsed, external, handles }));
    });`;
  writeFileSync(file, code);
  return file;
}

async function sampleOf({ name, process: { pid = 0 }, healthUrl }: Component, core: Cluster, directory: string) {
  process.kill(pid, "SIGUSR2");
  await delay(COLLECTED_MS);
  const held: unknown = JSON.parse(readFileSync(join(directory, `${pid}.json`), "utf8"));
  const metrics = await (await fetch(`${healthUrl}/metrics`, { headers: { connection: "close" } })).text();
  return {
    [`${name}: heap, KB`]: Number(field(held, "heapUsed")) / 1024,
    [`${name}: external, KB`]: Number(field(held, "external")) / 1024,
    [`${name}: resident, MB`]: processFigures(pid).residentBytes / 1024 / 1024,
    [`${name}: handles and timers`]: Number(field(held, "handles")),
    [`${name}: open files`]: readdirSync(`/proc/${pid}/fd`).length,
    [`${name}: series`]: metrics.split("\n").filter((line) => /^[a-z]/.test(line)).length,
    [`${name}: log, KB`]: statSync(join(core.directory, "product", `${name}.log`)).size / 1024,
  };
}

async function storedIn({ admin }: Cluster): Promise<Figures> {
  const figures: Figures = {};
  for (const collection of COLLECTIONS) figures[collection] = items(await admin.get(`/api/${collection}`)).length;
  const bytes = (value: unknown): number => JSON.stringify(value ?? null).length;
  const steady = await admin.get(STEADY);
  return {
    ...figures,
    "ConfigMaps of podseidon, bytes": bytes(items(await admin.get(`/api/v1/namespaces/${SYSTEM}/configmaps`))),
    "a protector's status, bytes": bytes(field(steady, "status")),
    "its managedFields, bytes": bytes(field(steady, "metadata", "managedFields")),
  };
}

function slopes(samples: readonly Figures[]): string {
  const third = Math.ceil(samples.length / 3);
  const rows = Object.keys(samples.at(-1) ?? {}).map((name) => {
    const of = (some: readonly Figures[]): number => median(some.map((one) => one[name] ?? 0));
    const [first, last] = [of(samples.slice(0, third)), of(samples.slice(-third))];
    return [name, first.toFixed(0), last.toFixed(0), (last - first).toFixed(0)];
  });
  return table(["figure", "first third", "last third", "difference"], rows);
}
