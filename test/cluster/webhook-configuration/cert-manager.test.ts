/**
 * A real cert-manager issues the webhook's certificate, injects its authority into the webhook configurations
 * (`components/cert-manager`), and renews the certificate under load. With PODSEIDON_TEST_SIZE=full only, because
 * cert-manager is built for it.
 */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { connect } from "node:tls";
import { loadAll } from "js-yaml";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ApiAnswer, conditionStatus, field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import { reservePort } from "../../../scripts/control-plane/ports.ts";
import {
  applyOverlay,
  kubelet,
  SYSTEM,
  startPods,
  untilTrusted,
  webhookEndpoints,
} from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { root } from "../../../scripts/root.ts";
import { DeletionLoad } from "../../support/cluster/deletion-load.ts";
import { shellCommand } from "../../support/cluster/documented.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { certManagerVersion, ensureCertManager } from "../../support/cluster/test-tools.ts";

const WORKERS = 8;
const RENEWALS = 3;
const WAIT_MS = 5 * 60_000;
const NAME = "podseidon-webhook.podseidon-system.svc";
const SECRET = `/api/v1/namespaces/${SYSTEM}/secrets/podseidon-webhook-tls`;
const RECORD = `/api/v1/namespaces/${SYSTEM}/configmaps/podseidon-registration`;
const PAGE = readFileSync(join(root, "docs/operations.md"), "utf8");
const NAMESPACE = "default";
const CERTIFICATES = `/apis/cert-manager.io/v1/namespaces/${SYSTEM}/certificates`;
const REGISTRATIONS = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"].map(
  (kind) => `/apis/admissionregistration.k8s.io/v1/${kind}/podseidon`,
);

const MANIFEST = join(root, "manifests/base/webhook-configuration/webhook-configuration.yaml");
const [VALIDATING] = loadAll(readFileSync(MANIFEST, "utf8"));
const WITHOUT_CONDITIONS = JSON.stringify(
  items({ items: field(VALIDATING, "webhooks") }).flatMap((webhook, index) =>
    field(webhook, "matchConditions") === undefined
      ? []
      : [{ op: "remove", path: `/webhooks/${index}/matchConditions` }],
  ),
);

