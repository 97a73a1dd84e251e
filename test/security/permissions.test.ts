/** What the manifests grant is asked of a real authorizer, and what they admit of a real kube-apiserver. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field, items } from "../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../scripts/control-plane/cluster.ts";
import { applyOverlay } from "../../scripts/demo/install.ts";

const SYSTEM = "podseidon-system";
const TRIGGER = "podseidon-update-trigger";
let cluster: Cluster;

/** As some providers have it: the system's classes are for namespaces whose quota permits them. */
const CRITICAL_BY_QUOTA_ONLY = {
  apiVersion: "apiserver.config.k8s.io/v1",
  kind: "AdmissionConfiguration",
  plugins: [
    {
      name: "ResourceQuota",
      configuration: {
        apiVersion: "apiserver.config.k8s.io/v1",
        kind: "ResourceQuotaConfiguration",
        limitedResources: [
          {
            resource: "pods",
            matchScopes: [
              {
                scopeName: "PriorityClass",
                operator: "In",
                values: ["system-cluster-critical", "system-node-critical"],
              },
            ],
          },
        ],
      },
    },
  ],
};

/** What earlier versions left behind: the update trigger created its dummy pod beside the CA's key. */
const metadata = { name: TRIGGER, namespace: SYSTEM };
const EARLIER = [
  { apiVersion: "v1", kind: "Namespace", metadata: { name: SYSTEM } },
  {
    ...{ apiVersion: "rbac.authorization.k8s.io/v1", kind: "Role", metadata },
    rules: [{ apiGroups: [""], resources: ["pods"], verbs: ["create"] }],
  },
  {
    ...{ apiVersion: "rbac.authorization.k8s.io/v1", kind: "RoleBinding", metadata },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: TRIGGER },
    subjects: [{ kind: "ServiceAccount", ...metadata }],
  },
];

beforeAll(async () => {
  cluster = await Cluster.start({
    ...{ scheduler: false, kwok: false },
    flags: { "kube-apiserver": { "admission-control-config-file": "$FILES/admission.json" } },
    files: { "admission.json": JSON.stringify(CRITICAL_BY_QUOTA_ONLY) },
  });
  await cluster.apply(EARLIER);
  // The authorizer follows by watch.
  await cluster.waitFor("the rule of earlier versions", () => may("update-trigger", "create", "pods", SYSTEM));
  await applyOverlay(cluster, "single-cluster", { components: ["eviction-retry"] });
});

afterAll(() => cluster?.stop());

/** What the apiserver would answer; there is no wildcard among the rules, so that what is not listed is refused. */
function may(account: string, verb: string, resource: string, namespace: string, name = ""): Promise<boolean> {
  return isAllowed(`system:serviceaccount:podseidon-system:podseidon-${account}`, verb, resource, namespace, name);
}

async function isAllowed(
  ...[user, verb, resource, namespace, name = ""]: readonly [string, string, string, string, string?]
): Promise<boolean> {
  const [type, subresource] = resource.split("/");
  const [plural, ...group] = (type ?? "").split(".");
  const body = {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SubjectAccessReview",
    spec: {
      user,
      groups: ["system:serviceaccounts", "system:authenticated"],
      resourceAttributes: { verb, resource: plural, group: group.join("."), namespace, subresource, name },
    },
  };
  const answer = await cluster.admin.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body);
  return field(answer, "status", "allowed") === true;
}

const ppr = "podprotectors.podseidon.kubewharf.io";
test.each<[string, string, string, boolean]>([
  ["webhook", "watch", ppr, true],
  ["webhook", "update", `${ppr}/status`, true],
  ["webhook", "update", ppr, false],
  ["webhook", "delete", ppr, false],
  ["webhook", "get", "pods", true],
  ["webhook", "list", "pods", true],
  ["webhook", "delete", "pods", false],
  ["webhook", "create", "events", true],
  ["webhook", "delete", "events", false],
  ["aggregator", "update", `${ppr}/status`, true],
  ["aggregator", "update", ppr, false],
  ["aggregator", "watch", "pods", true],
  ["aggregator", "delete", "pods", false],
  ["generator", "create", ppr, true],
  ["generator", "patch", ppr, true],
  ["generator", "delete", ppr, true],
  ["generator", "patch", "deployments.apps", true],
  ["generator", "delete", "deployments.apps", false],
  ["generator", "list", "pods", true],
  ["generator", "delete", "pods", false],
  ["update-trigger", "create", "pods", false],
  ["update-trigger", "list", "pods", false],
  ["eviction-retry", "create", "pods/eviction", true],
  ["eviction-retry", "delete", "pods", false],
  ["eviction-retry", "watch", "pods", false],
  ["eviction-retry", "patch", "nodes", false],
  ["eviction-retry", "update", `${ppr}/status`, false],
  ["eviction-retry", "get", "secrets", false],
  ["generator", "get", "secrets", false],
  ["webhook", "get", "secrets", false],
  ["aggregator", "get", "secrets", false],
  ["certificates", "get", "secrets", false],
  ["certificates", "get", "pods", false],
])("the %s may %s %s in a user's namespace: %s", async (account, verb, resource, expected) => {
  expect(await may(account, verb, resource, "default")).toBe(expected);
});

