/** The findings of `doctor` about the core's policies that restrict each cell to writes about itself. Pure. */
import * as v from "valibot";
import { type Finding, ok, problem, warning } from "./findings.ts";

export const ADMISSION_API = "/apis/admissionregistration.k8s.io/v1";
const CHECK = "cell policies";
const APPLY = "apply the manifests of this release to the core again (manifests/overlays/core)";

/** The policies of manifests/base/cell-policy and manifests/base/cell-tokens. */
export const POLICIES = [
  "podseidon-cell-status",
  "podseidon-cell-protectors",
  "podseidon-cell-config-maps",
  "podseidon-cell-tokens",
];

const Served = v.looseObject({ resources: v.array(v.looseObject({ name: v.string() })) });
const Policy = v.looseObject({ spec: v.looseObject({ failurePolicy: v.optional(v.string()) }) });
const Binding = v.looseObject({
  spec: v.looseObject({
    policyName: v.optional(v.string()),
    validationActions: v.optional(v.array(v.string()), []),
  }),
});

/**
 * Whether the API group has such policies, as in kube-apiserver from 1.30 on. `raw` is the group's list of resources.
 */
export function servesPolicies(raw: unknown): boolean {
  const served = v.safeParse(Served, raw);
  return served.success && served.output.resources.some(({ name }) => name === "validatingadmissionpolicies");
}

const Account = v.looseObject({ metadata: v.looseObject({ name: v.string() }) });

/** Whether a worker cluster has joined: one of these ServiceAccounts belongs to a cell's webhook. */
export function hasCellAccounts(accounts: readonly unknown[]): boolean {
  return accounts.some((raw) => v.is(Account, raw) && raw.metadata.name.startsWith("podseidon-webhook."));
}

/** A stored policy and its binding; undefined where they are missing. */
export interface StoredPolicy {
  readonly name: string;
  readonly policy: unknown;
  readonly binding: unknown;
}

/** The policy of manifests/base/workload-policy. */
export const WORKLOAD_POLICY = "podseidon-workload-deletions";

/** Whether the deletion of a protected workload is rejected: otherwise the finalizer delays it for ever. */
export function workloadPolicyFinding(stored: StoredPolicy): Finding {
  if (isInForce(stored)) return ok("workload deletions", "of protected workloads are refused");
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

export function policyFinding(stored: readonly StoredPolicy[] | undefined): Finding {
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
  if (loose.length === 0) return ok(CHECK, "each cell's accounts write what that cell says");
  return problem(CHECK, `without a binding that denies, or open at failures: ${loose.join(", ")}`, APPLY);
}

function isInForce({ name, policy, binding }: StoredPolicy): boolean {
  const [rules, bound] = [v.safeParse(Policy, policy), v.safeParse(Binding, binding)];
  if (!rules.success || !bound.success || rules.output.spec.failurePolicy === "Ignore") return false;
  return bound.output.spec.policyName === name && bound.output.spec.validationActions.includes("Deny");
}
