import { describe, expect, test } from "vitest";
import {
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
const others = POLICIES.slice(1).map((name) => stored(name));
const first = POLICIES[0] ?? "";

describe("the policies of a core", () => {
  test.each<[string, readonly StoredPolicy[] | undefined, string, string]>([
    ["all in force", [stored(first), ...others], "ok", "each cell's accounts write what that cell says"],
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
    const finding = policyFinding(policies);
    expect([finding.level, finding.found]).toEqual([level, expect.stringContaining(text)]);
    expect(finding.advice === "").toBe(level === "ok");
  });

  test.each<[string, StoredPolicy, string, string]>([
    ["in force", stored(WORKLOAD_POLICY), "ok", "are refused"],
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