describe.runIf(process.env.PODSEIDON_TEST_SIZE === "full")(`with cert-manager ${certManagerVersion()}`, () => {
  let cluster: Cluster;
  let balancer: Balancer;
  let pods: DemoKubelet;
  let aggregators: DemoKubelet;
  const options = { startTimeoutMs: WAIT_MS };
  let injector: ManagedProcess;
  const processes: ManagedProcess[] = [];

  beforeAll(async () => {
    const certManager = await ensureCertManager();
    cluster = await Cluster.start(BARE);
    await cluster.apply(certManager.definitions.join("\n---\n"));
    await cluster.waitFor("certificates to be served", async () => {
      return (await cluster.admin.request("GET", CERTIFICATES)).status === 200;
    });
    const metrics = `127.0.0.1:${await reservePort("127.0.0.1")}`;
    await start("cert-manager", certManager.controller, [`--metrics-listen-address=${metrics}`], async (signal) => {
      return (await fetch(`http://${metrics}/metrics`, { signal })).ok;
    });
    // It has no health address. The test waits for what it does.
    injector = await start("cainjector", certManager.cainjector, [], async () => true);

    balancer = await Balancer.listen([]);
    await applyOverlay(cluster, "single-cluster", {
      servicePort: balancer.port,
      components: ["cert-manager"],
      replicas: { "podseidon-webhook": 2, "podseidon-aggregator": 1 },
      patches: [
        // The CA injector before 1.12 removes fields that its client does not know. docs/install.md says which version
        // is needed.
        { target: { kind: "ValidatingWebhookConfiguration", name: "podseidon" }, patch: WITHOUT_CONDITIONS },
      ],
    });
    await untilIssued();
    aggregators = kubelet(cluster, options);
    await aggregators.start(["podseidon-aggregator"]);
    pods = await startPods(cluster, balancer, ["podseidon-webhook"], options);
  }, 60 * 60_000);

  afterAll(async () => {
    await Promise.all([pods, aggregators].map((one) => one?.stop()));
    await balancer?.close();
    await Promise.all(processes.map((one) => one.kill("SIGKILL")));
    await cluster?.stop();
  });

  async function start(
    name: string,
    binary: string,
    args: readonly string[],
    isReady: (signal: AbortSignal) => Promise<boolean>,
  ): Promise<ManagedProcess> {
    const process = new ManagedProcess({
      name,
      logFile: join(cluster.directory, "logs", `${name}.log`),
      workingDirectory: dirname(cluster.kubeconfig),
      launch: () => ({ binary, args: [`--kubeconfig=${cluster.kubeconfig}`, "--leader-elect=false", ...args] }),
      isReady,
      startTimeoutMs: WAIT_MS,
      onUnexpectedEnd: (description) => console.error(description),
    });
    processes.push(process);
    await process.start();
    return process;
  }

  /** Waits until both Certificates of the component are issued. */
  async function untilIssued(): Promise<void> {
    await cluster.waitFor(
      "both Certificates to be ready",
      async () => {
        const certificates = items(await cluster.admin.get(CERTIFICATES));
        return certificates.length === 2 && certificates.every((one) => conditionStatus(one, "Ready") === "True");
      },
      WAIT_MS,
    );
  }

  async function secretPem(key: string): Promise<string> {
    return Buffer.from(String(field(await cluster.admin.get(SECRET), "data", key)), "base64").toString();
  }

  /** The certificate that each replica serves to a client that trusts `ca`, by serial number. */
  async function served(ca: string): Promise<string[]> {
    const endpoints = webhookEndpoints(pods.pods);
    return await Promise.all(
      endpoints.map(async ({ host, port }) => {
        const socket = connect({ host, port, ca, servername: NAME });
        const { promise, resolve, reject } = Promise.withResolvers<string>();
        socket.on("error", reject);
        socket.on("secureConnect", () => resolve(socket.getPeerX509Certificate()?.serialNumber ?? "none"));
        return await promise.finally(() => socket.destroy());
      }),
    );
  }

  /** Waits until the Secret has another certificate and every replica serves it; resolves to the serial number. */
  async function untilRenewed(before: string): Promise<string> {
    let now = before;
    await cluster.waitFor(
      "every replica to serve the renewed certificate",
      async () => {
        now = new X509Certificate(await secretPem("tls.crt")).serialNumber;
        return now !== before && (await served(await secretPem("ca.crt"))).every((serial) => serial === now);
      },
      WAIT_MS,
    );
    return now;
  }

  /** Waits until the CA injector has filled a webhook configuration that is new. */
  async function untilInjected(): Promise<void> {
    const name = "injected.example.com";
    const metadata = { name, annotations: { "cert-manager.io/inject-ca-from": `${SYSTEM}/podseidon-webhook` } };
    const clientConfig = { service: { namespace: SYSTEM, name: "podseidon-webhook" } };
    const webhook = { name, clientConfig, sideEffects: "None", admissionReviewVersions: ["v1"], rules: [] };
    const configuration = { kind: "ValidatingWebhookConfiguration", metadata, webhooks: [webhook] };
    await cluster.apply([{ apiVersion: "admissionregistration.k8s.io/v1", ...configuration }]);
    const path = `/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/${name}`;
    await cluster.waitFor("the CA injector to work", async () => {
      const webhooks = items({ items: field(await cluster.admin.get(path), "webhooks") });
      return webhooks.every((one) => field(one, "clientConfig", "caBundle") !== undefined);
    });
  }

  /** Renews the certificate as `cmctl renew` does. */
  async function renew(): Promise<void> {
    const path = `${CERTIFICATES}/podseidon-webhook`;
    const conditions = items({ items: field(await cluster.admin.get(path), "status", "conditions") });
    const issuing = { type: "Issuing", status: "True", reason: "ManuallyTriggered", message: "renewed by hand" };
    await cluster.admin.call("PATCH", `${path}/status`, { status: { conditions: [...conditions, issuing] } });
  }

  test("the Secret names the Service, webhook configurations trust its authority, and replicas serve it", async () => {
    const certificate = new X509Certificate(await secretPem("tls.crt"));
    const ca = await secretPem("ca.crt");
    expect(certificate.subjectAltName).toBe(`DNS:${NAME}`);
    expect(certificate.verify(new X509Certificate(ca).publicKey)).toBe(true);
    for (const path of REGISTRATIONS) {
      const webhooks = items({ items: field(await cluster.admin.get(path), "webhooks") });
      expect(webhooks.length).toBeGreaterThan(0);
      for (const webhook of webhooks)
        expect(Buffer.from(String(field(webhook, "clientConfig", "caBundle")), "base64").toString()).toBe(ca);
    }
    expect(await served(ca)).toEqual([certificate.serialNumber, certificate.serialNumber]);
    expect(pods.pods.map(({ deployment }) => deployment)).not.toContain("podseidon-certificates");
  });

  test("a deleted webhook configuration is restored, and cert-manager injects its authority again", async () => {
    const [path = ""] = REGISTRATIONS;
    const before = field(await cluster.admin.get(path), "metadata", "uid");
    await cluster.admin.call("DELETE", path);
    await cluster.waitFor("another registration", async () => {
      return field(await cluster.admin.get(path), "metadata", "uid") !== before;
    });
    await untilTrusted(cluster);
    const [ca, registration] = [await secretPem("ca.crt"), await cluster.admin.get(path)];
    for (const webhook of items({ items: field(registration, "webhooks") }))
      expect(Buffer.from(String(field(webhook, "clientConfig", "caBundle")), "base64").toString()).toBe(ca);
    expect(field(registration, "metadata", "annotations", "cert-manager.io/inject-ca-from")).toBe(
      `${SYSTEM}/podseidon-webhook`,
    );
    // The metric of the alert on a missing webhook configuration. The other one exists only where podseidon issues the
    // certificate.
    const url = aggregators.pods[0]?.metricsUrl ?? "";
    await cluster.waitFor("the aggregator to call it kept", async () => {
      const text = await (await fetch(url)).text();
      expect(text).not.toMatch(/^podseidon_registration_ca_current /m);
      return /^podseidon_registration_kept 1$/m.test(text);
    });
  });

  test(`${RENEWALS} renewals and a deleted Secret: the same processes serve, and no call fails`, async () => {
    const started = pods.pods.map(({ process }) => process.pid);
    const load = new DeletionLoad(cluster, WORKERS);
    try {
      await load.more(WORKERS);
      let serial = new X509Certificate(await secretPem("tls.crt")).serialNumber;
      for (let renewal = 0; renewal < RENEWALS; renewal++) {
        await renew();
        serial = await untilRenewed(serial);
        await load.more(2 * WORKERS);
      }
      await cluster.admin.call("DELETE", SECRET);
      await untilRenewed(serial);
      await load.more(2 * WORKERS);
    } finally {
      await load.stop();
    }
    process.stdout.write(
      `cert-manager ${certManagerVersion()}: ${RENEWALS} renewals and a deleted Secret during ${load.deletions} ` +
        `deletions, ${load.oddities.length} failed\n`,
    );
    expect(load.oddities).toEqual([]);
    expect(pods.pods.map(({ process }) => process.pid)).toEqual(started);
  });

  test("the way back from break-glass lets nothing go by the counts of before, without the injector", async () => {
    const path = `/api/v1/namespaces/${NAMESPACE}/pods`;
    const remove = (name: string, query: string): Promise<ApiAnswer> =>
      cluster.admin.request("DELETE", `${path}/${name}?${query}`);
    const inDryRun = async (): Promise<number> => (await remove("web-0", "dryRun=All")).status;
    const labels = { app: "web" };
    await createProtector(cluster, NAMESPACE, "web", { minAvailable: 2, selector: { matchLabels: labels } });
    await createReadyPods(cluster, { namespace: NAMESPACE, prefix: "web", count: 4, labels });
    await waitUntilSettled(cluster, NAMESPACE, "web", 4, WAIT_MS);
    await cluster.waitFor("the record of the CA", async () => {
      const forms = Object.values(Object(field(await cluster.admin.get(RECORD), "data")));
      return forms.length === 2 && forms.every((form) => /"bundles":{"/.test(String(form)));
    });

    await aggregators.stop();
    const { stdout: context } = await cluster.kubectl(["config", "current-context"]);
    await shellCommand(cluster, PAGE.replaceAll("CONTEXT", context.trim()), "nobody is asked");
    await cluster.waitFor("nobody to be asked", async () => (await inDryRun()) === 200);
    for (const name of ["web-1", "web-2"]) expect((await remove(name, "gracePeriodSeconds=0")).status).toBe(200);

    await injector.kill("SIGKILL");
    const scale = ["--namespace", SYSTEM, "scale", "deployment", "podseidon-aggregator", "--replicas=1"];
    expect((await cluster.kubectl(scale)).code).toBe(0);
    aggregators = kubelet(cluster, options);
    await aggregators.start(["podseidon-aggregator"]);
    const seen = new Set<number>();
    await cluster.waitFor("the webhook configurations", async () => {
      const read = (one: string): Promise<ApiAnswer> => cluster.admin.request("GET", one);
      return (await Promise.all(REGISTRATIONS.map(read))).every(({ status }) => status === 200);
    });
    await cluster.waitFor("it to be in force", async () => (await inDryRun()) !== 200);
    await cluster.waitFor("the webhook to decide", async () => {
      const status = await inDryRun();
      seen.add(status);
      return status === 429;
    });
    expect(seen).not.toContain(200);
    await untilTrusted(cluster);

    const before = await Promise.all(REGISTRATIONS.map((one) => cluster.admin.get(one)));
    await injector.start();
    await untilInjected();
    const after = await Promise.all(REGISTRATIONS.map((one) => cluster.admin.get(one)));
    expect(after.map((one) => field(one, "webhooks"))).toEqual(before.map((one) => field(one, "webhooks")));
    expect(await inDryRun()).toBe(429);
  });
});
