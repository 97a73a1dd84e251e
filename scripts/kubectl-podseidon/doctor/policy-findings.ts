/** The findings of `doctor` about the policies that restrict each cell, and each component, to its own writes. Pure. */
import { hash } from "node:crypto";
import * as v from "valibot";
import { valueAt } from "../../../shared/schema/check.ts";
import { type Finding, ok, problem, warning } from "./findings.ts";
import type { Permission } from "./permission-findings.ts";

export const ADMISSION_API = "/apis/admissionregistration.k8s.io/v1";
const CHECK = "cell policies";
const APPLY = "apply the manifests of this release to the core again (manifests/overlays/core)";

/** Digests of the policies of manifests/base/cell-policy and manifests/base/cell-tokens, which nobody patches. */
const DIGESTS: Readonly<Record<string, string>> = {
  "podseidon-cell-status": "49dd3d65ca104b7f",
  "podseidon-cell-protectors": "6f72383b13379f4e",
  "podseidon-cell-config-maps": "a684242aac8dea56",
  "podseidon-cell-tokens": "c8db2356a0aad166",
};
export const POLICIES = Object.keys(DIGESTS);

const Resources = v.fallback(v.array(v.looseObject({ name: v.string() })), []);
const Expressions = v.optional(v.array(v.looseObject({ expression: v.string() })), []);
const Texts = v.optional(v.array(v.string()), []);
const Rule = v.object({
  ...{ apiGroups: Texts, apiVersions: Texts, operations: Texts, resources: Texts, resourceNames: Texts },
  scope: v.optional(v.string()),
});
const Constraints = v.looseObject({
  excludeResourceRules: v.optional(v.array(v.unknown()), []),
  namespaceSelector: v.optional(v.unknown()),
  objectSelector: v.optional(v.unknown()),
  resourceRules: v.optional(v.array(Rule), []),
});
const Policy = v.looseObject({
  spec: v.looseObject({
    failurePolicy: v.optional(v.string()),
    matchConstraints: v.optional(Constraints, {}),
    matchConditions: Expressions,
    variables: Expressions,
    validations: Expressions,
  }),
});
const Binding = v.looseObject({
  spec: v.looseObject({
    policyName: v.optional(v.string()),
    validationActions: v.optional(v.array(v.string()), []),
    matchResources: v.optional(v.unknown()),
  }),
});

/**
 * Whether the API group has such policies, as in kube-apiserver from 1.30 on. `raw` is the group's list of resources.
 */
export function servesPolicies(raw: unknown): boolean {
  const resources = v.parse(Resources, valueAt(raw, "resources"));
  return resources.some(({ name }) => name === "validatingadmissionpolicies");
}

/** Whether a worker cluster has joined: one of these ServiceAccounts belongs to a cell's webhook. */
export function hasCellAccounts(accounts: readonly unknown[]): boolean {
  return accounts.some((raw) => String(valueAt(raw, "metadata", "name")).startsWith("podseidon-webhook."));
}

/** A stored policy and its binding; undefined where they are missing. */
export interface StoredPolicy {
  readonly name: string;
  readonly policy: unknown;
  readonly binding: unknown;
}

/** The policy of manifests/base/workload-policy. */
export const WORKLOAD_POLICY = "podseidon-workload-deletions";
/** Of all but its resources: kinds of `--scalable` are added to them. */
const WORKLOAD_DIGEST = "cedd3fb05442ef55";
const WORKLOADS = ["deployments", "statefulsets", "replicasets", "daemonsets", "replicationcontrollers"];

/** Whether the deletion of a protected workload is rejected: otherwise the finalizer delays it for ever. */
export function workloadPolicyFinding(stored: StoredPolicy): Finding {
  if (isInForce(stored)) {
    if (isAboutWorkloads(stored)) return ok("workload deletions", "of protected workloads are refused");
    const others = `the policy ${WORKLOAD_POLICY} has other rules than in this release`;
    return warning("workload deletions", `${others}: it may refuse others, or none`, APPLY);
  }
  const bound = v.safeParse(Binding, stored.binding);
  if (stored.policy !== undefined && bound.success && bound.output.spec.validationActions.includes("Warn")) {
    const next = "take the next step of the roll-out (docs/install.md#one-cluster)";
    return warning("workload deletions", `the policy ${WORKLOAD_POLICY} only warns of them (components/dry-run)`, next);
  }
  return warning(
    "workload deletions",
    `no policy ${WORKLOAD_POLICY} that denies: the deletion of a protected workload is held and can't be taken back`,
    `${APPLY}; it is left out by components/without-workload-deletions`,
  );
}

