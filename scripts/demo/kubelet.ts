/**
 * A kubelet for the project's own Deployments: each replica becomes a process of the built bundle with the arguments,
 * environment, Secrets, probes and ServiceAccount token of its Deployment, so that a wrong flag or a missing permission
 * in `manifests/` fails the demo. Each pod has its own address in 127.0.0.0/8 and the ports of the manifest.
 *
 * Differences from a real kubelet: processes bind to the pod's address, because they share the machine's network; files
 * are below PODSEIDON_MOUNT_ROOT (`shared/runtime/mount-root.ts`) instead of in a mount namespace; security contexts
 * and resources are not applied.
 */
import { basename, dirname, join } from "node:path";
import * as v from "valibot";
import { MOUNT_ROOT_VARIABLE } from "../../shared/runtime/mount-root.ts";
import { field, items } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { type Launch, ManagedProcess } from "../control-plane/managed-process.ts";
import { isFree } from "../control-plane/ports.ts";
import { type Container, Deployment, type Probe } from "./deployment.ts";
import { PodFiles } from "./pod-files.ts";

const START_TIMEOUT_MS = 60_000;
/** A real kubelet takes up to two minutes to update a mounted Secret. */
const SYNC_EVERY_MS = 1_000;
const PROBE_TIMEOUT_MS = 1_000;
const ADDRESS_TRIES = 100;
/** A process that dies is started again at once. After each further death, the delay doubles. */
const FIRST_BACKOFF_MS = 10_000;
const MAX_BACKOFF_MS = 300_000;
/** The log level of the webhook's replicas; the manifests' by default. */
export const LOG_LEVEL_VARIABLE = "PODSEIDON_WEBHOOK_LOG_LEVEL";

export interface PlayedPod {
  readonly name: string;
  readonly deployment: string;
  readonly process: ManagedProcess;
  readonly address: string;
  /** `http://ADDRESS:PORT/metrics` */
  readonly metricsUrl: string;
  readonly webhookPort: number | undefined;
}

export interface KubeletOptions {
  readonly cluster: Cluster;
  readonly namespace: string;
  /** Directory of the built bundles, which replace the image. */
  readonly bundles: string;
  /** Called with problems that a kubelet would report in an Event. */
  readonly onTrouble: (description: string) => void;
  readonly startTimeoutMs?: number;
  /** Starts a container of the image instead of a process of the bundles. */
  readonly startContainer?: (container: PlayedContainer) => Launch;
}

/** A container for a container runtime. */
export interface PlayedContainer {
  readonly name: string;
  readonly words: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** The directory of the container's files, which must have the same path in the container. */
  readonly files: string;
}

interface Running {
  readonly pod: PlayedPod;
  readonly files: PodFiles;
  readonly liveness: Probe;
  readonly livenessUrl: string;
  /** Liveness probes that failed in a row. */
  failures: number;
  probedMs: number;
  /** How often the process died by itself, and when it is started again. */
  crashes: number;
  restartMs: number | undefined;
}

