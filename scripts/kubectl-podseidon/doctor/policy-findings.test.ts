import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { root } from "../../root.ts";
import {
  CELL_COMPONENT_POLICIES,
  CORE_COMPONENT_POLICIES,
  type ComponentPolicy,
  componentPolicyFinding,
  hasCellAccounts,
  POLICIES,
  policyFinding,
  type StoredPolicy,
  servesPolicies,
  WORKLOAD_POLICY,
  workloadPolicyFinding,
} from "./policy-findings.ts";

const stored = (name: string, policy: object = {}, binding: object = {}): StoredPolicy => ({
  name,
  policy: { spec: { failurePolicy: "Fail", ...policy } },
  binding: { spec: { policyName: name, validationActions: ["Deny"], ...binding } },
});
const Shipped = v.looseObject({
  kind: v.string(),
  metadata: v.object({ name: v.string() }),
  spec: v.looseObject({ matchConstraints: v.optional(v.looseObject({})) }),
});

/** A policy as the manifests have it, with changes of its spec and of its binding's. */
function shippedIn(file: string, name: string, policy: object = {}, binding: object = {}): StoredPolicy {
  const text = readFileSync(join(root, "manifests", file), "utf8");
  const objects = loadAll(text).map((raw) => v.parse(Shipped, raw));
  const [rules, bound] = objects.filter(({ metadata }) => metadata.name === name).map(({ spec }) => spec);
  return { name, policy: { spec: { ...rules, ...policy } }, binding: { spec: { ...bound, ...binding } } };
}

const Spec = v.object({ spec: v.unknown() });
const Stored = v.object({ name: v.string(), policy: v.unknown(), binding: v.unknown() });
const fileOf = (name: string): string =>
  name === "podseidon-cell-tokens"
    ? "base/cell-tokens/policy.yaml"
    : `base/cell-policy/${name.slice("podseidon-cell-".length)}.yaml`;
const ofCells = (name: string, policy?: object, binding?: object) => shippedIn(fileOf(name), name, policy, binding);
const ofWorkloads = (policy?: object) => shippedIn("base/workload-policy/policy.yaml", WORKLOAD_POLICY, policy);
const rollouts = { apiGroups: ["argoproj.io"], apiVersions: ["*"], operations: ["DELETE"], resources: ["rollouts"] };
/** What the policy about workloads is about, and this too. */
function withRule(rule: object): object {
  const { matchConstraints } = v.parse(Shipped.entries.spec, v.parse(Spec, ofWorkloads().policy).spec);
  const rules = v.parse(v.array(v.unknown()), matchConstraints?.resourceRules);
  return { ...matchConstraints, resourceRules: [...rules, rule] };
}
const others = POLICIES.slice(1).map((name) => ofCells(name));
const first = POLICIES[0] ?? "";

describe("the policies of a core", () => {
  test.each<[string, readonly StoredPolicy[] | undefined, string, string]>([
    ["all in force", [ofCells(first), ...others], "ok", "each cell's accounts write what that cell says"],
    ["of an old kube-apiserver", undefined, "warning", "has no ValidatingAdmissionPolicy"],
    [
      "one missing",
      [{ name: first, policy: undefined, binding: undefined }, ...others],
      "problem",
      `missing: ${first}`,
    ],
    ["one without binding", [{ ...stored(first), binding: undefined }, ...others], "problem", first],
    ["one that only audits", [stored(first, {}, { validationActions: ["Audit"] }), ...others], "problem", first],
    ["a binding of another", [stored(first, {}, { policyName: "other" }), ...others], "problem", first],
    ["one that is open at failures", [stored(first, { failurePolicy: "Ignore" }), ...others], "problem", first],
  ])("%s", (_, policies, level, text) => {
    const finding = policyFinding(policies, "podseidon-system");
    expect([finding.level, finding.found]).toEqual([level, expect.stringContaining(text)]);
    expect(finding.advice === "").toBe(level === "ok");
  });

  test.each<[string, object, object?]>([
    ["allows what an earlier release did", { validations: [{ expression: "true" }] }],
    ["reads something else", { variables: [{ name: "cell", expression: "'a'" }] }],
    ["is about nobody", { matchConditions: [{ name: "never", expression: "false" }] }],
    ["is about other objects", { matchConstraints: { resourceRules: [] } }],
    ["leaves objects out", { matchConstraints: { excludeResourceRules: [{ resources: ["*"] }] } }],
    ["is bound in some namespaces alone", {}, { matchResources: { namespaceSelector: { matchLabels: { a: "b" } } } }],
  ])("one that %s is told", (_, policy, binding) => {
    for (const name of POLICIES) {
      const rest = POLICIES.filter((one) => one !== name).map((one) => ofCells(one));
      const finding = policyFinding([ofCells(name, policy, binding), ...rest], "podseidon-system");
      expect(finding).toMatchObject({ level: "warning", found: expect.stringContaining(`in this release: ${name};`) });
    }
  });

  test("restrict nobody where the accounts are in another namespace, unless they are about that one", () => {
    const shipped = POLICIES.map((name) => ofCells(name));
    expect(policyFinding(shipped, "other").level).toBe("warning");
    const moved: unknown = JSON.parse(JSON.stringify(shipped).replaceAll("podseidon-system", "other"));
    expect(policyFinding(v.parse(v.array(Stored), moved), "other").level).toBe("ok");
  });

  test.each<[string, StoredPolicy, string, string]>([
    ["in force", ofWorkloads(), "ok", "are refused"],
    ["also of a custom resource", ofWorkloads({ matchConstraints: withRule(rollouts) }), "ok", "are refused"],
    ["of fewer workloads", ofWorkloads({ matchConstraints: { resourceRules: [] } }), "warning", "other rules than in"],
    ["of whom it means", ofWorkloads({ matchConditions: [] }), "warning", "has other rules than in this release"],
    ["of none", ofWorkloads({ validations: [{ expression: "true" }] }), "warning", "has other rules than in this"],
    ["that are counted otherwise", ofWorkloads({ variables: [] }), "warning", "has other rules than in this release"],
    ["in a dry run", stored(WORKLOAD_POLICY, {}, { validationActions: ["Warn", "Audit"] }), "warning", "only warns"],
    ["left out", { name: WORKLOAD_POLICY, policy: undefined, binding: undefined }, "warning", "is held"],
  ])("against the deletion of workloads: %s", (_, policy, level, text) => {
    const finding = workloadPolicyFinding(policy);
    expect([finding.level, finding.found]).toEqual([level, expect.stringContaining(text)]);
  });

  test.each<[string[], boolean]>([
    [["default", "podseidon-webhook"], false],
    [["podseidon-webhook", "podseidon-webhook.worker-2"], true],
  ])("matter where a cell has joined: %j", (names, expected) => {
    expect(hasCellAccounts(names.map((name) => ({ metadata: { name } })))).toBe(expected);
  });

  test.each<[unknown, boolean]>([
    [{ resources: [{ name: "validatingwebhookconfigurations" }, { name: "validatingadmissionpolicies" }] }, true],
    [{ resources: [{ name: "validatingwebhookconfigurations" }] }, false],
    [undefined, false],
  ])("served by %j: %s", (raw, expected) => {
    expect(servesPolicies(raw)).toBe(expected);
  });
});