/** `stored` is undefined for an old kube-apiserver; `system` is the namespace of the accounts. */
export function policyFinding(stored: readonly StoredPolicy[] | undefined, system: string): Finding {
  if (stored === undefined) {
    return warning(
      CHECK,
      "kube-apiserver has no ValidatingAdmissionPolicy (it comes with Kubernetes 1.30)",
      "the account of each cell can write the entries of all cells: upgrade the core cluster",
    );
  }
  const missing = stored.filter(({ policy }) => policy === undefined).map(({ name }) => name);
  if (missing.length > 0)
    return problem(CHECK, `missing: ${missing.join(", ")}, so a cell is believed about other cells`, APPLY);
  const loose = stored.filter((one) => !isInForce(one)).map(({ name }) => name);
  if (loose.length > 0)
    return problem(CHECK, `without a binding that denies, or open at failures: ${loose.join(", ")}`, APPLY);
  const others = stored.filter((one) => !isOfThisRelease(one, system)).map(({ name }) => name);
  if (others.length === 0) return ok(CHECK, "each cell's accounts write what that cell says");
  return warning(CHECK, `other than in this release: ${others.join(", ")}; a cell may write what others say`, APPLY);
}

/** A policy of an earlier release allows a cell more. A policy for other accounts or objects restricts none of ours. */
function isOfThisRelease({ name, policy, binding }: StoredPolicy, system: string, digest = DIGESTS[name]): boolean {
  if (v.parse(Binding, binding).spec.matchResources !== undefined) return false;
  const { spec } = v.parse(Policy, policy);
  const text = textOf(spec, spec.matchConstraints.resourceRules);
  // The manifests may have been changed to another namespace, but then all of them.
  const inSystem = text.replaceAll(`:${system}:`, ":SYSTEM:").replaceAll(`"${system}"`, '"SYSTEM"');
  return digestOf([inSystem]) === digest;
}

/** Whether the policy is about each kind of workload, and refuses what it does in this release. */
function isAboutWorkloads({ policy }: StoredPolicy): boolean {
  const { spec } = v.parse(Policy, policy);
  const isDeletionOf = (resource: string): boolean =>
    spec.matchConstraints.resourceRules.some(
      ({ operations, resources }) =>
        [resource, "*"].some((one) => resources.includes(one)) &&
        ["DELETE", "*"].some((one) => operations.includes(one)),
    );
  return WORKLOADS.every(isDeletionOf) && digestOf([textOf(spec, [])]) === WORKLOAD_DIGEST;
}

/** What a policy says, but for its resources. */
function textOf(spec: v.InferOutput<typeof Policy>["spec"], resourceRules: readonly unknown[]): string {
  const { matchConstraints, matchConditions, variables, validations } = spec;
  // Parsers of YAML fold lines that are indented further in different ways.
  const expressions = [matchConditions, variables, validations].map((list) =>
    list.map(({ expression }) => expression.replaceAll(/\s+/g, " ").trim()),
  );
  const { excludeResourceRules, namespaceSelector, objectSelector } = matchConstraints;
  return JSON.stringify([expressions, [excludeResourceRules, namespaceSelector, objectSelector, resourceRules]]);
}

function isInForce({ name, policy, binding }: StoredPolicy): boolean {
  const [rules, bound] = [v.safeParse(Policy, policy), v.safeParse(Binding, binding)];
  if (!rules.success || !bound.success || rules.output.spec.failurePolicy === "Ignore") return false;
  return bound.output.spec.policyName === name && bound.output.spec.validationActions.includes("Deny");
}

/** What limits the account of one component, where RBAC gives it more (docs/security.md#who-can-do-what). */
export interface ComponentPolicy {
  readonly name: string;
  readonly component: string;
  /** What its token can do without the policy. */
  readonly otherwise: string;
  /**
   * Digest of its validations, which nobody patches; an overlay may have other resources and variables. That of an
   * optional component is of all that the policy says.
   */
  readonly digest: string;
  /** What an optional component permits the account. */
  readonly permits?: Permission;
}

