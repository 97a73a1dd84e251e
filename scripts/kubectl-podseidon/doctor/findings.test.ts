/** What `doctor` makes of what it finds. */
import { describe, expect, test } from "vitest";
import { createCertificateAuthority } from "../../../shared/certificates/x509.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { makeCell, makeProtector, NOW_MS } from "../../../test/support/decide/fixtures.ts";
import { viewProtector } from "../view.ts";
import { deploymentFindings, leaseFinding, parseDeployments, versionFinding } from "./component-findings.ts";
import {
  certificateFinding,
  clockFinding,
  type Finding,
  findingsText,
  ownCertificateFinding,
  protectorFindings,
} from "./findings.ts";
import { gateFinding, namespaceFinding, webhookConfigurationFindings } from "./webhook-configuration-findings.ts";

const DAY_MS = 86_400_000;

/** `level check: found` */
function line({ level, check, found }: Finding): string {
  return `${level} ${check}: ${found}`;
}

async function createAuthority(daysLeft: number): Promise<string> {
  const notAfterMs = NOW_MS + daysLeft * DAY_MS;
  const validity = { notBeforeMs: notAfterMs - 400 * DAY_MS, notAfterMs };
  return (await createCertificateAuthority({ commonName: "ca", ...validity })).certificatePem;
}

/** By the days that they are valid for. */
const authorities = new Map<number, string>();
for (const daysLeft of [-1, 3, 300, 400]) authorities.set(daysLeft, await createAuthority(daysLeft));

function authority(daysLeft: number): string {
  return authorities.get(daysLeft) ?? "";
}

test.each<[string, string | undefined, string]>([
  ["alike", new Date(NOW_MS - 2000).toUTCString(), "ok clock: agrees with this machine's"],
  ["behind", new Date(NOW_MS - 60_000).toUTCString(), "warning clock: 60s from this machine's"],
  ["ahead", new Date(NOW_MS + 90_000).toUTCString(), "warning clock: 90s from this machine's"],
  ["unknown", undefined, "unknown clock: the apiserver sends no date"],
])("an apiserver's clock that is %s", (_, header, expected) => {
  expect(line(clockFinding(header, NOW_MS))).toBe(expected);
});

describe("certificates", () => {
  test.each<[string, readonly string[], string]>([
    ["long valid", [authority(400)], "ok"],
    ["about to expire", [authority(3)], "warning"],
    ["expired", [authority(-1)], "problem"],
    ["an old and a new one, as in a rotation", [authority(-1) + authority(300)], "ok"],
    ["none", [""], "problem"],
    ["garbage", ["-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"], "problem"],
  ])("%s", (_, bundles, level) => {
    expect(certificateFinding("c", bundles, NOW_MS).level).toBe(level);
  });
});

test.each<[string, string, string]>([
  ["that has expired, before an authority that lasts", authority(-1) + authority(400), "problem"],
  ["about to expire, before an authority that lasts", authority(3) + authority(400), "warning"],
  ["that lasts, before an authority that has expired", authority(300) + authority(-1), "ok"],
  ["none", "", "problem"],
  ["damaged, before an authority that lasts", authority(300).replace("M", "*") + authority(400), "problem"],
])("of a chain the first certificate is the server's own: %s", (_, chain, level) => {
  expect(ownCertificateFinding("c", chain, NOW_MS).level).toBe(level);
});

describe("a lease", () => {
  const spec = { holderIdentity: "a", leaseDurationSeconds: 15 };
  test.each<[string, unknown, string]>([
    ["held", { spec: { ...spec, renewTime: formatMs(NOW_MS - 3000) } }, "ok generator: led by a, renewed 3s ago"],
    [
      "left",
      { spec: { ...spec, renewTime: formatMs(NOW_MS - 60_000) } },
      "problem generator: a renewed its lease of 15 s 60s ago",
    ],
    [
      "just over",
      { spec: { ...spec, renewTime: formatMs(NOW_MS - 21_000) } },
      "problem generator: a renewed its lease of 15 s 21s ago",
    ],
    [
      "long, and good for longer than most",
      { spec: { ...spec, leaseDurationSeconds: 137, renewTime: formatMs(NOW_MS - 100_000) } },
      "ok generator: led by a, renewed 100s ago",
    ],
    [
      "given back",
      { spec: { ...spec, holderIdentity: "", renewTime: formatMs(NOW_MS) } },
      "problem generator: nobody leads",
    ],
    [
      "absent",
      undefined,
      "warning generator: no lease in the system namespace: it never ran here, or without leader election",
    ],
  ])("that is %s", (_, raw, expected) => {
    expect(line(leaseFinding("generator", raw, NOW_MS))).toBe(expected);
  });
  test("that nobody needs", () => {
    expect(line(leaseFinding("generator", undefined, NOW_MS, "none is needed"))).toBe("ok generator: none is needed");
  });
});

