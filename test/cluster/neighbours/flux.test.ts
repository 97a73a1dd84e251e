/**
 * Flux applies and prunes what podseidon protects and writes into (docs/gitops.md, docs/neighbours.md#flux). With
 * PODSEIDON_TEST_SIZE=full only, because Flux's kustomize-controller is built for it.
 */
import { join } from "node:path";
import { loadAll } from "js-yaml";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { ManagedProcess } from "../../../scripts/control-plane/managed-process.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { releaseCommand } from "../../../shared/recovery/register/register-format.ts";
import { deployment, PROTECTED } from "../../support/cluster/deployments.ts";
import { operatorShell } from "../../support/cluster/documented.ts";
import { waitUntilSettled } from "../../support/cluster/protectors.ts";
import { eventually, protectorPath, readObject } from "../../support/generator/generator-harness.ts";
import { ensureNeighbour } from "../../support/neighbours/binaries.ts";
import { startKustomizeController } from "../../support/neighbours/controllers.ts";
import { FluxSource, KUSTOMIZATION } from "../../support/neighbours/flux.ts";

const NAMESPACE = "default";
const REPLICAS = 3;
const POLICY = "podseidon-workload-deletions";
const REGISTER = "podseidon-released-by-hand";
const DEPLOYMENTS = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`;
const PODS = `/api/v1/namespaces/${NAMESPACE}/pods`;
const UID = "00000000-0000-4000-8000-000000000000";
const APPLIED = { status: "True", reason: "ReconciliationSucceeded" };
const REFUSED = expect.stringMatching(/denied request: .*Scale it to zero and delete it/);

let environment: TestEnvironment;
let cluster: Cluster;
let generator: Component | undefined;
let flux: ManagedProcess | undefined;
let source: FluxSource | undefined;
let manifests: readonly unknown[];

const named = (name: string): readonly unknown[] => manifests.filter((one) => field(one, "metadata", "name") === name);

function workload(name: string, replicas = REPLICAS, more: object = {}): ReturnType<typeof deployment> {
  const spec = { strategy: { rollingUpdate: { maxUnavailable: 1 } } };
  return deployment(name, replicas, { spec, podSpec: { terminationGracePeriodSeconds: 1 }, ...more });
}

function published(...objects: readonly unknown[]): ReturnType<FluxSource["publish"]> {
  if (source === undefined) throw new Error("there is no source");
  return source.publish(objects);
}

function reconciled(): ReturnType<FluxSource["reconcile"]> {
  if (source === undefined) throw new Error("there is no source");
  return source.reconcile();
}

/** Resolves when all of its pods are counted, and the generator has its finalizer in it. */
async function untilProtected(name: string): Promise<void> {
  await eventually(cluster, protectorPath(NAMESPACE, `deployment-${name}`), (one) => one !== undefined);
  await waitUntilSettled(cluster, NAMESPACE, `deployment-${name}`, REPLICAS);
  const held = (one: unknown): boolean => field(one, "metadata", "finalizers") !== undefined;
  await eventually(cluster, `${DEPLOYMENTS}/${name}`, held);
}

const uids = async (name: string): Promise<unknown[]> =>
  items(await cluster.admin.get(`${PODS}?labelSelector=app%3D${name}`)).map((pod) => field(pod, "metadata", "uid"));

describe.runIf(process.env.PODSEIDON_TEST_SIZE === "full")("with Flux", () => {
  beforeAll(async () => {
    await ensureNeighbour("kustomize-controller");
    environment = await TestEnvironment.start({
      ...{ cells: ["cell"], single: true, replicas: 1, settle: "8s" },
      cell: { nodes: 1 },
    });
    cluster = environment.core;
    generator = await environment.startGenerator();
    const { stdout } = await cluster.kubectl(["kustomize", join(root, "manifests/overlays/core")]);
    manifests = loadAll(stdout);
    await cluster.apply(named(POLICY));
    flux = await startKustomizeController(cluster);
    source = await FluxSource.start(cluster);
  }, 60 * 60_000);

  afterAll(async () => {
    await flux?.kill("SIGKILL");
    await source?.[Symbol.asyncDispose]();
    await generator?.stop();
    await environment?.stop();
  });

  test("what the plugin writes and a release by hand outlast Flux, and what kubectl writes does not", async () => {
    const typed = operatorShell(join(root, "dist"), [cluster]);
    const spec = { minAvailable: 1, selector: { matchLabels: { app: "labelled" } } };
    const metadata = { name: "by-hand", namespace: NAMESPACE };
    const protector = { apiVersion: "podseidon.kubewharf.io/v1alpha1", kind: "PodProtector", metadata, spec };
    const labelled = workload("labelled", REPLICAS, { labels: {} });
    expect(await published(...named(REGISTER), protector, labelled)).toMatchObject(APPLIED);
    await typed(`kubectl podseidon suspend by-hand --namespace ${NAMESPACE} --yes`);
    await typed(releaseCommand("podseidon-system", UID, `${NAMESPACE}/gone`));
    const [label = ""] = Object.keys(PROTECTED);
    await typed(`kubectl label deployment labelled --namespace ${NAMESPACE} ${label}=true`);
    await untilProtected("labelled");
    expect(await reconciled()).toMatchObject(APPLIED);
    const its = protectorPath(NAMESPACE, "deployment-labelled");
    await eventually(cluster, its, (one) => one === undefined);
    expect(field(await cluster.admin.get(protectorPath(NAMESPACE, "by-hand")), "spec", "suspend")).toMatchObject({
      enabled: true,
    });
    const register = await cluster.admin.get(`/api/v1/namespaces/podseidon-system/configmaps/${REGISTER}`);
    expect(field(register, "data")).toEqual({ [UID]: `${NAMESPACE}/gone` });
  });

  test("a protected workload that leaves the manifests stays, and goes once it was at zero there", async () => {
    expect(await published(workload("pruned"))).toMatchObject(APPLIED);
    await untilProtected("pruned");
    const before = await cluster.admin.get(`${DEPLOYMENTS}/pruned`);
    expect(await reconciled()).toMatchObject(APPLIED);
    // Flux finds nothing to change: what the generator writes is no drift.
    expect(field(await cluster.admin.get(`${DEPLOYMENTS}/pruned`), "metadata")).toEqual(field(before, "metadata"));
    const pods = await uids("pruned");
    expect(await published()).toMatchObject({ status: "False", reason: "PruneFailed", message: REFUSED });
    expect(await reconciled()).toMatchObject({ status: "False", reason: "PruneFailed", message: REFUSED });
    expect(await uids("pruned")).toEqual(pods);
    expect(await published(workload("pruned", 0))).toMatchObject(APPLIED);
    await waitUntilSettled(cluster, NAMESPACE, "deployment-pruned", 0);
    expect(await published()).toMatchObject(APPLIED);
    await eventually(cluster, `${DEPLOYMENTS}/pruned`, (one) => one === undefined);
  });

  test("a protected workload is not recreated by force for a field that can't be changed", async () => {
    expect(await published(workload("forced"))).toMatchObject(APPLIED);
    await untilProtected("forced");
    const pods = await uids("forced");
    const { spec, ...other } = workload("forced");
    const labels = { app: "forced", another: "label" };
    const template = { ...spec.template, metadata: { labels } };
    const annotations = { "kustomize.toolkit.fluxcd.io/force": "enabled" };
    const metadata = { ...other.metadata, annotations };
    const another = { ...other, metadata, spec: { ...spec, template, selector: { matchLabels: labels } } };
    expect(await published(another)).toMatchObject({ status: "False", message: REFUSED });
    expect(await uids("forced")).toEqual(pods);
    expect(await published(workload("forced", 0))).toMatchObject(APPLIED);
    expect(await published({ ...another, spec: { ...another.spec, replicas: 0 } })).toMatchObject(APPLIED);
    expect(field(await cluster.admin.get(`${DEPLOYMENTS}/forced`), "spec", "selector", "matchLabels")).toEqual(labels);
  });

  test("a Kustomization that is deleted waits for its protected workload, and takes the others along", async () => {
    expect(await published(workload("kept"), workload("taken", REPLICAS, { labels: {} }))).toMatchObject(APPLIED);
    await untilProtected("kept");
    const pods = await uids("kept");
    await cluster.admin.call("DELETE", KUSTOMIZATION);
    await eventually(cluster, `${DEPLOYMENTS}/taken`, (one) => one === undefined);
    expect(await readObject(cluster, KUSTOMIZATION)).toBeDefined();
    expect(await uids("kept")).toEqual(pods);
    await cluster.admin.call("PATCH", `${DEPLOYMENTS}/kept`, { spec: { replicas: 0 } });
    await eventually(cluster, KUSTOMIZATION, (one) => one === undefined);
    await eventually(cluster, `${DEPLOYMENTS}/kept`, (one) => one === undefined);
  });
});
