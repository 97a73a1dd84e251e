/** Every kind of workload and budget against a real kube-apiserver, and the protectors of each. */

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import { CountingTransport } from "../../support/generator/counting-transport.ts";
import {
  eventually,
  type GeneratorHarnessOptions,
  GROUP,
  generatorTransport,
  grantScalable,
  installCrd,
  installGenerator,
  protectorPath,
  type RunningGenerator,
  readObject,
  startGenerator,
} from "../../support/generator/generator-harness.ts";

const AT_ONCE = process.env.PODSEIDON_TEST_SIZE === "full" ? 5000 : 400;
const SCALABLE = ["fleet.example.com/v1/workloads"];

let cluster: Cluster;
let transport: Transport;
let namespace: string;
let spaces = 0;
const running: RunningGenerator[] = [];

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
  await installGenerator(cluster);
  await grantScalable(cluster, "fleet.example.com", "workloads");
  transport = await generatorTransport(cluster);
});

afterAll(async () => {
  transport?.close();
  await cluster?.stop();
});

beforeEach(async () => {
  namespace = `kinds-${++spaces}`;
  await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } }]);
});

afterEach(() => Promise.all(running.splice(0).map((one) => one.stop())));

function start(options: GeneratorHarnessOptions = {}, through: Transport = transport): RunningGenerator {
  const one = startGenerator(through, options);
  running.push(one);
  return one;
}

const template = { metadata: { labels: { app: "web" } }, spec: { containers: [{ name: "app", image: "app" }] } };
const selector = { matchLabels: { app: "web" } };

function workload(kind: string, spec: object, metadata: object = {}): object {
  const apiVersion = kind === "ReplicationController" ? "v1" : kind === "Job" ? "batch/v1" : "apps/v1";
  return {
    apiVersion,
    kind,
    metadata: { name: "web", namespace, labels: PROTECTED, ...metadata },
    spec: { ...(kind === "Job" ? {} : { selector }), template, ...spec },
  };
}

function budget(apiVersion: string, kind: string, spec: object, metadata: object = {}): object {
  return { apiVersion, kind, metadata: { name: "web", namespace, labels: PROTECTED, ...metadata }, spec };
}

const minimum = (name: string, expected: number): Promise<unknown> =>
  eventually(cluster, protectorPath(namespace, name), (one) => field(one, "spec", "minAvailable") === expected);
const gone = (path: string): Promise<unknown> => eventually(cluster, path, (one) => one === undefined);
const patch = (path: string, body: object): Promise<unknown> => cluster.admin.call("PATCH", path, body);
const told = (one: RunningGenerator, kind: string): Promise<void> =>
  cluster.waitFor(`an event ${kind}`, async () => one.events.some((event) => event.kind === kind));

