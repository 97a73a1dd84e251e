import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { startServer } from "../../../test/support/kube/https-server.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { WorkloadRef } from "../sources/protection-source.ts";
import { WorkloadScales } from "./workload-scales.ts";

const API = "/apis/apps.kruise.io/v1alpha1";
const RESOURCES = { resources: ["clonesets", "clonesets/scale"].map((name) => ({ name, kind: "CloneSet" })) };
const NOT_FOUND = { kind: "Status", code: 404, reason: "NotFound", details: { name: "x" } };
const ref = { apiVersion: "apps.kruise.io/v1alpha1", kind: "CloneSet", name: "web", uid: "u1" };

/** An apiserver with one CloneSet. */
async function scalesOf() {
  const server = await startServer(({ url = "" }, response) => {
    const [path] = url.split("?");
    const scale = { metadata: { uid: "u1" }, spec: { replicas: 3 } };
    const body = path === API ? RESOURCES : path === `${API}/namespaces/shop/clonesets/web/scale` ? scale : NOT_FOUND;
    response.writeHead(body === NOT_FOUND ? 404 : 200).end(JSON.stringify(body));
  });
  const api = new ApiClient(server.transport);
  const { clock } = new VirtualTime();
  const scales = new WorkloadScales({ api, kinds: new Map(), clock, timeoutMs: 5000 });
  const find = (one: WorkloadRef) => scales.find("k", one, "shop", new AbortController().signal);
  return { find, seen: server.seen };
}

// Of an owner reference the apiserver checks that kind, name and UID are not empty, and that the version is not. A
// lookup that failed for ever would keep the budget's protector from being made, repaired and restored.
test.each<[string, Partial<WorkloadRef>]>([
  ["a group with a space", { apiVersion: "a b/v1" }],
  ["a group that leads elsewhere", { apiVersion: "../api/v1" }],
  ["a version with a query", { apiVersion: "apps.kruise.io/v1alpha1?x" }],
  ["a name with a space", { name: "a b" }],
  ["a name in another namespace", { name: "../../other/clonesets/web" }],
  ["a name with a query", { name: "web?x" }],
  ["a name longer than any", { name: "x".repeat(300_000) }],
  ["a kind longer than any", { kind: "x".repeat(300_000) }],
  ["a kind of several lines", { kind: "a\nb" }],
])("a controller that can't be there is missing: %s", async (_, odd) => {
  const { find, seen } = await scalesOf();
  expect(await find(ref)).toMatchObject({ kind: "found", replicas: 3 });
  const found = await find({ ...ref, ...odd });
  expect(found.kind).toBe("missing");
  // It becomes part of an annotation, and all annotations together may have 256 KiB.
  expect(JSON.stringify(found).length).toBeLessThan(1000);
  for (const { url } of seen) expect(url).not.toMatch(/\.\.|\?/);
});
