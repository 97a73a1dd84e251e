/**
 * What else the tokens of components may write, where RBAC gives more than the product needs: workloads and budgets,
 * the dummy pod, webhook configurations. Whoever has such a token can do with it what the product does, and nothing
 * else. On a real kube-apiserver, with the roles and policies as they ship.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { newTriggerPod } from "../../controllers/update-trigger/trigger-pod.ts";
import { field } from "../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { applyOverlay } from "../../scripts/demo/install.ts";
import { createCellAccounts } from "../../scripts/environment/cell-accounts.ts";
import { POLICIES, policyFinding } from "../../scripts/kubectl-podseidon/doctor/policy-findings.ts";
import { installCrd } from "../support/generator/generator-harness.ts";

const TRIGGER = "podseidon-update-trigger";
const FINALIZER = "podseidon.kubewharf.io/generator";
const DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments";
const BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const X_BUDGETS = "/apis/x-pdb.form3.tech/v1alpha1/namespaces/default/xpoddisruptionbudgets";
const PODS = `/api/v1/namespaces/${TRIGGER}/pods`;
const CONFIG_MAPS = "/api/v1/namespaces/podseidon-system/configmaps";
const WEBHOOKS = "/apis/admissionregistration.k8s.io/v1";
const MUTATING = `${WEBHOOKS}/mutatingwebhookconfigurations`;
const VALIDATING = `${WEBHOOKS}/validatingwebhookconfigurations`;
type Fields = Readonly<Record<string, unknown>>;
let cluster: Cluster;

/** As one of the project's accounts. The content type of a patch is that of the product. */
async function as(
  account: string,
  method: "POST" | "PUT" | "PATCH" | "DELETE",
  path: string,
  body: unknown,
): Promise<string> {
  const { status, text } = await cluster.admin.request(method, path, body, {
    ...(method === "PATCH" ? { contentType: "application/merge-patch+json" } : {}),
    headers: { "impersonate-user": `system:serviceaccount:podseidon-system:podseidon-${account}` },
  });
  return `${status} ${text}`;
}
const dry = (path: string): string => `${path}?dryRun=All`;
const get = async (path: string): Promise<Fields> => Object(await cluster.admin.get(path));

const labels = { app: "web" };
const READY = { type: "Ready", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" };
const pod = { metadata: { labels }, spec: { containers: [{ name: "app", image: "app:1" }] } };
const dummy = (): Fields =>
  Object(newTriggerPod(TRIGGER, TRIGGER, { mark: { counter: 1, lineage: [] }, atMs: 0, labels: {} }));
const configMap = (name: string): Fields => ({ apiVersion: "v1", kind: "ConfigMap", metadata: { name }, data: {} });
const dummyWith = (more: Fields): Fields => ({ ...dummy(), spec: { ...Object(dummy().spec), ...more } });

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
  await applyOverlay(cluster, "single-cluster", { components: ["counted-gate"] });
  await cluster.admin.call("POST", DEPLOYMENTS, {
    ...{ apiVersion: "apps/v1", kind: "Deployment", metadata: { name: "web", annotations: { owner: "web" } } },
    spec: { replicas: 0, selector: { matchLabels: labels }, template: pod },
  });
  await cluster.admin.call("POST", BUDGETS, {
    ...{ apiVersion: "policy/v1", kind: "PodDisruptionBudget", metadata: { name: "web" } },
    spec: { minAvailable: 1, selector: { matchLabels: labels } },
  });
  await installCrd(cluster, "xpoddisruptionbudgets.x-pdb.form3.tech");
  await cluster.admin.call("POST", X_BUDGETS, {
    ...{ apiVersion: "x-pdb.form3.tech/v1alpha1", kind: "XPodDisruptionBudget", metadata: { name: "web" } },
    spec: { minAvailable: 1, selector: { matchLabels: labels } },
  });
  await createCellAccounts(cluster, "worker-2");
  await cluster.waitFor("the policies to be in force", async () => {
    const denied = [
      await as("generator", "PATCH", dry(`${DEPLOYMENTS}/web`), { spec: { replicas: 7 } }),
      await as("update-trigger", "POST", dry(PODS), { ...dummy(), metadata: { name: "another" } }),
      await as("aggregator", "POST", dry(MUTATING), configuration("MutatingWebhookConfiguration", "another", "pods")),
      await as("aggregator", "POST", dry(CONFIG_MAPS), {
        ...dummy(),
        kind: "ConfigMap",
        metadata: { name: "another" },
      }),
    ];
    return denied.every((answer) => answer.includes("ValidatingAdmissionPolicy"));
  });
});

