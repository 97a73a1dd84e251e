/**
 * The permission to patch pods is no way round a protector that protects UPDATE: a pod that leaves the selector counts
 * as leaving, also where its status is written, and so does a pod that gets a deadline. On a real kube-apiserver, with
 * the webhook configurations as they ship.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { loadAll } from "js-yaml";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type ApiAnswer, ApiserverClient, field } from "../../scripts/control-plane/api-client.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { root } from "../../scripts/root.ts";
import { ask } from "../support/cluster/ask.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import { createProtector, readProtector, reservationCount, waitUntilSettled } from "../support/cluster/protectors.ts";

const PODS = "/api/v1/namespaces/default/pods";
const REPLICAS = 3;
const KUBELET = "token-of-a-kubelet";
const ALL = ["DELETE", "EVICT", "UPDATE"];

let environment: TestEnvironment;
let kubelet: ApiserverClient;

const Webhook = v.looseObject({ clientConfig: v.object({ service: v.object({ path: v.string() }) }) });
const Configurations = v.array(v.looseObject({ webhooks: v.array(Webhook) }));

/** The webhook configurations with `manifests/components/relabelled-pods`. Only the webhook's address differs. */
async function askAsShipped(): Promise<void> {
  const { core, balancer } = environment;
  const directory = join(core.directory, "relabelled-pods");
  mkdirSync(directory);
  const path = (...parts: string[]): string => relative(directory, join(root, "manifests", ...parts));
  const resources = [path("base", "webhook-configuration")];
  const kustomization = { resources, components: [path("components", "relabelled-pods")] };
  writeFileSync(join(directory, "kustomization.yaml"), JSON.stringify(kustomization));
  const { stdout } = await core.kubectl(["kustomize", directory]);
  const caBundle = Buffer.from(core.identity.certificateAuthorityPem).toString("base64");
  const configurations = v.parse(Configurations, loadAll(stdout)).map((configuration) => {
    const webhooks = configuration.webhooks.map(({ clientConfig, ...one }) => {
      const at = clientConfig.service.path.replace("CELL", "cell");
      return { ...one, clientConfig: { url: `https://127.0.0.1:${balancer.port}${at}`, caBundle } };
    });
    return { ...configuration, webhooks };
  });
  await core.apply(configurations);
  await untilAskedAsShipped();
}

/**
 * The apiserver sees a webhook configuration a moment later. The one of the test environment asks about every change of
 * a pod, this one about no annotation.
 */
async function untilAskedAsShipped(): Promise<void> {
  await createReadyPods(environment.core, { namespace: "default", prefix: "any", count: 1, labels: {} });
  await environment.core.waitFor("the apiserver to have the configuration", async () => {
    const before = await reviews("change");
    expect((await patch("any-0?dryRun=All", { metadata: { annotations: { note: "x" } } })).status).toBe(200);
    return (await reviews("change")) === before;
  });
}

async function reviews(kind: string): Promise<number> {
  return (await environment.webhooks[0]?.component.metric("podseidon_webhook_reviews_total", { kind })) ?? 0;
}

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1, settle: "2s" },
    cell: {
      nodes: 1,
      tokens: [{ token: KUBELET, user: "system:node:any", groups: ["system:nodes", "system:masters"] }],
    },
  });
  const { identity, url } = environment.core;
  kubelet = new ApiserverClient({ url, certificateAuthorityPem: identity.certificateAuthorityPem, token: KUBELET });
  await askAsShipped();
});

afterAll(async () => {
  kubelet?.close();
  await environment?.stop();
});

async function protect(
  name: string,
  minAvailable: number,
  protectedOperations: readonly string[],
  more: Readonly<Record<string, unknown>> = {},
): Promise<void> {
  const { core } = environment;
  await createReadyPods(core, { namespace: "default", prefix: name, count: REPLICAS, labels: { app: name } });
  const selector = { matchLabels: { app: name } };
  await createProtector(core, "default", name, { minAvailable, protectedOperations, selector, ...more });
  await waitUntilSettled(core, "default", name, REPLICAS);
}

const patch = (pod: string, change: object): Promise<ApiAnswer> =>
  ask(environment.core, "PATCH", `${PODS}/${pod}`, change);

const OTHER = { metadata: { labels: { app: "other" } } };
const relabel = (pod: string) => patch(pod, OTHER);

