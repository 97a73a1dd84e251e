/**
 * The project installed by its manifests in one cluster, with its own certificates. The authority is replaced three
 * times while pods are deleted through the apiserver all the time, and no call fails. Only apiservers may call the
 * webhook (`components/client-certificates`).
 */

import { X509Certificate } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ConnectionOptions, connect } from "node:tls";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { addition, applyOverlay, SYSTEM, startPods } from "../../../scripts/demo/install.ts";
import type { DemoKubelet, PlayedPod } from "../../../scripts/demo/kubelet.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { splitCertificates } from "../../../shared/certificates/ca-bundle.ts";
import { createCertificateAuthority, issueCertificate } from "../../../shared/certificates/x509.ts";
import { COUNTED_CONDITION, COUNTED_GATE } from "../../../shared/schema/annotations.ts";
import { DeletionLoad } from "../../support/cluster/deletion-load.ts";
import { temporaryDirectory } from "../../support/runtime/temporary-directory.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const ROTATIONS = FULL ? 10 : 3;
const WORKERS = 8;
const NAME = "podseidon-webhook.podseidon-system.svc";
const SECRETS = `/api/v1/namespaces/${SYSTEM}/secrets`;
const CONFIG_MAPS = `/api/v1/namespaces/${SYSTEM}/configmaps`;
const PODS = "/api/v1/namespaces/default/pods";
const REGISTRATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podseidon";
const GATE_REGISTRATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/podseidon-gate";

const HOUR_MS = 3_600_000;
const validity = { notBeforeMs: Date.now() - HOUR_MS, notAfterMs: Date.now() + 24 * HOUR_MS };
const clients = await createCertificateAuthority({ commonName: "apiservers", ...validity });
const apiserver = await issueCertificate(clients, { commonName: "apiserver", usages: ["client"], ...validity });

const folder = temporaryDirectory();
let cluster: Cluster;
let balancer: Balancer;
let pods: DemoKubelet;

beforeAll(async () => {
  cluster = await Cluster.start({
    ...BARE,
    files: { "admission.json": JSON.stringify(admissionConfiguration()) },
    flags: { "kube-apiserver": { "admission-control-config-file": "$FILES/admission.json" } },
  });
  balancer = await Balancer.listen([]);
  const deployment = (name: string) => ({ kind: "Deployment", name });
  const args = "/spec/template/spec/containers/0/args";
  await applyOverlay(cluster, "single-cluster", {
    servicePort: balancer.port,
    components: ["client-certificates", "counted-gate"],
    replicas: { "podseidon-webhook": 2, "podseidon-aggregator": 1 },
    patches: [
      addition(deployment("podseidon-aggregator"), `${args}/-`, "--ca-interval=200ms"),
      addition(deployment("podseidon-certificates"), args, ["--interval=200ms", "--overlap=5s"]),
    ],
  });
  await cluster.apply([
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: "podseidon-webhook-clients", namespace: SYSTEM },
      stringData: { "ca.crt": clients.certificatePem },
    },
  ]);
  pods = await startPods(cluster, balancer, ["podseidon-certificates", "podseidon-webhook", "podseidon-aggregator"]);
});

afterAll(async () => {
  await pods?.stop();
  await balancer?.close();
  await cluster?.stop();
});

/** Makes the apiserver present a certificate to every webhook. */
function admissionConfiguration(): unknown {
  const base64 = (text: string): string => Buffer.from(text).toString("base64");
  const user = {
    "client-certificate-data": base64(apiserver.certificatePem),
    "client-key-data": base64(apiserver.privateKeyPem),
  };
  const kubeConfigFile = join(folder, "webhooks.kubeconfig");
  writeFileSync(kubeConfigFile, JSON.stringify({ apiVersion: "v1", kind: "Config", users: [{ name: "*", user }] }));
  const apiVersion = "apiserver.config.k8s.io/v1";
  const configuration = { apiVersion, kind: "WebhookAdmissionConfiguration", kubeConfigFile };
  const plugins = ["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook"];
  return { apiVersion, kind: "AdmissionConfiguration", plugins: plugins.map((name) => ({ name, configuration })) };
}

/** The restrictions that the project's namespace imposes on each pod. */
function restricted({
  containers,
  ...spec
}: {
  readonly containers: readonly object[];
  readonly nodeName: string;
}): unknown {
  const security = { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } };
  return {
    ...spec,
    securityContext: { runAsNonRoot: true, runAsUser: 65_532, seccompProfile: { type: "RuntimeDefault" } },
    containers: containers.map((container) => ({ ...container, securityContext: security })),
  };
}