afterAll(() => cluster?.stop());

describe("the generator", () => {
  test("sets its finalizer, and takes it off", async () => {
    for (const path of [`${DEPLOYMENTS}/web`, `${BUDGETS}/web`, `${X_BUDGETS}/web`])
      for (const finalizers of [[FINALIZER], []])
        expect(await as("generator", "PATCH", path, { metadata: { finalizers } })).toMatch(/^200 /);
  });

  test("has a workload that came back ask for protection", async () => {
    const annotations = { "podseidon.kubewharf.io/protect": "adopted" };
    expect(await as("generator", "PATCH", dry(`${DEPLOYMENTS}/web`), { metadata: { annotations } })).toMatch(/^200 /);
  });

  test.each<[string, string, Fields]>([
    [
      "a workload no other image",
      DEPLOYMENTS,
      { spec: { template: { spec: { containers: [{ name: "app", image: "theirs:1" }] } } } },
    ],
    ["a workload no other account", DEPLOYMENTS, { spec: { template: { spec: { serviceAccountName: "theirs" } } } }],
    ["a workload no other number", DEPLOYMENTS, { spec: { replicas: 7 } }],
    ["a workload no finalizer of others", DEPLOYMENTS, { metadata: { finalizers: ["example.com/held"] } }],
    [
      "a workload no owner",
      DEPLOYMENTS,
      { metadata: { ownerReferences: [{ apiVersion: "v1", kind: "ConfigMap", name: "gone", uid: "gone" }] } },
    ],
    ["a budget no other number", BUDGETS, { spec: { minAvailable: 0 } }],
    ["a budget of x-pdb no other number", X_BUDGETS, { spec: { minAvailable: 0 } }],
  ])("gives %s", async (_, path, body) => {
    expect(await as("generator", "PATCH", dry(`${path}/web`), body)).toMatch(/^403 .*changes no spec, no owner/);
  });

  test("writes and deletes segments of the release register", async () => {
    const path = `${CONFIG_MAPS}/podseidon-released-0`;
    expect(await as("generator", "POST", CONFIG_MAPS, configMap("podseidon-released-0"))).toMatch(/^201 /);
    expect(await as("generator", "PATCH", path, { data: { uid: "text" } })).toMatch(/^200 /);
    expect(await as("generator", "DELETE", path, undefined)).toMatch(/^200 /);
  });

  test.each<[string, "POST" | "PATCH" | "DELETE", string, Fields | undefined]>([
    ["the CA that cells trust", "PATCH", "/podseidon-webhook-ca", { data: { "ca.crt": "theirs" } }],
    ["the CA that cells trust, which it deletes", "DELETE", "/podseidon-webhook-ca", undefined],
    ["the id of the cell", "PATCH", "/podseidon-cell", { data: { id: "another" } }],
    ["the operator's part of the register", "PATCH", "/podseidon-released-by-hand", { data: { uid: "x" } }],
    ["one of another name", "POST", "", configMap("theirs")],
  ])("writes no other ConfigMap: %s", async (_, method, path, body) => {
    const answer = await as("generator", method, dry(`${CONFIG_MAPS}${path}`), body);
    expect(answer).toMatch(/^403 .*writes no ConfigMap but segments of the release register/);
  });

  test("writes, though a policy of others changes labels and annotations with each write", async () => {
    const metadata = { labels: { theirs: "one" }, annotations: { owner: null, theirs: "two" } };
    const path = dry(`${DEPLOYMENTS}/web`);
    expect(await as("generator", "PATCH", path, { metadata: { ...metadata, finalizers: [FINALIZER] } })).toMatch(
      /^200 /,
    );
  });

  test("lets a deleted workload go, though a policy of others changes what makes its pods", async () => {
    const metadata = { name: "leaving", finalizers: [FINALIZER] };
    await cluster.admin.call("POST", DEPLOYMENTS, {
      ...{ apiVersion: "apps/v1", kind: "Deployment", metadata },
      spec: { replicas: 0, selector: { matchLabels: labels }, template: pod },
    });
    const path = `${DEPLOYMENTS}/leaving`;
    const change = { metadata: { finalizers: [] }, spec: { revisionHistoryLimit: 3 } };
    expect(await as("generator", "PATCH", path, change)).toMatch(/^403 /);
    // While it asks for replicas, its deletion would be refused.
    await cluster.admin.call("DELETE", path);
    expect(await as("generator", "PATCH", path, change)).toMatch(/^200 /);
    expect((await cluster.admin.request("GET", path)).status).toBe(404);
  });
});

