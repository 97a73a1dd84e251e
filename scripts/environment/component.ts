/**
 * The project's components as processes of the built bundles, for tests and benchmarks: started with a user's flags,
 * and killed, frozen and restarted like the processes of a control plane.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Cluster } from "../control-plane/cluster.ts";
import { ManagedProcess } from "../control-plane/managed-process.ts";
import { reservePort } from "../control-plane/ports.ts";
import { root } from "../root.ts";

type ComponentKind = "webhook" | "aggregator" | "generator" | "update-trigger" | "certificates" | "eviction-retry";

/** The folder of the bundles that tests run. */
export const BUNDLES = process.env.PODSEIDON_BUNDLES ?? join(root, "dist");
const START_TIMEOUT_MS = 300_000;
/** As in the manifests of the webhook and the aggregator. */
const NODE_FLAGS = ["--max-semi-space-size=8", "--enable-source-maps", "--max-old-space-size-percentage=75"];

export interface ComponentOptions {
  readonly kind: ComponentKind;
  /** For messages and the log file; unique in `directory`. */
  readonly name: string;
  /** Logs and certificates go here. */
  readonly directory: string;
  readonly args: readonly string[];
  /** The loopback address of all its ports; 127.0.0.1 by default. */
  readonly address?: string;
  /** The folder of the bundles; {@link BUNDLES} by default. */
  readonly bundles?: string;
  /** `ADDRESS:PORT` of /metrics, where it differs from that of the other endpoints. */
  readonly metricsAddress?: string;
  /** In addition to the few variables of every process. */
  readonly environment?: Readonly<Record<string, string>>;
}

export class Component implements AsyncDisposable {
  readonly process: ManagedProcess;
  readonly name: string;
  /** `http://ADDRESS:PORT` of `/healthz`, `/readyz` and `/metrics`. */
  readonly healthUrl: string;

  private constructor(process: ManagedProcess, name: string, healthUrl: string) {
    this.process = process;
    this.name = name;
    this.healthUrl = healthUrl;
  }

  /** Starts it and resolves when `/readyz` answers 200; rejects with the end of its log. */
  static async start(options: ComponentOptions): Promise<Component> {
    const component = await Component.describe(options);
    await component.process.start();
    return component;
  }

  static async describe(options: ComponentOptions): Promise<Component> {
    const address = options.address ?? "127.0.0.1";
    const healthPort = await reservePort(address);
    const health = `${address.includes(":") ? `[${address}]` : address}:${healthPort}`;
    const healthUrl = `http://${health}`;
    mkdirSync(options.directory, { recursive: true });
    const bundles = options.bundles ?? BUNDLES;
    const process = new ManagedProcess({
      name: options.name,
      logFile: join(options.directory, `${options.name}.log`),
      workingDirectory: options.directory,
      launch: () => ({
        binary: globalThis.process.execPath,
        args: [
          ...[...NODE_FLAGS, join(bundles, `${options.kind}.mjs`), ...options.args],
          ...["--health-probe-bind-address", health, "--metrics-bind-address", options.metricsAddress ?? health],
        ],
        environment: options.environment ?? {},
      }),
      isReady: async (signal) => (await fetch(`${healthUrl}/readyz`, { signal })).status === 200,
      startTimeoutMs: START_TIMEOUT_MS,
      onUnexpectedEnd: (description) => globalThis.process.stderr.write(`${description}\n`),
    });
    return new Component(process, options.name, healthUrl);
  }

  /** The sum of one metric over all label sets that contain `labels`; undefined without a sample. */
  async metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number | undefined> {
    // Uses a new connection: the server may close an idle one while this process is busy.
    const text = await (await fetch(`${this.healthUrl}/metrics`, { headers: { connection: "close" } })).text();
    let sum: number | undefined;
    for (const line of text.split("\n")) {
      const match = /^([a-z_:]+)(?:\{(.*)\})? (\S+)/i.exec(line);
      if (match?.[1] !== name) continue;
      const found = match[2] ?? "";
      if (Object.entries(labels).every(([key, value]) => found.includes(`${key}="${value}"`)))
        sum = (sum ?? 0) + Number(match[3]);
    }
    return sum;
  }

  async stop(): Promise<void> {
    await this.process.kill("SIGKILL");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** A serving certificate for a webhook on 127.0.0.1, issued by the cluster's CA. */
export async function servingFiles(cluster: Cluster, directory: string) {
  mkdirSync(directory, { recursive: true });
  const { certificatePem, privateKeyPem } = await cluster.identity.servingCertificate(["localhost"], ["127.0.0.1"]);
  const certFile = join(directory, "tls.crt");
  const keyFile = join(directory, "tls.key");
  writeFileSync(certFile, certificatePem);
  writeFileSync(keyFile, privateKeyPem, { mode: 0o600 });
  return { certFile, keyFile, caPem: cluster.identity.certificateAuthorityPem };
}
