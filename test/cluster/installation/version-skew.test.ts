/**
 * Components beside newer ones: a CRD of PodProtector with fields that they do not know, and objects that contain such
 * fields. They work as before, and unknown fields stay. And components on a CRD that lacks fields, as after an upgrade
 * without it. (`test/interoperation/upstream.test.ts` tests other software with fewer fields.)
 */
import { readFileSync } from "node:fs";
import { load } from "js-yaml";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { CRD as CRD_FILE, TestEnvironment } from "../../../scripts/environment/environment.ts";
import { COUNTED_CONDITION } from "../../../shared/schema/annotations.ts";
import { parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { ask, messageOf } from "../../support/cluster/ask.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, reservationCount, waitUntilSettled } from "../../support/cluster/protectors.ts";

const CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podprotectors.podseidon.kubewharf.io";
const PROTECTOR = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors/web";
const PODS = 4;
const MIN_AVAILABLE = 3;
const NEWER = { "of-a-newer-version": { since: "2.0", numbers: [1, 2] } };
const ELSEWHERE = {
  cellID: "elsewhere",
  ...NEWER,
  aggregation: {
    totalReplicas: 0,
    availableReplicas: 0,
    readyReplicas: 0,
    scheduledReplicas: 0,
    runningReplicas: 0,
    lastEventTime: "2026-01-01T00:00:00.000000Z",
    ...NEWER,
  },
  admissionHistory: {},
};
/** Paths at which a newer version may have fields. */
const PLACES = [
  ["spec"],
  ["spec", "admissionHistoryConfig"],
  ["status"],
  ["status", "summary"],
  ["status", "cells", 0],
  ["status", "cells", 0, "aggregation"],
  ["status", "cells", 0, "admissionHistory"],
] as const;

type Json = Record<string, unknown>;
let environment: TestEnvironment;

function at(object: unknown, path: readonly (string | number)[]): Json {
  const found = path.length === 0 ? object : field(object, ...path);
  if (typeof found !== "object" || found === null) throw new Error(`there is no ${path.join(".")}`);
  return Object(found);
}

/** Changes the schema as a newer CRD would: unknown fields are kept. */
function openedUp(schema: unknown): void {
  const node = Object(schema);
  if (node.type === "object" && node.properties !== undefined) node["x-kubernetes-preserve-unknown-fields"] = true;
  const children = [...Object.values(node.properties ?? {}), ...(node.items === undefined ? [] : [node.items])];
  for (const child of children) openedUp(child);
}

/** Reads, changes and writes an object, and retries after a conflict. */
async function change(path: string, alter: (object: Json) => void, subresource = ""): Promise<void> {
  await environment.core.waitFor(`${path} to be changed`, async () => {
    const object = at(await environment.core.admin.get(path), []);
    alter(object);
    const { status, text } = await environment.core.admin.request("PUT", `${path}${subresource}`, object);
    if (status !== 200 && status !== 409) throw new Error(text);
    return status === 200;
  });
}

beforeAll(async () => {
  environment = await TestEnvironment.start({
    cells: ["east"],
    single: true,
    replicas: 0,
    aggregators: false,
    aggregatorArgs: ["--heartbeat-interval=2s"],
    cell: BARE,
  });
  await change(CRD, (crd) => {
    const { spec, status } = Object(field(crd, "spec", "versions", 0, "schema", "openAPIV3Schema", "properties"));
    for (const part of [spec, status]) openedUp(part);
  });
  const spec = { minAvailable: MIN_AVAILABLE, selector: {}, minReadySeconds: 0, ...NEWER };
  const probe = {
    apiVersion: "podseidon.kubewharf.io/v1alpha1",
    kind: "PodProtector",
    metadata: { name: "web" },
    spec,
  };
  await environment.core.waitFor("the newer definition to be in force", async () => {
    const collection = PROTECTOR.slice(0, PROTECTOR.lastIndexOf("/"));
    return (await environment.core.admin.request("POST", `${collection}?dryRun=All`, probe)).text.includes(
      "of-a-newer",
    );
  });
  // A stream from before is served by the older definition for a while, without the fields that it does not know.
  await environment.addWebhook("webhook-1");
  await environment.startAggregator("east");
  const labels = { app: "web" };
  const selector = { matchLabels: labels };
  await createProtector(environment.core, "default", "web", {
    minAvailable: MIN_AVAILABLE,
    selector,
    admissionHistoryConfig: {},
  });
  await createReadyPods(environment.core, { namespace: "default", prefix: "web", count: PODS, labels });
  await waitUntilSettled(environment.core, "default", "web", PODS);
});

afterAll(() => environment?.stop());

test("fields of a newer version survive a deletion and its settling, in spec, status and every cell", async () => {
  const { admin } = environment.core;
  await change(PROTECTOR, (protector) => {
    for (const path of PLACES.filter(([part]) => part === "spec")) Object.assign(at(protector, path), NEWER);
  });
  await change(
    PROTECTOR,
    (protector) => {
      for (const path of PLACES.filter(([part]) => part === "status")) Object.assign(at(protector, path), NEWER);
      const status = at(protector, ["status"]);
      status.cells = [field(status, "cells", 0), ELSEWHERE];
    },
    "/status",
  );
  const deleted = await ask(environment.core, "DELETE", "/api/v1/namespaces/default/pods/web-0");
  expect(deleted.status, messageOf(deleted)).toBe(200);
  await waitUntilSettled(environment.core, "default", "web", PODS - 1);
  const after = await admin.get(PROTECTOR);
  expect(PLACES.filter((path) => at(after, path)["of-a-newer-version"] === undefined)).toEqual([]);
  expect(field(after, "status", "cells", 1)).toEqual(ELSEWHERE);
  expect(reservationCount(parsePodProtector(after))).toBe(0);
});

test("and the minimum is kept meanwhile", async () => {
  const { status } = await environment.core.admin.request("DELETE", "/api/v1/namespaces/default/pods/web-1");
  expect([409, 429]).toContain(status);
});

/** A pod that waits for its count alone. No kubelet sets it Ready, so it stays counted and not Ready. */
async function createGatedPod(name: string): Promise<void> {
  const { admin } = environment.core;
  const pods = "/api/v1/namespaces/default/pods";
  const spec = {
    schedulerName: "none",
    containers: [{ name: "app", image: "app:1" }],
    readinessGates: [{ conditionType: COUNTED_CONDITION }],
  };
  await admin.call("POST", pods, { apiVersion: "v1", kind: "Pod", metadata: { name, labels: { app: "web" } }, spec });
  const conditions = [
    { type: "ContainersReady", status: "True" },
    { type: "Ready", status: "False", reason: "ReadinessGatesNotReady" },
  ];
  await admin.call("PATCH", `${pods}/${name}/status`, { status: { phase: "Running", conditions } });
}

test.each(["notReady", "resourceVersion"])("a CRD without %s is told of until it has the field again", async (name) => {
  const told = (value: number): Promise<void> =>
    environment.core.waitFor(
      `podseidon_aggregator_inexact_cores to be ${value}`,
      async () => (await environment.aggregators.get("east")?.metric("podseidon_aggregator_inexact_cores")) === value,
    );
  const own = at(load(readFileSync(CRD_FILE, "utf8")), []);
  const older = structuredClone(own);
  const status = ["versions", 0, "schema", "openAPIV3Schema", "properties", "status", "properties", "cells", "items"];
  delete at(older, ["spec", ...status, "properties", "aggregation", "properties"])[name];
  await change(CRD, (crd) => Object.assign(crd, { spec: older.spec }));
  await createGatedPod(`gated-${name.toLowerCase()}`);
  await told(1);
  await change(CRD, (crd) => Object.assign(crd, { spec: own.spec }));
  await told(0);
  await environment.core.waitFor("an exact count", async () => {
    const counts = at(await environment.core.admin.get(PROTECTOR), ["status", "cells", 0, "aggregation"]);
    return counts.specHash !== undefined && String(counts.notReady).endsWith(`@${String(counts.resourceVersion)}`);
  });
});
