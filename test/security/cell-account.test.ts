/**
 * A worker cluster that is taken over has the tokens of its cell's accounts in the core. What they may write there, and
 * that the shipped webhook and aggregator of the cell need no more.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type ApiAnswer, type ApiserverClient, field, items } from "../../scripts/control-plane/api-client.ts";
import { BARE, type Cluster } from "../../scripts/control-plane/cluster.ts";
import { applyOverlay } from "../../scripts/demo/install.ts";
import { asAccount, createCellAccounts } from "../../scripts/environment/cell-accounts.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { cellEntry, type PodProtector } from "../../shared/schema/podprotector.ts";
import {
  bucket,
  ENTRY_OF_B,
  type Fields,
  refusals,
  SUMMARY,
  withCondition,
  withEntry,
  writeStatus,
} from "../support/cluster/cell-accounts.ts";
import { createReadyPods } from "../support/cluster/pods.ts";
import { readProtector, reservationCount } from "../support/cluster/protectors.ts";

const GROUP = "podseidon.kubewharf.io";
const NAMESPACE = "shop";
const PROTECTORS = `/apis/${GROUP}/v1alpha1/namespaces/${NAMESPACE}/podprotectors`;
const CONFIG_MAPS = "/api/v1/namespaces/podseidon-system/configmaps";
/** Of cell a; cell b has another one, and a reservation for it. */
const PODS = 5;
const PROMISED = 4;

let environment: TestEnvironment;
let core: Cluster;
let aggregator: ApiserverClient;
let webhook: ApiserverClient;

const zeros = { totalReplicas: 0, availableReplicas: 0 };

const protectorObject = (name: string, metadata: Fields = {}, spec: Fields = {}): Fields => ({
  apiVersion: `${GROUP}/v1alpha1`,
  kind: "PodProtector",
  metadata: { name, namespace: NAMESPACE, ...metadata },
  spec: { minAvailable: PROMISED, minReadySeconds: 0, selector: { matchLabels: { app: name } }, ...spec },
});

async function prepare(cluster: Cluster): Promise<void> {
  await applyOverlay(cluster, "core");
  for (const cell of ["a", "b"]) await createCellAccounts(cluster, cell);
}

/** Creates a protector that the components of cell b have written to. */
async function createCounted(name: string): Promise<void> {
  const metadata = { labels: { [`${GROUP}/source-name`]: name }, finalizers: [`${GROUP}/generator`] };
  await core.admin.call("POST", PROTECTORS, protectorObject(name, metadata));
  await writeStatus(core, core.admin, name, ({ status }) => ({
    summary: SUMMARY,
    ...status,
    cells: [...(status?.cells ?? []), ENTRY_OF_B],
  }));
}

const aggregation = (entry: Fields): Fields => Object(entry.aggregation);

beforeAll(async () => {
  const prepared = new Map<Cluster, Promise<void>>();
  environment = await TestEnvironment.start({
    cells: ["a"],
    replicas: 1,
    settle: "6s",
    core: BARE,
    cell: BARE,
    aggregatorArgs: ["--restore-after=1s", "--copy-interval=500ms", "--heartbeat-interval=3s"],
    kubeconfig: async (component, cluster) => {
      if (cluster.name !== "core") return cluster.kubeconfig;
      const ready = prepared.get(cluster) ?? prepare(cluster);
      prepared.set(cluster, ready);
      await ready;
      const name = `podseidon-${component.split("-")[0]}.a`;
      return await cluster.kubeconfigFor({ serviceAccount: { namespace: "podseidon-system", name } });
    },
  });
  core = environment.core;
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
  for (const cluster of [core, environment.cell("a")]) await cluster.apply([namespace]);
  [aggregator, webhook] = await Promise.all([asAccount(core, "aggregator.a"), asAccount(core, "webhook.a")]);
  // An apiserver learns of its policies by watches.
  for (const [path, body] of [
    [CONFIG_MAPS, { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "any" } }],
    [PROTECTORS, protectorObject("any")],
  ] as const) {
    await core.waitFor(`a policy about ${path}`, async () => {
      return (await aggregator.request("POST", `${path}?dryRun=All`, body)).text.includes("ValidatingAdmissionPolicy");
    });
  }
  await createCounted("idle");
  await core.waitFor("a policy about statuses", async () => {
    const idle = await readProtector(core, NAMESPACE, "idle");
    const status = withEntry(idle, "b", () => undefined);
    const answer = await aggregator.request("PUT", `${PROTECTORS}/idle/status?dryRun=All`, { ...idle, status });
    return answer.text.includes("ValidatingAdmissionPolicy");
  });
});

afterAll(async () => {
  for (const client of [aggregator, webhook]) client?.close();
  await environment?.stop();
});