describe("with UPDATE protected", () => {
  it("a pod that is needed is not relabelled and gets no deadline, and stays as it was", async () => {
    await protect("web", REPLICAS, ALL);
    const denied = { status: 429, text: expect.stringContaining("may not be relabelled now") };
    expect(await relabel("web-0")).toMatchObject(denied);
    expect(await patch("web-0", { metadata: { labels: null } })).toMatchObject(denied);
    expect(await patch("web-0", { spec: { activeDeadlineSeconds: 60 } })).toMatchObject({
      status: 429,
      text: expect.stringContaining("may not be ended by activeDeadlineSeconds now"),
    });
    expect(field(await environment.core.admin.get(`${PODS}/web-0`), "metadata", "labels", "app")).toBe("web");
  });

  it("labels that the selector does not need are free", async () => {
    expect(await patch("web-0", { metadata: { labels: { note: "x" } } })).toMatchObject({ status: 200 });
    expect(reservationCount(await readProtector(environment.core, "default", "web"))).toBe(0);
  });

  it("a pod that may go is counted as gone: one leaves, the next is denied, and the record settles", async () => {
    await protect("spare", REPLICAS - 1, ALL);
    expect(await relabel("spare-0")).toMatchObject({ status: 200 });
    expect(await relabel("spare-1")).toMatchObject({ status: 429 });
    await waitUntilSettled(environment.core, "default", "spare", REPLICAS - 1);
    expect(await relabel("spare-1")).toMatchObject({ status: 429 });
  });
});

describe("a write of a pod's status, with UPDATE protected,", () => {
  const write = (pod: string, change: object) => patch(`${pod}/status`, change);

  it("does not relabel a pod that is needed, which stays as it was", async () => {
    await protect("status", REPLICAS, ALL);
    const denied = { status: 429, text: expect.stringContaining("pod default/status-0 may not be relabelled now") };
    for (const change of [OTHER, { metadata: { labels: null } }])
      expect(await write("status-0", change)).toMatchObject(denied);
    expect(field(await environment.core.admin.get(`${PODS}/status-0`), "metadata", "labels")).toEqual({
      app: "status",
    });
    expect(reservationCount(await readProtector(environment.core, "default", "status"))).toBe(0);
  });

  it("that changes no label asks nobody, and labels that the selector does not need are free", async () => {
    const asked = await reviews("status");
    expect(await write("status-0", { status: { message: "as before" } })).toMatchObject({ status: 200 });
    expect(await reviews("status")).toBe(asked);
    expect(await write("status-0", { metadata: { labels: { note: "x" } } })).toMatchObject({ status: 200 });
    expect(await reviews("status")).toBe(asked + 1);
    expect(reservationCount(await readProtector(environment.core, "default", "status"))).toBe(0);
  });

  it("by a node is a fact: its pod is relabelled", async () => {
    expect(await kubelet.request("PATCH", `${PODS}/status-0/status`, OTHER)).toMatchObject({ status: 200 });
    expect(field(await environment.core.admin.get(`${PODS}/status-0`), "metadata", "labels", "app")).toBe("other");
  });

  it("relabels a pod that may go, which is counted as gone: the next one stays, and the record settles", async () => {
    await protect("leaving", REPLICAS - 1, ALL);
    expect(await write("leaving-0", OTHER)).toMatchObject({ status: 200 });
    expect(await write("leaving-1", OTHER)).toMatchObject({ status: 429 });
    await waitUntilSettled(environment.core, "default", "leaving", REPLICAS - 1);
    for (const change of [write, patch]) expect(await change("leaving-1", OTHER)).toMatchObject({ status: 429 });
  });

  it("that also fails the pod is asked about by two webhooks, and takes its quota once", async () => {
    await protect("failing", REPLICAS - 1, ALL);
    const asked = await reviews("status");
    const failed = { ...OTHER, status: { phase: "Failed" } };
    expect(await write("failing-0", failed)).toMatchObject({ status: 200 });
    expect(await reviews("status")).toBeGreaterThanOrEqual(asked + 2);
    expect(await write("failing-1", failed)).toMatchObject({ status: 429 });
    await waitUntilSettled(environment.core, "default", "failing", REPLICAS - 1);
  });
});

it("a label that takes a pod out of the count needs quota, and the pod needs none once it is left out", async () => {
  const prefix = "unavailable-pod.kruise.io/";
  const takeOut = (pod: string) => patch(pod, { metadata: { labels: { [`${prefix}offline`]: "true" } } });
  await protect("out", REPLICAS - 1, ALL, { unavailableLabelPrefix: prefix });
  expect(await takeOut("out-0")).toMatchObject({ status: 200 });
  expect(await takeOut("out-1")).toMatchObject({ status: 429 });
  await waitUntilSettled(environment.core, "default", "out", REPLICAS - 1);
  const remove = (pod: string) => ask(environment.core, "DELETE", `${PODS}/${pod}`, { gracePeriodSeconds: 0 });
  expect(await remove("out-1")).toMatchObject({ status: 429 });
  expect(await remove("out-0")).toMatchObject({ status: 200 });
  expect(reservationCount(await readProtector(environment.core, "default", "out"))).toBe(0);
});

it("without UPDATE protected, a pod is relabelled freely", async () => {
  await protect("free", REPLICAS, ["DELETE", "EVICT"]);
  expect(await relabel("free-0")).toMatchObject({ status: 200 });
});