describe("a workload", () => {
  test.each<[string, object, object, number]>([
    ["StatefulSet", { replicas: 5 }, { replicas: 8 }, 4],
    ["ReplicaSet", { replicas: 8 }, { replicas: 12 }, 6],
    ["ReplicationController", { replicas: 8, selector: { app: "web" } }, { replicas: 12 }, 6],
  ])("%s is protected, held, and followed", async (kind, spec, change, first) => {
    start();
    await cluster.apply([workload(kind, spec)]);
    const name = `${kind.toLowerCase()}-web`;
    const found = await minimum(name, first);
    const resource = `${kind.toLowerCase()}s`;
    const root = kind === "ReplicationController" ? "/api/v1" : "/apis/apps/v1";
    const path = `${root}/namespaces/${namespace}/${resource}/web`;
    expect(field(found, "metadata", "labels", `${GROUP}/source-resource`)).toBe(resource);
    expect(field(found, "metadata", "ownerReferences", 0, "kind")).toBe(kind);
    expect(field(await readObject(cluster, path), "metadata", "finalizers")).toEqual([`${GROUP}/generator`]);
    await patch(path, { spec: change });
    await minimum(name, kind === "StatefulSet" ? 7 : 9);
    await patch(path, { spec: { replicas: 0 } });
    await minimum(name, 0);
    // Otherwise a ReplicationController would wait for a garbage collector to orphan its pods.
    await cluster.admin.call("DELETE", `${path}?propagationPolicy=Background`);
    await gone(path);
    expect(await readObject(cluster, protectorPath(namespace, name))).toBeUndefined();
  });

  test("DaemonSet: the nodes that should run it, less maxUnavailable", async () => {
    start();
    await cluster.apply([
      workload("DaemonSet", { updateStrategy: { type: "RollingUpdate", rollingUpdate: { maxUnavailable: "30%" } } }),
    ]);
    await minimum("daemonset-web", 0);
    const path = `/apis/apps/v1/namespaces/${namespace}/daemonsets/web/status`;
    const status = { currentNumberScheduled: 10, desiredNumberScheduled: 10, numberMisscheduled: 0, numberReady: 10 };
    await patch(path, { status });
    const found = await minimum("daemonset-web", 7);
    expect(field(found, "metadata", "annotations", `${GROUP}/derivation`)).toBe(
      "nodes 10 - maxUnavailable 3 (30% rounded up) = minAvailable 7 (nodes of this cluster that should run it)",
    );
  });

  test("Job: ignored with one message, and without finalizers", async () => {
    const one = start();
    const job = workload("Job", { template: { ...template, spec: { ...template.spec, restartPolicy: "Never" } } });
    await cluster.apply([job, workload("Deployment", { replicas: 4 })]);
    await told(one, "ignored");
    await minimum("deployment-web", 3);
    await patch(`/apis/batch/v1/namespaces/${namespace}/jobs/web`, { metadata: { annotations: { note: "x" } } });
    await patch(`/apis/apps/v1/namespaces/${namespace}/deployments/web`, { spec: { replicas: 8 } });
    await minimum("deployment-web", 6);
    expect(one.events.filter(({ kind }) => kind === "ignored")).toHaveLength(1);
    const found = await readObject(cluster, `/apis/batch/v1/namespaces/${namespace}/jobs/web`);
    expect(field(found, "metadata", "finalizers")).toBeUndefined();
  });

  test("of two kinds over the same pods has a protector of each, and a taken name stays with its owner", async () => {
    start();
    const taken = {
      apiVersion: `${GROUP}/v1alpha1`,
      kind: "PodProtector",
      metadata: { name: "deployment-web", namespace },
    };
    await cluster.apply([{ ...taken, spec: { minAvailable: 1, minReadySeconds: 0, selector } }]);
    const pdb = budget("policy/v1", "PodDisruptionBudget", { minAvailable: 3, selector });
    await cluster.apply([workload("Deployment", { replicas: 10 }), pdb]);
    await minimum("poddisruptionbudget-web", 3);
    const list = await eventually(cluster, protectorPath(namespace), (all) => items(all).length === 3);
    const owned = items(list).filter((one) => field(one, "metadata", "ownerReferences", 0, "kind") === "Deployment");
    expect(owned.map((one) => field(one, "spec", "minAvailable"))).toEqual([8]);
    expect(field(await readObject(cluster, protectorPath(namespace, "deployment-web")), "spec", "minAvailable")).toBe(
      1,
    );
  });

  test("that opts out by annotation is released, and one out of scope is left alone", async () => {
    const first = start();
    await cluster.apply([workload("Deployment", { replicas: 4 })]);
    await minimum("deployment-web", 3);
    await first.stop();
    const second = start({ plugins: { namespaces: ["elsewhere"] } });
    const path = `/apis/apps/v1/namespaces/${namespace}/deployments/web`;
    await patch(path, { metadata: { labels: { [`${GROUP}/protect`]: "false" } } });
    await cluster.waitFor("it to be ready", async () => second.generator.problem() === undefined);
    await second.stop();
    expect(second.events.filter((event) => "source" in event && String(event.source).includes(namespace))).toEqual([]);
    await patch(path, { metadata: { labels: PROTECTED } });
    start();
    await patch(path, { metadata: { annotations: { [`${GROUP}/protect`]: "false" } } });
    await gone(protectorPath(namespace, "deployment-web"));
    await eventually(cluster, path, (one) => field(one, "metadata", "finalizers") === undefined);
  });
});

