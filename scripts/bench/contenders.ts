/**
 * The webhooks and aggregators that run side by side: this project's bundles and upstream's binaries, started alike.
 */
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Cluster } from "../control-plane/cluster.ts";
import { ManagedProcess } from "../control-plane/managed-process.ts";
import { reservePort } from "../control-plane/ports.ts";
import { Component, servingFiles } from "../environment/component.ts";
import { startWebhook } from "../environment/webhook-process.ts";

export const CELL = "cell";

const ADDRESS = "127.0.0.1";
const REPLICAS = [1, 2, 3];
const START_TIMEOUT_MS = 30_000;
const CORE_RATE = ["--core-kube-qps", "5000", "--core-kube-burst", "5000"];
const QUIET = ["--healthz-enable=false", "--pprof-enable=false", "--prometheus-http-enable=false", "--klog-v", "1"];

/** Upstream's binaries, `podseidon-webhook` and `podseidon-aggregator`, built from a clone of kubewharf/podseidon. */
export interface UpstreamBinaries {
  readonly webhook: string;
  readonly aggregator: string;
}

/** The help of `--upstream-dir`. */
export const UPSTREAM_HELP = `\
  --upstream-dir DIR  where upstream's podseidon-webhook and podseidon-aggregator are (or PODSEIDON_UPSTREAM_DIR):
                      go build -o DIR in its folders webhook and aggregator; without them this project is measured alone
`;

/**
 * The binaries in the folder that the flag or PODSEIDON_UPSTREAM_DIR names; undefined without one. Throws when one is
 * missing there.
 */
export function upstreamBinaries(flag?: string): UpstreamBinaries | undefined {
  const directory = flag ?? process.env.PODSEIDON_UPSTREAM_DIR;
  if (directory === undefined || directory === "") return undefined;
  const path = (name: string): string => {
    const binary = resolve(directory, name);
    if (!existsSync(binary)) throw new Error(`${binary} does not exist; build it from a clone of kubewharf/podseidon`);
    return binary;
  };
  return { webhook: path("podseidon-webhook"), aggregator: path("podseidon-aggregator") };
}

export interface WebhookContender {
  readonly name: string;
  /** Where each replica is called, with the path of its cell. */
  readonly urls: readonly string[];
  readonly pids: () => readonly number[];
}

/** Three replicas of this project's webhook. */
export async function ownWebhooks(cluster: Cluster): Promise<WebhookContender> {
  const start = async (index: number): Promise<Running> => {
    const { component, url } = await startWebhook({
      name: `webhook-${index}`,
      directory: join(cluster.directory, "own"),
      authority: cluster,
      cores: { core: cluster.kubeconfig },
      cells: { [CELL]: "" },
    });
    return { process: component.process, url };
  };
  return contender("this project", await eachReplica(start));
}

/** Three replicas of upstream's webhook. */
export async function upstreamWebhooks(binary: string, cluster: Cluster): Promise<WebhookContender> {
  return contender(
    "upstream",
    await eachReplica((index) => startUpstreamWebhook(binary, cluster, `upstream-webhook-${index}`)),
  );
}

interface Running {
  readonly process: ManagedProcess;
  readonly url: string;
}

async function eachReplica(start: (index: number) => Promise<Running>): Promise<readonly Running[]> {
  const replicas: Running[] = [];
  for (const index of REPLICAS) replicas.push(await start(index));
  return replicas;
}

function contender(name: string, replicas: readonly Running[]): WebhookContender {
  return {
    name,
    urls: replicas.map(({ url }) => `${url}/webhook/${CELL}`),
    pids: () => replicas.map(({ process }) => process.pid ?? 0),
  };
}

/** Starts upstream's webhook, which is ready when its port without TLS answers anything. */
export async function startUpstreamWebhook(binary: string, cluster: Cluster, name: string): Promise<Running> {
  const [plain, secure] = [await reservePort(ADDRESS), await reservePort(ADDRESS)];
  const files = await servingFiles(cluster, join(cluster.directory, `${name}-tls`), ["localhost"], [ADDRESS]);
  const args = [
    `--core-kube-config=${cluster.kubeconfig}`,
    ...CORE_RATE,
    `--webhook-bind-addr=${ADDRESS}`,
    `--webhook-port=${plain}`,
    "--webhook-https-enable",
    `--webhook-https-bind-addr=${ADDRESS}`,
    `--webhook-https-port=${secure}`,
    `--webhook-https-cert-file=${files.certFile}`,
    `--webhook-https-key-file=${files.keyFile}`,
    "--webhook-path-prefix=/webhook",
    ...QUIET,
  ];
  const isReady = async (signal: AbortSignal): Promise<boolean> => {
    await fetch(`http://${ADDRESS}:${plain}/`, { signal });
    return true;
  };
  const process = upstreamProcess(binary, args, cluster, name, isReady);
  await process.start();
  return { process, url: `https://${ADDRESS}:${secure}` };
}

export interface AggregatorContender {
  readonly name: string;
  /** A new process, not started; `metricsUrl` is undefined where there are no metrics to read. */
  process(): Promise<{ readonly process: ManagedProcess; readonly metricsUrl: string | undefined }>;
}

/** This project's aggregator. */
export function ownAggregator(cluster: Cluster, bundles: string): AggregatorContender {
  return {
    name: "this project",
    process: async () => {
      const component = await Component.describe({
        kind: "aggregator",
        name: "own-aggregator",
        directory: join(cluster.directory, "logs"),
        bundles,
        args: [
          ...["--cell-id", CELL, "--kubeconfig", cluster.kubeconfig, "--core", `core=${cluster.kubeconfig}`],
          "--leader-elect=false",
        ],
      });
      return { process: component.process, metricsUrl: `${component.healthUrl}/metrics` };
    },
  };
}

/** Upstream's aggregator, which does not tell when it is ready. */
export function upstreamAggregator(
  cluster: Cluster,
  binary: string,
  name = "upstream-aggregator",
  extra: readonly string[] = [],
): AggregatorContender {
  const args = [
    `--core-kube-config=${cluster.kubeconfig}`,
    `--worker-kube-config=${cluster.kubeconfig}`,
    ...CORE_RATE,
    ...["--worker-kube-qps", "5000", "--worker-kube-burst", "5000", "--aggregator-cell-id", CELL],
    ...["--aggregator-leader-elector-enable=false", ...QUIET, ...extra],
  ];
  return {
    name: "upstream",
    process: async () => ({
      process: upstreamProcess(binary, args, cluster, name, async () => true),
      metricsUrl: undefined,
    }),
  };
}

function upstreamProcess(
  binary: string,
  args: readonly string[],
  cluster: Cluster,
  name: string,
  isReady: (signal: AbortSignal) => Promise<boolean>,
): ManagedProcess {
  return new ManagedProcess({
    name,
    logFile: join(cluster.directory, "logs", `${name}.log`),
    workingDirectory: cluster.directory,
    // Go's default: the control plane's own setting is not for a benchmark.
    launch: () => ({ binary, args, environment: { GOGC: "100" } }),
    isReady,
    startTimeoutMs: START_TIMEOUT_MS,
    onUnexpectedEnd: (description) => globalThis.process.stderr.write(`${description}\n`),
  });
}
