/** `doctor` against an apiserver that answers from a table: where it asks the webhook, and its exit code. */
import type { RequestListener } from "node:http";
import { afterEach, expect, test } from "vitest";
import { items } from "../../../scripts/control-plane/api-client.ts";
import { createCertificateAuthority } from "../../../shared/certificates/x509.ts";
import { systemPorts } from "../../../shared/runtime/system-ports.ts";
import { podProtectorCrd } from "../../../shared/schema/crd.ts";
import { makeCell, makeProtector } from "../../../test/support/decide/fixtures.ts";
import { listeningApiserver } from "../../../test/support/kube/listening-apiserver.ts";
import { runCommandLine } from "../cli.ts";

const ADMISSION = "/apis/admissionregistration.k8s.io/v1";
const CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podprotectors.podseidon.kubewharf.io";
const EVICTED = /^\/api\/v1\/namespaces\/([^/]+)\/pods\/podseidon-doctor-asks-about-no-pod\/eviction$/;

const nowMs = Date.now();
const { certificatePem } = await createCertificateAuthority({
  ...{ commonName: "ca", notBeforeMs: nowMs - 1000, notAfterMs: nowMs + 300 * 86_400_000 },
});
const caBundle = Buffer.from(certificatePem).toString("base64");

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const clean of cleanups.splice(0).reverse()) clean();
});

const list = (...items: unknown[]): unknown => ({ metadata: { resourceVersion: "1" }, items });
const namespace = (name: string, labels: object = {}): unknown => ({
  metadata: { name, labels: { ...labels, "kubernetes.io/metadata.name": name } },
});

/** A cell whose webhook is asked in the namespaces with the label alone. */
function clusterOf(namespaces: readonly unknown[], protectedIn: readonly string[]): Record<string, unknown> {
  const hook = (operation: string, resource: string): unknown => ({
    name: `${resource}.podseidon.kubewharf.io`,
    clientConfig: { caBundle, service: { path: "/webhook/a" } },
    namespaceSelector: { matchLabels: { enforced: "true" } },
    rules: [{ operations: [operation], resources: [resource] }],
  });
  const webhooks = [hook("DELETE", "pods"), hook("CREATE", "pods/eviction")];
  const protectors = protectedIn.map((name) => {
    const made = makeProtector([makeCell("a", 4)]);
    return { ...made, metadata: { ...made.metadata, namespace: name } };
  });
  return {
    "/version": { gitVersion: "v1.36.0", minor: "36" },
    [CRD]: podProtectorCrd(),
    "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": list(...protectors),
    "/api/v1/namespaces": list(...namespaces),
    "/api/v1/events": list(),
    [`${ADMISSION}/validatingwebhookconfigurations/podseidon`]: { webhooks },
    [`${ADMISSION}/mutatingwebhookconfigurations/podseidon`]: { webhooks: [hook("CREATE", "pods/eviction")] },
    "/apis/apps/v1/namespaces/podseidon-system/deployments": list(),
    "/api/v1/namespaces/podseidon-system": namespace("podseidon-system"),
    "/api/v1/namespaces/podseidon-system/serviceaccounts": list(),
    "/api/v1/namespaces/podseidon-system/configmaps": list(),
  };
}

async function examine(
  objects: Readonly<Record<string, unknown>>,
  forbidden: readonly string[] = [],
  flags: readonly string[] = [],
  aheadMs = 0,
) {
  const asked: string[] = [];
  const answer: RequestListener = (request, response) => {
    const path = (request.url ?? "").replace(/\?.*$/, "");
    const where = EVICTED.exec(path)?.[1];
    if (where !== undefined) asked.push(where);
    const denial = { message: 'admission webhook "bind.podseidon.kubewharf.io" denied the request: not found' };
    const found = where === undefined ? objects[path] : undefined;
    const status = forbidden.includes(path) ? 403 : found === undefined ? 404 : 200;
    response.writeHead(status, { "content-type": "application/json" });
    const failure = { kind: "Status", reason: status === 403 ? "Forbidden" : "NotFound", details: { name: "x" } };
    response.end(JSON.stringify(status === 200 ? found : { ...failure, ...(where !== undefined && denial) }));
  };
  const { kubeconfig, close } = await listeningApiserver(answer);
  cleanups.push(close);
  let out = "";
  const say = (text: string): void => {
    out += text;
  };
  const terminal = { out: say, err: say, interactive: false };
  const clock = { ...systemPorts.clock, nowMs: () => Date.now() + aheadMs };
  const surroundings = { terminal, ports: { ...systemPorts, clock }, environment: {} };
  const code = await runCommandLine(["doctor", "--kubeconfig", kubeconfig, ...flags], surroundings);
  return { code, out, asked, kubeconfig, surroundings };
}

