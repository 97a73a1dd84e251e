/**
 * What the deletion of a node and status writes by others take away (docs/design.md#node-deletion,
 * docs/design.md#status-writes), with the real pod garbage collection.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type ApiAnswer,
  ApiserverClient,
  conditionStatus,
  field,
  items,
} from "../../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { eachAtMost } from "../../../shared/runtime/each-at-most.ts";
import { ask, kubectlDecided, messageOf, untilDecided, verdictOf } from "../../support/cluster/ask.ts";
import { OtherWebhook } from "../../support/cluster/other-webhook.ts";
import {
  createProtector,
  readProtector,
  reservationCount,
  waitUntilSettled,
} from "../../support/cluster/protectors.ts";

const PODS = "/api/v1/namespaces/default/pods";
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors";
const REGISTRATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podseidon";
const KUBELET = "token-of-a-kubelet";
const VIRTUAL = "token-of-a-virtual-kubelet";
const VIRTUAL_GROUP = "system:serviceaccounts:virtual-nodes";
const DELETIONS_OF_NODES = { apiGroups: [""], apiVersions: ["v1"], operations: ["DELETE"], resources: ["nodes"] };
const WITHOUT_FINALIZERS = { metadata: { finalizers: null } };

let environment: TestEnvironment;
let cluster: Cluster;
let kubelet: ApiserverClient;
let virtualKubelet: ApiserverClient;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    cells: ["cell"],
    single: true,
    replicas: 1,
    cell: {
      scheduler: false,
      tokens: [
        { token: KUBELET, user: "system:node:any", groups: ["system:nodes", "system:masters"] },
        { token: VIRTUAL, user: "virtual-kubelet", groups: [VIRTUAL_GROUP, "system:masters"] },
      ],
    },
    webhookArgs: [`--node-groups=system:nodes,${VIRTUAL_GROUP}`],
  });
  cluster = environment.core;
  const certificateAuthorityPem = cluster.identity.certificateAuthorityPem;
  kubelet = new ApiserverClient({ url: cluster.url, certificateAuthorityPem, token: KUBELET });
  virtualKubelet = new ApiserverClient({ url: cluster.url, certificateAuthorityPem, token: VIRTUAL });
});

afterAll(async () => {
  kubelet?.close();
  virtualKubelet?.close();
  await environment?.stop();
});

interface Workload {
  readonly app: string;
  readonly minAvailable: number;
  /** Pods by node. */
  readonly on: Readonly<Record<string, number>>;
}

function podOn(node: string, name: string, app: string): unknown {
  const spec = { nodeName: node, containers: [{ name: "app", image: "app:1" }] };
  return { apiVersion: "v1", kind: "Pod", metadata: { name, labels: { app } }, spec };
}

/** Creates pods, which KWOK makes Ready, and a protector that counts them. */
async function given({ app, minAvailable, on }: Workload): Promise<void> {
  const pods = Object.entries(on).flatMap(([node, count]) =>
    Array.from({ length: count }, (_, index) => podOn(node, `${app}-${node}-${index}`, app)),
  );
  await eachAtMost(20, pods, async (pod) => {
    await cluster.admin.call("POST", PODS, pod);
  });
  await createProtector(cluster, "default", app, { minAvailable, selector: { matchLabels: { app } } });
  await waitUntilSettled(cluster, "default", app, pods.length);
}

async function podsOf(app: string): Promise<readonly unknown[]> {
  return items(await cluster.admin.get(`${PODS}?labelSelector=app%3D${app}`));
}

async function serving(app: string): Promise<number> {
  const found = await podsOf(app);
  const serves = (pod: unknown): boolean =>
    field(pod, "status", "phase") === "Running" && conditionStatus(pod, "Ready") === "True";
  return found.filter(serves).length;
}

function remove(path: string): Promise<ApiAnswer> {
  return ask(cluster, "DELETE", path);
}

async function node(name: string): Promise<string> {
  return `/api/v1/nodes/${await cluster.createNode({ name })}`;
}

/** Sets a pod's phase as `client`. */
function setPhase(client: ApiserverClient, name: string, phase: string): Promise<ApiAnswer> {
  return untilDecided(cluster, () => client.request("PATCH", `${PODS}/${name}/status`, { status: { phase } }));
}

/** Reviews of a kind with this outcome; with any by default. */
async function reviews(kind: string, outcome?: string): Promise<number> {
  const labels = outcome === undefined ? { kind } : { kind, outcome };
  return (await environment.webhooks[0]?.component.metric("podseidon_webhook_reviews_total", labels)) ?? 0;
}

