/**
 * The permission to patch pods is no way round a protector that protects UPDATE: a pod that leaves the selector counts
 * as leaving, and so does a pod that gets a deadline. On a real kube-apiserver, with the match conditions as they ship.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { load } from "js-yaml";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { field } from "../../scripts/control-plane/api-client.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { registrations } from "../../scripts/environment/webhook-configuration.ts";
import { root } from "../../scripts/root.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import { createProtector, readProtector, reservationCount, waitUntilSettled } from "../support/cluster/protectors.ts";

const PODS = "/api/v1/namespaces/default/pods";
const REPLICAS = 3;
const SETTLED_WITHIN_MS = 120_000;

let environment: TestEnvironment;

/** The condition of `manifests/components/relabelled-pods`. */
function shippedExpression(): string {
  const file = readFileSync(join(root, "manifests/components/relabelled-pods/kustomization.yaml"), "utf8");
  const { patches } = v.parse(v.object({ patches: v.tuple([v.object({ patch: v.string() })]) }), load(file));
  const Replace = v.looseObject({ op: v.string(), value: v.union([v.string(), v.object({ expression: v.string() })]) });
  const operations = v.parse(v.array(v.looseObject({ op: v.string(), value: v.unknown() })), load(patches[0].patch));
  const { value } = v.parse(Replace, operations.at(-1));
  return typeof value === "string" ? value : value.expression;
}

const Rules = v.array(v.looseObject({ operations: v.array(v.string()) }));
const Webhook = v.looseObject({ rules: Rules, matchConditions: v.optional(v.unknown()) });
const Configuration = v.looseObject({ webhooks: v.array(Webhook) });

/** The test environment has one webhook for all that happens to a pod: it asks about changes as the component does. */
async function askAsShipped(): Promise<void> {
  const url = `https://127.0.0.1:${environment.balancer.port}`;
  const caPem = environment.core.identity.certificateAuthorityPem;
  const expression = `request.operation != 'UPDATE' || request.subResource != '' || (${shippedExpression()})`;
  const configurations = registrations({ cell: "cell", url, caPem }).map((raw) => {
    const configuration = v.parse(Configuration, raw);
    const webhooks = configuration.webhooks.map((one) => {
      const isOfPods =
        one.matchConditions === undefined && one.rules.some((rule) => rule.operations.includes("UPDATE"));
      return isOfPods ? { ...one, matchConditions: [{ name: "changes", expression }] } : one;
    });
    return { ...configuration, webhooks };
  });
  await environment.core.apply(configurations);
}

beforeAll(async () => {
  environment = await TestEnvironment.start({
    ...{ cells: ["cell"], single: true, replicas: 1, settle: "2s" },
    cell: { nodes: 1 },
  });
  await askAsShipped();
});

afterAll(async () => {
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
  await waitUntilSettled(core, "default", name, REPLICAS, SETTLED_WITHIN_MS);
}

async function patch(pod: string, change: object): Promise<{ readonly status: number; readonly text: string }> {
  return await environment.core.admin.request("PATCH", `${PODS}/${pod}`, change);
}

const relabel = (pod: string) => patch(pod, { metadata: { labels: { app: "other" } } });

describe("with UPDATE protected", () => {
  it("a pod that is needed is not relabelled and gets no deadline, and stays as it was", async () => {
    await protect("web", REPLICAS, ["DELETE", "EVICT", "UPDATE"]);
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
    await protect("spare", REPLICAS - 1, ["DELETE", "EVICT", "UPDATE"]);
    expect(await relabel("spare-0")).toMatchObject({ status: 200 });
    expect(await relabel("spare-1")).toMatchObject({ status: 429 });
    await waitUntilSettled(environment.core, "default", "spare", REPLICAS - 1, SETTLED_WITHIN_MS);
    expect(await relabel("spare-1")).toMatchObject({ status: 429 });
  });
});

it("a label that takes a pod out of the count needs quota, and the pod needs none once it is left out", async () => {
  const prefix = "unavailable-pod.kruise.io/";
  const takeOut = (pod: string) => patch(pod, { metadata: { labels: { [`${prefix}offline`]: "true" } } });
  await protect("out", REPLICAS - 1, ["DELETE", "EVICT", "UPDATE"], { unavailableLabelPrefix: prefix });
  expect(await takeOut("out-0")).toMatchObject({ status: 200 });
  expect(await takeOut("out-1")).toMatchObject({ status: 429 });
  await waitUntilSettled(environment.core, "default", "out", REPLICAS - 1, SETTLED_WITHIN_MS);
  const remove = (pod: string) => environment.core.admin.request("DELETE", `${PODS}/${pod}`, { gracePeriodSeconds: 0 });
  expect(await remove("out-1")).toMatchObject({ status: 429 });
  expect(await remove("out-0")).toMatchObject({ status: 200 });
  expect(reservationCount(await readProtector(environment.core, "default", "out"))).toBe(0);
});

it("without UPDATE protected, a pod is relabelled freely", async () => {
  await protect("free", REPLICAS, ["DELETE", "EVICT"]);
  expect(await relabel("free-0")).toMatchObject({ status: 200 });
});