const FOLDERS: Readonly<Record<string, string>> = {
  aggregator: "base/aggregator-cell-access",
  "podseidon-namespace-marks": "components/mark-namespaces",
};

/** A component's policy. */
function shipped({ name, component, permits }: ComponentPolicy, policy?: object, binding?: object): StoredPolicy {
  const optional = permits === undefined ? undefined : `components/${name.slice("podseidon-".length)}`;
  const folder = FOLDERS[name] ?? optional ?? FOLDERS[component] ?? `base/${component}`;
  return shippedIn(`${folder}/policy.yaml`, name, policy, binding);
}

const everyComponent = [...CORE_COMPONENT_POLICIES, ...CELL_COMPONENT_POLICIES];

describe.each(everyComponent)("the policy $name", (wanted) => {
  const found = (stored: StoredPolicy | undefined, system = "podseidon-system") =>
    componentPolicyFinding(wanted, stored, system);

  test("of this release is in force", () => {
    expect(found(shipped(wanted))).toMatchObject({ level: "ok", check: `${wanted.component} policy` });
  });

  test("may be about more resources, and have other variables, but for an optional component's", () => {
    const patched = { matchConstraints: { resourceRules: [] }, variables: [{ name: "resources", expression: "[]" }] };
    expect(found(shipped(wanted, patched)).level).toBe(wanted.permits === undefined ? "ok" : "warning");
  });

  test.each<[string, StoredPolicy | undefined, string]>([
    ["of an old kube-apiserver", undefined, "kube-apiserver has no ValidatingAdmissionPolicy"],
    ["that is missing", { ...shipped(wanted), policy: undefined }, `${wanted.name} is missing`],
    ["without its binding", { ...shipped(wanted), binding: undefined }, `${wanted.name} has no binding`],
    ["that only audits", shipped(wanted, {}, { validationActions: ["Audit"] }), "denies nothing"],
    ["that only warns", shipped(wanted, {}, { validationActions: ["Warn", "Audit"] }), "denies nothing"],
    ["bound by another's binding", shipped(wanted, {}, { policyName: "other" }), "denies nothing"],
    ["that is open at failures", shipped(wanted, { failurePolicy: "Ignore" }), "denies nothing"],
    [
      "that is bound in some namespaces alone",
      shipped(wanted, {}, { matchResources: { namespaceSelector: { matchLabels: { a: "b" } } } }),
      "leaves some objects out",
    ],
    [
      "with objects left out",
      shipped(wanted, { matchConstraints: { excludeResourceRules: [{ resources: ["pods"] }] } }),
      "leaves some objects out",
    ],
    [
      "with a condition of somebody else",
      shipped(wanted, { matchConditions: [{ name: "never", expression: "false" }] }),
      `not about the account of podseidon-${wanted.component}`,
    ],
    ["that allows all", shipped(wanted, { validations: [{ expression: "true" }] }), "has other rules than in this"],
    ["without rules", shipped(wanted, { validations: undefined }), "has other rules than in this release"],
  ])("%s is told, with what its token can do and what to do", (_, stored, text) => {
    const finding = found(stored);
    expect([finding.level, finding.found]).toEqual(["warning", expect.stringContaining(text)]);
    expect(finding.found).toContain(`the token of podseidon-${wanted.component} ${wanted.otherwise}`);
    expect(finding.advice).not.toBe("");
  });

  test("limits nobody where the accounts are in another namespace", () => {
    expect(found(shipped(wanted), "other").found).toMatch(/in other alone|has other rules/);
  });
});
