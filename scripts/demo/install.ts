/** Installs the project in the three clusters from `manifests/`, like an operator, and starts its processes. */
import { mkdirSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { loadAll } from "js-yaml";
import { field, items } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { Balancer } from "../environment/balancer.ts";
import { BUNDLES } from "../environment/component.ts";
import { root } from "../root.ts";
import { DemoKubelet, type KubeletOptions, type PlayedPod } from "./kubelet.ts";

export const SYSTEM = "podseidon-system";
const TOKEN_SECONDS = 7 * 24 * 3600;

export interface Installation {
  readonly pods: readonly PlayedPod[];
  stop(): Promise<void>;
}

/** Resolves when every process is ready and both workers ask the webhook about every deletion. */
export async function install(
  core: Cluster,
  workers: readonly Cluster[],
  bundles: string,
  onTrouble: (description: string) => void,
): Promise<Installation> {
  const balancer = await Balancer.listen([]);
  await Promise.all([
    applyOverlay(core, "demo/core"),
    ...workers.map((worker) => applyOverlay(worker, `demo/${worker.name}`, { servicePort: balancer.port })),
  ]);
  await makeSecrets(core, workers);
  const kubelets = [core, ...workers].map(
    (cluster) => new DemoKubelet({ cluster, namespace: SYSTEM, bundles, onTrouble }),
  );
  await Promise.all(kubelets.map((one) => one.start()));
  const pods = kubelets.flatMap((one) => one.pods);
  balancer.endpoints = webhookEndpoints(pods);
  await Promise.all(workers.map(untilTrusted));
  return {
    pods,
    stop: async () => {
      await Promise.all(kubelets.map((one) => one.stop()));
      await balancer.close();
    },
  };
}

export function kubelet(cluster: Cluster, options: Partial<KubeletOptions> = {}): DemoKubelet {
  const onTrouble = (description: string): void => void process.stderr.write(`demo: ${description}\n`);
  return new DemoKubelet({ cluster, namespace: SYSTEM, bundles: BUNDLES, onTrouble, ...options });
}

/** Starts the webhook's pods, and others. Resolves when the apiserver trusts the webhook, behind the balancer. */
export async function startPods(
  cluster: Cluster,
  balancer: Balancer,
  only?: readonly string[],
  options?: Partial<KubeletOptions>,
): Promise<DemoKubelet> {
  const pods = kubelet(cluster, options);
  await pods.start(only);
  balancer.endpoints = webhookEndpoints(pods.pods);
  await untilTrusted(cluster);
  return pods;
}

export function webhookEndpoints(pods: readonly PlayedPod[]): { host: string; port: number }[] {
  return pods.flatMap(({ address, webhookPort }) =>
    webhookPort === undefined ? [] : [{ host: address, port: webhookPort }],
  );
}

export interface OverlayPatch {
  readonly target: { readonly kind: string; readonly name?: string };
  readonly patch: string;
}

const WEBHOOK_CONFIGURATIONS = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];

export interface OverlayOptions {
  /**
   * The port of the balancer, which replaces the webhook's Service or address: only this machine knows it. A Service is
   * only a name here (ExternalName), because there is no routing to the addresses of Services.
   */
  readonly servicePort?: number;
  readonly components?: readonly string[];
  /** Of Deployments, by name. */
  readonly replicas?: Readonly<Record<string, number>>;
  readonly patches?: readonly OverlayPatch[];
}

