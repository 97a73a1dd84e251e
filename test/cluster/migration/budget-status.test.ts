/**
 * The status of a PodUnavailableBudget, written by the generator with the permissions of the manifests: what
 * `kubectl get pub` shows, and that a status of another manager is left alone.
 */

import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { type Bucket, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import { shellCommand } from "../../support/cluster/documented.ts";
import { makeCell } from "../../support/decide/fixtures.ts";
import { CountingTransport } from "../../support/generator/counting-transport.ts";
import {
  eventually,
  GROUP,
  generatorTransport,
  installCrd,
  installGenerator,
  protectorPath,
  type RunningGenerator,
  startGenerator,
} from "../../support/generator/generator-harness.ts";

const PAGE = readFileSync(new URL("../../../docs/migration-from-podunavailablebudget.md", import.meta.url), "utf8");
const KRUISE = "kruise-validating-webhook-configuration";
const CONFIGURATION = `/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/${KRUISE}`;
const CRD = "podunavailablebudgets.policy.kruise.io";
const CRD_PATH = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${CRD}`;
const BUDGET = "/apis/policy.kruise.io/v1beta1/namespaces/default/podunavailablebudgets/web";
const PROTECTOR = protectorPath("default", "podunavailablebudget-web");
const ADMITTED = "2026-11-20T10:00:00.000000Z";

let cluster: Cluster;
let transport: Transport;
let counting: CountingTransport;
let running: RunningGenerator | undefined;

beforeAll(async () => {
  cluster = await Cluster.start({ nodes: 0 });
  await installGenerator(cluster);
  await installCrd(cluster, CRD);
  transport = await generatorTransport(cluster);
  counting = new CountingTransport(transport);
});

afterAll(async () => {
  transport?.close();
  await cluster?.stop();
});

beforeEach(async () => {
  running = startGenerator(counting);
  const metadata = { name: "web", namespace: "default", labels: PROTECTED };
  const spec = { minAvailable: "60%", selector: { matchLabels: { app: "web" } } };
  const annotations = { "pub.kruise.io/protect-total-replicas": "5" };
  const kind = { apiVersion: "policy.kruise.io/v1beta1", kind: "PodUnavailableBudget" };
  await cluster.apply([{ ...kind, metadata: { ...metadata, annotations }, spec }]);
  await eventually(cluster, PROTECTOR, (found) => field(found, "spec", "minAvailable") === 3);
});

afterEach(async () => {
  await cluster.admin.request("DELETE", BUDGET);
  await eventually(cluster, BUDGET, (found) => found === undefined);
  await eventually(cluster, PROTECTOR, (found) => found === undefined);
  await running?.stop();
});

/** Writes the protector's status as an aggregator does. */
async function counted(available: number, buckets: Bucket[] = []): Promise<void> {
  const { metadata, spec } = parsePodProtector(await cluster.admin.get(PROTECTOR));
  const summary = { totalReplicas: available, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 };
  const status = {
    cells: [makeCell("cell-1", available, buckets, {}, spec)],
    summary,
    observedGeneration: metadata.generation,
  };
  await cluster.admin.call("PATCH", `${PROTECTOR}/status`, { status });
}

async function shown(): Promise<string> {
  const { stdout } = await cluster.kubectl(["get", "podunavailablebudgets", "web", "--no-headers"]);
  return stdout.trim().split(/\s+/).slice(0, 5).join(" ");
}

function reservation(podName: string, operation: string): Bucket {
  return {
    ...{ startTime: ADMITTED, podUID: `${podName}-uid`, podName, counter: 1, podResourceVersion: "5", operation },
    ...{ nonce: "n1", paid: true },
  };
}

function isAt(available: number): (found: unknown) => boolean {
  return (found) => field(found, "status", "currentAvailable") === available;
}

/** OpenKruise's manager writes the status. */
async function writtenByKruise(currentAvailable: number): Promise<void> {
  const figures = { desiredAvailable: 3, totalReplicas: 5, unavailableAllowed: 2, observedGeneration: 1 };
  const status = { ...figures, currentAvailable };
  await cluster.admin.call("PATCH", `${BUDGET}/status?fieldManager=kruise-manager`, { status });
}

/** The generator has found so often that the status is another manager's. */
async function left(times: number): Promise<void> {
  await cluster.waitFor("the status to be left alone", async () => {
    return running?.events.filter(({ kind }) => kind === "statusLeft").length === times;
  });
}

test("kubectl get pub shows what is counted, reserved, and left", async () => {
  await counted(5, [reservation("web-0", "DELETE"), reservation("web-1", "UPDATE")]);
  const found = await eventually(cluster, BUDGET, isAt(3));
  expect(field(found, "status")).toEqual({
    observedGeneration: field(found, "metadata", "generation"),
    ...{ currentAvailable: 3, desiredAvailable: 3, unavailableAllowed: 0, totalReplicas: 5 },
    disruptedPods: { "web-0": "2026-11-20T10:00:00Z" },
    unavailablePods: { "web-1": "2026-11-20T10:00:00Z" },
  });
  expect(await shown()).toBe("web 0 3 3 5");
  await counted(5);
  const after = await eventually(cluster, BUDGET, isAt(5));
  expect(field(after, "status", "disruptedPods")).toEqual({});
  expect(await shown()).toBe("web 2 5 3 5");
});

test("a status of another manager is left alone until it is removed", async () => {
  await writtenByKruise(4);
  await counted(5);
  await left(1);
  expect(field(await cluster.admin.get(BUDGET), "status", "currentAvailable")).toBe(4);
  expect(running?.events.filter(({ kind }) => kind === "statusWritten")).toEqual([]);
  await shellCommand(cluster, PAGE, "statuses");
  await eventually(cluster, BUDGET, isAt(5));
  await writtenByKruise(9);
  await left(2);
  expect(field(await cluster.admin.get(BUDGET), "status", "currentAvailable")).toBe(9);
});

test("a budget that states no pods requires none, as OpenKruise's own controller has it", async () => {
  const annotations = { "pub.kruise.io/protect-total-replicas": "0" };
  await cluster.admin.call("PATCH", BUDGET, { metadata: { annotations } });
  await eventually(cluster, PROTECTOR, (found) => field(found, "spec", "minAvailable") === 0);
});

/** What OpenKruise's webhook for budgets does while both feature gates are off; `kruise.test.ts` has the real one. */
async function refusedByKruise(): Promise<void> {
  const rule = (resource: string): object => ({
    name: `v${resource.slice(0, -1)}.kb.io`,
    clientConfig: { url: "https://127.0.0.1:1/validate" },
    rules: [{ apiGroups: ["*"], apiVersions: ["*"], operations: ["CREATE", "UPDATE"], resources: [resource] }],
    ...{ failurePolicy: "Fail", sideEffects: "None", admissionReviewVersions: ["v1"] },
  });
  const webhooks = [rule("podunavailablebudgets"), rule("imagelistpulljobs")];
  const metadata = { name: KRUISE, annotations: { template: JSON.stringify(webhooks) } };
  const kind = "ValidatingWebhookConfiguration";
  await cluster.apply([{ apiVersion: "admissionregistration.k8s.io/v1", kind, metadata, webhooks }]);
}

test("a budget is changed and deleted as before when OpenKruise's webhook is not asked any more", async () => {
  await refusedByKruise();
  try {
    const change = async () => await cluster.admin.request("PATCH", BUDGET, { metadata: { labels: { team: "a" } } });
    await cluster.waitFor("the change to be refused", async () => (await change()).status >= 400);
    await shellCommand(cluster, PAGE, "unasked");
    await cluster.waitFor("the change to be made", async () => (await change()).status === 200);
    await shellCommand(cluster, PAGE, "operations");
    const operations = ["DELETE", "EVICT"];
    await eventually(cluster, PROTECTOR, (found) =>
      isDeepStrictEqual(field(found, "spec", "protectedOperations"), operations),
    );
    const { metadata } = Object(await cluster.admin.get(CONFIGURATION));
    const resources = JSON.parse(metadata.annotations.template).map((one: unknown) =>
      field(one, "rules", 0, "resources"),
    );
    expect(resources).toEqual([["podunavailablebudgets/nothing"], ["imagelistpulljobs"]]);
  } finally {
    await cluster.admin.request("DELETE", CONFIGURATION);
  }
});

test("a budget that is not protected any more shows no figures", async () => {
  await counted(5);
  await eventually(cluster, BUDGET, isAt(5));
  await cluster.admin.call("PATCH", BUDGET, { metadata: { labels: { [`${GROUP}/protect`]: "false" } } });
  const left = await eventually(cluster, BUDGET, (found) => field(found, "metadata", "finalizers") === undefined);
  expect(field(left, "status")).toBeUndefined();
});

test("a kind without a status subresource is no error", async () => {
  const { spec } = Object(await cluster.admin.get(CRD_PATH));
  const versions = Object(spec).versions.map((version: object) => ({ ...version, subresources: {} }));
  await cluster.admin.call("PATCH", CRD_PATH, { spec: { versions } });
  await eventually(cluster, `${BUDGET}/status`, (found) => found === undefined);
  const refused = counting.writes.refused;
  await counted(5);
  await cluster.waitFor("a write of the status", async () => counting.writes.refused > refused);
  // The generator has gone on: it repairs the protector.
  await cluster.admin.call("PATCH", PROTECTOR, { spec: { minAvailable: 0 } });
  await eventually(cluster, PROTECTOR, (found) => field(found, "spec", "minAvailable") === 3);
  const failures = running?.events.filter((event) => event.kind === "failed" && event.tag !== "conflict");
  expect(failures).toEqual([]);
  await installCrd(cluster, CRD);
});