const storedEntry = async (name: string, cell: string): Promise<unknown> =>
  cellEntry(await readProtector(core, NAMESPACE, name), cell);

const OTHERS = "the accounts of cell a may not change the entry of another cell";
const COUNTS = "the webhook of cell a may not change counts, nor take away a hold";

describe("the status of a protector that other cells write to", () => {
  const CONDITIONS = "the accounts of cell a may not change conditions that are not made from the counts";
  type Change = (protector: PodProtector) => unknown;
  const inB =
    (change: (entry: Fields) => Fields | undefined): Change =>
    (protector) =>
      withEntry(protector, "b", change);
  const counts =
    (cell: string, more: Fields): Change =>
    (protector) =>
      withEntry(protector, cell, (entry) => ({ ...entry, aggregation: { ...zeros, ...aggregation(entry), ...more } }));

  beforeEach(async () => {
    const entry = { cellID: "a", aggregation: { ...zeros, resourceVersion: "7", epoch: 1, hold: "Test/1" } };
    expect((await writeStatus(core, core.admin, "idle", (one) => withEntry(one, "a", () => entry))).status).toBe(200);
  });

  test.each<[string, () => ApiserverClient, Change, string]>([
    ["b's counts are raised by the aggregator", () => aggregator, counts("b", { availableReplicas: 9 }), OTHERS],
    ["b's counts are raised by the webhook", () => webhook, counts("b", { availableReplicas: 9 }), OTHERS],
    ["b's position moves", () => aggregator, counts("b", { resourceVersion: "9" }), OTHERS],
    ["b's epoch is raised", () => aggregator, counts("b", { epoch: 2 }), OTHERS],
    ["b is put on hold by the aggregator", () => aggregator, counts("b", { hold: "WentBack/x" }), OTHERS],
    ["b is put on hold by the webhook", () => webhook, counts("b", { hold: "WentBack/x" }), OTHERS],
    ["b's history is emptied", () => aggregator, inB((one) => ({ ...one, admissionHistory: { buckets: [] } })), OTHERS],
    [
      "a reservation is added to b's history",
      () => webhook,
      inB((one) => ({ ...one, admissionHistory: { buckets: [bucket, { ...bucket, podUID: "b2" }] } })),
      OTHERS,
    ],
    ["b's entry is removed", () => aggregator, inB(() => undefined), OTHERS],
    ["all entries are removed", () => aggregator, ({ status }) => ({ ...status, cells: [] }), OTHERS],
    ["there is a new cell", () => aggregator, counts("c", {}), OTHERS],
    ["the webhook raises its own cell's counts", () => webhook, counts("a", { availableReplicas: 9 }), COUNTS],
    ["the webhook takes away its own cell's hold", () => webhook, counts("a", { hold: undefined }), COUNTS],
    [
      "the webhook removes its own cell's counts",
      () => webhook,
      (one) => withEntry(one, "a", () => ({ cellID: "a" })),
      COUNTS,
    ],
    [
      "the webhook changes conditions",
      () => webhook,
      withCondition("Healthy"),
      "the webhook of cell a may not change cond",
    ],
    ["the aggregator says that a source has vanished", () => aggregator, withCondition("SourceVanished"), CONDITIONS],
    [
      "the aggregator says that a source is being deleted",
      () => aggregator,
      withCondition("SourceDeleting"),
      CONDITIONS,
    ],
  ])("%s: refused", async (_, client, change, message) => {
    const answer = await writeStatus(core, client(), "idle", change);
    expect(answer.text).toContain(message);
    expect(answer.status).toBe(403);
    expect(await storedEntry("idle", "b")).toEqual(ENTRY_OF_B);
  });

  test("each account writes what its component writes into the own entry", async () => {
    const taken = await writeStatus(core, webhook, "idle", (protector) =>
      withEntry(protector, "a", (entry) => ({
        ...entry,
        aggregation: { ...aggregation(entry), hold: "WentBack/2" },
        admissionHistory: { buckets: [{ ...bucket, podUID: "a1" }] },
      })),
    );
    expect(taken).toMatchObject({ status: 200 });
    expect(await writeStatus(core, aggregator, "idle", counts("a", { availableReplicas: 3 }))).toMatchObject({
      status: 200,
    });
  });

  test("a condition that an aggregator of a newer version makes does not stop its counts", async () => {
    const newer = await writeStatus(core, aggregator, "idle", (protector) => ({
      ...Object(counts("a", { availableReplicas: 3 })(protector)),
      ...Object(withCondition("OfANewerVersion")({ ...protector, status: undefined })),
    }));
    expect(newer).toMatchObject({ status: 200 });
  });

  test("the account that cells share writes all entries, until each cell has its own", async () => {
    const shared = await asAccount(core, "aggregator");
    const answer = await writeStatus(
      core,
      shared,
      "idle",
      inB((entry) => entry),
    );
    shared.close();
    expect(answer.status).toBe(200);
  });
});