const enforced = { enforced: "true" };

test.each<[string, readonly unknown[], readonly string[], string]>([
  ["with protectors that is asked about", [namespace("bank"), namespace("shop", enforced)], ["bank", "shop"], "shop"],
  ["that this cluster has", [namespace("shop", enforced)], ["another-clusters", "shop"], "shop"],
  ["that is asked about, without protectors", [namespace("bank"), namespace("shop", enforced)], ["bank"], "shop"],
])("the webhook is asked in a namespace %s", async (_, namespaces, protectedIn, expected) => {
  const { asked, out } = await examine(clusterOf(namespaces, protectedIn));
  expect(asked).toEqual([expected]);
  expect(out).toMatch(/^ok +c +webhook +answers as bind/m);
});

test("who may not list namespaces asks where the first protector is", async () => {
  const objects = clusterOf([namespace("shop", enforced)], ["bank"]);
  expect((await examine(objects, ["/api/v1/namespaces"])).asked).toEqual(["bank"]);
});

test.each<[string, readonly unknown[], readonly string[], number]>([
  ["is 0 where every check was made", [namespace("shop", enforced)], [], 0],
  ["is 1 where something is wrong, whatever could not be told", [namespace("shop")], [CRD], 1],
  [
    "is 2 where nothing was found to be wrong, and not everything could be told",
    [namespace("shop", enforced)],
    [CRD],
    2,
  ],
])("the exit code %s", async (_, namespaces, forbidden, expected) => {
  const { code, out } = await examine(clusterOf(namespaces, ["shop"]), forbidden);
  expect(out.includes("FAIL")).toBe(expected === 1);
  expect(code, out).toBe(expected);
});

test("a system namespace that does not exist is a problem, except where the user may not tell", async () => {
  const objects = clusterOf([namespace("shop", enforced)], ["shop"]);
  const flags = ["--system-namespace", "elsewhere"];
  const lists = ["serviceaccounts", "configmaps"].map((kind) => [`/api/v1/namespaces/elsewhere/${kind}`, list()]);
  const elsewhere = { ...objects, ...Object.fromEntries(lists) };
  const path = "/apis/apps/v1/namespaces/elsewhere/deployments";
  const missing = await examine({ ...elsewhere, [path]: list() }, [], flags);
  expect(missing.code).toBe(1);
  expect(missing.out).toMatch(/^FAIL +c +components +there is no namespace elsewhere$/m);
  expect(missing.out).toContain("components: name the namespace of podseidon by --system-namespace; ");
  for (const forbidden of [[], ["/api/v1/namespaces/elsewhere"]]) {
    const present = { ...elsewhere, [path]: list(), "/api/v1/namespaces/elsewhere": namespace("elsewhere") };
    const { out } = await examine(present, forbidden, flags);
    expect(out).toMatch(/^ok +c +components +no Deployment in elsewhere;/m);
  }
});

test("nobody is told to promise less of pods whose owner is deleted: each pod less would go for good", async () => {
  const made = makeProtector([makeCell("a", 2)]);
  const protectors = { "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": list(made) };
  const { out } = await examine({ ...clusterOf([namespace("shop", enforced)], ["shop"]), ...protectors });
  expect(out).toMatch(/where their owner is deleted, create the workload again, .*; otherwise promise less/);
});

test("a policy of an optional component is compared where its account has the permission", async () => {
  const objects = clusterOf([namespace("shop", enforced)], ["shop"]);
  const account = { "/api/v1/namespaces/podseidon-system/serviceaccounts/podseidon-webhook": {} };
  const asked = async (allowed: boolean) => {
    const answer = { "/apis/authorization.k8s.io/v1/subjectaccessreviews": { status: { allowed } } };
    return (await examine({ ...objects, ...account, ...answer })).out;
  };
  const found = /^WARN +c +webhook policy +.*the token of podseidon-webhook can change every pod, its image too$/m;
  expect(await asked(true)).toMatch(found);
  expect(await asked(false)).not.toContain("webhook policy");
});

test("evictions that nobody binds to their pods are named where pods are protected", async () => {
  const MUTATING = `${ADMISSION}/mutatingwebhookconfigurations/podseidon`;
  const objects = clusterOf([namespace("shop", enforced), namespace("managed", enforced)], ["shop", "managed"]);
  expect((await examine(objects)).out).not.toContain("not bound");
  const [webhook] = items(objects[MUTATING], "webhooks");
  const matchExpressions = [{ key: "kubernetes.io/metadata.name", operator: "NotIn", values: ["managed"] }];
  const changed = { ...Object(webhook), namespaceSelector: { matchExpressions } };
  const { out } = await examine({ ...objects, [MUTATING]: { webhooks: [changed] } });
  expect(out).toMatch(/^WARN +c +webhook configuration +evictions of protected pods in managed are not bound/m);
});

