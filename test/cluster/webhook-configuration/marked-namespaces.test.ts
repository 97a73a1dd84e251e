/**
 * A cluster that asks the webhook about namespaces with protectors alone (docs/design.md#marked-namespaces), with the
 * permissions and the policy of the component.
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE } from "../../../scripts/control-plane/cluster.ts";
import { Component } from "../../../scripts/environment/component.ts";
import { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";
import { kubectlDecided } from "../../support/cluster/ask.ts";
import { createReadyPods } from "../../support/cluster/pods.ts";
import { createProtector, readProtector, waitUntilSettled } from "../../support/cluster/protectors.ts";

const MARK = "podseidon.kubewharf.io/enforced-namespace";
const MARKED = { matchLabels: { [MARK]: "true" } };
const SHOP = "shop";
const PODS = 2;
const labels = { app: "web" };
const COMPONENT = join(root, "manifests/components/mark-namespaces");

let environment: TestEnvironment;
let aggregator: Component;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    cells: ["cell"],
    single: true,
    replicas: 1,
    cell: BARE,
    aggregators: false,
  });
  const { core } = environment;
  for (const base of ["accounts", "aggregator-cell-access", "aggregator-core-access"])
    expect(await core.kubectl(["apply", "-k", join(root, "manifests/base", base)])).toMatchObject({ code: 0 });
  for (const name of [SHOP, "quiet"]) await core.apply([{ apiVersion: "v1", kind: "Namespace", metadata: { name } }]);
  const account = { namespace: "podseidon-system", name: "podseidon-aggregator" };
  const kubeconfig = await core.kubeconfigFor({ serviceAccount: account });
  aggregator = await Component.start({
    kind: "aggregator",
    name: "aggregator",
    directory: join(core.directory, "product"),
    args: [
      ...["--cell-id=cell", "--kubeconfig", kubeconfig, "--core", `core=${kubeconfig}`, "--leader-elect=false"],
      ...["--mark-namespaces", "--keep-registration=false"],
    ],
  });
  for (const namespace of [SHOP, "quiet"])
    await createReadyPods(core, { namespace, prefix: "web", labels, count: PODS });
});

afterAll(async () => {
  await aggregator?.stop();
  await environment?.stop();
});

async function kubectl(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await environment.core.kubectl(args);
  return `${code} ${stdout}${stderr}`;
}

/** The apiserver knows of a new role binding a moment later. */
async function untilMay(...args: readonly string[]): Promise<void> {
  await environment.core.waitFor(`${args.join(" ")}`, async () =>
    (await kubectl("auth", "can-i", ...args)).startsWith("0 yes"),
  );
}

async function isMarked(namespace: string): Promise<boolean> {
  return (
    field(await environment.core.admin.get(`/api/v1/namespaces/${namespace}`), "metadata", "labels", MARK) === "true"
  );
}

test("nothing is promised in a namespace that could not be marked", async () => {
  await createProtector(environment.core, SHOP, "web", { selector: { matchLabels: labels }, minAvailable: PODS });
  await environment.core.waitFor("a count that waits", async () => {
    const labels = { core: "core", result: "waiting" };
    return ((await aggregator.metric("podseidon_aggregator_reconciles_total", labels)) ?? 0) > 2;
  });
  expect(await isMarked(SHOP)).toBe(false);
  expect((await readProtector(environment.core, SHOP, "web")).status?.cells ?? []).toEqual([]);
});

test("a namespace with a protector is marked, and counted after that; another is not", async () => {
  for (const file of ["rbac.yaml", "policy.yaml"])
    expect(await kubectl("apply", "-f", join(COMPONENT, file))).toMatch(/^0 /);
  await environment.core.waitFor("the mark", () => isMarked(SHOP));
  await waitUntilSettled(environment.core, SHOP, "web", PODS);
  expect(await isMarked("quiet")).toBe(false);
});

test("asked about marked namespaces alone, the cluster denies there, and waits for nobody elsewhere", async () => {
  const { core } = environment;
  for (const kind of ["validating", "mutating"]) {
    const path = `/apis/admissionregistration.k8s.io/v1/${kind}webhookconfigurations/podseidon`;
    const webhooks = items({ items: field(await core.admin.get(path), "webhooks") });
    const selected = webhooks.map((one) =>
      field(one, "name") === "nodes.podseidon.kubewharf.io"
        ? one
        : Object.assign({}, one, { namespaceSelector: MARKED }),
    );
    await core.admin.call("PATCH", path, { webhooks: selected });
  }
  await core.waitFor("the selector to be in force", async () => {
    const [replica] = environment.webhooks;
    const before = await replica?.component.metric("podseidon_webhook_reviews_total", {
      kind: "delete",
      outcome: "allowed",
    });
    await kubectl("delete", "pods", "--all", "--namespace=quiet", "--dry-run=server");
    return (
      before ===
      (await replica?.component.metric("podseidon_webhook_reviews_total", { kind: "delete", outcome: "allowed" }))
    );
  });
  const denied = await kubectlDecided(core, ["delete", "pods", "--all", `--namespace=${SHOP}`, "--wait=false"]);
  expect(denied.stderr).toContain("minimum");
  for (const { component } of environment.webhooks) await component.stop();
  expect(await kubectl("delete", "pods", "--all", `--namespace=${SHOP}`, "--wait=false")).toMatch(
    /failed calling webhook/,
  );
  expect(await kubectl("delete", "pods", "--all", "--namespace=quiet", "--grace-period=0", "--force")).toMatch(/^0 /);
});

