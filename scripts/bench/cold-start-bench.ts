/**
 * `npm run bench -- cold-start`: how long the webhook's bundle takes from exec to its first TLS answer, and to ready
 * with a core cluster of 100 protectors, against bare `node -e 0` in the same run; in turn, medians.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { get } from "node:http";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { build } from "../build.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { httpsCall } from "../control-plane/https-call.ts";
import { reservePort } from "../control-plane/ports.ts";
import { servingFiles } from "../environment/component.ts";
import { readOptions } from "../options.ts";
import { root } from "../root.ts";
import { bareCluster, createProtectors } from "./fixture/cell-fixture.ts";
import { BEFORE_HELP } from "./fixture/contenders.ts";
import { median, ratio, table } from "./fixture/figures.ts";

const HELP = `usage: npm run bench -- cold-start [options]

  --runs N            starts that are measured (default 15)
${BEFORE_HELP}`;
const PROTECTORS = 100;
const POLL_MS = 1;
const GIVE_UP_MS = 20_000;

export async function run(args: readonly string[]): Promise<number> {
  const options = readOptions(args, HELP, { runs: { type: "string", default: "15" }, before: { type: "string" } });
  if (typeof options === "number") return options;
  await build({ only: ["webhook"] });
  await using cluster = await bareCluster();
  await createProtectors(cluster.admin, 0, PROTECTORS);
  const bundles = { "": join(root, "dist"), ...(options.before === undefined ? {} : { ", before": options.before }) };
  const bare: number[] = [];
  const rows = new Map<string, number[]>([["bare node -e 0", bare]]);
  const add = (title: string, ms: number): void => void rows.set(title, [...(rows.get(title) ?? []), ms]);
  for (let round = 0; round <= Number(options.runs); round += 1) {
    const bareMs = await bareNode();
    // The first round fills the page cache.
    if (round > 0) bare.push(bareMs);
    for (const [name, directory] of Object.entries(bundles)) {
      const { responseMs, readyMs } = await webhookStart(cluster, `${round}${name && "-before"}`, directory);
      if (round === 0) continue;
      add(`exec to the first TLS answer${name}`, responseMs);
      add(`exec to ready, ${PROTECTORS} protectors${name}`, readyMs);
    }
  }
  const base = median(bare);
  const title = `cold start of the webhook, medians of ${options.runs}`;
  process.stdout.write(
    `${table(
      [title, "ms", "against bare node"],
      [...rows].map(([name, all]) => [name, median(all).toFixed(1), ratio(median(all), base)]),
    )}\n`,
  );
  return 0;
}

async function bareNode(): Promise<number> {
  const startedMs = performance.now();
  await once(spawn(process.execPath, ["-e", "0"], { stdio: "ignore" }), "exit");
  return performance.now() - startedMs;
}

async function webhookStart(
  cluster: Cluster,
  round: string,
  bundles: string,
): Promise<{ responseMs: number; readyMs: number }> {
  const [port, healthPort] = [await reservePort("127.0.0.1"), await reservePort("127.0.0.1")];
  const files = await servingFiles(cluster, join(cluster.directory, `cold-${round}`));
  const flags = [
    ...[`--core=core=${cluster.kubeconfig}`, "--cell=cell", "--bind-address=127.0.0.1", `--secure-port=${port}`],
    ...[`--tls-cert-file=${files.certFile}`, `--tls-private-key-file=${files.keyFile}`, "--metrics-bind-address=0"],
    ...[`--health-probe-bind-address=127.0.0.1:${healthPort}`, "--log-level=error"],
  ];
  const startedMs = performance.now();
  const child = spawn(process.execPath, [join(bundles, "webhook.mjs"), ...flags], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const ended = once(child, "exit");
  try {
    const responseMs = until(child, () => tlsAnswer(port, files.caPem)).then(() => performance.now() - startedMs);
    const readyMs = until(child, () => isReady(healthPort)).then(() => performance.now() - startedMs);
    return { responseMs: await responseMs, readyMs: await readyMs };
  } finally {
    child.kill("SIGKILL");
    await ended;
  }
}

async function until(child: ChildProcess, holds: () => Promise<boolean>): Promise<void> {
  const giveUpMs = performance.now() + GIVE_UP_MS;
  while (performance.now() < giveUpMs) {
    if (child.exitCode !== null) throw new Error(`the webhook ended with exit code ${child.exitCode}`);
    if (await holds()) return;
    await delay(POLL_MS);
  }
  throw new Error(`the webhook did not answer within ${GIVE_UP_MS} ms`);
}

async function tlsAnswer(port: number, ca: string): Promise<boolean> {
  const answer = await httpsCall(`https://127.0.0.1:${port}/`, { ca }).catch(() => undefined);
  return answer !== undefined;
}

function isReady(port: number): Promise<boolean> {
  return new Promise((done) => {
    const call = get({ host: "127.0.0.1", port, path: "/readyz" }, (response) => {
      response.resume();
      done(response.statusCode === 200);
    });
    call.on("error", () => done(false));
  });
}
