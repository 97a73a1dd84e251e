/** The manifests are stored as they are written: who applies them again finds nothing to change or to fight. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { root } from "../../scripts/root.ts";

let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
});

afterAll(() => cluster?.stop());

test.each<[string, readonly string[]]>([
  ["single-cluster", ["mark-namespaces", "counted-gate", "pre-activities", "void-reservations", "eviction-retry"]],
  ["core", ["central-webhook"]],
])("%s with %j, by kubectl apply, again, and by server-side apply", async (overlay, components) => {
  const directory = join(cluster.directory, overlay);
  mkdirSync(directory);
  const path = (...parts: string[]): string => relative(directory, join(root, "manifests", ...parts));
  const kustomization = {
    resources: [path("overlays", overlay)],
    components: components.map((component) => path("components", component)),
  };
  writeFileSync(join(directory, "kustomization.yaml"), JSON.stringify(kustomization));
  const apply = (...flags: string[]) => cluster.kubectl(["apply", "-k", directory, ...flags]);

  expect(await apply()).toMatchObject({ code: 0, stderr: "" });
  const { stdout } = await apply();
  // kubectl sends the selector of a budget each time, and the empty lists to which components append.
  const changed = stdout.split("\n").filter((line) => !/^$|unchanged$|^poddisruptionbudget|^deployment/.test(line));
  expect(changed).toEqual([]);
  // A value that kube-apiserver has completed is another one, and belongs to the client that applied it before.
  expect(await apply("--server-side")).toMatchObject({ code: 0, stderr: "" });
});
