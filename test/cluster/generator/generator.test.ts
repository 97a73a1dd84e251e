import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { GeneratorEvent } from "../../../controllers/generator/protectors/events.ts";
import type { Election } from "../../../controllers/run-controller.ts";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { systemPorts as ports } from "../../../shared/runtime/system-ports.ts";
import { GENERATOR_FINALIZER, GENERATOR_LEASE } from "../../../shared/schema/annotations.ts";
import {
  generatorTransport,
  installGenerator,
  type RunningGenerator,
  startGenerator,
} from "../../support/generator/generator-harness.ts";

/** The generator against a real kube-apiserver, with the permissions of the manifests. */

const GROUP = "podseidon.kubewharf.io";
let cluster: Cluster;
let otherCore: Cluster;
let transport: Transport;
let namespace: string;
let spaces = 0;

beforeAll(async () => {
  [cluster, otherCore] = await Promise.all([Cluster.start(BARE), Cluster.start({ name: "other-core", ...BARE })]);
  await Promise.all([cluster, otherCore].map(installGenerator));
  transport = await generatorTransport(cluster);
});

afterAll(async () => {
  transport?.close();
  await Promise.all([cluster?.stop(), otherCore?.stop()]);
});

const running: RunningGenerator[] = [];

function start(election?: Election, through = transport): RunningGenerator {
  const one = startGenerator(through, { concurrency: 4, ...(election === undefined ? {} : { election }) });
  running.push(one);
  return one;
}

/** Resolves after so many events of a kind. What the generator did shows in the cluster a moment earlier. */
async function told(events: readonly GeneratorEvent[], kind: GeneratorEvent["kind"], count = 1): Promise<void> {
  await cluster.waitFor(
    `${count} events ${kind}`,
    async () => events.filter((one) => one.kind === kind).length === count,
  );
}

beforeEach(async () => {
  namespace = `space-${++spaces}`;
  await cluster.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } }]);
});

afterEach(() => Promise.all(running.splice(0).map((one) => one.stop())));

interface Shape {
  readonly replicas?: number;
  readonly maxUnavailable?: number | string;
  readonly protect?: boolean;
}

function deployment(name: string, { replicas = 10, maxUnavailable = "20%", protect = true }: Shape = {}): unknown {
  const labels = { app: "web" };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name, namespace, labels: protect ? { [`${GROUP}/protect`]: "true" } : {} },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      strategy: { rollingUpdate: { maxUnavailable, maxSurge: 1 } },
      template: { metadata: { labels }, spec: { containers: [{ name: "web", image: "web" }] } },
    },
  };
}

const deploymentPath = (name: string): string => `/apis/apps/v1/namespaces/${namespace}/deployments/${name}`;
const protectorsPath = (): string => `/apis/${GROUP}/v1alpha1/namespaces/${namespace}/podprotectors`;

async function read(path: string): Promise<unknown> {
  const { status, body } = await cluster.admin.request("GET", path);
  return status === 404 ? undefined : body;
}

const protector = (name: string): Promise<unknown> => read(`${protectorsPath()}/deployment-${name}`);

/** Resolves to the object at `path` when `check` accepts it. */
async function eventually(path: string, check: (object: unknown) => boolean): Promise<unknown> {
  let last: unknown;
  await cluster
    .waitFor(path, async () => {
      last = await read(path);
      return check(last);
    })
    .catch((error: unknown) => {
      throw new Error(`${path} stayed at ${JSON.stringify(last)}`, { cause: error });
    });
  return last;
}

const untilMinimum = (name: string, minimum: number): Promise<unknown> =>
  eventually(`${protectorsPath()}/deployment-${name}`, (object) => field(object, "spec", "minAvailable") === minimum);
const untilGone = (path: string): Promise<unknown> => eventually(path, (object) => object === undefined);
const patch = (path: string, body: unknown): Promise<unknown> => cluster.admin.call("PATCH", path, body);