describe("a protector", () => {
  const restored = (who: string, more: Fields = {}, spec: Fields = {}): Fields =>
    protectorObject("lost", { annotations: { [`${GROUP}/restored`]: `${who}: it vanished`, ...more } }, spec);
  const MARK = "the aggregator of cell a creates lost protectors only";
  const ORDERS = "the aggregator of cell a may not create a protector that is released or suspended, or removes a cell";

  test.each<[string, Fields, string]>([
    ["is new", protectorObject("lost"), MARK],
    ["is restored in the name of another cell", restored("cell b"), MARK],
    ["is released", restored("cell a", { [`${GROUP}/released`]: "x" }), ORDERS],
    ["removes a cell", restored("cell a", { [`${GROUP}/remove-cell-once`]: "b" }), ORDERS],
    ["is suspended", restored("cell a", {}, { suspend: { enabled: true } }), ORDERS],
  ])("that %s is not created", async (_, object, message) => {
    const answer = await aggregator.request("POST", PROTECTORS, object);
    expect(answer.text).toContain(message);
    expect(answer.status).toBe(403);
  });

  test("is changed and deleted by no account of a cell, even with the permission", async () => {
    const name = `podseidon-aggregator.a`;
    const subjects = [{ kind: "ServiceAccount", name, namespace: "podseidon-system" }];
    const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "podseidon-generator" };
    const metadata = { name: "too-much" };
    const bound = {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata,
      roleRef,
      subjects,
    };
    const patch = { spec: { minAvailable: 0 } };
    const refused = [await aggregator.request("PATCH", `${PROTECTORS}/idle`, patch)];
    expect(refused[0]?.text).toContain("cannot patch resource");
    await core.apply([bound]);
    const policy = "the accounts of cell a may not change or delete a protector";
    await core.waitFor("the permission", async () => {
      return (await aggregator.request("PATCH", `${PROTECTORS}/idle`, patch)).text.includes(policy);
    });
    expect((await aggregator.request("DELETE", `${PROTECTORS}/idle`)).text).toContain(policy);
    expect((await readProtector(core, NAMESPACE, "idle")).spec.minAvailable).toBe(PROMISED);
    await core.kubectl(["delete", "clusterrolebinding", "too-much"]);
  });
});

describe("a ConfigMap of the core", () => {
  const CELLS = "podseidon-cells";
  const configMap = (name: string, more: Fields = {}): Fields => ({
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name, labels: { [`${GROUP}/register`]: "released" } },
    ...more,
  });
  const OTHER = "the accounts of cell a may write no ConfigMap but podseidon-cells";
  const REGISTER = "only the generator and operators may write the release register";

  beforeAll(() =>
    core.apply([
      {
        apiVersion: "v1",
        kind: "ConfigMap",
        metadata: { name: CELLS, namespace: "podseidon-system" },
        data: { b: "5" },
      },
    ]),
  );

  test.each<[string, string]>([
    ["podseidon-released-7", REGISTER],
    ["podseidon-released-by-hand", REGISTER],
    ["podseidon-registration", OTHER],
    ["any", OTHER],
  ])("%s, of the register by its label, is not created", async (name, message) => {
    const answer = await aggregator.request("POST", CONFIG_MAPS, configMap(name, { data: { "uid-1": "x" } }));
    expect(answer.text).toContain(message);
    expect(answer.status).toBe(403);
  });

  test.each<[string, Fields]>([
    ["podseidon-released-7", {}],
    // One of some 800 such names ends with digits alone, and is a segment.
    ["generated", { metadata: { generateName: "podseidon-released-" } }],
  ])("%s, of the register, is not created by the account that cells share, either", async (name, more) => {
    const shared = await asAccount(core, "aggregator");
    expect((await shared.request("POST", CONFIG_MAPS, configMap(name, more))).text).toContain(REGISTER);
    shared.close();
  });

  test.each<[string, Fields, string]>([
    ["b's acknowledgement is raised", { data: { b: "999" } }, "may change no key of podseidon-cells but a"],
    ["b's acknowledgement is removed", { data: { b: null } }, "may change no key of podseidon-cells but a"],
    ["there is another key", { data: { c: "1" } }, "may change no key of podseidon-cells but a"],
    ["a's acknowledgement is no number", { data: { a: "x".repeat(1000) } }, "which matches ^[0-9]{1,40}$"],
    ["it can't be changed any more", { immutable: true }, "may change nothing but data in podseidon-cells"],
    ["it is of the register", { metadata: { labels: { [`${GROUP}/register`]: "released" } } }, "nothing but data"],
    [
      "it is garbage",
      { metadata: { ownerReferences: [{ apiVersion: "v1", kind: "ConfigMap", name: "x", uid: "x" }] } },
      "nothing but data",
    ],
  ])("podseidon-cells: %s: refused", async (_, patch, message) => {
    const answer = await aggregator.request("PATCH", `${CONFIG_MAPS}/${CELLS}`, patch);
    expect(answer.text).toContain(message);
    expect(answer.status).toBe(403);
    expect(field(await core.admin.get(`${CONFIG_MAPS}/${CELLS}`), "data", "b")).toBe("5");
  });
});