/** Of manifests/base/generator. */
export const CORE_COMPONENT_POLICIES: readonly ComponentPolicy[] = [
  {
    ...{ name: "podseidon-generator-sources", component: "generator", digest: "51bcbfbce4503eee" },
    otherwise: "can change the image of every workload",
  },
];
/** Of manifests/base/aggregator-cell-access and manifests/base/update-trigger. */
export const CELL_COMPONENT_POLICIES: readonly ComponentPolicy[] = [
  {
    ...{ name: "podseidon-aggregator-webhooks", component: "aggregator", digest: "a64355acff8464e2" },
    otherwise: "can have the cluster ask a webhook about anything, Secrets too",
  },
  {
    ...{ name: "podseidon-aggregator-config-maps", component: "aggregator", digest: "f82282a89bf6f2ac" },
    otherwise: "can change each ConfigMap of podseidon's namespace, the cell's id too",
  },
  {
    ...{ name: "podseidon-update-trigger", component: "update-trigger", digest: "5f5bbcfd03868581" },
    otherwise: "can run any pod in the namespace of the dummy pod",
  },
  // Of the manifests/components counted-gate, void-reservations, pre-activities and mark-namespaces.
  {
    ...{ name: "podseidon-counted-gate", component: "aggregator", digest: "af16e180bea14f26" },
    otherwise: "can set the status of every pod, and so have it replaced",
    permits: { account: "aggregator", verb: "patch", group: "", resource: "pods", subresource: "status" },
  },
  {
    ...{ name: "podseidon-void-reservations", component: "aggregator", digest: "f03d9de3ac30cac2" },
    otherwise: "can change every pod, its image too",
    permits: { account: "aggregator", verb: "patch", group: "", resource: "pods" },
  },
  {
    ...{ name: "podseidon-pre-activities", component: "webhook", digest: "a88c755c7ad8e9b1" },
    otherwise: "can change every pod, its image too",
    permits: { account: "webhook", verb: "patch", group: "", resource: "pods" },
  },
  {
    ...{ name: "podseidon-namespace-marks", component: "aggregator", digest: "851e5dcf846e9f79" },
    otherwise: "can change every namespace, and who may change one can take its pods' protection off",
    permits: { account: "aggregator", verb: "patch", group: "", resource: "namespaces" },
  },
];

/** `stored` is undefined for an old kube-apiserver; `system` is the namespace of the accounts. */
export function componentPolicyFinding(
  wanted: ComponentPolicy,
  stored: StoredPolicy | undefined,
  system: string,
): Finding {
  const { name, component, otherwise } = wanted;
  const check = `${component} policy`;
  const who = `everybody with the token of podseidon-${component} ${otherwise}`;
  if (stored === undefined)
    return warning(check, `kube-apiserver has no ValidatingAdmissionPolicy: ${who}`, "upgrade the cluster to 1.30");
  const wrong = wrongWith(wanted, stored, system);
  if (wrong === undefined) return ok(check, `its token writes only what ${name} allows`);
  const advice = `apply the manifests of this release to this cluster again: they have ${name} and its binding`;
  return warning(check, `the policy ${name} ${wrong}: ${who}`, advice);
}

function wrongWith(
  { component, digest, permits }: ComponentPolicy,
  stored: StoredPolicy,
  system: string,
): string | undefined {
  const [rules, bound] = [v.safeParse(Policy, stored.policy), v.safeParse(Binding, stored.binding)];
  if (stored.policy === undefined) return "is missing";
  if (stored.binding === undefined) return "has no binding";
  if (!rules.success || !bound.success || !isInForce(stored))
    return "denies nothing: its binding has no Deny, or it is open at failures";
  const { matchConstraints, matchConditions, validations } = rules.output.spec;
  const account = `'system:serviceaccount:${system}:podseidon-${component}'`;
  if (!matchConditions.every(({ expression }) => expression.includes(account)))
    return `is not about the account of podseidon-${component} in ${system} alone`;
  if (matchConstraints.excludeResourceRules.length > 0 || bound.output.spec.matchResources !== undefined)
    return "leaves some objects out";
  const isSame =
    permits === undefined
      ? digestOf(validations.map(({ expression }) => expression)) === digest
      : isOfThisRelease(stored, system, digest);
  return isSame ? undefined : "has other rules than in this release";
}

function digestOf(rules: readonly unknown[]): string {
  return hash("sha256", JSON.stringify(rules), "hex").slice(0, 16);
}