/** `kubectl apply -k` of an overlay, with additions. */
export async function applyOverlay(cluster: Cluster, overlay: string, options: OverlayOptions = {}): Promise<void> {
  const directory = join(cluster.directory, "overlay");
  mkdirSync(directory, { recursive: true });
  const write = (patches: readonly OverlayPatch[]): void => {
    const manifests = relative(directory, join(root, "manifests"));
    const kustomization = {
      apiVersion: "kustomize.config.k8s.io/v1beta1",
      kind: "Kustomization",
      resources: [join(manifests, "overlays", overlay)],
      components: (options.components ?? []).map((component) => join(manifests, "components", component)),
      patches,
    };
    writeFileSync(join(directory, "kustomization.yaml"), JSON.stringify(kustomization));
  };
  const { replicas = {}, servicePort } = options;
  const numbers = Object.entries(replicas).map(([name, count]) =>
    addition({ kind: "Deployment", name }, "/spec/replicas", count),
  );
  const patches = [...numbers, ...(options.patches ?? [])];
  write(patches);
  if (servicePort !== undefined) {
    const rendered = loadAll((await kubectl(cluster, "kustomize", directory)).stdout);
    write([...patches, ...rendered.flatMap((object) => portPatch(object, servicePort))]);
  }
  await kubectl(cluster, "apply", "-k", directory);
}

/** Sets a field of an object, or appends to a list (`.../-`). */
export function addition(target: OverlayPatch["target"], path: string, value: unknown): OverlayPatch {
  return { target, patch: JSON.stringify([{ op: "add", path, value }]) };
}

function portPatch(object: unknown, port: number): OverlayPatch[] {
  const [kind, name] = [String(field(object, "kind")), String(field(object, "metadata", "name"))];
  if (kind === "Service" && name === "podseidon-webhook")
    return [addition({ kind, name }, "/spec", { type: "ExternalName", externalName: "localhost" })];
  if (!WEBHOOK_CONFIGURATIONS.includes(kind)) return [];
  const webhooks = items(object, "webhooks");
  const patch = JSON.stringify(
    webhooks.map((webhook, index) => {
      const path = `/webhooks/${index}/clientConfig`;
      const url = field(webhook, "clientConfig", "url");
      return typeof url === "string"
        ? { op: "replace", path: `${path}/url`, value: url.replace(/:\d+\//, `:${port}/`) }
        : { op: "add", path: `${path}/service/port`, value: port };
    }),
  );
  return [{ target: { kind, name }, patch }];
}

async function kubectl(cluster: Cluster, ...args: string[]): Promise<{ readonly stdout: string }> {
  const { code, stdout, stderr } = await cluster.kubectl(args);
  if (code !== 0) throw new Error(`kubectl ${args.join(" ")}: ${stderr}`);
  return { stdout };
}

/** Waits until the aggregator has written the CA of the webhook's certificate to both webhook configurations. */
export async function untilTrusted(worker: Cluster): Promise<void> {
  for (const kind of ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]) {
    await worker.waitFor(`caBundle of ${kind}`, async () => {
      const found = await worker.admin.get(`/apis/admissionregistration.k8s.io/v1/${kind}/podseidon`);
      const webhooks = items(found, "webhooks");
      return webhooks.length > 0 && webhooks.every((one) => Boolean(field(one, "clientConfig", "caBundle")));
    });
  }
}

/**
 * Kubeconfigs for the ServiceAccounts of one cluster that are used from another, which the operator of several clusters
 * has to provide.
 */
async function makeSecrets(core: Cluster, workers: readonly Cluster[]): Promise<void> {
  const cells = await Promise.all(
    workers.map(async (worker) => [worker.name, await kubeconfig(worker, "podseidon-webhook")] as const),
  );
  await core.apply([secret("podseidon-cells", Object.fromEntries(cells))]);
  await Promise.all(
    workers.map(async (worker) =>
      worker.apply([secret("podseidon-core", { kubeconfig: await kubeconfig(core, "podseidon-aggregator") })]),
    ),
  );
}

async function kubeconfig(cluster: Cluster, name: string): Promise<string> {
  const serviceAccount = { namespace: SYSTEM, name };
  return await readFile(await cluster.kubeconfigFor({ serviceAccount, expirationSeconds: TOKEN_SECONDS }), "utf8");
}

function secret(name: string, stringData: Readonly<Record<string, string>>): unknown {
  return { apiVersion: "v1", kind: "Secret", metadata: { name, namespace: SYSTEM }, stringData };
}