describe("a Deployment", () => {
  test("gets a protector as upstream makes it, and the finalizer", async () => {
    start();
    await cluster.apply([deployment("web")]);
    const found = await untilMinimum("web", 8);
    const source = await read(deploymentPath("web"));
    expect(field(found, "spec")).toEqual({
      minAvailable: 8,
      minReadySeconds: 0,
      selector: { matchLabels: { app: "web" } },
    });
    expect(field(found, "metadata", "labels")).toEqual({
      [`${GROUP}/source-name`]: "web",
      [`${GROUP}/source-group`]: "apps",
      [`${GROUP}/source-kind`]: "Deployment",
      [`${GROUP}/source-resource`]: "deployments",
    });
    expect(field(found, "metadata", "finalizers")).toEqual([GENERATOR_FINALIZER]);
    expect(field(found, "metadata", "ownerReferences")).toEqual([
      {
        apiVersion: "apps/v1",
        kind: "Deployment",
        name: "web",
        uid: field(source, "metadata", "uid"),
        controller: true,
      },
    ]);
    expect(field(source, "metadata", "finalizers")).toEqual([GENERATOR_FINALIZER]);
  });

  test("is followed as it changes, and nothing is written while it does not change", async () => {
    const one = start();
    await cluster.apply([deployment("web"), deployment("free", { protect: false })]);
    await untilMinimum("web", 8);
    await patch(deploymentPath("web"), { spec: { replicas: 20 } });
    await untilMinimum("web", 16);
    await patch(deploymentPath("web"), { spec: { strategy: { rollingUpdate: { maxUnavailable: 1 } } } });
    const found = await untilMinimum("web", 19);
    expect(field(found, "metadata", "annotations", `${GROUP}/derivation`)).toBe(
      "replicas 20 - maxUnavailable 1 = minAvailable 19",
    );
    expect(await protector("free")).toBeUndefined();
    await one.stop();
    const version = field(found, "metadata", "resourceVersion");
    // The second generator has looked at everything once a Deployment created after its start has a protector.
    const again = start();
    await cluster.apply([deployment("last")]);
    await untilMinimum("last", 8);
    expect(again.events.filter((event) => "source" in event && !event.source.endsWith("/last"))).toEqual([]);
    expect(field(await protector("web"), "metadata", "resourceVersion")).toBe(version);
  });

  test("with a name that fits no label value is protected, too", async () => {
    start();
    const names = [`${"long-".repeat(30)}a`, `${"long-".repeat(30)}b`, "x".repeat(253)];
    await cluster.apply(names.map((name) => deployment(name)));
    await eventually(protectorsPath(), (list) => items(list).length === 3);
    const owners = items(await read(protectorsPath())).map((one) =>
      field(one, "metadata", "ownerReferences", 0, "name"),
    );
    expect(owners.sort()).toEqual([...names].sort());
  });
});