export class DemoKubelet implements AsyncDisposable {
  readonly #options: KubeletOptions;
  readonly #running: Running[] = [];
  #syncing: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(options: KubeletOptions) {
    this.#options = options;
  }

  get pods(): readonly PlayedPod[] {
    return this.#running.map(({ pod }) => pod);
  }

  /** Starts every replica of all Deployments of the namespace, or of some, and resolves when all are ready. */
  async start(only?: readonly string[]): Promise<void> {
    const { cluster, namespace } = this.#options;
    const list = await cluster.admin.get(`/apis/apps/v1/namespaces/${namespace}/deployments`);
    const deployments = items(list).map((item) => v.parse(Deployment, item));
    const chosen = deployments.filter(({ metadata }) => only?.includes(metadata.name) ?? true);
    const starting = chosen.flatMap((deployment) =>
      Array.from({ length: deployment.spec.replicas }, (_, index) => this.#startPod(deployment, index)),
    );
    this.#timer = setInterval(() => {
      this.#syncing = this.#syncing.then(() => this.#sync());
    }, SYNC_EVERY_MS);
    await Promise.all(starting);
    // A Deployment controller writes the status itself.
    if (cluster.hasControllerManager) return;
    for (const { metadata, spec } of chosen) {
      const path = `/apis/apps/v1/namespaces/${namespace}/deployments/${metadata.name}/status`;
      const { replicas } = spec;
      const status = { replicas, readyReplicas: replicas, updatedReplicas: replicas };
      await cluster.admin.call("PATCH", path, { status });
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    await this.#syncing;
    await Promise.all(this.#running.map(({ pod }) => pod.process.kill("SIGKILL")));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #startPod(deployment: Deployment, index: number): Promise<void> {
    const { cluster } = this.#options;
    const [container] = deployment.spec.template.spec.containers;
    const name = `${deployment.metadata.name}-${index}`;
    const files = new PodFiles(cluster, deployment, join(cluster.directory, "pods", name, "root"));
    await files.mount();
    const address = await freeAddress(container.ports.map(({ containerPort }) => containerPort));
    const environment = await this.#environment(deployment, name, address, files.root);
    const process = new ManagedProcess({
      name: `${cluster.name}/${name}`,
      logFile: join(cluster.directory, "logs", `${name}.log`),
      workingDirectory: dirname(files.root),
      launch: () => this.#launch({ name, words: wordsOf(container, environment), environment, files: files.root }),
      // Like a kubelet: readiness probes begin when the startup probe has succeeded.
      isReady: async (signal) =>
        (await isFine(urlOf(container.startupProbe, container, address), signal)) &&
        (await isFine(urlOf(container.readinessProbe, container, address), signal)),
      startTimeoutMs: this.#options.startTimeoutMs ?? START_TIMEOUT_MS,
      onUnexpectedEnd: (description) => {
        this.#options.onTrouble(description);
        const backoffMs = running.crashes === 0 ? 0 : FIRST_BACKOFF_MS * 2 ** (running.crashes - 1);
        running.restartMs = performance.now() + Math.min(backoffMs, MAX_BACKOFF_MS);
        running.crashes++;
      },
    });
    const pod: PlayedPod = {
      name,
      deployment: deployment.metadata.name,
      process,
      address,
      metricsUrl: `http://${address}:${portOf("metrics", container)}/metrics`,
      webhookPort: container.ports.find((port) => port.name === "webhook")?.containerPort,
    };
    const liveness = container.livenessProbe;
    const livenessUrl = urlOf(liveness, container, address);
    const running: Running = {
      ...{ pod, files, liveness, livenessUrl },
      ...{ failures: 0, probedMs: performance.now(), crashes: 0, restartMs: undefined },
    };
    this.#running.push(running);
    await process.start();
  }

  /** Without a container runtime, the image's `node` is this process's, and its bundles are the built ones. */
  #launch(container: PlayedContainer): Launch {
    const { bundles, startContainer } = this.#options;
    if (startContainer !== undefined) return startContainer(container);
    const bundle = (word: string): string => (dirname(word) === "/podseidon" ? join(bundles, basename(word)) : word);
    const { words, environment } = container;
    return { binary: globalThis.process.execPath, args: words.slice(1).map(bundle), environment };
  }

  /** The variables of the manifest, and those that this kubelet adds. */
  async #environment(
    deployment: Deployment,
    pod: string,
    address: string,
    root: string,
  ): Promise<Record<string, string>> {
    const { cluster } = this.#options;
    const [container] = deployment.spec.template.spec.containers;
    const api = new URL(cluster.url);
    const bind = (port: string): string => `${address}:${portOf(port, container)}`;
    return {
      KUBERNETES_SERVICE_HOST: api.hostname,
      KUBERNETES_SERVICE_PORT: api.port,
      [MOUNT_ROOT_VARIABLE]: root,
      PODSEIDON_HEALTH_PROBE_BIND_ADDRESS: bind("health"),
      PODSEIDON_METRICS_BIND_ADDRESS: bind("metrics"),
      ...(container.ports.some(({ name }) => name === "webhook") ? webhookEnvironment(address) : {}),
      ...(await declaredEnvironment(cluster, deployment, pod, address)),
    };
  }

  /** Updates files from their Secrets, and restarts a process that died or fails its liveness probe. */
  async #sync(): Promise<void> {
    for (const one of this.#running) {
      if (this.#stopped) return;
      try {
        await one.files.sync();
      } catch {
        // The apiserver does not answer, as in some scenes, so the files stay.
      }
      await this.#watchLife(one);
    }
  }

  async #watchLife(one: Running): Promise<void> {
    const { liveness, pod } = one;
    const nowMs = performance.now();
    if (one.restartMs !== undefined && nowMs >= one.restartMs && !this.#stopped) {
      one.restartMs = undefined;
      await pod.process.launch();
    }
    if (nowMs - one.probedMs < liveness.periodSeconds * 1000 || !pod.process.running) return;
    one.probedMs = nowMs;
    const fine = await isFine(one.livenessUrl, AbortSignal.timeout(PROBE_TIMEOUT_MS)).catch(() => false);
    one.failures = fine ? 0 : one.failures + 1;
    if (one.failures < liveness.failureThreshold || this.#stopped) return;
    one.failures = 0;
    this.#options.onTrouble(
      `${pod.name} failed its liveness probe ${liveness.failureThreshold} times; it is restarted`,
    );
    await pod.process.restart();
  }
}