/** A node that ends once its finalizers are taken off, with two pods that are both needed. */
async function terminating(name: string, finalizers: readonly string[]): Promise<string> {
  const path = await node(name);
  await cluster.admin.call("PATCH", path, { metadata: { finalizers } });
  await given({ app: name, minAvailable: 2, on: { [name]: 2 } });
  expect(verdictOf(await remove(path))).toBe("allow");
  return path;
}

async function needNone(app: string): Promise<void> {
  await cluster.admin.call("PATCH", `${PROTECTORS}/${app}`, { spec: { minAvailable: 0 } });
}

describe("the deletion of a node", () => {
  test("with every pod of a workload at its minimum is denied, with the list", async () => {
    const path = await node("full");
    await given({ app: "full", minAvailable: 4, on: { full: 4 } });
    const { code, stderr } = await kubectlDecided(cluster, ["delete", "node", "full", "--wait=false"]);
    expect(code).not.toBe(0);
    expect(stderr).toContain("needs 4 available pods, 4 are available");
    for (const index of [0, 1, 2, 3]) expect(stderr).toContain(`default/full-full-${index}`);
    const all = await remove("/api/v1/nodes?fieldSelector=metadata.name%3Dfull");
    expect([verdictOf(all), messageOf(all)]).toEqual([
      "denial",
      expect.stringContaining("node full may not be deleted"),
    ]);
    expect((await cluster.admin.request("GET", path)).status).toBe(200);
    expect(reservationCount(await readProtector(cluster, "default", "full"))).toBe(0);
  });

  test("whose pods can be spared passes, reserves them, and their collection passes", async () => {
    const paths = [await node("spare-1"), await node("spare-2")];
    await given({ app: "spare", minAvailable: 2, on: { "spare-1": 2, "spare-2": 2 } });
    expect(verdictOf(await remove(paths[0] ?? ""))).toBe("allow");
    expect(reservationCount(await readProtector(cluster, "default", "spare"))).toBe(2);
    for (const path of [paths[1] ?? "", `${PODS}/spare-spare-2-0`])
      expect(verdictOf(await remove(path))).not.toBe("allow");
    await cluster.waitFor("pod garbage collection", async () => (await podsOf("spare")).length === 2);
    expect(await serving("spare")).toBe(2);
    await waitUntilSettled(cluster, "default", "spare", 2);
    expect(verdictOf(await remove(paths[1] ?? ""))).toBe("denial");
  });

  test("without protected pods passes, and so does one whose pods are not ready", async () => {
    const [bare, sick] = [await node("bare"), await node("sick")];
    await cluster.admin.call("POST", PODS, podOn("bare", "bare", "bare"));
    expect(verdictOf(await remove(bare))).toBe("allow");
    await given({ app: "sick", minAvailable: 2, on: { sick: 2 } });
    cluster.processes.kwok.freeze();
    try {
      for (const index of [0, 1]) {
        const conditions = ["Ready", "ContainersReady"].map((type) => ({ type, status: "False" }));
        const body = { status: { conditions } };
        const contentType = "application/strategic-merge-patch+json";
        await kubelet.call("PATCH", `${PODS}/sick-sick-${index}/status`, body, { contentType });
      }
      expect(verdictOf(await remove(sick))).toBe("allow");
    } finally {
      cluster.processes.kwok.thaw();
    }
  });

  test("with a finalizer drains first: the finalizer's removal is what is denied", async () => {
    const path = await terminating("drained", ["example.com/drain"]);
    const early = await ask(cluster, "PATCH", path, WITHOUT_FINALIZERS);
    expect([verdictOf(early), messageOf(early)]).toEqual([
      "denial",
      expect.stringContaining("default/drained-drained-0"),
    ]);
    await needNone("drained");
    await cluster.waitFor(
      "the new minimum",
      async () => (await cluster.admin.request("PATCH", path, WITHOUT_FINALIZERS)).status === 200,
    );
    expect((await cluster.admin.request("GET", path)).status).toBe(404);
  });

  test("with a finalizer: its removal through the node's status is denied as well, whoever writes it", async () => {
    const path = await terminating("stripped", ["example.com/drain"]);
    for (const client of [cluster.admin, kubelet]) {
      const early = await untilDecided(cluster, () => client.request("PATCH", `${path}/status`, WITHOUT_FINALIZERS));
      expect([verdictOf(early), messageOf(early)]).toEqual([
        "denial",
        expect.stringContaining("default/stripped-stripped-0"),
      ]);
    }
    expect(field(await cluster.admin.get(path), "metadata", "finalizers")).toEqual(["example.com/drain"]);
    expect(reservationCount(await readProtector(cluster, "default", "stripped"))).toBe(0);
    await needNone("stripped");
    await cluster.waitFor(
      "the new minimum",
      async () => (await cluster.admin.request("PATCH", `${path}/status`, WITHOUT_FINALIZERS)).status === 200,
    );
    expect((await cluster.admin.request("GET", path)).status).toBe(404);
  });

  test("in the foreground waits for garbage collection, and no second deletion goes past the webhook", async () => {
    const path = await terminating("twice", ["example.com/drain"]);
    const foreground = { propagationPolicy: "Foreground" };
    const collector = cluster.processes["kube-controller-manager"];
    // It could take its finalizer off before the other one goes, and a node that is being deleted gets no new one.
    collector.freeze();
    try {
      expect(verdictOf(await ask(cluster, "DELETE", path, foreground))).toBe("allow");
      const last = { metadata: { finalizers: ["foregroundDeletion"] } };
      expect(verdictOf(await cluster.admin.request("PATCH", path, last))).toBe("allow");
      // kube-apiserver takes garbage collection's finalizers off by itself where a deletion asks for another policy.
      const second = await ask(cluster, "DELETE", path, { propagationPolicy: "Background" });
      expect([verdictOf(second), messageOf(second)]).toEqual([
        "denial",
        expect.stringContaining("default/twice-twice-0"),
      ]);
    } finally {
      collector.thaw();
    }
    expect((await cluster.admin.request("GET", path)).status).toBe(200);
    await needNone("twice");
    let changes = 0;
    await cluster.waitFor("the node to go", async () => {
      // Denied before, garbage collection pauses for up to 1,000 s: any change makes it try again.
      const metadata = { annotations: { "example.com/change": String(++changes) } };
      return (await cluster.admin.request("PATCH", path, { metadata })).status === 404;
    });
  });

  test("that gets a finalizer while the webhook decides is denied: kube-apiserver would not wait for it", async () => {
    const path = await node("late");
    await given({ app: "late", minAvailable: 2, on: { late: 2 } });
    const webhook = environment.webhooks[0]?.component.process;
    // Every webhook is asked at once.
    await using other = await OtherWebhook.start(cluster);
    const asked = Promise.withResolvers<void>();
    await other.register(cluster, undefined, [DELETIONS_OF_NODES]);
    await cluster.waitFor("the other webhook to be asked", async () => {
      await cluster.admin.request("DELETE", `${path}?dryRun=All`);
      return other.requests > 0;
    });
    other.opinion = () => {
      asked.resolve();
      return true;
    };
    webhook?.freeze();
    try {
      const deletion = remove(path);
      // It has been read without finalizers, and the webhook is being asked.
      await asked.promise;
      await cluster.admin.call("PATCH", path, { metadata: { finalizers: ["example.com/drain"] } });
      webhook?.thaw();
      const answer = await deletion;
      expect([verdictOf(answer), messageOf(answer)]).toEqual([
        "denial",
        expect.stringContaining("default/late-late-0"),
      ]);
    } finally {
      webhook?.thaw();
      await other.unregister(cluster);
    }
    expect(field(await cluster.admin.get(path), "metadata", "deletionTimestamp")).toBeUndefined();
    expect(reservationCount(await readProtector(cluster, "default", "late"))).toBe(0);
  });

  test("with finalizers: heartbeats, and the removal of one that is not the last, ask nobody", async () => {
    const path = await terminating("beating", ["example.com/drain", "example.com/volumes"]);
    const before = await reviews("node");
    const beat = { type: "Ready", status: "True", reason: "KubeletReady", lastHeartbeatTime: "2026-01-01T00:00:00Z" };
    for (const client of [cluster.admin, kubelet]) {
      const contentType = "application/strategic-merge-patch+json";
      const answer = await client.request(
        "PATCH",
        `${path}/status`,
        { status: { conditions: [beat] } },
        { contentType },
      );
      expect(verdictOf(answer)).toBe("allow");
    }
    const fewer = { metadata: { finalizers: ["example.com/drain"] } };
    const answer = await cluster.admin.request("PATCH", `${path}/status`, fewer);
    expect([verdictOf(answer), field(answer.body, "metadata", "finalizers")]).toEqual(["allow", ["example.com/drain"]]);
    expect(await reviews("node")).toBe(before);
    expect(verdictOf(await ask(cluster, "PATCH", `${path}/status`, WITHOUT_FINALIZERS))).toBe("denial");
    expect(await reviews("node")).toBeGreaterThan(before);
  });

  test("with 200 protected pods is one admission request", async () => {
    const path = await node("large");
    await node("rest");
    const apps = Array.from({ length: 10 }, (_, index) => `large-${index}`);
    await eachAtMost(2, apps, (app) => given({ app, minAvailable: 2, on: { large: 20, rest: 1 } }));
    const before = await reviews("node", "denied");
    const denials = await timed("denied", () => remove(path));
    expect([verdictOf(denials), messageOf(denials)]).toEqual(["denial", expect.stringContaining("5 more protectors")]);
    expect(await reviews("node", "denied")).toBe(before + 1);
    // One is still needed: where none is, a write that takes more than a second leaves no record.
    for (const app of apps) await cluster.admin.call("PATCH", `${PROTECTORS}/${app}`, { spec: { minAvailable: 1 } });
    await Promise.all(apps.map((app) => waitUntilSettled(cluster, "default", app, 21)));
    expect(verdictOf(await timed("allowed", () => remove(path)))).toBe("allow");
    for (const app of apps) expect(reservationCount(await readProtector(cluster, "default", app))).toBe(20);
  });

  async function timed(what: string, act: () => Promise<ApiAnswer>): Promise<ApiAnswer> {
    const beganMs = performance.now();
    const answer = await act();
    process.stdout.write(`node with 200 pods: ${what} after ${Math.round(performance.now() - beganMs)} ms\n`);
    return answer;
  }
});

