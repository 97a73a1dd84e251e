/**
 * An installation for tests and benchmarks: a core cluster, cells, webhook replicas behind a balancer, an aggregator
 * for each cell, and the webhook configurations, all real. Everything ends with the scope (`await using`). Read
 * `component.ts` first, then `webhook-process.ts`, `balancer.ts` and `webhook-configuration.ts`.
 */
import { copyFileSync, existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { BARE, Cluster, type ClusterOptions } from "../control-plane/cluster.ts";
import { root } from "../root.ts";
import { Balancer } from "./balancer.ts";
import { Component } from "./component.ts";
import { gateRegistration, type RegistrationOptions, registrations } from "./webhook-configuration.ts";
import { startWebhook, type WebhookReplica } from "./webhook-process.ts";

export const CRD = join(root, "crds/podseidon.kubewharf.io_podprotectors.yaml");

const SYSTEM_NAMESPACE = { apiVersion: "v1", kind: "Namespace", metadata: { name: "podseidon-system" } };

export interface EnvironmentOptions {
  /** Ids of the cells. The first may be the core cluster itself: see `single`. */
  readonly cells: readonly string[];
  /** The core cluster is also the only cell. */
  readonly single?: boolean;
  /** Webhook replicas; 3 by default. */
  readonly replicas?: number;
  /** `--settle-period` of webhook and aggregator; the default of the components otherwise. */
  readonly settle?: string;
  readonly core?: ClusterOptions;
  readonly cell?: ClusterOptions;
  readonly webhookArgs?: readonly string[];
  readonly aggregatorArgs?: readonly string[];
  readonly registration?: Pick<RegistrationOptions, "timeoutSeconds">;
  /** False when the test starts its own aggregators. */
  readonly aggregators?: boolean;
  /** The namespace of the aggregators' leases in their cells; without it leader election is off. */
  readonly leaseNamespace?: string;
  /**
   * The kubeconfig file with which a component (`webhook-1`, `aggregator-CELL`) reaches a cluster; the administrator's
   * by default.
   */
  readonly kubeconfig?: (component: string, cluster: Cluster) => Promise<string>;
  readonly environment?: Readonly<Record<string, string>>;
  /** Opens a port in front of the webhooks' balancer for the cells' calls; the balancer itself by default. */
  readonly front?: (core: Cluster, balancer: Balancer) => Promise<number>;
}

export class TestEnvironment implements AsyncDisposable {
  readonly core: Cluster;
  readonly cells: ReadonlyMap<string, Cluster>;
  readonly webhooks: WebhookReplica[] = [];
  readonly aggregators = new Map<string, Component>();
  readonly balancer: Balancer;
  readonly #options: EnvironmentOptions;
  readonly #directory: string;
  #port = 0;

  private constructor(
    core: Cluster,
    cells: ReadonlyMap<string, Cluster>,
    balancer: Balancer,
    options: EnvironmentOptions,
  ) {
    this.core = core;
    this.cells = cells;
    this.balancer = balancer;
    this.#options = options;
    this.#directory = join(core.directory, "product");
  }

  static async start(options: EnvironmentOptions): Promise<TestEnvironment> {
    const [core, ...others] = await startClusters(
      options.single ? { name: "core", ...options.cell } : { name: "core", ...BARE, ...options.core },
      options.single ? [] : options.cells.map((name) => ({ name, ...options.cell })),
    );
    const cells = new Map(options.cells.map((id, index) => [id, others[index] ?? core]));
    const environment = new TestEnvironment(core, cells, await Balancer.listen([]), options);
    try {
      await environment.#install();
    } catch (error) {
      environment.keepLogs();
      await environment.stop();
      throw error;
    }
    return environment;
  }

  /** The cluster of one cell; throws for an unknown id. */
  cell(id: string): Cluster {
    const cluster = this.cells.get(id);
    if (cluster === undefined) throw new Error(`there is no cell ${id}`);
    return cluster;
  }

  async #install(): Promise<void> {
    this.#port = (await this.#options.front?.(this.core, this.balancer)) ?? this.balancer.port;
    await this.core.apply(readFileSync(CRD, "utf8"));
    // Creates the namespace of the release register in the core, and of the backups of protectors in the cells.
    const clusters = [...new Set([this.core, ...this.cells.values()])];
    await Promise.all(clusters.map((cluster) => cluster.apply([SYSTEM_NAMESPACE])));
    const ids = [...this.cells.keys()];
    const names = Array.from({ length: this.#options.replicas ?? 3 }, (_, index) => `webhook-${index + 1}`);
    const [replicas] = await Promise.all([
      Promise.all(names.map((name) => this.#startWebhook(name))),
      Promise.all(this.#options.aggregators === false ? [] : ids.map((id) => this.startAggregator(id))),
    ]);
    this.webhooks.push(...replicas);
    this.#balance();
    // In turn: two ids may name one cluster, and kubectl fails where another call creates the object first.
    for (const id of ids) await this.register(id);
  }

  async addWebhook(name: string, more: readonly string[] = []): Promise<WebhookReplica> {
    const replica = await this.#startWebhook(name, more);
    this.webhooks.push(replica);
    this.#balance();
    return replica;
  }

  async #startWebhook(name: string, more: readonly string[] = []): Promise<WebhookReplica> {
    const cells: Record<string, string> = {};
    for (const [id, cluster] of this.cells) cells[id] = await this.#kubeconfig(name, cluster);
    return await startWebhook({
      name,
      directory: this.#directory,
      authority: this.core,
      cores: { core: await this.#kubeconfig(name, this.core) },
      cells,
      environment: this.#options.environment ?? {},
      args: [...this.#settle(), ...(this.#options.webhookArgs ?? []), ...more],
    });
  }

  /**
   * Removes a replica from the balancer, like a Service removes an endpoint that is not ready; its connections stay
   * open.
   */
  forgetWebhook(replica: WebhookReplica): void {
    this.webhooks.splice(this.webhooks.indexOf(replica), 1);
    this.#balance();
  }

  /** Replaces every replica by a new one, like a rollout. */
  async replaceWebhooks(names: readonly string[], args: readonly string[] = []): Promise<void> {
    const old = [...this.webhooks];
    for (const name of names) await this.addWebhook(name, args);
    for (const replica of old) {
      this.forgetWebhook(replica);
      await replica.component.stop();
    }
  }

  async startAggregator(cell: string): Promise<Component> {
    const name = `aggregator-${cell}`;
    const { leaseNamespace, environment = {} } = this.#options;
    const args = [
      ...["--cell-id", cell, "--kubeconfig", await this.#kubeconfig(name, this.cell(cell))],
      ...["--core", `core=${await this.#kubeconfig(name, this.core)}`],
      ...(leaseNamespace === undefined ? ["--leader-elect=false"] : ["--leader-elect-namespace", leaseNamespace]),
      ...this.#settle(),
      ...(this.#options.aggregatorArgs ?? []),
    ];
    const directory = this.#directory;
    const component = await Component.start({ kind: "aggregator", name, directory, args, environment });
    this.aggregators.set(cell, component);
    return component;
  }

  /** Starts a generator of the core, with the administrator's account. The caller has to stop it. */
  startGenerator(flags: readonly string[] = ["--leader-elect=false"], name = "generator"): Promise<Component> {
    const args = ["--kubeconfig", this.core.kubeconfig, ...flags];
    return Component.start({ kind: "generator", name, directory: this.#directory, args });
  }

  /** With the interval of the manifests. */
  startUpdateTrigger(cell: string): Promise<Component> {
    const namespaces = ["--namespace", "default", "--leader-elect-namespace", "default"];
    const args = ["--kubeconfig", this.cell(cell).kubeconfig, ...namespaces];
    return Component.start({
      kind: "update-trigger",
      name: `update-trigger-${cell}`,
      directory: this.#directory,
      args,
    });
  }

  async register(cell: string): Promise<void> {
    const url = `https://127.0.0.1:${this.#port}`;
    const caPem = this.core.identity.certificateAuthorityPem;
    await this.cell(cell).apply(registrations({ cell, url, caPem, ...this.#options.registration }));
  }

  /** Creates the webhook configuration of the counted gate in a cell. */
  async registerGate(cell: string): Promise<void> {
    const url = `https://127.0.0.1:${this.#port}`;
    await this.cell(cell).apply([gateRegistration({ cell, url, caPem: this.core.identity.certificateAuthorityPem })]);
  }

  keepLogs(): string {
    for (const cluster of this.cells.values()) if (cluster !== this.core) cluster.keepLogs();
    const kept = this.core.keepLogs();
    if (!existsSync(this.#directory)) return kept;
    for (const name of readdirSync(this.#directory))
      if (name.endsWith(".log")) copyFileSync(join(this.#directory, name), join(kept, name));
    return kept;
  }

  async stop(): Promise<void> {
    await Promise.all([
      ...this.webhooks.map((one) => one.component.stop()),
      ...[...this.aggregators.values()].map((one) => one.stop()),
    ]);
    await this.balancer.close();
    await Promise.all([...new Set([this.core, ...this.cells.values()])].map((cluster) => cluster.stop()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #balance(): void {
    this.balancer.endpoints = this.webhooks.map((one) => ({ host: "127.0.0.1", port: Number(new URL(one.url).port) }));
  }

  async #kubeconfig(component: string, cluster: Cluster): Promise<string> {
    return (await this.#options.kubeconfig?.(component, cluster)) ?? cluster.kubeconfig;
  }

  #settle(): readonly string[] {
    return this.#options.settle === undefined ? [] : ["--settle-period", this.#options.settle];
  }
}

/** Starts all clusters at once; when one fails, stops all. */
async function startClusters(
  core: ClusterOptions,
  cells: readonly ClusterOptions[],
): Promise<readonly [Cluster, ...Cluster[]]> {
  const starts = [Cluster.start(core), ...cells.map((options) => Cluster.start(options))] as const;
  try {
    return await Promise.all(starts);
  } catch (error) {
    for (const start of await Promise.allSettled(starts)) if (start.status === "fulfilled") await start.value.stop();
    throw error;
  }
}