test("protectors in trouble are named", () => {
  const low = viewProtector(makeProtector([makeCell("a", 1)]), NOW_MS);
  const impossible = viewProtector(makeProtector([makeCell("a", 2)]), NOW_MS);
  expect(protectorFindings([low, impossible]).map(line)).toEqual([
    "problem protectors: 1 below their minimum: default/web",
    "warning protectors: 1 can never be disrupted: default/web",
    "ok reservations: none",
  ]);
});

test("what is Off by the generator's flag, which no annotation says, is told to be set", () => {
  const off = viewProtector(makeProtector([makeCell("a", 4)], { enforcement: "Off" }), NOW_MS);
  const [found] = protectorFindings([off]);
  expect(found?.advice).toContain("set podseidon.kubewharf.io/enforcement to Enforce at the workload or its namespace");
});

test("a protector that only warns is not in order: nothing denies a deletion of its pods", () => {
  const warns = viewProtector(makeProtector([makeCell("a", 4)], { enforcement: "Warn" }), NOW_MS);
  expect(protectorFindings([warns]).map(line)).toEqual([
    "warning protectors: 1 only warned of: default/web",
    "ok reservations: none",
  ]);
});

describe("the webhook configuration", () => {
  const caBundle = Buffer.from(authority(300)).toString("base64");
  const hook = (operations: string[], resources: string[], rest: object = {}): object => ({
    name: "pods",
    failurePolicy: "Fail",
    clientConfig: { caBundle, service: { path: "/webhook/east" } },
    rules: [{ operations, resources }],
    ...rest,
  });
  const others = [hook(["DELETE", "UPDATE"], ["nodes"]), hook(["UPDATE"], ["pods/status"])];
  const both = [hook(["DELETE"], ["pods"]), hook(["CREATE"], ["pods/eviction"]), ...others];
  test.each<[string, unknown, unknown, readonly string[]]>([
    ["whole", { webhooks: both }, {}, ["ok webhook configuration: asks as cell east, refuses when it gets no answer"]],
    [
      "without evictions",
      { webhooks: [both[0], ...others] },
      {},
      ["problem webhook configuration: the cluster does not ask about CREATE pods/eviction"],
    ],
    [
      "without nodes and status writes",
      { webhooks: both.slice(0, 2) },
      {},
      [
        "warning webhook configuration: the cluster does not ask about DELETE nodes: " +
          "a node that is deleted takes its pods",
        "warning webhook configuration: the cluster does not ask about UPDATE pods/status: " +
          "a status write can end a pod",
      ],
    ],
    [
      "that is open",
      { webhooks: [both[0], ...others, hook(["CREATE"], ["pods/eviction"], { failurePolicy: "Ignore" })] },
      {},
      ["warning webhook configuration: 1 webhook with failurePolicy Ignore"],
    ],
    [
      "of another installation, which was applied later",
      {
        webhooks: both.map((one) => ({
          ...one,
          clientConfig: { caBundle, service: { namespace: "team-b", path: "/webhook/east" } },
        })),
      },
      {},
      ["problem webhook configuration: calls the webhook of namespace team-b, and not of podseidon-system"],
    ],
    [
      "that selects by labels",
      { webhooks: [both[1], ...others, hook(["DELETE"], ["pods"], { objectSelector: { matchLabels: { a: "b" } } })] },
      {},
      ["problem webhook configuration: pods has an objectSelector"],
    ],
    [
      "with an empty selector, as the apiserver fills in",
      { webhooks: [both[1], ...others, hook(["DELETE"], ["pods"], { objectSelector: {} })] },
      {},
      ["ok webhook configuration: asks as cell east, refuses when it gets no answer"],
    ],
    [
      "that binds no evictions",
      { webhooks: both },
      undefined,
      [
        "problem webhook configuration: evictions are not bound to the pod that is " +
          "reviewed: MutatingWebhookConfiguration podseidon is missing",
      ],
    ],
  ])("%s", (_, validating, mutating, expected) => {
    const found = webhookConfigurationFindings(validating, mutating, NOW_MS).map(line);
    expect(found).toEqual([...expected, expect.stringMatching(/^ok CA in the webhook configuration: valid for/)]);
  });
  test("in which one webhook has no authority, or one that is over, is no better for the others", () => {
    const hook = (name: string, bundle: string): object => ({
      name,
      clientConfig: { caBundle: Buffer.from(bundle).toString("base64") },
      rules: [],
    });
    const good = hook("pods", authority(400));
    const told = (validating: object[], mutating: object[]): string | undefined =>
      webhookConfigurationFindings({ webhooks: validating }, { webhooks: mutating }, NOW_MS).map(line).at(-1);
    expect(told([good], [good])).toBe("ok CA in the webhook configuration: valid for 400d");
    expect(told([good, hook("evictions", "")], [good])).toBe(
      "problem CA in the webhook configuration: of evictions: there is none",
    );
    const none = webhookConfigurationFindings({ webhooks: [hook("pods", "")] }, undefined, NOW_MS).at(-1);
    expect(none?.advice).toContain("an aggregator adds it once its term has counted the pods");
    expect(told([good], [hook("bind", authority(-1))])).toMatch(
      /^problem CA in the webhook configuration: of bind: expired /,
    );
  });

  test("that is missing", () => {
    expect(webhookConfigurationFindings(undefined, {}, NOW_MS).map(({ level }) => level)).toEqual(["problem"]);
  });
});

