/** The commands that reduce protection write nothing without --yes, and never as kubectl. */
import { expect, test } from "vitest";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { GENERATOR_FINALIZER } from "../../shared/schema/annotations.ts";
import { makeCell, makeProtector } from "../../test/support/decide/fixtures.ts";
import { listeningApiserver } from "../../test/support/kube/listening-apiserver.ts";
import { runCommandLine } from "./cli.ts";

const ALL = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";
const SHOP = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/shop/podprotectors";
const REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

interface Write {
  readonly dryRun: boolean;
  readonly name: string | undefined;
  readonly manager: string | null;
}

/** The writes of a command about a protector of a cell, whose workload is there or not. */
async function writesOf(hasSource: boolean, ...args: readonly string[]): Promise<readonly Write[]> {
  const made = makeProtector([makeCell("a", 3, [], { resourceVersion: "1" })]);
  const labels = {
    "podseidon.kubewharf.io/source-name": "web",
    "podseidon.kubewharf.io/source-group": "apps",
    "podseidon.kubewharf.io/source-kind": "Deployment",
    "podseidon.kubewharf.io/source-resource": "deployments",
  };
  const metadata = { ...made.metadata, namespace: "shop", name: "web", finalizers: [GENERATOR_FINALIZER], labels };
  const protector = { ...made, metadata };
  const list = { metadata: { resourceVersion: "1" }, items: [protector] };
  const objects: Readonly<Record<string, unknown>> = {
    [ALL]: list,
    [SHOP]: list,
    [`${SHOP}/web`]: protector,
    "/apis/apps": { versions: [{ groupVersion: "apps/v1" }] },
    ...(hasSource ? { "/apis/apps/v1/namespaces/shop/deployments/web": {} } : {}),
    "/api/v1/namespaces/podseidon-system/configmaps/podseidon-cells": {
      metadata: { name: "podseidon-cells", uid: "u", resourceVersion: "1" },
      data: { a: "" },
    },
  };
  const writes: Write[] = [];
  const { kubeconfig, close } = await listeningApiserver(({ url = "", method = "" }, response) => {
    const [path = "", query = ""] = url.split("?");
    const given = new URLSearchParams(query);
    const [dryRun, manager] = [given.get("dryRun") === "All", given.get("fieldManager")];
    if (method !== "GET" && path !== REVIEW) writes.push({ dryRun, name: path.split("/").at(-1), manager });
    // The generator acts at once.
    const isActedOn = path === `${SHOP}/web` && writes.some((write) => !write.dryRun);
    const found = method !== "GET" ? {} : isActedOn ? undefined : objects[path];
    response
      .writeHead(found === undefined ? 404 : 200)
      .end(JSON.stringify(found ?? { kind: "Status", reason: "NotFound", details: { name: "x" } }));
  });
  const terminal = { out: (): void => {}, err: (): void => {}, interactive: false };
  await runCommandLine([...args, "--kubeconfig", kubeconfig], { terminal, ports: systemPorts, environment: {} });
  close();
  return writes;
}

const COMMANDS: readonly [string, readonly string[], boolean, readonly string[]][] = [
  ["suspend", ["suspend", "web", "-n", "shop"], true, ["web"]],
  ["release, with its workload", ["release", "web", "-n", "shop"], true, ["web"]],
  ["release, without its workload", ["release", "web", "-n", "shop"], false, ["web"]],
  ["remove-cell", ["remove-cell", "a", "-n", "shop"], true, ["web"]],
  ["remove-cell of all namespaces", ["remove-cell", "a", "-A"], true, ["web", "podseidon-cells"]],
];

test.each(COMMANDS)("%s", async (_, args, hasSource, written) => {
  const writes = await writesOf(hasSource, ...args);
  expect(writes.map(({ dryRun, name }) => [dryRun, name])).toEqual(written.map((name) => [true, name]));
});

// Flux takes over what managers whose names begin with kubectl have written, and removes it with its next apply.
test.each(COMMANDS)("%s, with --yes, as a manager whose fields Flux leaves", async (_, args, hasSource, written) => {
  const writes = await writesOf(hasSource, ...args, "--yes");
  expect(writes.map(({ dryRun, name }) => [dryRun, name])).toEqual(written.map((name) => [false, name]));
  for (const { manager } of writes) expect(manager).toMatch(/^(?!kubectl)./);
});
