/**
 * Components that let an account patch pods, because RBAC can't say what of a pod: whoever has its token can set what
 * the product sets, and nothing else. On a real kube-apiserver, with the roles and policies as they ship.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { load } from "js-yaml";
import * as v from "valibot";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { root } from "../../scripts/root.ts";
import { createReadyPods } from "../support/cluster/pods.ts";

const AGGREGATOR = "podseidon-aggregator";
const WEBHOOK = "podseidon-webhook";
const COMPONENTS = ["void-reservations", "pre-activities", "counted-gate"];
const BASES = ["namespace", "accounts", "aggregator-cell-access", "webhook-cell-access"];
const Kustomization = v.object({ resources: v.array(v.string()) });
const NOTHING_ELSE = /nothing else/;
let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
  const manifests = join(root, "manifests");
  for (const base of BASES)
    expect(await cluster.kubectl(["apply", "-k", join(manifests, "base", base)])).toMatchObject({ code: 0 });
  for (const component of COMPONENTS) {
    const directory = join(manifests, "components", component);
    const { resources } = v.parse(Kustomization, load(readFileSync(join(directory, "kustomization.yaml"), "utf8")));
    for (const file of resources.filter((one) => one !== "webhook-configuration.yaml"))
      expect(await cluster.kubectl(["apply", "-f", join(directory, file)])).toMatchObject({ code: 0 });
  }
  await createReadyPods(cluster, { namespace: "default", prefix: "web", count: 1, labels: { app: "web" } });
  await cluster.waitFor("the policies to be in force", async () => {
    const denied = [
      await patch(AGGREGATOR, { metadata: { labels: { app: "other" } } }),
      await patch(WEBHOOK, { metadata: { labels: { app: "other" } } }),
      await patch(AGGREGATOR, { metadata: { labels: { app: "other" } } }, "status"),
    ];
    return denied.every((answer) => NOTHING_ELSE.test(answer));
  });
});

afterAll(() => cluster?.stop());

/** What the account is told; nothing is changed. The content types are those of the product. */
async function patch(account: string, body: unknown, subresource?: "status"): Promise<string> {
  const path = `/api/v1/namespaces/default/pods/web-0${subresource === undefined ? "" : `/${subresource}`}?dryRun=All`;
  const type = subresource === undefined ? "merge-patch" : "strategic-merge-patch";
  const { status, text } = await cluster.admin.request("PATCH", path, body, {
    contentType: `application/${type}+json`,
    headers: { "impersonate-user": `system:serviceaccount:podseidon-system:${account}` },
  });
  return `${status} ${text}`;
}

const BEYOND: readonly (readonly [string, unknown])[] = [
  ["other image", { spec: { containers: [{ name: "app", image: "theirs:1" }] } }],
  ["deadline", { spec: { activeDeadlineSeconds: 1 } }],
  ["label", { metadata: { labels: { app: "other" } } }],
  ["other annotation", { metadata: { annotations: { "podseidon.kubewharf.io/force-delete": "true" } } }],
  ["finalizer", { metadata: { finalizers: ["example.com/held"] } }],
];

describe("the aggregator with void-reservations", () => {
  test("marks a pod whose reservation it frees", async () => {
    const annotations = { "podseidon.kubewharf.io/reservation-voided": "2026-01-01T00:00:00.000Z" };
    expect(await patch(AGGREGATOR, { metadata: { annotations } })).toMatch(/^200 /);
  });

  test.each(BEYOND)("gives a pod no %s", async (_, body) => {
    expect(await patch(AGGREGATOR, body)).toMatch(NOTHING_ELSE);
  });
});

describe("the webhook with pre-activities", () => {
  test("marks a pod that waits", async () => {
    const annotations = { "xpdb.form3.tech/has-pending-disruption": "true" };
    expect(await patch(WEBHOOK, { metadata: { annotations } })).toMatch(/^200 /);
  });

  test.each(BEYOND)("gives a pod no %s", async (_, body) => {
    expect(await patch(WEBHOOK, body)).toMatch(NOTHING_ELSE);
  });
});

describe("the aggregator with counted-gate", () => {
  const condition = (type: string, status: string): unknown => ({
    status: { conditions: [{ type, status, reason: "Counted", lastTransitionTime: "2026-01-01T00:00:00Z" }] },
  });

  test("opens the gate", async () => {
    expect(await patch(AGGREGATOR, condition("podseidon.kubewharf.io/counted", "True"), "status")).toMatch(/^200 /);
  });

  test.each<[string, unknown]>([
    ["end", { status: { phase: "Failed" } }],
    ["other readiness", condition("Ready", "False")],
    ["address", { status: { podIP: "192.0.2.1", podIPs: [{ ip: "192.0.2.1" }] } }],
    ["label", { metadata: { labels: { app: "other" } } }],
  ])("gives a pod no %s", async (_, body) => {
    expect(await patch(AGGREGATOR, body, "status")).toMatch(NOTHING_ELSE);
  });
});
