import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { KeyAndCertificate } from "../../shared/certificates/x509.ts";
import { ApiserverClient, conditionStatus, field } from "./api-client.ts";
import { type Binaries, ensureBinaries } from "./binaries/binaries.ts";
import {
  COMPONENT_NAMES,
  type ComponentName,
  type ComponentPorts,
  describeProcesses,
  etcdUrl,
  type FlagOverrides,
  type Flags,
  type Processes,
  type Setting,
  serverUrl,
} from "./components.ts";
import { copyEtcdData, EtcdClient, type EtcdSnapshot } from "./etcd.ts";
import { credentialOf, Identity, type KubeconfigUserEntry, requestToken, type StaticToken } from "./identity.ts";
import { type KubectlOptions, type KubectlResult, runKubectl } from "./kubectl.ts";
import { type ManagedProcess, StartError } from "./managed-process.ts";
import { reservePort } from "./ports.ts";
import { theReaper } from "./reaper.ts";

export interface ClusterOptions {
  /** Part of messages, file names and kubeconfig contexts; `cluster` by default. */
  readonly name?: string;
  /** The loopback address of all its servers; 127.0.0.1 by default. */
  readonly address?: string;
  /** All components run by default. */
  readonly controllerManager?: boolean;
  readonly scheduler?: boolean;
  readonly kwok?: boolean;
  /** Nodes that exist and are ready when {@link Cluster.start} resolves, named `node-1` and so on; none by default. */
  readonly nodes?: number;
  /** Flags in addition to the usual ones, or instead of them; `$FILES` in a value is the directory of `files`. */
  readonly flags?: FlagOverrides;
  /** Files that flags refer to, such as an audit policy: content by name. */
  readonly files?: Readonly<Record<string, string>>;
  /** Additional users, who authenticate by a fixed token. */
  readonly tokens?: readonly StaticToken[];
  /** The binaries to start; {@link ensureBinaries} by default. */
  readonly binaries?: Binaries;
}

/** Options of a cluster with only etcd and kube-apiserver. */
export const BARE = { controllerManager: false, scheduler: false, kwok: false } as const satisfies ClusterOptions;

export interface KubeconfigOptions {
  /**
   * An address other than the apiserver's own, such as a proxy's; the certificate is valid for 127.0.0.1 and localhost.
   */
  readonly server?: string;
  /** Where to write it; in the cluster's directory by default. */
  readonly path?: string;
}

/** One more kube-apiserver of a cluster. */
export interface AnotherApiserver {
  readonly url: string;
  readonly process: ManagedProcess;
  /** Calls it as the administrator. */
  readonly admin: ApiserverClient;
}

const START_ATTEMPTS = 3;
const POLL_MS = 40;
/** Against what hangs. A busy machine is slow, and how long something takes is no criterion. */
const WAIT_TIMEOUT_MS = 300_000;

/**
 * A Kubernetes cluster of real processes on loopback addresses, with KWOK instead of kubelets. Its processes and files
 * end with the process that started it, however that process ends (see reaper.ts); `await using` stops it at the end of
 * a scope.
 */
export class Cluster implements AsyncDisposable {
  readonly name: string;
  /** All files of the cluster; removed by {@link stop}. */
  readonly directory: string;
  readonly identity: Identity;
  /** `https://ADDRESS:PORT` of the apiserver. */
  readonly url: string;
  readonly kubeconfig: string;
  /** Calls the apiserver as the administrator. */
  readonly admin: ApiserverClient;
  readonly etcd: EtcdClient;
  readonly processes: Processes;
  readonly #setting: Setting;
  readonly #enabled: ReadonlySet<ComponentName>;
  readonly #anotherApiserver: (name: string, port: number, flags: Flags) => ManagedProcess;
  readonly #others: AnotherApiserver[] = [];
  #stopping = false;
  #nodes = 0;
  #snapshots = 0;
  #etcdHistory = 0;