test("a cell that has joined a single cluster asks for no token that outlives its Secret", async () => {
  const path = "/api/v1/namespaces/podseidon-system/serviceaccounts/podseidon-aggregator.worker-2/token";
  expect(await as("aggregator.worker-2", "POST", path, { spec: {} })).toMatch(/^422 .*is bound to the Secret/);
});

test("doctor knows the policies about cells as a kube-apiserver has them", async () => {
  const stored = POLICIES.map(async (name) => ({
    name,
    policy: await get(`${WEBHOOKS}/validatingadmissionpolicies/${name}`),
    binding: await get(`${WEBHOOKS}/validatingadmissionpolicybindings/${name}`),
  }));
  expect(policyFinding(await Promise.all(stored), "podseidon-system")).toMatchObject({ level: "ok" });
});

describe("the update trigger", () => {
  test("makes it where a webhook of others gives each pod a scheduler", async () => {
    expect(await as("update-trigger", "POST", dry(PODS), dummyWith({ schedulerName: "theirs" }))).toMatch(/^201 /);
  });

  test.each<[string, () => Fields]>([
    ["another pod", () => ({ ...dummy(), metadata: { name: "another" } })],
    ["one of a generated name", () => ({ ...dummy(), metadata: { generateName: `${TRIGGER}-` } })],
    ["one that is on a node already", () => dummyWith({ nodeName: "node-1" })],
    [
      "one that a scheduler takes and that runs",
      () => {
        const [container] = Object(dummy().spec).containers;
        return dummyWith({ schedulerName: "default-scheduler", containers: [{ ...container, image: "theirs:1" }] });
      },
    ],
  ])("makes no %s", async (_, body) => {
    expect(await as("update-trigger", "POST", dry(PODS), body())).toMatch(/^403 .*never runs/);
  });

  test("makes its pod, and marks it", async () => {
    expect(await as("update-trigger", "POST", PODS, dummy())).toMatch(/^201 /);
    const annotations = { "podseidon.kubewharf.io/update-trigger-time": "2026-01-01T00:00:00.000Z" };
    expect(await as("update-trigger", "PATCH", dry(`${PODS}/${TRIGGER}`), { metadata: { annotations } })).toMatch(
      /^200 /,
    );
    const image = [{ op: "replace", path: "/spec/containers/0/image", value: "theirs:1" }];
    const changed = await cluster.admin.request("PATCH", dry(`${PODS}/${TRIGGER}`), image, {
      contentType: "application/json-patch+json",
      headers: { "impersonate-user": `system:serviceaccount:podseidon-system:${TRIGGER}` },
    });
    expect(changed.text).toContain("never runs");
  });

  test("says that it has ended", async () => {
    const path = dry(`${PODS}/${TRIGGER}/status`);
    // Policies come before webhooks. The webhook, which is asked about an end, does not run here.
    const answer = await as("update-trigger", "PATCH", path, { status: { phase: "Succeeded" } });
    expect(answer).toContain("failed calling webhook");
  });

  const labelled = { metadata: { labels } };
  test.each<[string, Fields]>([
    ["Ready, which counts for a protector of these labels", { phase: "Running", conditions: [READY] }],
    [
      "one with an address, which gets what a Service sends",
      { phase: "Running", conditions: [READY], podIP: "10.0.0.9" },
    ],
  ])("makes it none that is %s", async (_, status) => {
    const answer = await as("update-trigger", "PATCH", dry(`${PODS}/${TRIGGER}/status`), { ...labelled, status });
    expect(answer).toMatch(/^403 .*never runs/);
  });
});

const rulesFor = (...resources: readonly string[]): readonly Fields[] => [
  { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources, scope: "*" },
];

function configuration(kind: string, name: string, ...resources: readonly string[]): Fields {
  const rules = rulesFor(...resources);
  const webhook = { name: "a.example.com", admissionReviewVersions: ["v1"], sideEffects: "None", rules };
  const clientConfig = { url: "https://theirs.example.com/" };
  return {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind,
    metadata: { name },
    webhooks: [{ ...webhook, clientConfig }],
  };
}