describe("a kind that is not installed", () => {
  test("is watched when it appears: a custom resource, by its scale subresource", async () => {
    const one = start({ plugins: { scalable: SCALABLE } });
    await cluster.waitFor("it to be ready without the kind", async () => one.generator.problem() === undefined);
    await told(one, "kindGone");
    await installCrd(cluster, "workloads.fleet.example.com");
    const path = `/apis/fleet.example.com/v1/namespaces/${namespace}/workloads/web`;
    await cluster.apply([budget("fleet.example.com/v1", "Workload", { size: 8 })]);
    await told(one, "unresolved");
    await patch(`${path}/status`, { status: { size: 8, pods: "app=web,tier in (a,b)" } });
    const found = await minimum("workload-web", 6);
    expect(field(found, "spec", "selector")).toEqual({
      matchExpressions: [
        { key: "app", operator: "In", values: ["web"] },
        { key: "tier", operator: "In", values: ["a", "b"] },
      ],
    });
    expect(field(found, "metadata", "labels", `${GROUP}/source-kind`)).toBe("Workload");
    await patch(path, { spec: { size: 20 }, metadata: { annotations: { [`${GROUP}/max-unavailable`]: "10%" } } });
    await minimum("workload-web", 18);
    await cluster.admin.call("DELETE", path);
    await patch(path, { metadata: { annotations: { note: "still there" } } });
    expect(field(await minimum("workload-web", 18), "metadata", "deletionTimestamp")).toBeUndefined();
    await patch(path, { spec: { size: 0 } });
    await gone(path);
    expect(await readObject(cluster, protectorPath(namespace, "workload-web"))).toBeUndefined();
  });

  test("PodUnavailableBudget: a targetRef is followed, and the kind may disappear and come back", async () => {
    const one = start();
    const crd = "podunavailablebudgets.policy.kruise.io";
    await installCrd(cluster, crd);
    const targetRef = { apiVersion: "apps/v1", kind: "Deployment", name: "web" };
    const ignoredPodSelector = { matchLabels: { tier: "batch", canary: "yes" } };
    const spec = { maxUnavailable: "20%", targetRef, ignoredPodSelector };
    await cluster.apply([
      workload("Deployment", { replicas: 9 }, { labels: {} }),
      budget("policy.kruise.io/v1beta1", "PodUnavailableBudget", spec),
    ]);
    const found = await minimum("podunavailablebudget-web", 7);
    expect(field(found, "spec")).toMatchObject({
      selector,
      ignoredPodSelector,
      unhealthyPodPolicy: "AlwaysAllow",
      protectedOperations: ["DELETE", "EVICT", "UPDATE"],
      unavailableLabelPrefix: "unavailable-pod.kruise.io/",
    });
    await patch(`/apis/apps/v1/namespaces/${namespace}/deployments/web/scale`, { spec: { replicas: 20 } });
    expect(field(await minimum("podunavailablebudget-web", 16), "metadata", "annotations", `${GROUP}/derivation`)).toBe(
      "expected 20 (Deployment web) - maxUnavailable 4 (20% rounded up) = minAvailable 16",
    );
    await cluster.admin.call("DELETE", `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${crd}`);
    await told(one, "kindGone");
    expect(one.generator.problem()).toBeUndefined();
    await installCrd(cluster, crd);
    const old = budget("policy.kruise.io/v1alpha1", "PodUnavailableBudget", { minAvailable: 4, selector });
    await cluster.apply([old]);
    await minimum("podunavailablebudget-web", 4);
  });

  test("PodUnavailableBudget: v1alpha1 is read where nothing newer is served", async () => {
    const crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podunavailablebudgets.policy.kruise.io";
    await installCrd(cluster, "podunavailablebudgets.policy.kruise.io");
    const before = await cluster.admin.get(crd);
    const versions = field(before, "spec", "versions");
    const older = (Array.isArray(versions) ? versions : []).map((version) =>
      field(version, "name") === "v1beta1" ? { ...Object(version), served: false } : version,
    );
    await patch(crd, { spec: { versions: older } });
    const newest = `/apis/policy.kruise.io/v1beta1/podunavailablebudgets`;
    await cluster.waitFor("v1beta1 to go", async () => (await cluster.admin.request("GET", newest)).status === 404);
    start();
    await cluster.apply([budget("policy.kruise.io/v1alpha1", "PodUnavailableBudget", { minAvailable: 5, selector })]);
    const found = await minimum("podunavailablebudget-web", 5);
    expect(field(found, "metadata", "ownerReferences", 0, "apiVersion")).toBe("policy.kruise.io/v1alpha1");
    await patch(crd, { spec: { versions } });
  });

  test("XPodDisruptionBudget: probe and suspension are copied to the protector", async () => {
    start();
    await installCrd(cluster, "xpoddisruptionbudgets.x-pdb.form3.tech");
    const probe = { endpoint: "probe.shop:8080" };
    const spec = { minAvailable: 3, selector, suspend: true, probe };
    await cluster.apply([budget("x-pdb.form3.tech/v1alpha1", "XPodDisruptionBudget", spec)]);
    const found = await minimum("xpoddisruptionbudget-web", 3);
    expect(field(found, "spec")).toMatchObject({
      unhealthyPodPolicy: "IfHealthyBudget",
      suspend: { enabled: true },
      probe: { endpoint: "probe.shop:8080", protocol: "GRPC" },
    });
    const path = `/apis/x-pdb.form3.tech/v1alpha1/namespaces/${namespace}/xpoddisruptionbudgets/web`;
    await patch(path, { spec: { suspend: false, minAvailable: 4, probe: { enabled: false } } });
    const after = await minimum("xpoddisruptionbudget-web", 4);
    expect(field(after, "spec", "suspend")).toBeUndefined();
    expect(field(after, "spec", "probe")).toBeUndefined();
  });
});

