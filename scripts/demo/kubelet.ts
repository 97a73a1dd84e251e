/**
 * Plays the kubelet for the project's own Deployments: each replica becomes a process of the built bundle, with the arguments,
 * environment, Secrets and ServiceAccount token that the Deployment gives it, so that a wrong flag or a missing permission in
 * `manifests/` fails the demo. Differs from a kubelet in the addresses (free ports of 127.0.0.1) and in where files are mounted.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import * as v from "valibot";
import { SERVICE_ACCOUNT_DIR_VARIABLE } from "../../shared/kube/in-cluster.ts";
import { field, items } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { ManagedProcess } from "../control-plane/managed-process.ts";
import { reservePort } from "../control-plane/ports.ts";

const ADDRESS = "127.0.0.1";
const START_TIMEOUT_MS = 60_000;
/** How much the webhook's replicas log; what the manifests say when it is not set. */
export const LOG_LEVEL_VARIABLE = "PODSEIDON_WEBHOOK_LOG_LEVEL";
/** Longer than anyone watches; nothing here renews tokens. */
const TOKEN_SECONDS = 7 * 24 * 3600;

const Source = v.looseObject({
  configMapKeyRef: v.optional(v.looseObject({ name: v.string(), key: v.string() })),
  fieldRef: v.optional(v.looseObject({ fieldPath: v.string() })),
});
const Container = v.looseObject({
  name: v.string(),
  command: v.array(v.string()),
  args: v.optional(v.array(v.string()), []),
  env: v.optional(
    v.array(v.looseObject({ name: v.string(), value: v.optional(v.string()), valueFrom: v.optional(Source) })),
    [],
  ),
  ports: v.optional(v.array(v.looseObject({ name: v.string() })), []),
  volumeMounts: v.optional(v.array(v.looseObject({ name: v.string(), mountPath: v.string() })), []),
  readinessProbe: v.looseObject({ httpGet: v.looseObject({ path: v.string() }) }),
});
const Deployment = v.looseObject({
  metadata: v.looseObject({ name: v.string(), namespace: v.string() }),
  spec: v.looseObject({
    replicas: v.number(),
    template: v.looseObject({
      spec: v.looseObject({
        serviceAccountName: v.string(),
        containers: v.tuple([Container]),
        volumes: v.optional(
          v.array(v.looseObject({ name: v.string(), secret: v.looseObject({ secretName: v.string() }) })),
          [],
        ),
      }),
    }),
  }),
});
type Deployment = v.InferOutput<typeof Deployment>;

/** One replica as a process. */
export interface PlayedPod {
  readonly deployment: string;
  readonly process: ManagedProcess;
  /** `http://ADDRESS:PORT/metrics` */
  readonly metricsUrl: string;
  /** Of a container port that is named `webhook`. */
  readonly webhookPort: number | undefined;
}

/** Starts every replica of every Deployment of the namespace from `bundles`, and resolves when all of them are ready. */
export async function playDeployments(cluster: Cluster, namespace: string, bundles: string): Promise<PlayedPod[]> {
  const list = await cluster.admin.get(`/apis/apps/v1/namespaces/${namespace}/deployments`);
  const deployments = items(list).map((item) => v.parse(Deployment, item));
  const pods = await Promise.all(
    deployments.flatMap((deployment) =>
      Array.from({ length: deployment.spec.replicas }, (_, index) => describePod(cluster, deployment, index, bundles)),
    ),
  );
  await Promise.all(pods.map(({ process }) => process.start()));
  return pods;
}

