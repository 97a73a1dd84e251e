import { describe, expect, test } from "vitest";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { type Transport, TransportError } from "../../shared/kube/client/transport.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { startServer } from "../../test/support/kube/https-server.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { type JsonObject, podJson } from "../../test/support/webhook/handler-harness.ts";
import type { AdmissionRequest } from "./admission-request.ts";
import { createPodReader } from "./cell-client.ts";
import { createPodLister, type PodsOfNode, removedNode, removedNodeSince } from "./node-deletion.ts";
import { ReviewedDeletions } from "./reviewed-deletions.ts";

const NODE = { apiVersion: "v1", kind: "Node", metadata: { name: "node-1" } };

function request(change: Partial<AdmissionRequest>): AdmissionRequest {
  return {
    ...{ uid: "r", operation: "DELETE", group: "", resource: "nodes", subResource: "", namespace: "", name: "node-1" },
    user: { username: "eve", uid: undefined, groups: [], extra: {} },
    ...{ dryRun: false, object: null, oldObject: NODE },
    ...change,
  };
}

const node = (metadata: JsonObject): JsonObject => ({ ...NODE, metadata: { name: "node-1", ...metadata } });
const terminating = { deletionTimestamp: "2026-01-01T00:00:00Z" };
const UPDATE = { operation: "UPDATE" };

describe("a node is removed", () => {
  test.each<[string, Partial<AdmissionRequest>, string | undefined]>([
    ["by its deletion", {}, "node-1"],
    ["by an item of a deletecollection, which has no name", { name: "" }, "node-1"],
    ["not by its deletion while it has finalizers", { oldObject: node({ finalizers: ["drain"] }) }, undefined],
    [
      "by its deletion while it has none but those of garbage collection, which a later deletion takes off",
      { oldObject: node({ ...terminating, finalizers: ["foregroundDeletion", "orphan"] }) },
      "node-1",
    ],
    [
      "not by its deletion while it has another beside that of garbage collection",
      { oldObject: node({ finalizers: ["foregroundDeletion", "drain"] }) },
      undefined,
    ],
    [
      "when garbage collection takes off its finalizer",
      { ...UPDATE, oldObject: node({ ...terminating, finalizers: ["orphan"] }), object: node(terminating) },
      "node-1",
    ],
    [
      "when the last finalizer is taken off",
      { ...UPDATE, oldObject: node({ ...terminating, finalizers: ["drain"] }), object: node(terminating) },
      "node-1",
    ],
    [
      "not when another finalizer stays",
      {
        ...UPDATE,
        oldObject: node({ ...terminating, finalizers: ["drain", "b"] }),
        object: node({ ...terminating, finalizers: ["b"] }),
      },
      undefined,
    ],
    [
      "not when a node that stays loses its finalizer",
      { ...UPDATE, oldObject: node({ finalizers: ["drain"] }), object: node({}) },
      undefined,
    ],
    ["not by an ordinary update", { ...UPDATE, object: NODE }, undefined],
  ])("%s", (_name, change, expected) => {
    expect(removedNode(request(change))).toBe(expected);
  });

  test("without oldObject is malformed", () => {
    expect(() => removedNode(request({ oldObject: null }))).toThrow("carries no request.oldObject");
  });
});

test("a node with a name of a megabyte is malformed", () => {
  const name = "n".repeat(2 ** 20);
  expect(() => removedNode(request({ name: "", oldObject: node({ name }) }))).toThrow("Kubernetes allows 253");
});

test("after the deletion of a node that nothing kept, the next one within a minute is decided, and no update", () => {
  const reviewed = new ReviewedDeletions();
  const kept = node({ uid: "n", finalizers: ["late"] });
  const asked = (change: Partial<AdmissionRequest>, nowMs: number): string | undefined =>
    removedNodeSince(reviewed, { cell: "c", request: request(change), nowMs });
  expect(asked({ oldObject: kept }, 0)).toBeUndefined();
  expect(asked({ oldObject: node({ uid: "n" }), dryRun: true }, 1)).toBe("node-1");
  expect(asked({ oldObject: kept }, 2)).toBeUndefined();
  expect(asked({ oldObject: node({ uid: "n" }) }, 3)).toBe("node-1");
  expect(asked({ ...UPDATE, oldObject: kept, object: kept }, 4)).toBeUndefined();
  expect([60_002, 60_003].map((nowMs) => asked({ oldObject: kept }, nowMs))).toEqual(["node-1", undefined]);
  // It is forgotten for them: as long as it counts, every node is decided.
  for (let uid = 0; uid < 10_000; uid++) asked({ oldObject: node({ uid: `${uid}` }) }, 4);
  expect([60_002, 60_003].map((nowMs) => asked({ oldObject: kept }, nowMs))).toEqual(["node-1", undefined]);
});