function webhookEnvironment(address: string): Record<string, string> {
  const logLevel = process.env[LOG_LEVEL_VARIABLE];
  return {
    PODSEIDON_BIND_ADDRESS: address,
    // The log level for reports.
    ...(logLevel === undefined ? {} : { PODSEIDON_LOG_LEVEL: logLevel }),
  };
}

async function isFine(url: string, signal: AbortSignal): Promise<boolean> {
  return (await fetch(url, { signal })).status === 200;
}

function urlOf({ httpGet }: Probe, container: Container, address: string): string {
  return `http://${address}:${portOf(httpGet.port, container)}${httpGet.path}`;
}

function portOf(port: string | number, { name, ports }: Container): number {
  const found = typeof port === "number" ? port : ports.find((candidate) => candidate.name === port)?.containerPort;
  if (found === undefined) throw new Error(`container ${name} has no port ${port}`);
  return found;
}

/** An address of 127.0.0.0/8 where all of these ports are free. */
async function freeAddress(ports: readonly number[]): Promise<string> {
  const octet = (): number => 1 + Math.floor(Math.random() * 254);
  for (let tries = 0; tries < ADDRESS_TRIES; tries++) {
    const address = `127.${octet()}.${octet()}.${octet()}`;
    const free = await Promise.all(ports.map((port) => isFree(address, port)));
    if (free.every(Boolean)) return address;
  }
  throw new Error(`no address of 127.0.0.0/8 has the ports ${ports.join(", ")} free`);
}

function wordsOf({ command, args }: Container, environment: Readonly<Record<string, string>>): string[] {
  const expand = (word: string): string =>
    word.replace(/\$\(([A-Z_]+)\)/g, (all, name: string) => environment[name] ?? all);
  return [...command, ...args.map(expand)];
}

async function declaredEnvironment(
  cluster: Cluster,
  deployment: Deployment,
  pod: string,
  address: string,
): Promise<Record<string, string>> {
  const { namespace } = deployment.metadata;
  const { containers, serviceAccountName } = deployment.spec.template.spec;
  const fields: Readonly<Record<string, string>> = {
    "metadata.namespace": namespace,
    "metadata.name": pod,
    "spec.serviceAccountName": serviceAccountName,
    "status.podIP": address,
  };
  const environment: Record<string, string> = {};
  for (const { name, value, valueFrom } of containers[0].env) {
    const found =
      value ?? fields[valueFrom?.fieldRef?.fieldPath ?? ""] ?? (await referred(cluster, namespace, valueFrom));
    if (typeof found !== "string") throw new Error(`${deployment.metadata.name}: ${name} has no value`);
    environment[name] = found;
  }
  return environment;
}

type EnvironmentSource = Container["env"][number]["valueFrom"];

async function referred(cluster: Cluster, namespace: string, source: EnvironmentSource): Promise<string | undefined> {
  const { configMapKeyRef, secretKeyRef } = source ?? {};
  const reference = configMapKeyRef ?? secretKeyRef;
  if (reference === undefined) return undefined;
  const resource = configMapKeyRef === undefined ? "secrets" : "configmaps";
  const object = await cluster.admin.get(`/api/v1/namespaces/${namespace}/${resource}/${reference.name}`);
  const value = field(object, "data", reference.key);
  if (typeof value !== "string") return undefined;
  return configMapKeyRef === undefined ? Buffer.from(value, "base64").toString() : value;
}