const AWAY = {
  apiVersion: "apiregistration.k8s.io/v1",
  kind: "APIService",
  metadata: { name: "v1.away.example.com" },
  spec: {
    ...{ group: "away.example.com", version: "v1", groupPriorityMinimum: 1000, versionPriority: 1 },
    ...{ insecureSkipTLSVerify: true, service: { namespace: "kube-system", name: "away" } },
  },
};

describe("a PodDisruptionBudget", () => {
  const path = (): string => `/apis/policy/v1/namespaces/${namespace}/poddisruptionbudgets/web`;

  test("is translated with its unhealthyPodEvictionPolicy, and its deletion releases the protector", async () => {
    start();
    const pdb = budget("policy/v1", "PodDisruptionBudget", { minAvailable: 3, selector });
    await cluster.apply([pdb]);
    expect(field(await minimum("poddisruptionbudget-web", 3), "spec", "unhealthyPodPolicy")).toBe("IfHealthyBudget");
    await patch(path(), { spec: { unhealthyPodEvictionPolicy: "AlwaysAllow", minAvailable: 2 } });
    expect(field(await minimum("poddisruptionbudget-web", 2), "spec", "unhealthyPodPolicy")).toBe("AlwaysAllow");
    await cluster.admin.call("DELETE", path());
    await gone(path());
    expect(await readObject(cluster, protectorPath(namespace, "poddisruptionbudget-web"))).toBeUndefined();
  });

  test.each<[string, string, string]>([
    ["batch/v1", "Job", "Job does not implement the scale subresource"],
    // Its `spec.size` is absent, and kube-apiserver answers 500.
    ["fleet.example.com/v1", "Workload", "Workload web can't be read: try kubectl get --raw /apis/fleet"],
    // Its APIService has no server behind it, and kube-apiserver answers 503, to discovery too.
    ["away.example.com/v1", "Engine", "Engine web can't be read: try kubectl get --raw /apis/away.example.com/v1"],
    ["v1", "Pod", "its pods have no controller"],
  ])("over pods without a known number (%s %s) requires all of them, and says so", async (apiVersion, kind, why) => {
    const one = start();
    await installCrd(cluster, "workloads.fleet.example.com");
    const owning = { apiVersion: "fleet.example.com/v1", kind: "Workload", metadata: { name: "web", namespace } };
    await cluster.apply([AWAY, owning]);
    const path = `/apis/fleet.example.com/v1/namespaces/${namespace}/workloads/web`;
    const uid = kind === "Workload" ? field(await readObject(cluster, path), "metadata", "uid") : "u1";
    const owner = { apiVersion, kind, name: "web", uid, controller: true };
    const pod = (name: string): object => ({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, namespace, labels: { app: "web" }, ownerReferences: kind === "Pod" ? [] : [owner] },
      spec: { ...template.spec, automountServiceAccountToken: false },
    });
    await cluster.apply([
      { apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "default", namespace } },
      budget("policy/v1", "PodDisruptionBudget", { maxUnavailable: "50%", selector }),
    ]);
    // Half of as many as there can be: no cell has counted these pods.
    await minimum("poddisruptionbudget-web", 1_073_741_823);
    await cluster.apply([pod("a")]);
    await minimum("poddisruptionbudget-web", 1);
    await cluster.apply([pod("b")]);
    await told(one, "unresolved");
    const found = await minimum("poddisruptionbudget-web", 2);
    expect(field(found, "metadata", "annotations", `${GROUP}/derivation`)).toContain(why);
  });
});