describe("the pods of a node", () => {
  function lister(pages: readonly { status?: number; body: JsonObject }[]): {
    readonly paths: string[];
    list(isAtStake?: (pod: Pod) => boolean): Promise<PodsOfNode>;
  } {
    const paths: string[] = [];
    const transport: Transport = {
      async request({ path }) {
        const page = pages[paths.length] ?? pages.at(-1);
        paths.push(path);
        return { status: page?.status ?? 200, headers: {}, body: JSON.stringify(page?.body) };
      },
      stream: () => Promise.reject(new Error("unused")),
      close: () => {},
    };
    const listPods = createPodLister(new ApiClient(transport), new VirtualTime());
    return { paths, list: (isAtStake = () => true) => listPods("node-1", 1_000, isAtStake) };
  }
  const page = (names: readonly string[], token?: string): { body: JsonObject } => ({
    body: {
      kind: "PodList",
      metadata: token === undefined ? {} : { continue: token },
      items: names.map((name) => podJson({ metadata: { name, uid: name } })),
    },
  });

  test("are listed by a quorum read, page by page", async () => {
    const { paths, list } = lister([page(["a", "b"], "more"), page(["c"])]);
    const found = await list();
    expect(found.kind === "listed" && found.pods.map(({ name }) => name)).toEqual(["a", "b", "c"]);
    expect(paths).toEqual([
      expect.stringMatching(/^\/api\/v1\/pods\?fieldSelector=spec.nodeName%3Dnode-1[^&]*&limit=500$/),
      `${paths[0]}&continue=more`,
    ]);
  });

  test("are those that have not ended: finished pods of Jobs stay by the thousands, and keep no node", async () => {
    const { paths, list } = lister([page(["a"])]);
    await list();
    const [, query] = (paths[0] ?? "").split("?");
    expect(new URLSearchParams(query).get("fieldSelector")?.split(",")).toEqual([
      ...["spec.nodeName=node-1", "status.phase!=Succeeded", "status.phase!=Failed"],
    ]);
  });

  test("are those at stake: any number of others keeps no node", async () => {
    const others = Array.from({ length: 30 }, () =>
      page(
        Array.from({ length: 100 }, (_, index) => `x${index}`),
        "more",
      ),
    );
    const found = await lister([...others, page(["a"])]).list(({ name }) => name === "a");
    expect(found).toMatchObject({ kind: "listed", pods: [{ name: "a" }] });
  });

  test("too large for one response are asked for in smaller pages, from where the list stood", async () => {
    const asked: string[] = [];
    const transport: Transport = {
      async request({ path }) {
        const query = new URLSearchParams(path.split("?")[1]);
        asked.push(`${query.get("limit")} ${query.get("continue") ?? ""}`.trim());
        if (Number(query.get("limit")) > 8) throw new TransportError("oversized", true, "too large");
        return {
          status: 200,
          headers: {},
          body: JSON.stringify(page(["a"], query.has("continue") ? "" : "more").body),
        };
      },
      stream: () => Promise.reject(new Error("unused")),
      close: () => {},
    };
    const listPods = createPodLister(new ApiClient(transport), new VirtualTime());
    expect(await listPods("node-1", 1_000, () => true)).toMatchObject({ kind: "listed" });
    expect(asked).toEqual(["500", "8", "8 more"]);
  });

  test.each([
    ["when it wants it, from where the list stood", "1", "listed", ["0 ", "0 more", "1000 more"]],
    ["not where there is no time for it", "7", "failed", ["0 ", "0 more"]],
    ["not where it does not say when", "", "failed", ["0 ", "0 more"]],
  ])("are asked of a busy apiserver (429) again %s", async (_, retryAfter, kind, expected) => {
    const time = new VirtualTime();
    const asked: string[] = [];
    const startMs = time.clock.monotonicMs();
    const transport: Transport = {
      async request({ path }) {
        const token = new URLSearchParams(path.split("?")[1]).get("continue") ?? "";
        asked.push(`${time.clock.monotonicMs() - startMs} ${token}`);
        if (asked.length === 2) return { status: 429, headers: { "retry-after": retryAfter }, body: "" };
        return { status: 200, headers: {}, body: JSON.stringify(page(["a"], token === "" ? "more" : "").body) };
      },
      stream: () => Promise.reject(new Error("unused")),
      close: () => {},
    };
    const listed = createPodLister(new ApiClient(transport), time)("node-1", 10_000, () => true);
    await time.advance(2_000);
    expect([(await listed).kind, asked]).toEqual([kind, expected]);
  });

  test.each<[string, { status?: number; body: JsonObject }, RegExp]>([
    ["without permission", { status: 403, body: { kind: "Status", message: "pods is forbidden" } }, /forbidden/],
    ["by a server in trouble", { status: 500, body: {} }, /500/],
    ["without items", { body: {} }, /items/],
    ["mixed up by a proxy", { body: { kind: "NodeList", metadata: {}, items: [] } }, /no PodList/],
    ["without end", page(["a"], "more"), /more than 2000 pods/],
  ])("%s are not known", async (_name, answer, message) => {
    expect(await lister([answer]).list()).toEqual({ kind: "failed", message: expect.stringMatching(message) });
  });
});

test("nodes whose pods take long to list keep no read of a pod waiting, which each eviction needs", async () => {
  const it = await startServer(({ url }, response) => {
    // The lists are never answered.
    if (url?.startsWith("/api/v1/pods?") !== true) response.end(JSON.stringify(podJson()));
  });
  const api = new ApiClient(it.transport);
  const lists = Array.from({ length: 20 }, (_, node) =>
    createPodLister(api, systemPorts)(`node-${node}`, 60_000, () => true),
  );
  await expect.poll(() => it.seen.length).toBeGreaterThanOrEqual(16);
  expect(await createPodReader(api, systemPorts)("default", "web-0", 3_000)).toMatchObject({ kind: "found" });
  it.transport.close();
  await Promise.all(lists);
});