test("a printed command finds the cluster that it is about, whatever the current context is", async () => {
  const made = makeProtector([makeCell("a", 0)]);
  const protectors = list({ ...made, metadata: { ...made.metadata, namespace: "shop" } });
  const objects = {
    ...{ ...clusterOf([namespace("shop", enforced)], ["shop"]), [CRD]: undefined },
    "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": protectors,
    "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors": protectors,
  };
  const { out, kubeconfig, surroundings } = await examine(objects, [], ["--context", "c", "--core-context", "c"]);
  expect(out).toContain(`kubectl --kubeconfig ${kubeconfig} apply -k crds\n`);
  const [, command = ""] = /kubectl podseidon (.*NAMESPACE)/.exec(out) ?? [];
  expect(command).toBe(`--kubeconfig ${kubeconfig} --core-context c status NAME --namespace NAMESPACE`);
  const words = command.replace("NAME ", "web ").replace("NAMESPACE", "shop").split(" ");
  expect(await runCommandLine(words, surroundings)).toBe(0);
});

test("a printed command is about the system namespace that was given, where it takes one", async () => {
  const silent = { heartbeatTime: new Date(Date.now() - 600_000).toISOString() };
  const gone = makeProtector([makeCell("a", 4), makeCell("b", 0, [], { ...silent, totalReplicas: 0 })], {
    minAvailable: 5,
  });
  const objects = {
    ...clusterOf([namespace("shop", enforced)], ["shop"]),
    "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": list(gone, makeProtector([makeCell("a", 1)])),
  };
  const { out, kubeconfig } = await examine(objects, [], ["--system-namespace", "elsewhere"]);
  expect(out).toContain(`kubectl podseidon --kubeconfig ${kubeconfig} --system-namespace elsewhere remove-cell b -A`);
  expect(out).toContain(`kubectl podseidon --kubeconfig ${kubeconfig} status NAME`);
});