  /**
   * Starts a cluster and resolves when it serves. Rejects with the end of the log of the process that did not start,
   * and leaves nothing behind.
   */
  static async start(options: ClusterOptions = {}): Promise<Cluster> {
    const binaries = options.binaries ?? (await ensureBinaries());
    for (let attempt = 1; ; attempt++) {
      const cluster = await Cluster.#create(options, binaries, await reservePorts(options.address ?? "127.0.0.1"));
      try {
        await cluster.#start(options.nodes ?? 0);
        return cluster;
      } catch (error) {
        // Another process can take a free port before the component listens on it.
        const again = error instanceof StartError && error.portTaken && attempt < START_ATTEMPTS;
        if (!again) cluster.keepLogs();
        await cluster.stop();
        if (!again) throw error;
      }
    }
  }

  /** Writes the files of a cluster, and describes its processes without starting them. */
  static async #create(options: ClusterOptions, binaries: Binaries, ports: ComponentPorts): Promise<Cluster> {
    const { name = "cluster", address = "127.0.0.1", tokens = [], flags = {} } = options;
    const enabled = enabledComponents(options);
    const directory = mkdtempSync(join(theReaper().directory, `${name}-`));
    for (const one of ["logs", "files", "etcd"]) mkdirSync(join(directory, one));
    for (const [file, content] of Object.entries(options.files ?? {})) {
      writeFileSync(join(directory, "files", file), content);
    }
    const identity = await Identity.create(name, join(directory, "identity"));
    const setting: Setting = {
      binaries,
      identity,
      address,
      ports,
      directory,
      etcdDataDirectory: join(directory, "etcd", "data"),
      tokens,
      hasControllerManager: enabled.has("kube-controller-manager"),
    };
    const described = await describeProcesses(setting, flags, (description) => {
      if (!cluster.#stopping) process.stderr.write(`control plane: ${name}: ${description}\n`);
    });
    const clientCertificate = await identity.clientCertificate("etcd-client");
    const cluster = new Cluster(name, setting, described, enabled, clientCertificate);
    return cluster;
  }

  private constructor(
    name: string,
    setting: Setting,
    described: Awaited<ReturnType<typeof describeProcesses>>,
    enabled: ReadonlySet<ComponentName>,
    clientCertificate: KeyAndCertificate,
  ) {
    this.name = name;
    this.directory = setting.directory;
    this.identity = setting.identity;
    this.processes = described.processes;
    this.#anotherApiserver = described.anotherApiserver;
    this.#setting = setting;
    this.#enabled = enabled;
    this.url = serverUrl(setting);
    const { certificateAuthorityPem, adminToken } = this.identity;
    this.kubeconfig = this.identity.kubeconfig(name, this.url, { token: adminToken });
    this.admin = new ApiserverClient({ url: this.url, certificateAuthorityPem, token: adminToken });
    this.etcd = new EtcdClient(
      new ApiserverClient({ url: etcdUrl(setting), certificateAuthorityPem, clientCertificate }),
    );
  }

  async #start(nodes: number): Promise<void> {
    await this.processes.etcd.start();
    await this.processes["kube-apiserver"].start();
    const others = COMPONENT_NAMES.slice(2).filter((name) => this.#enabled.has(name));
    await Promise.all(others.map((name) => this.processes[name].start()));
    const namespace = "/api/v1/namespaces/default";
    const last = this.#setting.hasControllerManager ? `${namespace}/serviceaccounts/default` : namespace;
    await this.waitFor(`${last} to exist`, async () => {
      // A controller manager is healthy while an apiserver refuses it, and gives up after 10 s.
      await this.processes["kube-controller-manager"].revive();
      return (await this.admin.request("GET", last)).status === 200;
    });
    await Promise.all(Array.from({ length: nodes }, () => this.createNode()));
  }