describe("a status write", () => {
  beforeAll(async () => {
    await node("ends");
    await given({ app: "ends", minAvailable: 2, on: { ends: 3 } });
  });

  test("that fails a pod uses its quota, and is denied at the minimum", async () => {
    const allowed = await setPhase(cluster.admin, "ends-ends-0", "Failed");
    expect(verdictOf(allowed), messageOf(allowed)).toBe("allow");
    const denied = await setPhase(cluster.admin, "ends-ends-1", "Failed");
    expect(["denial", "busy"]).toContain(verdictOf(denied));
    expect(messageOf(denied)).toContain("pod default/ends-ends-1 may not be set to Failed now");
    await waitUntilSettled(cluster, "default", "ends", 2);
    expect(verdictOf(await setPhase(cluster.admin, "ends-ends-1", "Succeeded"))).toBe("denial");
    expect(await serving("ends")).toBe(2);
  });

  test("of the pod's own kubelet is a fact", async () => {
    expect((await setPhase(kubelet, "ends-ends-1", "Failed")).status).toBe(200);
    expect(await serving("ends")).toBe(1);
  });

  test("of a virtual node, whose group --node-groups names, is a fact, too, and the pod leaves the count", async () => {
    expect((await setPhase(virtualKubelet, "ends-ends-2", "Failed")).status).toBe(200);
    await waitUntilSettled(cluster, "default", "ends", 0);
  });
});