const deployment = (name: string, readyReplicas: number, container: object, replicas = 2): object => ({
  metadata: { name },
  spec: { replicas, template: { spec: { containers: [container] } } },
  status: { replicas, readyReplicas, updatedReplicas: replicas },
});
const componentLines = (...raw: object[]): string[] => deploymentFindings(parseDeployments(raw), "system").map(line);

test("Deployments that do not run, and versions that differ", () => {
  const raw = [
    deployment("a", 2, { image: "p:1" }),
    deployment("b", 1, { image: "p:2" }),
    deployment("c", 0, { image: "p:2" }),
    deployment("d", 0, { image: "p:2" }, 0),
  ];
  expect(componentLines(...raw)).toEqual([
    "ok a: 2 of 2 ready",
    "warning b: 1 of 2 ready",
    "problem c: 0 of 2 ready",
    "warning d: scaled to 0",
  ]);
  expect(line(versionFinding(parseDeployments(raw)))).toBe("warning versions: p:1, p:2");
  expect(line(versionFinding(parseDeployments(raw.slice(1))))).toBe("ok versions: p:2");
});

test("a cluster without Deployments of the project is no question that stays", () => {
  expect(componentLines()).toEqual(["ok components: no Deployment in system; --system-namespace names another"]);
});

test.each([
  [[], "ok callers: everybody who reaches its port: docs/security.md#who-calls"],
  [["--client-ca-file=/ca.crt"], "ok callers: known by client certificates"],
  [
    ["--client-ca-file=/ca.crt", "--client-name=apiserver", "--require-caller-token"],
    "ok callers: known by client certificates by name and identity tokens of apiservers",
  ],
])("how the webhook with %j knows its callers", (args, expected) => {
  expect(componentLines(deployment("podseidon-webhook", 2, { image: "p:1", args }))).toContain(expected);
});

test.each<[object, string]>([
  [{}, "ok enforcement: the webhook denies what the promise does not allow"],
  [{ args: ["--dry-run=false"] }, "ok enforcement: the webhook denies what the promise does not allow"],
  [{ args: ["--dry-run"] }, "problem enforcement: the webhook runs with --dry-run: it denies nothing"],
  [{ args: ["--dry-run=1"] }, "problem enforcement: the webhook runs with --dry-run: it denies nothing"],
  [
    { args: ["--dry-run=false", "--dry-run"] },
    "problem enforcement: the webhook runs with --dry-run: it denies nothing",
  ],
  [
    { args: ["--dry-run=false"], env: [{ name: "PODSEIDON_DRY_RUN", value: "true" }] },
    "ok enforcement: the webhook denies what the promise does not allow",
  ],
  [
    { env: [{ name: "PODSEIDON_DRY_RUN", value: "1" }] },
    "problem enforcement: the webhook runs with --dry-run: it denies nothing",
  ],
  [
    { env: [{ name: "PODSEIDON_DRY_RUN", value: "true" }] },
    "problem enforcement: the webhook runs with --dry-run: it denies nothing",
  ],
])("whether the webhook with %j denies anything", (container, expected) => {
  expect(componentLines(deployment("podseidon-webhook", 2, container))).toContain(expected);
});