  /**
   * Starts one more kube-apiserver over the same etcd, with certificates and keys of the first one and a watch cache of
   * its own; `flags` come beside those of the first one, or in their place. Resolves when it serves.
   */
  async addApiserver(flags: Flags = {}): Promise<AnotherApiserver> {
    const { certificateAuthorityPem, adminToken } = this.identity;
    const port = await reservePort(this.#setting.address);
    const process = this.#anotherApiserver(`kube-apiserver-${this.#others.length + 2}`, port, flags);
    const url = `https://${this.#setting.address}:${port}`;
    const other = { url, process, admin: new ApiserverClient({ url, certificateAuthorityPem, token: adminToken }) };
    this.#others.push(other);
    await process.start();
    return other;
  }

  get hasControllerManager(): boolean {
    return this.#setting.hasControllerManager;
  }

  get kubectlBinary(): string {
    return this.#setting.binaries.kubectl;
  }

  /** Runs kubectl as the administrator, or with `kubeconfig`. Resolves whatever its exit code. */
  kubectl(args: readonly string[], options: KubectlOptions = {}): Promise<KubectlResult> {
    return runKubectl(this.#setting.binaries.kubectl, args, { kubeconfig: this.kubeconfig, ...options });
  }

  /**
   * `kubectl apply` of YAML or of objects; rejects with kubectl's message. Unknown fields are not looked for: kubectl
   * needs the OpenAPI document for that, and to compute it takes the apiserver a third as long as its start.
   */
  async apply(manifest: string | readonly unknown[]): Promise<void> {
    const documents = typeof manifest === "string" ? [manifest] : manifest.map((object) => JSON.stringify(object));
    const result = await this.kubectl(["apply", "--validate=false", "--filename", "-"], {
      input: documents.join("\n---\n"),
    });
    if (result.code !== 0) throw new Error(`kubectl apply in ${this.name}: ${result.stderr}`);
  }

  async kubeconfigFor(who: KubeconfigUserEntry, options: KubeconfigOptions = {}): Promise<string> {
    const credential = await credentialOf(who, this.identity, this.admin);
    return this.identity.kubeconfig(this.name, options.server ?? this.url, credential, options.path);
  }

  async serviceAccountToken(namespace: string, name: string, expirationSeconds?: number): Promise<string> {
    return await requestToken(this.admin, namespace, name, expirationSeconds);
  }

  /** Creates one node and resolves with its name when it is ready to take pods. */
  async createNode(options: NodeSpec = {}): Promise<string> {
    const name = options.name ?? `node-${++this.#nodes}`;
    await this.admin.call("POST", "/api/v1/nodes", nodeManifest(name, options));
    if (this.#enabled.has("kwok")) {
      await this.waitFor(`node ${name} to be ready`, async () => {
        const node = await this.admin.get(`/api/v1/nodes/${name}`);
        return conditionStatus(node, "Ready") === "True" && field(node, "spec", "taints") === undefined;
      });
    }
    return name;
  }

  /**
   * Polls until `condition` resolves with true; rejects after `timeoutMs`, naming `what`. Pauses as long as the
   * condition took, and a twentieth of the time so far: polls must not keep a busy machine busy.
   */
  async waitFor(what: string, condition: () => Promise<boolean>, timeoutMs = WAIT_TIMEOUT_MS): Promise<void> {
    const startedMs = performance.now();
    let last: unknown;
    for (let nowMs = startedMs; nowMs < startedMs + timeoutMs; nowMs = performance.now()) {
      try {
        if (await condition()) return;
        last = undefined;
      } catch (error) {
        last = error;
      }
      await delay(Math.max(POLL_MS, performance.now() - nowMs, (nowMs - startedMs) / 20));
    }
    throw new Error(`${this.name}: waited ${timeoutMs / 1000} s for ${what}`, { cause: last });
  }

  /** Copies etcd's present data, for {@link restoreEtcd}. */
  snapshotEtcd(): EtcdSnapshot {
    const directory = join(this.directory, "etcd", `snapshot-${++this.#snapshots}`);
    return copyEtcdData(this.processes.etcd, this.#setting.etcdDataDirectory, directory);
  }

  /**
   * Restores etcd to an older state, so that resourceVersions go back. The apiserver is stopped for the restore and
   * started again, as etcd's documentation requires; `keepApiserver` leaves it running with its caches.
   */
  async restoreEtcd(snapshot: EtcdSnapshot, options: { readonly keepApiserver?: boolean } = {}): Promise<void> {
    await this.#replaceEtcd(snapshot, options.keepApiserver);
  }

  /** Empties etcd, as after the loss of its disks. The apiserver starts again and creates only its own objects. */
  async wipeEtcd(): Promise<void> {
    await this.#replaceEtcd();
  }

  /** How often etcd's data was replaced: revisions of two histories are not comparable. */
  get etcdHistory(): number {
    return this.#etcdHistory;
  }

  /** Kills etcd, replaces its data by `snapshot`, which can be reused, or by nothing, and starts etcd. */
  async #replaceEtcd(snapshot?: EtcdSnapshot, keepApiserver = false): Promise<void> {
    const { etcd, "kube-apiserver": apiserver } = this.processes;
    const data = this.#setting.etcdDataDirectory;
    if (!keepApiserver) await apiserver.kill();
    await etcd.kill();
    this.#etcdHistory++;
    rmSync(data, { recursive: true, force: true });
    if (snapshot !== undefined) cpSync(snapshot.directory, data, { recursive: true });
    await etcd.start();
    if (!keepApiserver) await apiserver.start();
  }

  /**
   * Makes every earlier resourceVersion too old, so that a watch or an exact list from it gets 410: compacts etcd, and
   * restarts the apiserver, whose caches would otherwise still answer for a while.
   */
  async expireVersions(): Promise<void> {
    await this.processes["kube-apiserver"].kill();
    await this.etcd.compact();
    await this.processes["kube-apiserver"].start();
  }

  /** Copies the logs to a directory that stays, names it on standard error and returns it. */
  keepLogs(): string {
    const parent = process.env.PODSEIDON_LOG_DIRECTORY ?? tmpdir();
    mkdirSync(parent, { recursive: true });
    const directory = mkdtempSync(join(parent, `podseidon-logs-${this.name}-`));
    cpSync(join(this.directory, "logs"), directory, { recursive: true });
    process.stderr.write(`control plane: the logs of ${this.name} are in ${directory}\n`);
    return directory;
  }

  /** Kills all processes and removes all files; idempotent. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.admin.close();
    this.etcd.close();
    // An apiserver without etcd does not end on SIGTERM, and no data has to be saved.
    for (const { admin } of this.#others) admin.close();
    const processes = [
      ...COMPONENT_NAMES.map((name) => this.processes[name]),
      ...this.#others.map((one) => one.process),
    ];
    await Promise.all(processes.map((process) => process.kill("SIGKILL")));
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 5 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

function enabledComponents(options: ClusterOptions): ReadonlySet<ComponentName> {
  const enabled = new Set<ComponentName>(["etcd", "kube-apiserver"]);
  if (options.controllerManager !== false) enabled.add("kube-controller-manager");
  if (options.scheduler !== false) enabled.add("kube-scheduler");
  if (options.kwok !== false) enabled.add("kwok");
  return enabled;
}

async function reservePorts(address: string): Promise<ComponentPorts> {
  const port = (): Promise<number> => reservePort(address);
  return {
    etcd: await port(),
    etcdPeer: await port(),
    apiserver: await port(),
    controllerManager: await port(),
    scheduler: await port(),
    kwok: await port(),
  };
}

export interface NodeSpec {
  readonly name?: string;
  readonly labels?: Readonly<Record<string, string>>;
}

/** A Node as a kubelet registers it, for KWOK to manage. */
function nodeManifest(name: string, options: NodeSpec): unknown {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name,
      labels: {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        ...options.labels,
      },
    },
  };
}
