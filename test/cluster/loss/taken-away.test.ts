/**
 * What kubectl, GitOps tools and controllers of Kubernetes take away of what a promise rests on: the owner of pods in
 * the foreground, annotations, and a namespace with its budgets (docs/gitops.md, docs/operations.md).
 */

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { wakingControllers } from "../../support/cluster/denied-controllers.ts";
import { deployment, PROTECTED } from "../../support/cluster/deployments.ts";
import { shellCommand } from "../../support/cluster/documented.ts";
import { createProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";
import { eventually, GROUP, protectorPath, readObject } from "../../support/generator/generator-harness.ts";

const GUIDE = readFileSync(new URL("../../../docs/operations.md", import.meta.url), "utf8");
const UNPROTECTED = {};
let environment: TestEnvironment;
let generator: Component;

beforeAll(async () => {
  environment = await TestEnvironment.start({ cells: ["cell"], single: true, replicas: 1, cell: { nodes: 1 } });
  generator = await environment.startGenerator();
});

afterAll(async () => {
  await generator?.stop();
  await environment?.stop();
});

const path = (namespace: string, name: string): string => `/apis/apps/v1/namespaces/${namespace}/deployments/${name}`;

async function inNamespace(namespace: string, object: object): Promise<void> {
  await environment.core.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } }, object]);
}

/** Of as many pods as `replicas`, of which one may be away. */
function web(namespace: string, name: string, replicas: number, labels: object = PROTECTED): object {
  const spec = { strategy: { rollingUpdate: { maxUnavailable: 1, maxSurge: 1 } } };
  return deployment(name, replicas, { namespace, labels, spec, podSpec: { terminationGracePeriodSeconds: 1 } });
}

async function kubectl(...args: readonly string[]): Promise<void> {
  const { code, stderr } = await environment.core.kubectl(args);
  expect([code, code === 0 ? "" : stderr]).toEqual([0, ""]);
}

async function podUids(namespace: string): Promise<string[]> {
  const pods = items(await environment.core.admin.get(`/api/v1/namespaces/${namespace}/pods`));
  return pods
    .filter((pod) => field(pod, "metadata", "deletionTimestamp") === undefined)
    .map((pod) => String(field(pod, "metadata", "uid")));
}

test("a deletion in the foreground leaves pods that nobody replaces, and the page takes it back", async () => {
  const { core } = environment;
  const shop = web("shop", "web", 4, UNPROTECTED);
  await inNamespace("shop", shop);
  await createProtector(core, "shop", "web", { minAvailable: 3, selector: { matchLabels: { app: "web" } } });
  await waitUntilSettled(core, "shop", "web", 4);
  await kubectl("delete", "deployment", "web", "--namespace=shop", "--cascade=foreground", "--wait=false");
  await waitUntilSettled(core, "shop", "web", 3);
  const events = "/api/v1/namespaces/shop/events?fieldSelector=reason=DisruptionRefused";
  const told = /its owner or namespace is deleted. Nobody replaces it: create the workload again/;
  const isTold = (list: unknown): boolean => items(list).some((one) => told.test(String(field(one, "message"))));
  await eventually(core, events, isTold);
  await core.apply([shop]);
  expect(field(await core.admin.get(path("shop", "web")), "metadata", "deletionTimestamp")).toBeDefined();
  const left = await podUids("shop");
  await shellCommand(core, GUIDE, "take a foreground deletion back");
  await core.apply([shop]);
  await waitUntilSettled(core, "shop", "web", 4);
  expect(await podUids("shop")).toEqual(expect.arrayContaining(left));
});

test("an undo puts the annotations of an older revision back, and leaves the label", async () => {
  const { core } = environment;
  const requires = (pods: number) => (one: unknown) => field(one, "spec", "minAvailable") === pods;
  const [labelled, annotated] = [
    protectorPath("undo", "deployment-labelled"),
    protectorPath("undo", "deployment-bare"),
  ];
  await inNamespace("undo", web("undo", "labelled", 3));
  await core.apply([web("undo", "bare", 3, UNPROTECTED)]);
  const each = async (...args: readonly string[]): Promise<void> => {
    for (const name of ["labelled", "bare"]) await kubectl("--namespace=undo", ...args, `deployment/${name}`);
  };
  const wake = wakingControllers(core, "undo");
  const complete = (): Promise<void> =>
    core.waitFor("both rollouts", async () => {
      await wake();
      const status = ["rollout", "status", "--namespace=undo", "--watch=false"];
      const all = ["labelled", "bare"].map((name) => core.kubectl([...status, `deployment/${name}`]));
      return (await Promise.all(all)).every(({ stdout }) => stdout.includes("successfully rolled out"));
    });
  await complete();
  for (const name of ["labelled", "bare"])
    await kubectl("--namespace=undo", "set", "image", `deployment/${name}`, "app=app:2");
  await complete();
  await kubectl("--namespace=undo", "annotate", "deployment/labelled", `${GROUP}/min-available=3`);
  await kubectl("--namespace=undo", "annotate", "deployment/bare", `${GROUP}/protect=true`);
  await eventually(core, labelled, requires(3));
  await eventually(core, annotated, requires(2));
  await each("rollout", "undo");
  await eventually(core, labelled, requires(2));
  await eventually(core, annotated, (one) => one === undefined);
});

test("a replacement takes off the annotation by which a workload is adopted", async () => {
  const { core } = environment;
  const [where, its] = [path("back", "web"), protectorPath("back", "deployment-web")];
  const adoption = (one: unknown): unknown => field(one, "metadata", "annotations", `${GROUP}/protect`);
  await inNamespace("back", web("back", "web", 3));
  const held = (one: unknown): boolean => field(one, "metadata", "finalizers") !== undefined;
  await eventually(core, where, held);
  await eventually(core, its, (one) => one !== undefined);
  await kubectl("--namespace=back", "delete", "deployment/web", "--cascade=orphan");
  const silent = web("back", "web", 3, UNPROTECTED);
  await core.apply([silent]);
  await eventually(core, where, (one) => adoption(one) === "adopted" && held(one));
  const { code } = await core.kubectl(["replace", "--filename", "-"], { input: JSON.stringify(silent) });
  expect(code).toBe(0);
  await eventually(core, its, (one) => one === undefined);
  expect(adoption(await core.admin.get(where))).toBeUndefined();
});

test("a namespace takes its budgets and protectors made by hand along, and then the pods", async () => {
  const { core } = environment;
  const selector = { matchLabels: { app: "web" } };
  const budget = {
    apiVersion: "policy/v1",
    kind: "PodDisruptionBudget",
    metadata: { name: "web", namespace: "budgets", labels: PROTECTED },
    spec: { minAvailable: 3, selector },
  };
  await inNamespace("budgets", web("budgets", "web", 3, UNPROTECTED));
  await core.apply([budget]);
  await createProtector(core, "budgets", "by-hand", { minAvailable: 2, selector });
  for (const name of ["by-hand", "poddisruptionbudget-web"]) {
    await eventually(core, protectorPath("budgets", name), (one) => one !== undefined);
    await waitUntilSettled(core, "budgets", name, 3);
  }
  await kubectl("delete", "namespace", "budgets", "--wait=false");
  await core.waitFor(
    "the namespace to be gone, and its pods with it",
    async () => (await readObject(core, "/api/v1/namespaces/budgets")) === undefined,
  );
});