test("who may view a namespace may read its protectors, change none, and read no others", async () => {
  const subject = { kind: "ServiceAccount", name: "reader", namespace: "default" };
  await cluster.apply([
    {
      ...{ apiVersion: "rbac.authorization.k8s.io/v1", kind: "RoleBinding" },
      metadata: { name: "reader", namespace: "default" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "view" },
      subjects: [subject],
    },
  ]);
  const reader = "system:serviceaccount:default:reader";
  // A controller adds the rule to the role.
  await cluster.waitFor("the rule in the role", () => isAllowed(reader, "list", ppr, "default"));
  for (const [verb, resource, namespace, expected] of [
    ["get", ppr, "default", true],
    ["patch", ppr, "default", false],
    ["update", `${ppr}/status`, "default", false],
    ["list", ppr, "", false],
  ] as const)
    expect([verb, resource, namespace, await isAllowed(reader, verb, resource, namespace)]).toEqual([
      ...[verb, resource, namespace, expected],
    ]);
});

test("the certificates controller reads its own Secrets, lists and creates none; the others read none", async () => {
  for (const [account, verb, name, expected] of [
    ["certificates", "get", "podseidon-webhook-ca", true],
    ["certificates", "update", "podseidon-webhook-tls", true],
    ["certificates", "get", "podseidon-core", false],
    ["certificates", "list", "", false],
    ["certificates", "create", "", false],
    ["aggregator", "get", "podseidon-webhook-ca", false],
    ["webhook", "get", "podseidon-webhook-ca", false],
    ["generator", "get", "podseidon-webhook-ca", false],
  ] as const) {
    expect([account, verb, name, await may(account, verb, "secrets", "podseidon-system", name)]).toEqual([
      account,
      verb,
      name,
      expected,
    ]);
  }
});

test.each<[string, string, string, boolean]>([
  ["aggregator", "patch", "podseidon", true],
  ["aggregator", "delete", "podseidon", false],
  ["aggregator", "patch", "another", false],
  ["webhook", "patch", "podseidon", false],
])("the %s may %s the registration %s: %s", async (account, verb, name, expected) => {
  const resource = "validatingwebhookconfigurations.admissionregistration.k8s.io";
  expect(await may(account, verb, resource, "", name)).toBe(expected);
});

test.each(["generator", "aggregator", "update-trigger", "eviction-retry"])(
  "the %s may elect a leader at home only",
  async (account) => {
    expect(await may(account, "create", "leases.coordination.k8s.io", "podseidon-system")).toBe(true);
    expect(await may(account, "create", "leases.coordination.k8s.io", "default")).toBe(false);
  },
);

describe("the update trigger", () => {
  test.each<[string, string, boolean]>([
    ["create", SYSTEM, false],
    ["get", SYSTEM, false],
    ["create", TRIGGER, true],
    ["patch", TRIGGER, true],
    ["delete", TRIGGER, false],
  ])("may %s its dummy pod in %s: %s", async (verb, namespace, expected) => {
    const name = verb === "create" ? "" : TRIGGER;
    expect(await may("update-trigger", verb, "pods", namespace, name)).toBe(expected);
  });

  test("patches no other pod, and reads no Secret of that namespace", async () => {
    expect(await may("update-trigger", "patch", "pods", TRIGGER, "another")).toBe(false);
    expect(await may("update-trigger", "get", "secrets", TRIGGER)).toBe(false);
  });

  test("reads and patches its Lease at home", async () => {
    expect(await may("update-trigger", "update", "leases.coordination.k8s.io", SYSTEM, TRIGGER)).toBe(true);
  });
});

test.each(["webhook", "aggregator", "generator", "update-trigger", "certificates", "eviction-retry"])(
  "the %s runs no pod beside the CA's key",
  async (account) => {
    for (const verb of ["create", "update", "patch"]) expect(await may(account, verb, "pods", SYSTEM)).toBe(false);
  },
);

describe("the priority of the project's pods", () => {
  const pod = async (namespace: string, priorityClassName: string): Promise<readonly [number, unknown]> => {
    const containers = [{ name: "main", image: "main:1" }];
    const { status, body } = await cluster.admin.request("POST", `/api/v1/namespaces/${namespace}/pods?dryRun=All`, {
      ...{ apiVersion: "v1", kind: "Pod", metadata: { name: "one" } },
      spec: { priorityClassName, containers },
    });
    return [status, status === 201 ? field(body, "spec", "priority") : field(body, "message")];
  };

  test("can't be used by others", async () => {
    const classes = items(await cluster.admin.get("/apis/scheduling.k8s.io/v1/priorityclasses"));
    const names = classes.map((one) => String(field(one, "metadata", "name"))).sort();
    expect(names).toEqual(["system-cluster-critical", "system-node-critical"]);
    expect(await pod("default", "system-cluster-critical")).toEqual([
      500,
      expect.stringMatching(/^insufficient quota/),
    ]);
  });

  test("is the system's, where a quota has to permit it, too", async () => {
    const created = async (): Promise<readonly unknown[]> =>
      items(await cluster.admin.get(`/api/v1/namespaces/${SYSTEM}/pods`)).map((one) => field(one, "spec", "priority"));
    // The controller manager has made the pods of every Deployment.
    await cluster.waitFor("the pods", async () => (await created()).length === 10);
    expect(new Set(await created())).toEqual(new Set([2_000_000_000]));
  });
});
