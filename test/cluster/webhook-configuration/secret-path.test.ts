/** The components `secret-path` and `secret-path-required`, one after the other, where the webhook is a Service. */
import { mkdirSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { join, relative } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { kubelet, untilTrusted, webhookEndpoints } from "../../../scripts/demo/install.ts";
import type { DemoKubelet } from "../../../scripts/demo/kubelet.ts";
import { Balancer } from "../../../scripts/environment/balancer.ts";
import { root } from "../../../scripts/root.ts";
import { behind } from "../../support/cluster/documented.ts";

const CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

const SEGMENT = /^\/secret-[0-9a-f]{64}\/webhook\/default$/;

let cluster: Cluster;
let balancer: Balancer;
let others: DemoKubelet;
let webhooks: DemoKubelet;

beforeAll(async () => {
  const flags = { "kube-apiserver": { "disable-admission-plugins": "ServiceAccount" } };
  cluster = await Cluster.start({ controllerManager: false, scheduler: false, kwok: false, flags });
  balancer = await Balancer.listen([]);
});

afterAll(async () => {
  await Promise.all([others, webhooks].map((one) => one?.stop()));
  await balancer?.close();
  await cluster?.stop();
});

async function apply(...components: readonly string[]): Promise<void> {
  const directory = join(cluster.directory, "overlay");
  mkdirSync(directory, { recursive: true });
  const path = (...parts: readonly string[]): string => relative(directory, join(root, "manifests", ...parts));
  const kustomization = {
    apiVersion: "kustomize.config.k8s.io/v1beta1",
    kind: "Kustomization",
    resources: [path("overlays/single-cluster")],
    components: components.map((component) => path("components", component)),
  };
  writeFileSync(join(directory, "kustomization.yaml"), JSON.stringify(kustomization));
  const { stdout } = await cluster.kubectl(["kustomize", directory]);
  const { code, stderr } = await cluster.kubectl(["apply", "--filename", "-"], {
    input: behind(balancer.port, stdout),
  });
  expect([code, stderr]).toEqual([0, ""]);
}

async function startWebhooks(): Promise<void> {
  webhooks = kubelet(cluster);
  await webhooks.start(["podseidon-webhook"]);
  balancer.endpoints = webhookEndpoints(webhooks.pods);
}

/** The webhook refuses the eviction of a pod that is not there, in its own name. */
async function untilApiserverIsAnswered(): Promise<void> {
  const metadata = { name: "absent", namespace: "default" };
  const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata };
  const path = "/api/v1/namespaces/default/pods/absent/eviction?dryRun=All";
  await cluster.waitFor("the apiserver to be answered", async () => {
    const { status, text } = await cluster.admin.request("POST", path, eviction);
    return status === 404 && text.includes("admission webhook");
  });
}

/** Of an empty call, by a client that trusts the authorities. */
function statusOf(url: string, ca: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json" };
    const sending = request(url, { method: "POST", ca, headers, servername: "podseidon-webhook.podseidon-system.svc" });
    sending.on("response", (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    sending.on("error", reject);
    sending.end("{}");
  });
}

async function paths(): Promise<readonly string[]> {
  const configuration = await cluster.admin.get(`${CONFIGURATIONS}/podseidon`);
  return items(configuration, "webhooks").map((one) => String(field(one, "clientConfig", "service", "path")));
}

test("the path of a Service gets the segment, beside caBundle, and the webhook knows it", async () => {
  await apply("secret-path");
  others = kubelet(cluster);
  await others.start(["podseidon-aggregator", "podseidon-certificates"]);
  await startWebhooks();
  await untilTrusted(cluster);
  const [first = "", ...rest] = await paths();
  expect(first).toMatch(SEGMENT);
  expect(rest).toEqual(rest.map(() => first));
  await untilApiserverIsAnswered();
});

test("calls with the segment are answered where it is required, and others are not", async () => {
  await apply("secret-path", "secret-path-required");
  // The manifests have no segment: an aggregator puts it back.
  await cluster.waitFor("the segment", async () => (await paths()).every((path) => SEGMENT.test(path)));
  await webhooks.stop();
  await startWebhooks();
  await untilApiserverIsAnswered();
  const [replica] = webhooks.pods;
  const call = async (path: string): Promise<unknown> => {
    const ca = field(await cluster.admin.get(`${CONFIGURATIONS}/podseidon`), "webhooks", 0, "clientConfig", "caBundle");
    const trusted = Buffer.from(String(ca), "base64").toString();
    return await statusOf(`https://${replica?.address}:${replica?.webhookPort}${path}`, trusted);
  };
  const [known = ""] = await paths();
  const guess = known.replace(/[0-9a-f]{64}/, "0".repeat(64));
  // 400: there is no admission request in it.
  expect([await call(known), await call(guess), await call("/webhook/default")]).toEqual([400, 404, 404]);
});
