/** The findings of `doctor` about the permissions of the project's ServiceAccounts. */
import * as v from "valibot";
import { corePath } from "../../../shared/kube/client/api-path.ts";
import { GROUP, PLURAL } from "../../../shared/schema/annotations.ts";
import { type ClusterClient, statusOf } from "../invocation/cluster.ts";
import { type Finding, ok, problem } from "./findings.ts";

export interface Permission {
  readonly account: string;
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string;
}

const protectors = { group: GROUP, resource: PLURAL };
export const CORE_PERMISSIONS: readonly Permission[] = [
  { account: "webhook", verb: "watch", ...protectors },
  { account: "webhook", verb: "update", ...protectors, subresource: "status" },
  { account: "aggregator", verb: "watch", ...protectors },
  { account: "aggregator", verb: "update", ...protectors, subresource: "status" },
  { account: "generator", verb: "create", ...protectors },
  { account: "generator", verb: "watch", group: "apps", resource: "deployments" },
];
export const CELL_PERMISSIONS: readonly Permission[] = [
  { account: "aggregator", verb: "watch", group: "", resource: "pods" },
  { account: "webhook", verb: "get", group: "", resource: "pods" },
  { account: "webhook", verb: "list", group: "", resource: "pods" },
];

/** Asks the authorizer about each existing ServiceAccount. */
export async function permissionFindings(
  cluster: ClusterClient,
  namespace: string,
  wanted: readonly Permission[],
): Promise<readonly Finding[]> {
  const accounts = [...new Set(wanted.map(({ account }) => account))];
  const present = new Set<string>();
  for (const account of accounts) {
    const path = corePath("serviceaccounts", namespace, `podseidon-${account}`);
    if ((await cluster.find(path)) !== undefined) present.add(account);
  }
  const asked = wanted.filter(({ account }) => present.has(account));
  if (asked.length === 0) return [];
  const missing: string[] = [];
  for (const one of asked)
    if (!(await mayDo(cluster, namespace, one)))
      missing.push(`podseidon-${one.account} may not ${one.verb} ${one.resource}`);
  if (missing.length === 0) return [ok("permissions", `${asked.length} asked for, all granted`)];
  return [problem("permissions", missing.join("; "), "apply the manifests of this release again")];
}

export async function mayDo(
  cluster: ClusterClient,
  namespace: string,
  { account, verb, resource, group, subresource }: Permission,
): Promise<boolean> {
  const body = {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SubjectAccessReview",
    spec: {
      user: `system:serviceaccount:${namespace}:podseidon-${account}`,
      groups: ["system:serviceaccounts", `system:serviceaccounts:${namespace}`, "system:authenticated"],
      resourceAttributes: { verb, resource, group, subresource },
    },
  };
  const response = await cluster.raw("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body);
  const Answer = v.looseObject({ status: v.looseObject({ allowed: v.boolean() }) });
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Answer), response.body);
  if (!parsed.success) throw new Error(statusOf(response).message);
  return parsed.output.status.allowed;
}