const webhooks = (): PlayedPod[] => pods.pods.filter(({ webhookPort }) => webhookPort !== undefined);

/** The certificate that a server presents; rejects when the verification fails. */
function handshake(options: ConnectionOptions): Promise<X509Certificate> {
  return new Promise((resolve, reject) => {
    const shown = { cert: apiserver.certificatePem, key: apiserver.privateKeyPem };
    const socket = connect({ servername: NAME, ...shown, ...options }, () => {
      const certificate = socket.getPeerX509Certificate();
      socket.destroy();
      if (certificate === undefined) reject(new Error("no certificate was shown"));
      else resolve(certificate);
    });
    socket.on("error", reject);
  });
}

async function published(): Promise<string> {
  return String(field(await cluster.admin.get(`${CONFIG_MAPS}/podseidon-webhook-ca`), "data", "ca.crt"));
}

/** The certificates that the replicas serve now. */
async function served(): Promise<X509Certificate[]> {
  return await Promise.all(
    webhooks().map(({ address, webhookPort }) =>
      handshake({ host: address, port: webhookPort ?? 0, rejectUnauthorized: false }),
    ),
  );
}

async function askForRotation(): Promise<void> {
  const annotations = { "podseidon.kubewharf.io/rotate-ca-once": "true" };
  await cluster.admin.call("PATCH", `${SECRETS}/podseidon-webhook-ca`, { metadata: { annotations } });
}

/** Waits until every replica serves a certificate of a new authority. */
async function untilServedBy(before: ReadonlySet<string>): Promise<string> {
  let issuer = "";
  await cluster.waitFor("the replicas to serve a certificate of the new authority", async () => {
    const authorities = splitCertificates(await published());
    const newest = authorities.at(-1) ?? "";
    if (before.has(newest)) return false;
    issuer = newest;
    return (await served()).every((certificate) => certificate.verify(new X509Certificate(newest).publicKey));
  });
  return issuer;
}

interface Connections {
  readonly count: number;
  readonly oddities: readonly string[];
  stop(): Promise<void>;
}

/** Opens connections all the time, with the authorities that the webhook configuration trusts at that moment. */
function connections(): Connections {
  const oddities: string[] = [];
  let count = 0;
  let running = true;
  const connectAllTheTime = async (): Promise<void> => {
    while (running) {
      const bundle = field(await cluster.admin.get(REGISTRATION), "webhooks", "0", "clientConfig", "caBundle");
      const ca = Buffer.from(String(bundle), "base64").toString();
      count++;
      await handshake({ host: "127.0.0.1", port: balancer.port, ca }).catch((error: unknown) => {
        oddities.push(`handshake: ${String(error)}`);
      });
    }
  };
  const work = connectAllTheTime();
  return {
    get count() {
      return count;
    },
    oddities,
    stop: async () => {
      running = false;
      await work;
    },
  };
}

test("a client without an apiserver's certificate gets no response", async () => {
  const [replica] = webhooks();
  const ask = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const options = { host: replica?.address ?? "", port: replica?.webhookPort ?? 0, rejectUnauthorized: false };
      const socket = connect(options, () => socket.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n"));
      socket.on("data", () => resolve());
      socket.on("error", reject);
    });
  await expect(ask()).rejects.toThrow(/certificate/i);
});

test("the webhook configuration of the counted gate trusts the authority, too: new pods get the gate", async () => {
  const labels = { app: "gated" };
  await cluster.apply([
    {
      apiVersion: "podseidon.kubewharf.io/v1alpha1",
      kind: "PodProtector",
      metadata: { name: "gated", namespace: "default", annotations: { [COUNTED_GATE]: "enabled" } },
      spec: { minAvailable: 0, minReadySeconds: 0, selector: { matchLabels: labels } },
    },
  ]);
  const spec = { schedulerName: "none", containers: [{ name: "app", image: "app:1" }] };
  const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "gated", labels }, spec };
  await cluster.waitFor("a new pod to get the gate", async () => {
    const made = await cluster.admin.call("POST", `${PODS}?dryRun=All`, pod);
    return field(made, "spec", "readinessGates", 0, "conditionType") === COUNTED_CONDITION;
  });
});