describe("a protector", () => {
  test("shows by a condition that its source is lost, and that it is back", async () => {
    const one = start();
    await cluster.apply([workload("StatefulSet", { replicas: 5 })]);
    await minimum("statefulset-web", 4);
    await cluster.etcd.deleteKey(`/registry/statefulsets/${namespace}/web`);
    const isVanished = (object: unknown, value: string): boolean => {
      const conditions = field(object, "status", "conditions");
      return (Array.isArray(conditions) ? conditions : []).some(
        (condition) => field(condition, "type") === "SourceVanished" && field(condition, "status") === value,
      );
    };
    const path = protectorPath(namespace, "statefulset-web");
    await eventually(cluster, path, (object) => isVanished(object, "True"));
    expect(one.generator.lostSources()).toEqual([`statefulset/${namespace}/web`]);
    expect(one.events.filter(({ kind }) => kind === "sourceVanished")).toHaveLength(1);
    await cluster.apply([workload("StatefulSet", { replicas: 7 })]);
    await minimum("statefulset-web", 6);
    await eventually(cluster, path, (object) => isVanished(object, "False"));
    expect(one.generator.lostSources()).toEqual([]);
  });

  test("stays in a namespace that is being deleted, where a new one is not created repeatedly", async () => {
    const first = start();
    await cluster.apply([workload("Deployment", { replicas: 4 })]);
    await minimum("deployment-web", 3);
    await first.stop();
    await cluster.apply([workload("Deployment", { replicas: 4 }, { name: "late" })]);
    await cluster.admin.call("DELETE", `/api/v1/namespaces/${namespace}`);
    const second = start();
    await told(second, "namespaceTerminating");
    expect(field(await minimum("deployment-web", 3), "metadata", "deletionTimestamp")).toBeUndefined();
    await cluster.apply([
      { apiVersion: "v1", kind: "Namespace", metadata: { name: `${namespace}-after` } },
      { ...workload("Deployment", { replicas: 4 }, { namespace: `${namespace}-after` }) },
    ]);
    await eventually(cluster, protectorPath(`${namespace}-after`, "deployment-web"), (one) => one !== undefined);
    expect(second.events.filter(({ kind }) => kind === "namespaceTerminating")).toHaveLength(1);
    // The Deployment controller may write its status at any time. A conflict with that is retried, and is no failure.
    expect(second.events.filter((event) => event.kind === "failed" && event.tag !== "conflict")).toEqual([]);
  });
});

test(`${AT_ONCE} workloads at once: never more calls under way than workers`, async () => {
  const CONCURRENCY = 16;
  const counting = new CountingTransport(transport);
  const all = Array.from({ length: AT_ONCE }, (_, index) =>
    workload("Deployment", { replicas: 4 }, { name: `web-${index}` }),
  );
  const path = `/apis/apps/v1/namespaces/${namespace}/deployments`;
  const rest = [...all];
  const creator = async (): Promise<void> => {
    for (let one = rest.pop(); one !== undefined; one = rest.pop()) await cluster.admin.call("POST", path, one);
  };
  await Promise.all(Array.from({ length: 16 }, creator));
  const one = start({ concurrency: CONCURRENCY, plugins: { namespaces: [namespace] } }, counting);
  await cluster.waitFor(
    "all protectors",
    async () => one.events.filter(({ kind }) => kind === "created").length >= AT_ONCE,
  );
  expect(items(await cluster.admin.get(protectorPath(namespace)))).toHaveLength(AT_ONCE);
  expect(counting.most).toBeLessThanOrEqual(CONCURRENCY);
  // One write adds the finalizer to the source, and one creates the protector.
  expect(counting.writes.made).toBe(2 * AT_ONCE);
  // A busy server may reject some writes. None is retried many times.
  expect(counting.writes.refused).toBeLessThan(AT_ONCE / 10);
});
