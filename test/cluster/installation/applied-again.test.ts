/** The manifests are stored as they are written: who applies them again finds nothing to change or to fight. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { load } from "js-yaml";
import { afterAll, beforeAll, expect, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import { CRD } from "../../../scripts/environment/environment.ts";
import { root } from "../../../scripts/root.ts";

const DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podprotectors.podseidon.kubewharf.io";
const NAMES: Readonly<Record<string, string>> = {
  "api/v1": "services/podseidon-webhook",
  "apis/apps/v1": "deployments/podseidon-webhook",
};

let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
});

afterAll(() => cluster?.stop());

/** An overlay with more in its kustomization. */
function kustomization(name: string, overlay: string, more: object, components: readonly string[] = []): string {
  const directory = join(cluster.directory, name);
  mkdirSync(directory);
  const path = (...parts: string[]): string => relative(directory, join(root, "manifests", ...parts));
  const resources = { resources: [path("overlays", overlay)] };
  const parts = { components: components.map((component) => path("components", component)) };
  writeFileSync(join(directory, "kustomization.yaml"), JSON.stringify({ ...resources, ...parts, ...more }));
  return directory;
}

test.each<[string, readonly string[]]>([
  ["single-cluster", ["mark-namespaces", "counted-gate", "pre-activities", "void-reservations", "eviction-retry"]],
  ["core", ["central-webhook"]],
])("%s with %j, by kubectl apply, again, and by server-side apply", async (overlay, components) => {
  const directory = kustomization(overlay, overlay, {}, components);
  const apply = (...flags: string[]) => cluster.kubectl(["apply", "-k", directory, ...flags]);

  expect(await apply()).toMatchObject({ code: 0, stderr: "" });
  const { stdout } = await apply();
  // kubectl sends the selector of a budget each time, and the empty lists to which components append.
  const changed = stdout.split("\n").filter((line) => !/^$|unchanged$|^poddisruptionbudget|^deployment/.test(line));
  expect(changed).toEqual([]);
  // A value that kube-apiserver has completed is another one, and belongs to the client that applied it before.
  expect(await apply("--server-side")).toMatchObject({ code: 0, stderr: "" });
});

test("labels that kustomize adds to selectors leave the Service without the pods of an installation", async () => {
  const read = (path: string): Promise<unknown> =>
    cluster.admin.get(`/${path}/namespaces/podseidon-system/${NAMES[path]}`);
  const directory = kustomization("labelled", "single-cluster", {
    labels: [{ pairs: { team: "a" }, includeSelectors: true }],
  });
  const { code, stderr } = await cluster.kubectl(["apply", "-k", directory]);
  expect([code, stderr]).toEqual([1, expect.stringContaining("field is immutable")]);
  expect(field(await read("api/v1"), "spec", "selector")).toMatchObject({ team: "a" });
  expect(field(await read("apis/apps/v1"), "spec", "template", "metadata", "labels")).not.toHaveProperty("team");
  const overlay = join(root, "manifests/overlays/single-cluster");
  expect(await cluster.kubectl(["apply", "-k", overlay])).toMatchObject({ code: 0 });
  expect(field(await read("api/v1"), "spec", "selector")).not.toHaveProperty("team");
});

test("as Helm 4 applies: the CRD of an earlier release is refused after that of kubectl, unless forced", async () => {
  const newer = readFileSync(CRD, "utf8");
  const earlier = newer.replace("description: ", "description: Of an earlier release. ");
  // Not by kubectl: it takes its own fields over from `kubectl apply`.
  const helm = async (text: string, force: boolean): Promise<[number, unknown]> => {
    const path = `${DEFINITION}?fieldManager=helm&force=${force}`;
    const apply = { contentType: "application/apply-patch+yaml" };
    const { status, body } = await cluster.admin.request("PATCH", path, load(text), apply);
    return [status, field(body, "message")];
  };
  await cluster.admin.call("DELETE", DEFINITION);
  await cluster.waitFor("it to be gone", async () => (await cluster.admin.request("GET", DEFINITION)).status === 404);
  expect(await helm(earlier, false)).toEqual([201, undefined]);
  expect(await cluster.kubectl(["apply", "--filename=-"], { input: newer })).toMatchObject({ code: 0 });
  expect(await helm(newer, false)).toEqual([200, undefined]);
  expect(await helm(earlier, false)).toEqual([409, expect.stringContaining('"kubectl-client-side-apply"')]);
  expect(await helm(earlier, true)).toEqual([200, undefined]);
});
