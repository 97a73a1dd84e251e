import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field } from "../../scripts/control-plane/api-client.ts";
import { Cluster } from "../../scripts/control-plane/cluster.ts";
import { root } from "../../scripts/root.ts";

/** Every overlay is applied to a real kube-apiserver, and what it grants is asked of a real authorizer. */

const manifests = join(root, "manifests");
let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start({ controllerManager: false, scheduler: false, kwok: false });
  // A namespace that exists only in a dry run is not there for what is created in it.
  for (const base of ["namespace", "crds"]) await kubectl("apply", "-k", join(manifests, "base", base));
});

afterAll(() => cluster?.stop());

async function kubectl(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await cluster.kubectl(args);
  if (code !== 0) throw new Error(`kubectl ${args.join(" ")}: ${stderr}`);
  return stdout;
}

describe("kubectl apply -k accepts, in full and without a warning,", () => {
  test.each(["core", "worker", "single-cluster", "demo/core", "demo/worker-1", "demo/worker-2"])(
    "overlays/%s",
    async (overlay) => {
      const args = ["apply", "-k", join(manifests, "overlays", overlay), "--dry-run=server", "--validate=strict"];
      const { code, stdout, stderr } = await cluster.kubectl(args);
      expect(stderr).toBe("");
      expect(code).toBe(0);
      for (const line of stdout.trim().split("\n"))
        expect(line).toMatch(/(created|unchanged|configured) \(server dry run\)$/);
    },
  );
});

test("each overlay registers its own cell in every path", async () => {
  for (const [overlay, cell] of [
    ["worker", "worker-1"],
    ["single-cluster", "default"],
    ["demo/worker-2", "worker-2"],
  ]) {
    const rendered = await kubectl("kustomize", join(manifests, "overlays", overlay ?? ""));
    const paths = [...rendered.matchAll(/path: (\/webhook\/.*)/g)].map(([, path]) => path).sort();
    expect(paths).toEqual([`/webhook/${cell}`, `/webhook/${cell}`, `/webhook/${cell}/mutate`]);
  }
});

describe("in one cluster", () => {
  beforeAll(async () => {
    await kubectl("apply", "-k", join(manifests, "overlays/single-cluster"));
  });

  /** What the apiserver would answer; there is no wildcard among the rules, so that what is not listed is refused. */
  async function may(account: string, verb: string, resource: string, namespace: string): Promise<boolean> {
    const [name, subresource] = resource.split("/");
    const [plural, ...group] = (name ?? "").split(".");
    const body = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SubjectAccessReview",
      spec: {
        user: `system:serviceaccount:podseidon-system:podseidon-${account}`,
        groups: ["system:serviceaccounts", "system:authenticated"],
        resourceAttributes: { verb, resource: plural, group: group.join("."), namespace, subresource },
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
    ["webhook", "delete", "pods", false],
    ["aggregator", "update", `${ppr}/status`, true],
    ["aggregator", "update", ppr, false],
    ["aggregator", "watch", "pods", true],
    ["aggregator", "delete", "pods", false],
    ["generator", "create", ppr, true],
    ["generator", "delete", ppr, true],
    ["generator", "patch", "deployments.apps", true],
    ["generator", "delete", "deployments.apps", false],
    ["generator", "list", "pods", false],
    ["update-trigger", "create", "pods", false],
    ["update-trigger", "list", "pods", false],
    ["generator", "get", "secrets", false],
    ["webhook", "get", "secrets", false],
  ])("the %s may %s %s in a user's namespace: %s", async (account, verb, resource, expected) => {
    expect(await may(account, verb, resource, "default")).toBe(expected);
  });

  test.each(["generator", "aggregator", "update-trigger"])(
    "the %s may elect a leader at home only",
    async (account) => {
      expect(await may(account, "create", "leases.coordination.k8s.io", "podseidon-system")).toBe(true);
      expect(await may(account, "create", "leases.coordination.k8s.io", "default")).toBe(false);
    },
  );
});