describe("a protector", () => {
  test.each<[string, unknown]>([
    ["its minimum", { spec: { minAvailable: 0 } }],
    ["its selector", { spec: { selector: { matchLabels: { app: "other" } } } }],
    ["its labels and owner", { metadata: { labels: null, ownerReferences: null } }],
    ["its finalizer", { metadata: { finalizers: null } }],
  ])("is repaired when someone alters %s", async (_, change) => {
    const { events } = start();
    await cluster.apply([deployment("web")]);
    const before = await untilMinimum("web", 8);
    await patch(`${protectorsPath()}/deployment-web`, change);
    await told(events, "updated");
    const after = await protector("web");
    for (const part of ["labels", "ownerReferences", "finalizers"]) {
      expect(field(after, "metadata", part)).toEqual(field(before, "metadata", part));
    }
    expect(field(after, "spec")).toEqual(field(before, "spec"));
  });

  const untilSuccessor = (before: unknown): Promise<unknown> =>
    eventually(
      `${protectorsPath()}/deployment-web`,
      (one) => one !== undefined && field(one, "metadata", "uid") !== field(before, "metadata", "uid"),
    );
  const history = {
    cells: [
      {
        cellID: "one",
        aggregation: { totalReplicas: 5, availableReplicas: 5, resourceVersion: "1" },
        admissionHistory: { buckets: [{ startTime: "2026-01-01T00:00:00Z", podUID: "p1", counter: 1 }] },
      },
    ],
    summary: { totalReplicas: 5, aggregatedAvailableReplicas: 5, estimatedAvailableReplicas: 4 },
  };

  test.each<[string, () => Promise<unknown>, "replaced" | "restored"]>([
    ["deleted", () => cluster.admin.call("DELETE", `${protectorsPath()}/deployment-web`), "replaced"],
    [
      "torn away in etcd",
      () => cluster.etcd.deleteKey(`/registry/${GROUP}/podprotectors/${namespace}/deployment-web`),
      "restored",
    ],
  ])("that is %s comes back with its history and a mark", async (_, lose, kind) => {
    const { events } = start();
    await cluster.apply([deployment("web")]);
    const first = await untilMinimum("web", 8);
    const path = `${protectorsPath()}/deployment-web`;
    await patch(path, { spec: { admissionHistoryConfig: { maxConcurrentLag: 7 } } });
    const found = await read(path);
    await cluster.admin.call("PUT", `${path}/status`, { ...Object(found), status: history });
    await lose();
    const again = await untilSuccessor(first);
    await told(events, kind);
    const after = await eventually(path, (one) => field(one, "status", "cells", 0) !== undefined);
    expect(field(again, "metadata", "annotations", `${GROUP}/restored`)).toBeDefined();
    expect(field(again, "spec", "admissionHistoryConfig", "maxConcurrentLag")).toBe(7);
    expect(field(after, "status", "cells", 0, "admissionHistory", "buckets", 0, "podUID")).toBe("p1");
    expect(field(after, "status", "cells", 0, "aggregation")).toBeUndefined();
    expect(items(await read(protectorsPath()))).toHaveLength(1);
    // Nothing was released, so nothing is in the register.
    const register = await cluster.admin.get(
      "/api/v1/namespaces/podseidon-system/configmaps?labelSelector=podseidon.kubewharf.io/register",
    );
    expect(JSON.stringify(items(register))).not.toContain(String(field(first, "metadata", "uid")));
  });

  test("loses cells once when the annotation names them", async () => {
    start();
    await cluster.apply([deployment("web")]);
    const found = await untilMinimum("web", 8);
    const cell = (cellID: string): unknown => ({
      cellID,
      aggregation: { totalReplicas: 5, availableReplicas: 5, resourceVersion: "1" },
    });
    const path = `${protectorsPath()}/deployment-web`;
    const summary = { totalReplicas: 10, aggregatedAvailableReplicas: 10, estimatedAvailableReplicas: 10 };
    const body = { ...Object(found), status: { cells: [cell("one"), cell("two")], summary } };
    await cluster.admin.call("PUT", `${path}/status`, body);
    await patch(path, { metadata: { annotations: { [`${GROUP}/remove-cell-once`]: "two" } } });
    const after = await eventually(
      path,
      (one) => field(one, "metadata", "annotations", `${GROUP}/remove-cell-once`) === undefined,
    );
    // The cell's epoch stays. It tells a later aggregator that admissions were lost.
    expect(field(after, "status", "cells")).toMatchObject([
      { cellID: "one", aggregation: { availableReplicas: 5, resourceVersion: "1" } },
      { cellID: "two", aggregation: { availableReplicas: 0, epoch: 0 } },
    ]);
    expect(field(after, "status", "cells", 1, "aggregation", "resourceVersion")).toBeUndefined();
    expect(field(after, "status", "summary", "aggregatedAvailableReplicas")).toBe(5);
  });
});