describe("the aggregator", () => {
  test.each(["podseidon-copy-0123456789ab-0", "podseidon-registration", "podseidon-cells"])(
    "writes the ConfigMap %s",
    async (name) => {
      expect(await as("aggregator", "POST", CONFIG_MAPS, configMap(name))).toMatch(/^201 /);
      const path = `${CONFIG_MAPS}/${name}`;
      expect(await as("aggregator", "PATCH", path, { data: { key: "text" } })).toMatch(/^200 /);
    },
  );

  test.each<[string, "POST" | "PATCH", string, Fields]>([
    ["the id of the cell", "PATCH", "/podseidon-cell", { data: { id: "another" } }],
    ["the CA that cells trust", "PATCH", "/podseidon-webhook-ca", { data: { "ca.crt": "theirs" } }],
    ["one of another name", "POST", "", configMap("theirs")],
    ["one of a generated name", "POST", "", { ...configMap(""), metadata: { generateName: "podseidon-" } }],
  ])("writes no other ConfigMap: %s", async (_, method, path, body) => {
    const answer = await as("aggregator", method, dry(`${CONFIG_MAPS}${path}`), body);
    expect(answer).toMatch(/^403 .*writes no ConfigMap but/);
  });

  const live = {
    validating: () => get(`${VALIDATING}/podseidon`),
    mutating: () => get(`${MUTATING}/podseidon`),
    gate: () => get(`${MUTATING}/podseidon-gate`),
  };
  const withWebhooks = (object: Fields, change: (webhook: Fields) => Fields): Fields => ({
    ...object,
    webhooks: (Array.isArray(object.webhooks) ? object.webhooks : []).map((webhook) => change(Object(webhook))),
  });
  const anew = ({ metadata, ...rest }: Fields): Fields => ({ ...rest, metadata: { name: field(metadata, "name") } });

  test("restores both webhook configurations", async () => {
    for (const [collection, read] of [
      [VALIDATING, live.validating],
      [MUTATING, live.mutating],
    ] as const) {
      const stored = await read();
      expect(await as("aggregator", "PUT", dry(`${collection}/podseidon`), stored)).toMatch(/^200 /);
      await cluster.admin.call("DELETE", `${collection}/podseidon`);
      expect(await as("aggregator", "POST", collection, anew(stored))).toMatch(/^201 /);
    }
  });

  test("keeps the CA and the path of all", async () => {
    for (const [collection, read] of [
      [VALIDATING, live.validating],
      [MUTATING, live.mutating],
      [MUTATING, live.gate],
    ] as const) {
      const stored = withWebhooks(await read(), (webhook) => {
        const { service } = Object(webhook.clientConfig);
        return { ...webhook, clientConfig: { caBundle: "", service: { ...service, path: `${service.path}/secret` } } };
      });
      const path = dry(`${collection}/${field(stored.metadata, "name")}`);
      expect(await as("aggregator", "PATCH", path, { webhooks: stored.webhooks })).toMatch(/^200 /);
    }
  });

  test.each<[string, string, string, () => Fields]>([
    [
      "one of another name",
      VALIDATING,
      "restores no",
      () => configuration("ValidatingWebhookConfiguration", "any", "pods"),
    ],
    [
      "the gate anew",
      MUTATING,
      "restores no",
      () => configuration("MutatingWebhookConfiguration", "podseidon-gate", "pods"),
    ],
  ])("creates no %s", async (_, collection, message, body) => {
    expect(await as("aggregator", "POST", dry(collection), body())).toMatch(new RegExp(`^403 .*${message}`));
  });

  test.each<[string, string, readonly string[]]>([
    ["Secrets", "ValidatingWebhookConfiguration", ["pods", "secrets"]],
    ["everything", "ValidatingWebhookConfiguration", ["*/*"]],
    ["new pods, to change them", "MutatingWebhookConfiguration", ["pods"]],
  ])("has no webhook asked about %s", async (_, kind, resources) => {
    const collection = kind === "MutatingWebhookConfiguration" ? MUTATING : VALIDATING;
    const { webhooks } = configuration(kind, "podseidon", ...resources);
    const answer = await as("aggregator", "PATCH", dry(`${collection}/podseidon`), { webhooks });
    expect(answer).toMatch(/^403 .*asked about nothing but/);
  });

  test.each<[string, (webhook: Fields) => Fields]>([
    ["calls another server", (webhook) => ({ ...webhook, clientConfig: { url: "https://theirs.example.com/" } })],
    [
      "calls another Service",
      (webhook) => ({ ...webhook, clientConfig: { service: { name: "theirs", namespace: "default" } } }),
    ],
    ["asks about Secrets", (webhook) => ({ ...webhook, rules: rulesFor("secrets") })],
    ["has another webhook", (webhook) => ({ ...webhook, name: `another-${webhook.name}` })],
  ])("leaves the gate as it is: none %s", async (_, change) => {
    const { webhooks } = withWebhooks(await live.gate(), change);
    const patched: string = await as("aggregator", "PATCH", dry(`${MUTATING}/podseidon-gate`), { webhooks });
    expect(patched).toMatch(/^403 .*neither whom it calls nor what it asks about/);
  });
});