describe("the namespaces in which the cluster asks", () => {
  const namespace = (name: string, labels: Readonly<Record<string, string>> = {}): object => ({
    metadata: { name, labels: { ...labels, "kubernetes.io/metadata.name": name } },
  });
  const enforced = { "podseidon.kubewharf.io/enforced-namespace": "true" };
  const selecting = (namespaceSelector: object): object => ({
    webhooks: [
      { name: "pods", clientConfig: {}, namespaceSelector, rules: [{ operations: ["DELETE"], resources: ["pods"] }] },
    ],
  });
  const shipped = {
    matchExpressions: [{ key: "kubernetes.io/metadata.name", operator: "NotIn", values: ["podseidon-system"] }],
  };
  test.each<[string, object, readonly object[], readonly string[]]>([
    [
      "all, as shipped",
      shipped,
      [namespace("shop")],
      ["ok enforced namespaces: asks in every namespace with protected pods (1)"],
    ],
    [
      "none",
      { ...shipped, matchLabels: enforced },
      [namespace("shop"), namespace("bank")],
      ["problem enforced namespaces: nothing is protected: the cluster asks in none of shop, bank"],
    ],
    [
      "some",
      { ...shipped, matchLabels: enforced },
      [namespace("shop", enforced), namespace("bank")],
      ["warning enforced namespaces: the cluster does not ask in bank"],
    ],
    ["nothing is protected", { ...shipped, matchLabels: enforced }, [], []],
  ])("%s", (_, selector, namespaces, expected) => {
    expect(namespaceFinding(selecting(selector), namespaces).map(line)).toEqual(expected);
  });
  test("one in which it asks about deletions and not about evictions is left out", () => {
    const hook = (operation: string, resource: string, namespaceSelector: object): object => {
      return {
        name: resource,
        clientConfig: {},
        namespaceSelector,
        rules: [{ operations: [operation], resources: [resource] }],
      };
    };
    const webhooks = [hook("DELETE", "pods", shipped), hook("CREATE", "pods/eviction", { matchLabels: enforced })];
    expect(namespaceFinding({ webhooks }, [namespace("shop", enforced), namespace("bank")]).map(line)).toEqual([
      "warning enforced namespaces: the cluster does not ask in bank",
    ]);
  });
});

test.each<[readonly string[], unknown, readonly string[]]>([
  [[], undefined, []],
  [["protector shop/web"], {}, ["ok counted gate: asked for by 1 object"]],
  [["protector shop/web"], undefined, ["warning counted gate: protector shop/web asks for it, and nobody adds it"]],
  [
    ["protector shop/web", "namespace bank"],
    undefined,
    ["warning counted gate: protector shop/web and 1 more ask for it, and nobody adds it"],
  ],
])("the counted gate that %j ask for, with the configuration %j", (asking, configuration, expected) => {
  expect(gateFinding(asking, configuration).map(line)).toEqual(expected);
});

test("the text has a line for each finding, then each advice of a cluster once", () => {
  const text = findingsText([
    { cluster: "core", check: "crd", level: "ok", found: "fine", advice: "" },
    { cluster: "east", check: "webhook", level: "problem", found: "silent", advice: "bring it back" },
    { cluster: "core", check: "backups", level: "problem", found: "none", advice: "bring it back" },
    { cluster: "east", check: "backups", level: "problem", found: "none", advice: "bring it back" },
    { cluster: "east", check: "backups", level: "warning", found: "old", advice: "bring it back" },
  ]);
  expect(text).toBe(
    [
      "       CLUSTER   CHECK     FOUND",
      "ok     core      crd       fine",
      "FAIL   east      webhook   silent",
      "FAIL   core      backups   none",
      "FAIL   east      backups   none",
      "WARN   east      backups   old",
      "",
      "What to do:",
      "- east, webhook, backups: bring it back",
      "- core, backups: bring it back",
      "",
      "3 problems, 1 warning, 1 in order, 0 could not be checked.",
      "",
    ].join("\n"),
  );
});
