/** `/metrics` behind `manifests/components/metrics-auth`: shipped processes beside a real kube-apiserver. */
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { request } from "node:https";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { reservePort } from "../../scripts/control-plane/ports.ts";
import { applyOverlay, SYSTEM } from "../../scripts/demo/install.ts";
import { Component } from "../../scripts/environment/component.ts";
import { certificate } from "../support/webhook/loopback-certificate.ts";

const LOOPBACK = "127.0.0.1";
let cluster: Cluster;
const started: Component[] = [];

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
  await applyOverlay(cluster, "single-cluster", { components: ["metrics-auth"] });
  const account = (name: string) => ({
    ...{ apiVersion: "v1", kind: "ServiceAccount" },
    metadata: { name, namespace: "default" },
  });
  await cluster.apply([
    account("reader"),
    account("other"),
    {
      ...{ apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRoleBinding" },
      metadata: { name: "reader" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "podseidon-metrics-reader" },
      subjects: [{ kind: "ServiceAccount", name: "reader", namespace: "default" }],
    },
  ]);
});

afterAll(async () => {
  await Promise.all(started.map((one) => one.stop()));
  await cluster?.stop();
});

/** Starts a component whose account has what the manifests grant it; resolves to the port of its metrics. */
async function start(kind: "update-trigger" | "webhook"): Promise<number> {
  const own = await cluster.kubeconfigFor({
    serviceAccount: { namespace: SYSTEM, name: `podseidon-${kind}` },
    expirationSeconds: 3_600,
  });
  const file = (name: string): string => join(cluster.directory, name);
  writeFileSync(file("tls.crt"), certificate.cert);
  writeFileSync(file("tls.key"), certificate.key);
  const port = await reservePort(LOOPBACK);
  const args = {
    "update-trigger": ["--kubeconfig", own, "--namespace", "podseidon-update-trigger", "--leader-elect=false"],
    webhook: [
      ...["--core", `core=${own}`, "--cell", `cell=${own}`, "--bind-address", LOOPBACK],
      ...["--secure-port", String(await reservePort(LOOPBACK)), "--outlive=false"],
      ...["--tls-cert-file", file("tls.crt"), "--tls-private-key-file", file("tls.key")],
    ],
  }[kind];
  const metricsAddress = `${LOOPBACK}:${port}`;
  const options = { kind, name: kind, directory: file("components"), metricsAddress };
  started.push(await Component.start({ ...options, args: [...args, "--metrics-auth", own] }));
  return port;
}

/** Status and text of GET /metrics with this token. */
async function scrape(port: number, token?: string): Promise<readonly [number | undefined, string]> {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const asking = request({ host: LOOPBACK, port, path: "/metrics", headers, rejectUnauthorized: false }).end();
  const [response] = await once(asking, "response");
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) text += chunk;
  return [response.statusCode, text];
}

describe.each(["update-trigger", "webhook"] as const)("/metrics of the %s", (kind) => {
  let port = 0;
  beforeAll(async () => {
    port = await start(kind);
  });

  it("is for nobody without a token, or with one that the cluster does not know", async () => {
    const refused = [401, expect.stringContaining("a bearer token that the cluster accepts is required")];
    expect(await scrape(port)).toEqual(refused);
    expect(await scrape(port, "eyJhbGciOiJub25lIn0.e30.x")).toEqual(refused);
  });

  it("is not for another account", async () => {
    const token = await cluster.serviceAccountToken("default", "other", 3_600);
    expect(await scrape(port, token)).toEqual([403, expect.stringContaining("podseidon-metrics-reader")]);
  });

  it("is for an account with the permission, by HTTPS only", async () => {
    const token = await cluster.serviceAccountToken("default", "reader", 3_600);
    expect(await scrape(port, token)).toEqual([200, expect.stringContaining("podseidon_")]);
    await expect(fetch(`http://${LOOPBACK}:${port}/metrics`)).rejects.toThrow();
  });
});