test("who may change namespaces but not delete protectors can't take the mark off; it comes back", async () => {
  const rule = ["--verb=get,patch,update", "--resource=namespaces,namespaces/status,namespaces/finalize"];
  expect(await kubectl("create", "clusterrole", "tenant", ...rule)).toMatch(/^0 /);
  expect(await kubectl("create", "clusterrolebinding", "tenant", "--clusterrole=tenant", "--user=tenant")).toMatch(
    /^0 /,
  );
  await untilMay("get", "namespaces", "--as=tenant");
  const takeOff = ["label", "namespace", SHOP, `${MARK}-`];
  expect(await kubectl(...takeOff, "--as=tenant")).toContain("only who may delete podprotectors");
  // kube-apiserver takes labels from these writes, too.
  const unmarked = JSON.stringify({ metadata: { labels: { [MARK]: null } } });
  const byStatus = ["patch", "namespace", SHOP, "--subresource=status", "--type=merge", `--patch=${unmarked}`];
  expect(await kubectl(...byStatus, "--as=tenant")).toContain("only who may delete podprotectors");
  const file = join(environment.core.directory, "unmarked.json");
  const spec = { finalizers: ["kubernetes"] };
  writeFileSync(file, JSON.stringify({ apiVersion: "v1", kind: "Namespace", metadata: { name: SHOP }, spec }));
  const byFinalizers = ["replace", `--raw=/api/v1/namespaces/${SHOP}/finalize`, `--filename=${file}`];
  expect(await kubectl(...byFinalizers, "--as=tenant")).toContain("only who may delete podprotectors");
  expect(await kubectl("label", "namespace", SHOP, "team=blue", "--as=tenant")).toMatch(/^0 /);
  expect(await kubectl(...takeOff)).toMatch(/^0 /);
  await environment.core.waitFor("the mark to be back", () => isMarked(SHOP));
  // kubectl reads before it writes.
  const account = "podseidon-system:podseidon-aggregator";
  const bound = ["--clusterrole=tenant", `--serviceaccount=${account}`];
  expect(await kubectl("create", "clusterrolebinding", "reader", ...bound)).toMatch(/^0 /);
  const asAggregator = `--as=system:serviceaccount:${account}`;
  await untilMay("get", "namespaces", asAggregator);
  expect(await kubectl("label", "namespace", SHOP, "team=red", "--overwrite", asAggregator)).toContain("nothing else");
  // Garbage collection would delete the namespace: this owner does not exist.
  const owner = { apiVersion: "v1", kind: "Node", name: "none", uid: "00000000-0000-0000-0000-000000000000" };
  for (const metadata of [{ ownerReferences: [owner] }, { finalizers: ["example.com/held"] }]) {
    const patch = ["patch", "namespace", SHOP, "--type=merge", `--patch=${JSON.stringify({ metadata })}`];
    expect(await kubectl(...patch, "--dry-run=server", asAggregator)).toContain("nothing else");
  }
});

test("nor end a marked namespace before its pods, to create it again without the mark", async () => {
  expect(await kubectl("delete", "namespace", SHOP, "--wait=false")).toMatch(/^0 /);
  const labels = { [MARK]: "true" };
  const file = join(environment.core.directory, "ended.json");
  const body = { apiVersion: "v1", kind: "Namespace", metadata: { name: SHOP, labels }, spec: { finalizers: [] } };
  writeFileSync(file, JSON.stringify(body));
  const end = ["replace", `--raw=/api/v1/namespaces/${SHOP}/finalize`, `--filename=${file}`];
  expect(await kubectl(...end, "--as=tenant")).toContain("only who may delete podprotectors");
  expect(await isMarked(SHOP)).toBe(true);
  // The namespace controller has this permission.
  const may = ["auth", "can-i", "delete", "podprotectors.podseidon.kubewharf.io", `--namespace=${SHOP}`];
  const controller = "--as=system:serviceaccount:kube-system:namespace-controller";
  expect(await kubectl(...may, controller)).toMatch(/^0 yes/);
  expect(await kubectl(...end, controller)).toMatch(/^0 /);
});
