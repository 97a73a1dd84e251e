/**
 * docs/migration-from-upstream.md: it names every flag of upstream's components, every flag of ours that it names
 * exists, and what it promises of the CRD and of kubeconfigs holds on a real apiserver.
 */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { root } from "../../scripts/root.ts";
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import { loadClusterAccess } from "../../shared/kube/credentials/kubeconfig.ts";
import { systemPorts as ports } from "../../shared/runtime/system-ports.ts";
import { block } from "../support/cluster/documented.ts";

const PAGE = readFileSync(new URL("../../docs/migration-from-upstream.md", import.meta.url), "utf8");
const FLAGS = readFileSync(new URL("../../docs/flags.md", import.meta.url), "utf8");
/** One name on a line, as `--help` of upstream's three components prints them. */
const UPSTREAM = readFileSync(new URL("./upstream-flags.txt", import.meta.url), "utf8")
  .trim()
  .split("\n");
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors";
const flagsIn = (text: string): string[] => [...text.matchAll(/`(--[a-z][a-z0-9.*-]*)`/g)].map(([, name = ""]) => name);
const rows = PAGE.split("\n").filter((line) => line.startsWith("| `--"));

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.start({ name: "core", ...BARE });
});
afterAll(() => cluster?.stop());

test("every flag of upstream has its row", () => {
  const named = rows.flatMap((row) => flagsIn(row.split("|")[1] ?? ""));
  const has = (flag: string): boolean =>
    named.some((name) => (name.endsWith("*") ? flag.startsWith(name.slice(0, -1)) : name === flag));
  expect(UPSTREAM.length).toBeGreaterThan(100);
  expect(UPSTREAM.filter((flag) => !has(flag))).toEqual([]);
});

test("every flag of ours that a row names exists", () => {
  const named = rows.flatMap((row) => flagsIn(row.split("|").slice(2).join("|")));
  expect(named.length).toBeGreaterThan(30);
  expect(named.filter((name) => !FLAGS.includes(`\`${name}`))).toEqual([]);
});

test("defaults of the CRD hold for protectors that exist, and give way to what a protector says", async () => {
  for (const folder of ["crds", "manifests"])
    cpSync(join(root, folder), join(cluster.directory, folder), { recursive: true });
  const directory = join(cluster.directory, "manifests/overlays/own-crd");
  mkdirSync(directory);
  writeFileSync(join(directory, "kustomization.yaml"), block(PAGE, "defaults for every protector"));
  await cluster.apply(readFileSync(join(root, "crds/podseidon.kubewharf.io_podprotectors.yaml"), "utf8"));
  await expect.poll(async () => (await cluster.admin.request("GET", PROTECTORS)).status).toBe(200);
  const protector = (name: string, spec: object): object => ({
    ...{ apiVersion: "podseidon.kubewharf.io/v1alpha1", kind: "PodProtector", metadata: { name } },
    spec: { minAvailable: 1, minReadySeconds: 0, selector: {}, ...spec },
  });
  await cluster.admin.call("POST", PROTECTORS, protector("silent", {}));
  await cluster.admin.call("POST", PROTECTORS, protector("own", { admissionHistoryConfig: { compactThreshold: 3 } }));
  const { code, stderr } = await cluster.kubectl(["apply", "--server-side", "--force-conflicts", "-k", directory]);
  expect([code, stderr]).toEqual([0, ""]);
  const historyOf = async (name: string): Promise<unknown> =>
    field(await cluster.admin.get(`${PROTECTORS}/${name}`), "spec", "admissionHistoryConfig");
  await expect.poll(() => historyOf("silent")).toEqual({ maxConcurrentLag: 20, compactThreshold: 50 });
  expect(await historyOf("own")).toEqual({ maxConcurrentLag: 20, compactThreshold: 3 });
});

test("a kubeconfig that impersonates somebody is used as kubectl uses it", async () => {
  const { stdout } = await cluster.kubectl(["config", "view", "--raw", "--output", "json"]);
  const user = {
    as: "system:serviceaccount:podseidon-system:podseidon-webhook",
    "as-uid": "some-uid",
    "as-groups": ["system:authenticated", "operators"],
    "as-user-extra": { "example.com/Team": ["a", "b"] },
  };
  const config = JSON.parse(stdout);
  config.users[0].user = { ...config.users[0].user, ...user };
  const path = join(cluster.directory, "impersonating.kubeconfig");
  writeFileSync(path, JSON.stringify(config));
  const transport = createHttpsTransport(await loadClusterAccess(path), { ports, userAgent: "test" });
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  const { body } = await transport.request({
    ...{ method: "POST", path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", timeoutMs: 10_000 },
    body: JSON.stringify(review),
  });
  await transport.close();
  expect(field(JSON.parse(body), "status", "userInfo")).toEqual({
    username: user.as,
    uid: user["as-uid"],
    groups: user["as-groups"],
    extra: { "example.com/team": ["a", "b"] },
  });
});