test("the aggregator finds the webhook configurations as they were applied, and changes nothing", async () => {
  const url = pods.pods.find(({ deployment }) => deployment === "podseidon-aggregator")?.metricsUrl ?? "";
  await cluster.waitFor("the registrations to be kept", async () => {
    const text = await (await fetch(url)).text();
    expect(text.match(/^podseidon_registration_restores_total\{.*\} [1-9].*$/gm)).toBeNull();
    return /^podseidon_registration_kept 1$/m.test(text) && /^podseidon_registration_ca_current 1$/m.test(text);
  });
});

test("deletions that the match conditions exclude are not reviewed, and all others are", async () => {
  const reviews = async (): Promise<number> => {
    const texts = await Promise.all(webhooks().map(async ({ metricsUrl }) => (await fetch(metricsUrl)).text()));
    const values = texts.flatMap((text) => [...text.matchAll(/^podseidon_webhook_reviews_total\{.*\} (\d+)$/gm)]);
    return values.reduce((sum, [, value]) => sum + Number(value), 0);
  };
  // The deletion of a scheduled pod only marks it. The kubelet, which does not exist here, would delete it for good.
  const spec = { nodeName: "none", containers: [{ name: "app", image: "app:1" }] };
  const asked = async (path: string): Promise<number> => {
    const before = await reviews();
    await cluster.admin.call("DELETE", path);
    return (await reviews()) - before;
  };
  for (const [namespace, name] of [
    ["default", "running"],
    ["default", "finished"],
    [SYSTEM, "own"],
  ] as const)
    await cluster.admin.call("POST", `/api/v1/namespaces/${namespace}/pods`, {
      metadata: { name },
      spec: restricted(spec),
    });
  await cluster.admin.call("PATCH", `${PODS}/finished/status`, { status: { phase: "Succeeded" } });
  expect(await asked(`${PODS}/running`)).toBe(1);
  expect(await asked(`${PODS}/running?gracePeriodSeconds=0`)).toBe(0);
  expect(await asked(`${PODS}/finished`)).toBe(0);
  expect(await asked(`/api/v1/namespaces/${SYSTEM}/pods/own`)).toBe(0);
});

test(`the authority is replaced ${ROTATIONS} times under load, and no call fails`, async () => {
  const issuers = new Set(splitCertificates(await published()));
  const load = new DeletionLoad(cluster, WORKERS);
  const connecting = connections();
  for (let rotation = 0; rotation < ROTATIONS; rotation++) {
    await askForRotation();
    issuers.add(await untilServedBy(issuers));
    await load.more(2 * WORKERS);
  }
  await Promise.all([load.stop(), connecting.stop()]);
  const oddities = [...load.oddities, ...connecting.oddities];
  process.stdout.write(
    `certificates: ${ROTATIONS} authorities replaced during ${load.deletions} deletions and ` +
      `${connecting.count} new connections, ${oddities.length} failed\n`,
  );
  expect(oddities).toEqual([]);
  expect(issuers.size).toBe(ROTATIONS + 1);
  const bundle = async (path: string) =>
    field(await cluster.admin.get(path), "webhooks", "0", "clientConfig", "caBundle");
  await cluster.waitFor("the gate's registration to follow", async () => {
    return (await bundle(GATE_REGISTRATION)) === (await bundle(REGISTRATION));
  });
  // The previous authority stays trusted; older ones do not.
  expect(splitCertificates(await published())).toHaveLength(2);
});

test("the rotation waits for a cell that does not take over a new authority", async () => {
  const aggregator = pods.pods.find(({ deployment }) => deployment === "podseidon-aggregator");
  const maker = pods.pods.find(({ deployment }) => deployment === "podseidon-certificates");
  const issuers = new Set(splitCertificates(await published()));
  const before = (await served()).map(({ serialNumber }) => serialNumber);
  const deaf = aggregator?.process;
  await deaf?.kill("SIGTERM");
  await askForRotation();
  const metric = async (name: string): Promise<number> => {
    const text = await (await fetch(maker?.metricsUrl ?? "")).text();
    return Number(new RegExp(`^${name} (.*)$`, "m").exec(text)?.[1]);
  };
  await cluster.waitFor("the new authority to wait", async () => {
    return (await metric("podseidon_certificates_untrusting_cells")) === 1;
  });
  expect((await served()).map(({ serialNumber }) => serialNumber)).toEqual(before);
  await deaf?.start();
  await untilServedBy(issuers);
  await expect.poll(() => metric("podseidon_certificates_untrusting_cells")).toBe(0);
});