describe("a protector is released", () => {
  test("when its Deployment is deleted, but only after that has zero replicas", async () => {
    const { events } = start();
    await cluster.apply([deployment("web")]);
    const first = await untilMinimum("web", 8);
    await cluster.admin.call("DELETE", deploymentPath("web"));
    await patch(deploymentPath("web"), { spec: { replicas: 5 } });
    // The deleted Deployment still exists, and its protector still follows it.
    expect(field(await untilMinimum("web", 4), "metadata", "deletionTimestamp")).toBeUndefined();
    await patch(deploymentPath("web"), { spec: { replicas: 0 } });
    await untilGone(deploymentPath("web"));
    expect(await protector("web")).toBeUndefined();
    await told(events, "letGo");
    expect(events.map(({ kind }) => kind).slice(-2)).toEqual(["released", "letGo"]);
    const register = await cluster.admin.get("/api/v1/namespaces/podseidon-system/configmaps/podseidon-released-0");
    expect(field(register, "data", String(field(first, "metadata", "uid")))).toMatch(
      new RegExp(` ${namespace}/deployment-web SourceDeleted \\S+Z$`),
    );
  });

  test("when its Deployment no longer asks for protection, with a mark before its deletion", async () => {
    start();
    await cluster.apply([deployment("web")]);
    await untilMinimum("web", 8);
    const marks: unknown[] = [];
    const since = String(field(await read(protectorsPath()), "metadata", "resourceVersion"));
    await patch(deploymentPath("web"), { metadata: { labels: null } });
    await untilGone(`${protectorsPath()}/deployment-web`);
    await eventually(deploymentPath("web"), (one) => field(one, "metadata", "finalizers") === undefined);
    // A busy apiserver ends a watch before it has sent all that it has.
    let events = "";
    await cluster.waitFor("the whole history", async () => {
      const path = `${protectorsPath()}?watch=1&timeoutSeconds=1&resourceVersion=${since}`;
      events = (await cluster.admin.request("GET", path)).text;
      return events.includes('"type":"DELETED"');
    });
    for (const line of events.trim().split("\n")) {
      const event: unknown = JSON.parse(line);
      const mark = field(event, "object", "metadata", "annotations", `${GROUP}/released`);
      marks.push([field(event, "type"), typeof mark, field(event, "object", "metadata", "finalizers") !== undefined]);
    }
    expect(marks).toEqual([
      ["MODIFIED", "string", true],
      ["MODIFIED", "string", true],
      ["DELETED", "string", true],
    ]);
  });

  test("never because its Deployment is lost, unless an operator releases it", async () => {
    const { events, generator } = start();
    await cluster.apply([deployment("web")]);
    await untilMinimum("web", 8);
    // The Deployment disappears without its finalizer, as after a loss in etcd.
    await cluster.etcd.deleteKey(`/registry/deployments/${namespace}/web`);
    await told(events, "sourceVanished");
    expect(generator.lostSources()).toEqual([`deployment/${namespace}/web`]);
    expect(field(await protector("web"), "metadata", "deletionTimestamp")).toBeUndefined();
    await patch(`${protectorsPath()}/deployment-web`, {
      metadata: { annotations: { [`${GROUP}/released`]: "by hand" } },
    });
    await untilGone(`${protectorsPath()}/deployment-web`);
    await told(events, "released");
    expect(events.at(-1)).toMatchObject({ kind: "released", reason: "ReleasedByOperator" });
  });

  test("and a protector of a lost Deployment is adopted when the Deployment is created again", async () => {
    const { events } = start();
    await cluster.apply([deployment("web")]);
    const found = await untilMinimum("web", 8);
    await cluster.etcd.deleteKey(`/registry/deployments/${namespace}/web`);
    await told(events, "sourceVanished");
    await cluster.apply([deployment("web", { replicas: 20 })]);
    const after = await untilMinimum("web", 16);
    expect(field(after, "metadata", "uid")).toBe(field(found, "metadata", "uid"));
    const uid = field(await read(deploymentPath("web")), "metadata", "uid");
    expect(field(after, "metadata", "ownerReferences", 0, "uid")).toBe(uid);
  });
});

describe("of two generators", () => {
  const election = (identity: string): Election => ({
    transport,
    ports,
    namespace: "podseidon-system",
    name: GENERATOR_LEASE,
    identity,
    // Longer than any pause of a busy machine: the lease changes hands because it is released.
    leaseDurationMs: 120_000,
    renewDeadlineMs: 90_000,
    retryPeriodMs: 200,
  });

  test("one works, and the other takes over when it stops", async () => {
    const first = start(election("first"));
    await cluster.waitFor("the first to lead", async () => first.generator.isLeading);
    const second = start(election("second"));
    await cluster.apply([deployment("web")]);
    await untilMinimum("web", 8);
    expect(second.generator.isLeading).toBe(false);
    expect(second.events).toEqual([]);
    await first.stop();
    await patch(deploymentPath("web"), { spec: { replicas: 20 } });
    await untilMinimum("web", 16);
    expect(second.generator.isLeading).toBe(true);
  });
});

describe("of two core clusters", () => {
  test("each has its own generator: the same workload in both is protected in both, by its own numbers", async () => {
    const otherTransport = await generatorTransport(otherCore);
    const [one, other] = [start(), start(undefined, otherTransport)];
    await otherCore.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } }]);
    await cluster.apply([deployment("web", { replicas: 10 })]);
    await otherCore.apply([deployment("web", { replicas: 20 })]);
    await untilMinimum("web", 8);
    const path = `${protectorsPath()}/deployment-web`;
    await otherCore.waitFor("the other's protector", async () => {
      return field((await otherCore.admin.request("GET", path)).body, "spec", "minAvailable") === 16;
    });
    await patch(deploymentPath("web"), { metadata: { labels: null } });
    await untilGone(path);
    expect(field((await otherCore.admin.request("GET", path)).body, "spec", "minAvailable")).toBe(16);
    await Promise.all([one.stop(), other.stop()]);
    otherTransport.close();
  });
});
