/**
 * A cluster whose addresses are all IPv6: its Services, its kube-apiserver as pods reach it, and the webhook, with the
 * certificate that podseidon makes for an address.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { reservePort } from "../../../scripts/control-plane/ports.ts";
import { Component } from "../../../scripts/environment/component.ts";
import { CRD } from "../../../scripts/environment/environment.ts";
import { registrations } from "../../../scripts/environment/webhook-configuration.ts";
import { root } from "../../../scripts/root.ts";
import { ask, messageOf, verdictOf } from "../../support/cluster/ask.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const ADDRESS = "::1";
const SYSTEM = "podseidon-system";
const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some((one) => one.address === ADDRESS));

let cluster: Cluster;
const components: Component[] = [];

async function start(kind: "webhook" | "aggregator" | "certificates", args: readonly string[]): Promise<Component> {
  const component = await Component.start({
    ...{ kind, name: kind, address: ADDRESS, args, directory: join(cluster.directory, "product") },
    environment: {
      KUBERNETES_SERVICE_HOST: ADDRESS,
      KUBERNETES_SERVICE_PORT: new URL(cluster.url).port,
      PODSEIDON_MOUNT_ROOT: join(cluster.directory, "mounts"),
    },
  });
  components.push(component);
  return component;
}

/** What a pod finds of its account. */
async function mountAccount(): Promise<void> {
  const directory = join(cluster.directory, "mounts/var/run/secrets/kubernetes.io/serviceaccount");
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, "token"), await cluster.serviceAccountToken(SYSTEM, "all"));
  writeFileSync(join(directory, "ca.crt"), cluster.identity.certificateAuthorityPem);
  writeFileSync(join(directory, "namespace"), SYSTEM);
}

/** The data of a Secret or ConfigMap that the certificates component writes. */
async function dataOf(path: string): Promise<Readonly<Record<string, string>>> {
  let data: unknown;
  await cluster.waitFor(path, async () => {
    data = field(await cluster.admin.get(`/api/v1/namespaces/${SYSTEM}/${path}`), "data");
    return data !== undefined;
  });
  return data as Readonly<Record<string, string>>;
}

describe.runIf(hasIpv6)("a cluster with IPv6 alone", () => {
  beforeAll(async () => {
    const flags = {
      // The tests themselves call 127.0.0.1.
      ...{ "bind-address": "::", "advertise-address": "fd00::1", "service-cluster-ip-range": "fd00:10::/112" },
    };
    cluster = await Cluster.start({ ...BARE, flags: { "kube-apiserver": flags } });
    const subject = { kind: "ServiceAccount", name: "all", namespace: SYSTEM };
    const group = "rbac.authorization.k8s.io";
    const roleRef = { apiGroup: group, kind: "ClusterRole", name: "cluster-admin" };
    const metadata = { name: "all", namespace: SYSTEM };
    await cluster.apply([
      { apiVersion: "v1", kind: "Namespace", metadata: { name: SYSTEM } },
      { apiVersion: "v1", kind: "ServiceAccount", metadata },
      {
        apiVersion: `${group}/v1`,
        kind: "ClusterRoleBinding",
        metadata: { name: "all" },
        roleRef,
        subjects: [subject],
      },
    ]);
    await cluster.apply(readFileSync(CRD, "utf8"));
    await mountAccount();
    await cluster.apply(readFileSync(join(root, "manifests/base/certificates/objects.yaml"), "utf8"));
    await start("certificates", [`--dns-name=${ADDRESS}`]);
    const tls = await dataOf("secrets/podseidon-webhook-tls");
    const { "ca.crt": caPem = "" } = await dataOf("configmaps/podseidon-webhook-ca");
    const files = ["tls.crt", "tls.key"].map((name) => {
      const path = join(cluster.directory, "mounts", name);
      writeFileSync(path, Buffer.from(tls[name] ?? "", "base64"));
      return `/${name}`;
    });
    const port = await reservePort(ADDRESS);
    await start("webhook", [
      ...["--core=core=", "--cell=cell=", `--bind-address=${ADDRESS}`, `--secure-port=${port}`],
      ...[`--tls-cert-file=${files[0]}`, `--tls-private-key-file=${files[1]}`, "--require-bound-evictions"],
    ]);
    await start("aggregator", ["--leader-elect=false", "--cell-id=cell", "--core=core="]);
    await cluster.apply(registrations({ cell: "cell", url: `https://[${ADDRESS}]:${port}`, caPem }));
  });

  afterAll(async () => {
    await Promise.all(components.map((one) => one.stop()));
    await cluster?.stop();
  });

  test("a deletion and an eviction are decided, and settle", async () => {
    const labels = { app: "web" };
    await createProtector(cluster, "default", "web", { minAvailable: 1, selector: { matchLabels: labels } });
    await createReadyPods(cluster, { namespace: "default", prefix: "web", count: 3, labels });
    await waitUntilSettled(cluster, "default", "web", 3);
    const pod = (name: string): string => `/api/v1/namespaces/default/pods/${name}`;
    expect(verdictOf(await ask(cluster, "DELETE", pod("web-0")))).toBe("allow");
    // kube-apiserver reviews a deletion without a grace period twice, the second time from its cache. Where the first
    // one is settled by then, the dead pod is reserved once more, until its end is counted again.
    await waitUntilSettled(cluster, "default", "web", 2);
    const eviction = { apiVersion: "policy/v1", kind: "Eviction", metadata: { name: "web-1", namespace: "default" } };
    const evicted = await ask(cluster, "POST", `${pod("web-1")}/eviction`, eviction);
    expect(verdictOf(evicted), messageOf(evicted)).toBe("allow");
    await waitUntilSettled(cluster, "default", "web", 1);
    expect(verdictOf(await ask(cluster, "DELETE", pod("web-2")))).toBe("denial");
  });
});
