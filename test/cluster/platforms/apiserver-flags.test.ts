/**
 * Kube-apiservers with other flags than those of the test clusters. Two of them send no bookmarks by which a quiet
 * watch could be confirmed (docs/decisions/0002-short-watches.md): all deletions failed there after 15 quiet seconds.
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, type ClusterOptions } from "../../../scripts/control-plane/cluster.ts";
import type { Flags } from "../../../scripts/control-plane/components.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { ask, verdictOf } from "../../support/cluster/ask.ts";
import { deployment } from "../../support/cluster/deployments.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { waitUntilSettled } from "../../support/cluster/protectors.ts";

const PODS = 5;
const MINIMUM = 3;
const CLUSTER = "cluster";
const PROTECTOR = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors/deployment-web";

const file = (kind: string, content: object): string =>
  JSON.stringify({ apiVersion: "apiserver.config.k8s.io/v1", kind, ...content });
const FILES = {
  authentication: file("AuthenticationConfiguration", { anonymous: { enabled: false } }),
  encryption: file("EncryptionConfiguration", {
    resources: [
      {
        resources: ["podprotectors.podseidon.kubewharf.io", "pods", "configmaps"],
        providers: [{ aescbc: { keys: [{ name: "one", secret: Buffer.alloc(32, 1).toString("base64") }] } }],
      },
    ],
  }),
};

const APISERVERS: Readonly<Record<string, Flags>> = {
  "without a watch cache": {
    "watch-cache": "false",
    "encryption-provider-config": "$FILES/encryption",
    "storage-media-type": "application/json",
    "tls-min-version": "VersionTLS13",
    "http2-max-streams-per-connection": "1",
    "enable-garbage-collector": "false",
  },
  "as of Kubernetes 1.30, whose LISTs come from etcd": {
    "emulated-version": "1.33",
    "min-compatibility-version": "1.33",
    "feature-gates": "ConsistentListFromCache=false,WatchList=false,ListFromCacheSnapshot=false",
    "runtime-config": "api/beta=false",
    "authentication-config": "$FILES/authentication",
    "enable-priority-and-fairness": "false",
    "max-requests-inflight": "3",
    "max-mutating-requests-inflight": "2",
  },
  "with all that is alpha": {
    // With StorageVersionAPI an apiserver denies its own first writes, and on a busy machine ends before it is ready.
    "feature-gates": "AllAlpha=true,StorageVersionAPI=false",
    "runtime-config": "api/alpha=true,api/beta=true",
    "watch-cache-sizes": "pods#1,podprotectors.podseidon.kubewharf.io#1",
    "etcd-compaction-interval": "3s",
    "request-timeout": "10s",
    "goaway-chance": "0.02",
  },
};
const NAMES = Object.keys(APISERVERS);
const WITHOUT_BOOKMARKS = NAMES.slice(0, 2);

const environments = new Map<string, TestEnvironment>();
const controllers: Component[] = [];
const triggers = new Map<string, Component>();

beforeAll(async () => {
  // One after another: an apiserver whose caches take more than 10 s, as on a busy machine, ends itself.
  for (const name of NAMES) {
    const cell: ClusterOptions = { ...BARE, files: FILES, flags: { "kube-apiserver": APISERVERS[name] ?? {} } };
    const environment = await TestEnvironment.start({ cells: [CLUSTER], single: true, replicas: 1, cell });
    environments.set(name, environment);
    controllers.push(await environment.startGenerator());
    // Where no bookmarks move it, the stream of pods may be silent after a deletion (docs/limits.md).
    triggers.set(name, await environment.startUpdateTrigger(CLUSTER));
  }
});

afterAll(async () => {
  await Promise.all([...controllers, ...triggers.values()].map((controller) => controller.stop()));
  await Promise.all([...environments.values()].map((environment) => environment.stop()));
});

function environmentOf(name: string): TestEnvironment {
  const environment = environments.get(name);
  if (environment === undefined) throw new Error(`${name} has not started`);
  return environment;
}

async function verdictOn({ core }: TestEnvironment, pod: string): Promise<string> {
  return verdictOf(await ask(core, "DELETE", `/api/v1/namespaces/default/pods/${pod}`));
}

describe.each(NAMES)("a kube-apiserver %s", (name) => {
  test("as many pods go as can be spared, and one more after a replacement", async () => {
    const environment = environmentOf(name);
    const { core } = environment;
    const labels = { app: "web" };
    const strategy = { rollingUpdate: { maxUnavailable: PODS - MINIMUM, maxSurge: 0 } };
    await core.apply([deployment("web", PODS, { spec: { strategy } })]);
    await core.waitFor("the protector", async () => (await core.admin.request("GET", PROTECTOR)).status === 200);
    expect(field(await core.admin.get(PROTECTOR), "spec", "minAvailable")).toBe(MINIMUM);
    await createReadyPods(core, { namespace: "default", prefix: "web", count: PODS, labels });
    const settled = (count: number) => waitUntilSettled(core, "default", "deployment-web", count);
    await settled(PODS);
    // Each on its own: for a moment a deletion may be subtracted twice (docs/limits.md), and another one is busy then.
    for (const [index, pod] of ["web-0", "web-1"].entries()) {
      expect(await verdictOn(environment, pod)).toBe("allow");
      await settled(PODS - 1 - index);
    }
    expect(await verdictOn(environment, "web-2")).toBe("denial");
    await createReadyPods(core, { namespace: "default", prefix: "more", count: 1, labels });
    await settled(MINIMUM + 1);
    expect(await verdictOn(environment, "web-2")).toBe("allow");
    await settled(MINIMUM);
  });
});

test.each(WITHOUT_BOOKMARKS)("a kube-apiserver %s: complete lists confirm a quiet core", async (name) => {
  const environment = environmentOf(name);
  const { core } = environment;
  const age = async () =>
    (await environment.webhooks[0]?.component.metric("podseidon_webhook_cache_age_seconds")) ?? Number.NaN;
  const version = async () => field(await core.admin.get(PROTECTOR), "metadata", "resourceVersion");
  // A change of the protector confirms the cache, too.
  await core.waitFor("a list of a quiet core", async () => {
    const before = await version();
    await core.waitFor("the cache to age", async () => (await age()) >= 4.5);
    await core.waitFor("the cache to be confirmed", async () => (await age()) < 4);
    return (await version()) === before;
  });
  expect(await verdictOn(environment, "web-3")).toBe("denial");
});

test.each(NAMES)("a kube-apiserver %s: the trigger says whether quiet streams move without it", async (name) => {
  const { core } = environmentOf(name);
  const trigger = triggers.get(name);
  const isNeeded = WITHOUT_BOOKMARKS.includes(name);
  const text = isNeeded ? "quiet streams need this trigger" : "positions without this trigger";
  await core.waitFor("the trigger to know", async () => trigger?.process.logTail().includes(text) === true, 300_000);
  expect(await trigger?.metric("podseidon_update_trigger_needed")).toBe(isNeeded ? 1 : 0);
});
