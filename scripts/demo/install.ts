/** Installs the project in the three clusters by `manifests/`, as an operator would, and starts its processes. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import * as v from "valibot";
import { field } from "../control-plane/api-client.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { Balancer } from "../product/balancer.ts";
import { root } from "../root.ts";
import { type PlayedPod, playDeployments } from "./kubelet.ts";

export const SYSTEM = "podseidon-system";
const SERVICE = `podseidon-webhook.${SYSTEM}.svc`;
const REGISTRATIONS = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];
const TOKEN_SECONDS = 7 * 24 * 3600;

export interface Installation {
  readonly pods: readonly PlayedPod[];
  readonly balancer: Balancer;
}

/** Resolves when every process is ready and both workers ask the webhook about every deletion. */
export async function install(core: Cluster, workers: readonly Cluster[], bundles: string): Promise<Installation> {
  const rendered = await Promise.all(workers.map((worker) => render(worker, `demo/${worker.name}`)));
  const objects = rendered.map((list) => list.filter((object) => !isRegistration(object)));
  await Promise.all([
    render(core, "demo/core").then((list) => core.apply(list)),
    ...workers.map((worker, index) => worker.apply(objects[index] ?? [])),
  ]);
  await makeSecrets(core, workers);
  const pods = (
    await Promise.all([core, ...workers].map((cluster) => playDeployments(cluster, SYSTEM, bundles)))
  ).flat();
  const balancer = await Balancer.listen(
    pods.flatMap(({ webhookPort }) => (webhookPort === undefined ? [] : [{ host: "127.0.0.1", port: webhookPort }])),
  );
  await Promise.all(
    workers.map((worker, index) =>
      worker.apply((rendered[index] ?? []).filter(isRegistration).map((one) => reachable(one, core, balancer.port))),
    ),
  );
  return { pods, balancer };
}

/** What `kubectl apply -k` would apply. */
async function render(cluster: Cluster, overlay: string): Promise<unknown[]> {
  const { code, stdout, stderr } = await cluster.kubectl(["kustomize", join(root, "manifests/overlays", overlay)]);
  if (code !== 0) throw new Error(`kubectl kustomize ${overlay}: ${stderr}`);
  return loadAll(stdout);
}

function isRegistration(object: unknown): boolean {
  return REGISTRATIONS.includes(String(field(object, "kind")));
}

const Registration = v.looseObject({
  webhooks: v.array(v.looseObject({ clientConfig: v.looseObject({ service: v.looseObject({}) }) })),
});

/** Adds what the manifests leave open: the CA of the webhook's certificate, and the port of the balancer that plays the Service. */
function reachable(registration: unknown, core: Cluster, port: number): unknown {
  const caBundle = Buffer.from(core.identity.certificateAuthorityPem).toString("base64");
  const { webhooks, ...rest } = v.parse(Registration, registration);
  const complete = webhooks.map(({ clientConfig, ...webhook }) => ({
    ...webhook,
    clientConfig: { ...clientConfig, caBundle, service: { ...clientConfig.service, port } },
  }));
  return { ...rest, webhooks: complete };
}

/** The webhook's certificate, and kubeconfigs for the ServiceAccounts of one cluster that are used from another. */
async function makeSecrets(core: Cluster, workers: readonly Cluster[]): Promise<void> {
  const { certificatePem, privateKeyPem } = core.identity.servingCertificate([SERVICE], []);
  const cells = await Promise.all(
    workers.map(async (worker) => [worker.name, await kubeconfig(worker, "podseidon-webhook")] as const),
  );
  await core.apply([
    secret("podseidon-webhook-tls", { "tls.crt": certificatePem, "tls.key": privateKeyPem }),
    secret("podseidon-cells", Object.fromEntries(cells)),
  ]);
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