describe("the shipped webhook and aggregator of cell a", () => {
  const pods = `/api/v1/namespaces/${NAMESPACE}/pods`;

  async function deleted(count: number): Promise<readonly ApiAnswer[]> {
    const { admin } = environment.cell("a");
    const answers: ApiAnswer[] = [];
    for (const pod of items(await admin.get(pods)).slice(0, count)) {
      answers.push(await admin.request("DELETE", `${pods}/${String(field(pod, "metadata", "name"))}`));
      await untilCounted();
    }
    return answers;
  }

  /** kube-apiserver may ask again about a deletion that is counted: the next one is denied until that is settled. */
  async function untilCounted(available?: number): Promise<void> {
    await core.waitFor(`cell a to count ${available ?? "what is left"}, with nothing on hold or reserved`, async () => {
      const found = await readProtector(core, NAMESPACE, "web");
      const counted = cellEntry(found, "a")?.aggregation;
      const isAsWanted = counted?.availableReplicas === (available ?? counted?.availableReplicas);
      const ofB = cellEntry(found, "b") === undefined ? 0 : 1;
      return isAsWanted && counted?.hold === undefined && reservationCount(found) === ofB;
    });
  }

  async function make(prefix: string, count: number): Promise<void> {
    await createReadyPods(environment.cell("a"), { namespace: NAMESPACE, prefix, count, labels: { app: "web" } });
  }

  test("count, admit, refuse and settle beside another cell, and acknowledge releases", async () => {
    const before = await refusals(core);
    await createCounted("web");
    await make("web", PODS);
    await untilCounted(PODS);
    // 5 here and 2 in cell b, one of which is reserved: 2 more than the promise.
    const answers = await deleted(PODS);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 429, 429, 429]);
    await untilCounted(PODS - 2);
    expect(await storedEntry("web", "b")).toEqual(ENTRY_OF_B);
    await core.waitFor("an acknowledgement", async () => {
      return field(await core.admin.get(`${CONFIG_MAPS}/podseidon-cells`), "data", "a") !== undefined;
    });
    expect(await refusals(core)).toBe(before);
  });

  test("find lost history, put their own cell on hold, and go on", async () => {
    const snapshot = core.snapshotEtcd();
    await make("more", 1);
    await untilCounted(PODS - 1);
    expect((await deleted(1)).map(({ status }) => status)).toEqual([200]);
    // An aggregator that writes first makes the protector newer than all that the webhook has seen.
    const { process: counting } = environment.aggregators.get("a") ?? expect.fail("no aggregator");
    await counting.kill("SIGKILL");
    await core.restoreEtcd(snapshot);
    const holdOfA = async (): Promise<unknown> => field(await storedEntry("web", "a"), "aggregation", "hold");
    await core.waitFor("the webhook to hold its cell", async () => (await holdOfA()) !== undefined);
    expect(await storedEntry("web", "b")).toEqual(ENTRY_OF_B);
    await counting.start();
    await core.waitFor("the hold to end", async () => (await holdOfA()) === undefined);
    await untilCounted(PODS - 2);
    expect(await storedEntry("web", "b")).toEqual(ENTRY_OF_B);
    // The apiserver has begun again.
    expect(await refusals(core)).toBe(0);
  });

  test("restore a lost protector in the name of their cell", async () => {
    const { uid } = (await readProtector(core, NAMESPACE, "web")).metadata;
    await core.admin.call("DELETE", `${PROTECTORS}/web`);
    await core.admin.call("PATCH", `${PROTECTORS}/web`, { metadata: { finalizers: null } });
    await core.waitFor("the protector to be back", async () => {
      const { status, body } = await core.admin.request("GET", `${PROTECTORS}/web`);
      return status === 200 && field(body, "metadata", "uid") !== uid;
    });
    const { annotations } = (await readProtector(core, NAMESPACE, "web")).metadata;
    expect(annotations?.[`${GROUP}/restored`]).toMatch(/^cell a: /);
    await make("again", 2);
    await untilCounted(PODS);
    expect((await deleted(PODS)).map(({ status }) => status)).toEqual([200, 429, 429, 429, 429]);
    await untilCounted(PROMISED);
    expect(await refusals(core)).toBe(0);
  });
});