test("a source that can't be protected as it asks is named, with what the generator says of it", async () => {
  const event = (name: string, agoMs: number, message = "no workload has such pods"): unknown => ({
    involvedObject: { kind: "PodDisruptionBudget", namespace: "shop", name },
    ...{ reason: "BudgetUnresolved", message },
    lastTimestamp: new Date(Date.now() - agoMs).toISOString(),
  });
  const objects = clusterOf([namespace("shop", enforced)], ["shop"]);
  const events = list(
    event("web", 90_000, "before"),
    event("web", 60_000),
    event("web", 80_000, "before"),
    event("mended", 3_000_000),
    { reason: "forged" },
  );
  const { code, out } = await examine({ ...objects, "/api/v1/events": events });
  expect(out).toMatch(/^WARN +c +sources +1 source can't be protected as asked: PodDisruptionBudget shop\/web$/m);
  expect(out).toMatch(/^- c, sources: PodDisruptionBudget shop\/web, \d+s ago: no workload has such pods\. See docs/m);
  expect(code).toBe(0);
  const { out: without } = await examine({ ...objects, "/api/v1/events": list(event("mended", 3_000_000)) });
  expect(without).not.toContain("sources");
});

test("a context that can't be used is no problem of the installation, and the others are looked at", async () => {
  const objects = clusterOf([namespace("shop", enforced)], ["shop"]);
  const { code, out } = await examine(objects, [], ["gone", "c"]);
  expect(out).toMatch(/^\? +gone +kubeconfig +.* has no context "gone"/m);
  expect(out).toMatch(/^ok +c +webhook +answers as bind/m);
  expect(code).toBe(2);
});

test.each<[string, RequestListener, object, RegExp]>([
  [
    "that are not accepted",
    (_, response) => response.writeHead(401).end(JSON.stringify({ kind: "Status", message: "Unauthorized" })),
    {},
    /^\? +c +apiserver +c: \S+ Unauthorized: .* log in again$/m,
  ],
  [
    "whose plugin fails",
    (_, response) => response.end("{}"),
    { exec: { apiVersion: "client.authentication.k8s.io/v1", command: "false", interactiveMode: "Never" } },
    /^\? +c +apiserver +c: .*credential plugin of context "c" failed: exit code 1/m,
  ],
])("credentials %s are the user's, and no problem of the installation", async (_, answer, user, text) => {
  const { kubeconfig, close } = await listeningApiserver(answer, undefined, "c", user);
  cleanups.push(close);
  let out = "";
  const say = (text: string): void => {
    out += text;
  };
  const terminal = { out: say, err: say, interactive: false };
  const args = ["doctor", "--kubeconfig", kubeconfig];
  expect(await runCommandLine(args, { terminal, ports: systemPorts, environment: {} })).toBe(2);
  expect(out).toMatch(text);
});

test("backups, and what limits the accounts of components, are looked at where they are", async () => {
  const accounts = ["generator", "aggregator", "update-trigger"].map(
    (name) => [`/api/v1/namespaces/podseidon-system/serviceaccounts/podseidon-${name}`, {}] as const,
  );
  const served = { resources: [{ name: "validatingadmissionpolicies" }] };
  const objects = clusterOf([namespace("shop", enforced)], ["shop"]);
  const { out } = await examine({ ...objects, [ADMISSION]: served, ...Object.fromEntries(accounts) });
  expect(out).toMatch(/^WARN +c +backups +there are none, for 1 protector with pods here/m);
  for (const [component, name] of [
    ["generator", "podseidon-generator-sources"],
    ["aggregator", "podseidon-aggregator-webhooks"],
    ["aggregator", "podseidon-aggregator-config-maps"],
    ["update-trigger", "podseidon-update-trigger"],
  ])
    expect(out).toMatch(new RegExp(`^WARN +c +${component} policy +the policy ${name} is missing: everybody`, "m"));
  expect(out).toContain("apply the manifests of this release to this cluster again");
  const { out: without } = await examine(objects);
  expect(without).not.toMatch(/(?:generator|aggregator|update-trigger) policy/);
});

test("a cluster that runs podseidon without the FlowSchema of the manifests is told of", async () => {
  const deployment = { metadata: { name: "podseidon-x" }, spec: { template: { spec: { containers: [] } } } };
  const deployments = { "/apis/apps/v1/namespaces/podseidon-system/deployments": list(deployment) };
  const objects = clusterOf([namespace("shop", enforced)], ["shop"]);
  expect((await examine(objects)).out).not.toContain("flow control");
  const { out } = await examine({ ...objects, ...deployments });
  expect(out).toMatch(
    /^WARN +c +flow control +there is no FlowSchema podseidon: many deletions at once take the seats/m,
  );
});

test.each([[[]], [["--core-context", "c"]], [["--context", "c"]]])(
  "the join that is advised can be pasted, with the cell and both contexts, as of a core with its own pods: %j",
  async (flags) => {
    const secret = { data: { kubeconfig: Buffer.from("a: [").toString("base64") } };
    const path = "/api/v1/namespaces/podseidon-system/secrets/podseidon-core-webhook";
    const { out, kubeconfig, surroundings } = await examine(
      { ...clusterOf([namespace("shop", enforced)], ["shop"]), [path]: secret },
      ...[[], flags],
    );
    const [, command = ""] = /^- c, core token: make it by kubectl podseidon (.*)$/m.exec(out) ?? [];
    expect(command).toBe(`--kubeconfig ${kubeconfig} --core-context c --context c join a`);
    let said = "";
    const say = (text: string): void => {
      said += text;
    };
    const terminal = { ...surroundings.terminal, out: say, err: say };
    await runCommandLine(command.split(" "), { ...surroundings, terminal });
    // It has asked the core, whose table has no roles.
    expect(said).toContain("c has no clusterrole/");
  },
);

test.each([
  ["ahead of", 400 * 86_400_000],
  ["behind", -600_000],
])(
  "a machine whose clock is %s that of a cluster calls no cell silent, and no certificate expired",
  async (_, aheadMs) => {
    const made = makeProtector([makeCell("a", 4, [], { heartbeatTime: new Date().toISOString() })]);
    const protectors = list({ ...made, metadata: { ...made.metadata, namespace: "shop" } });
    const objects = {
      ...clusterOf([namespace("shop", enforced)], ["shop"]),
      "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": protectors,
    };
    const { out } = await examine(objects, [], [], aheadMs);
    expect(out).toMatch(/^WARN +c +clock +\S+ from this machine's$/m);
    expect(out).toMatch(/^ok +c +cell a +counted in 1 protector, heartbeat \S+ ago$/m);
    expect(out).toMatch(/^ok +c +CA in the webhook configuration +valid for/m);
  },
);

test.each([
  ["is not installed", [], false],
  ["may not be read", ["/apis/podseidon.kubewharf.io/v1alpha1/podprotectors"], true],
])("permissions are advised where PodProtector %s: %j", async (_, forbidden, expected) => {
  const objects = clusterOf([namespace("shop", enforced)], ["shop"]);
  const { out } = await examine(
    { ...objects, "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors": undefined },
    forbidden,
  );
  expect(out).toMatch(/^\? +c +protectors /m);
  expect(/^- c, protectors: see whether your user .* auth can-i --list\)$/m.test(out)).toBe(expected);
});