test("pods of a node that was removed unasked stay while they are needed", async () => {
  await node("lost");
  await given({ app: "lost", minAvailable: 4, on: { lost: 4 } });
  const registration = await cluster.admin.get(REGISTRATION);
  const webhooks = field(registration, "webhooks");
  const others = Array.isArray(webhooks)
    ? webhooks.filter((one) => !String(field(one, "name")).startsWith("nodes."))
    : [];
  try {
    let answer: ApiAnswer | undefined;
    const isGone = async (): Promise<boolean> => {
      // Each time: the keeper of the configuration restores what is missing.
      await cluster.admin.call("PATCH", REGISTRATION, { webhooks: others });
      answer = await remove("/api/v1/nodes/lost");
      // Not found: the response to an earlier call was lost.
      return answer.status === 200 || answer.status === 404;
    };
    await cluster.waitFor("a configuration without nodes", isGone).catch((cause: unknown) => {
      throw new Error(`the node stays: ${answer?.status} ${answer?.text}`, { cause });
    });
    const before = await reviews("status", "denied");
    await cluster.waitFor(
      "pod garbage collection to be denied twice",
      async () => (await serving("lost")) < 4 || (await reviews("status", "denied")) >= before + 8,
    );
    expect(await serving("lost")).toBe(4);
  } finally {
    await cluster.admin.call("PATCH", REGISTRATION, { webhooks });
  }
});

test("none of these deletions raises the alarm of vanished pods", async () => {
  const aggregator = environment.aggregators.get("cell");
  expect(await aggregator?.metric("podseidon_aggregator_vanished_pods_total", { core: "core" })).toBe(0);
});