async function describePod(
  cluster: Cluster,
  deployment: Deployment,
  index: number,
  bundles: string,
): Promise<PlayedPod> {
  const { name, namespace } = deployment.metadata;
  const { containers, serviceAccountName } = deployment.spec.template.spec;
  const [container] = containers;
  const pod = `${name}-${index}`;
  const directory = join(cluster.directory, "pods", pod);
  mkdirSync(directory, { recursive: true });
  const account = await mountAccount(cluster, namespace, serviceAccountName, directory);
  const mounts = await mountVolumes(cluster, deployment, directory);
  const declared = await declaredEnvironment(cluster, deployment, pod);
  const [healthPort, metricsPort] = await Promise.all([reservePort(ADDRESS), reservePort(ADDRESS)]);
  const webhookPort = container.ports.some((port) => port.name === "webhook") ? await reservePort(ADDRESS) : undefined;
  const api = new URL(cluster.url);
  const logLevel = globalThis.process.env[LOG_LEVEL_VARIABLE];
  const environment = {
    KUBERNETES_SERVICE_HOST: api.hostname,
    KUBERNETES_SERVICE_PORT: api.port,
    [SERVICE_ACCOUNT_DIR_VARIABLE]: account,
    PODSEIDON_HEALTH_PROBE_BIND_ADDRESS: `${ADDRESS}:${healthPort}`,
    PODSEIDON_METRICS_BIND_ADDRESS: `${ADDRESS}:${metricsPort}`,
    ...(webhookPort === undefined
      ? {}
      : { PODSEIDON_BIND_ADDRESS: ADDRESS, PODSEIDON_SECURE_PORT: String(webhookPort) }),
    // What a replica says of each review, where somebody wants to read it.
    ...(webhookPort === undefined || logLevel === undefined ? {} : { PODSEIDON_LOG_LEVEL: logLevel }),
    ...declared,
  };
  const process = new ManagedProcess({
    name: `${cluster.name}/${pod}`,
    logFile: join(cluster.directory, "logs", `${pod}.log`),
    workingDirectory: directory,
    launch: () => ({
      binary: globalThis.process.execPath,
      args: argumentsOf(container, declared, mounts, bundles),
      environment,
    }),
    isReady: async (signal) => {
      const url = `http://${ADDRESS}:${healthPort}${container.readinessProbe.httpGet.path}`;
      return (await fetch(url, { signal })).status === 200;
    },
    startTimeoutMs: START_TIMEOUT_MS,
    onUnexpectedEnd: (description) => globalThis.process.stderr.write(`demo: ${description}\n`),
  });
  return { deployment: name, process, metricsUrl: `http://${ADDRESS}:${metricsPort}/metrics`, webhookPort };
}

/** The command without `node`, with the image's bundle replaced by the built one, variables expanded and mounts found. */
function argumentsOf(
  { command, args }: v.InferOutput<typeof Container>,
  environment: Readonly<Record<string, string>>,
  mounts: ReadonlyMap<string, string>,
  bundles: string,
): string[] {
  const bundle = (word: string): string => (dirname(word) === "/podseidon" ? join(bundles, basename(word)) : word);
  const expand = (word: string): string =>
    word.replace(/\$\(([A-Z_]+)\)/g, (all, name: string) => environment[name] ?? all);
  const mounted = (word: string): string => {
    for (const [path, directory] of mounts) if (word.includes(`${path}/`)) return word.replace(path, directory);
    return word;
  };
  return [...command.slice(1).map(bundle), ...args.map(expand).map(mounted)];
}

async function mountAccount(cluster: Cluster, namespace: string, name: string, directory: string): Promise<string> {
  const path = join(directory, "serviceaccount");
  mkdirSync(path, { recursive: true });
  const token = await cluster.serviceAccountToken(namespace, name, TOKEN_SECONDS);
  for (const [file, text] of [
    ["token", token],
    ["ca.crt", cluster.identity.certificateAuthorityPem],
    ["namespace", namespace],
  ] as const) {
    writeFileSync(join(path, file), text, { mode: 0o600 });
  }
  return path;
}

/** The directory of each mount path, filled from the cluster's Secrets. */
async function mountVolumes(cluster: Cluster, deployment: Deployment, directory: string): Promise<Map<string, string>> {
  const { containers, volumes } = deployment.spec.template.spec;
  const mounts = new Map<string, string>();
  for (const { name, mountPath } of containers[0].volumeMounts) {
    const secret = volumes.find((volume) => volume.name === name)?.secret.secretName;
    if (secret === undefined) throw new Error(`${deployment.metadata.name} mounts ${name}, which is no Secret`);
    const found = await cluster.admin.get(`/api/v1/namespaces/${deployment.metadata.namespace}/secrets/${secret}`);
    const data = v.parse(v.record(v.string(), v.string()), field(found, "data"));
    const path = join(directory, "volumes", name);
    mkdirSync(path, { recursive: true });
    for (const [key, value] of Object.entries(data)) {
      writeFileSync(join(path, key), Buffer.from(value, "base64"), { mode: 0o600 });
    }
    mounts.set(mountPath, path);
  }
  return mounts;
}

async function declaredEnvironment(
  cluster: Cluster,
  deployment: Deployment,
  pod: string,
): Promise<Record<string, string>> {
  const { namespace } = deployment.metadata;
  const fields: Readonly<Record<string, string>> = { "metadata.namespace": namespace, "metadata.name": pod };
  const environment: Record<string, string> = {};
  for (const { name, value, valueFrom } of deployment.spec.template.spec.containers[0].env) {
    const reference = valueFrom?.configMapKeyRef;
    const path = `/api/v1/namespaces/${namespace}/configmaps/${reference?.name}`;
    const found =
      value ??
      fields[valueFrom?.fieldRef?.fieldPath ?? ""] ??
      (reference === undefined ? undefined : field(await cluster.admin.get(path), "data", reference.key));
    if (typeof found !== "string") throw new Error(`${deployment.metadata.name}: ${name} has no value`);
    environment[name] = found;
  }
  return environment;
}
