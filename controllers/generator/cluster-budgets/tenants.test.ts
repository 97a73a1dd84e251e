/** Users of the core who may write budgets in one namespace, beside budgets of worker clusters. */
import { expect, test, vi } from "vitest";
import type { ApiRequest, ApiResponse, Transport } from "../../../shared/kube/client/transport.ts";
import { CLUSTER_BUDGETS_ANNOTATION, CLUSTER_BUDGETS_LABEL } from "../../../shared/schema/annotations.ts";
import { JSON_TYPE, ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { clusterBudgetOf } from "./cluster-budget.ts";
import { planMerge } from "./merge.ts";
import { BudgetMerger } from "./merger.ts";

/** A cluster with one budget, or none. */
function cluster(item?: object, stream = new ScriptedStream()): Transport {
  const body = JSON.stringify({ metadata: { resourceVersion: "9" }, items: item === undefined ? [] : [item] });
  return {
    request: async () => ({ status: 200, headers: {}, body }),
    stream: async ({ signal }) => ({ status: 200, headers: JSON_TYPE, chunks: stream.read(signal), close: () => {} }),
    close: () => {},
  };
}

test("a tenant of the core whose budget claims to be for other clusters each time fills no memory", async () => {
  const merged = (version: number): object => {
    const clusters = Object.fromEntries(Array.from({ length: 10 }, (_, index) => [`tenant-${version}-${index}`, {}]));
    const annotations = { [CLUSTER_BUDGETS_ANNOTATION]: JSON.stringify({ name: "db", clusters }) };
    const metadata = { namespace: "ns", name: "db", uid: "u", resourceVersion: String(version), annotations };
    return { metadata, spec: { minAvailable: 1, selector: { matchLabels: { app: "db" } } } };
  };
  const holders = new Set<Map<unknown, unknown>>();
  const { set } = Map.prototype;
  const spied = vi.spyOn(Map.prototype, "set").mockImplementation(function (this: Map<unknown, unknown>, key, value) {
    if (String(key).startsWith("tenant-")) holders.add(this);
    return set.call(this, key, value);
  });
  const stream = new ScriptedStream();
  const time = new VirtualTime();
  const merger = new BudgetMerger({
    transport: cluster(merged(10), stream),
    clusters: [{ name: "honest", transport: cluster() }],
    ...{ ports: time, keepMs: 600_000, covers: () => true, mayWrite: () => true },
    ...{ onEvent: () => {}, onWatch: () => {} },
  });
  const end = new AbortController();
  const ended = merger.lead(end.signal);
  for (let version = 11; version < 20; version++) {
    stream.event("MODIFIED", merged(version));
    await time.advance(100);
  }
  stream.event("DELETED", merged(20));
  await time.advance(100);
  spied.mockRestore();
  const kept = [...holders].flatMap((map) => [...map.keys()]).filter((key) => String(key).startsWith("tenant-"));
  expect(kept).toEqual([]);
  end.abort();
  await time.advance(1_000);
  await ended;
});

const asked = {
  metadata: { namespace: "ns", name: "db", uid: "a1", resourceVersion: "3" },
  spec: { minAvailable: 2, selector: { matchLabels: { app: "db" } } },
};

/** The budget that stands for the one of the cluster, and how a user of the core alters it. */
test.each<[string, "MODIFIED" | "DELETED", object]>([
  // A watch of labelled objects tells of its deletion.
  ["whose label somebody has taken off", "DELETED", { labels: {} }],
  ["whose clusters somebody has made unreadable", "MODIFIED", { annotations: { [CLUSTER_BUDGETS_ANNOTATION]: "?" } }],
])("a merged budget %s is repaired", async (_, type, altered) => {
  const clusters = [{ name: "a", isListed: true, budget: clusterBudgetOf(asked) }];
  const input = { namespace: "ns", name: "db", stored: [], goneForMs: () => 0, keepMs: 600_000 };
  const [{ wanted } = { wanted: undefined }] = planMerge({ ...input, clusters }).creates;
  const plain = JSON.parse(JSON.stringify(wanted), (_key, value) => value ?? undefined);
  const identity = { namespace: "ns", name: "db", uid: "u1", resourceVersion: "9" };
  const { labels, annotations, spec } = plain;
  let now = { metadata: { ...identity, labels, annotations }, spec };
  const patches: unknown[] = [];
  const request = async ({ method, path, body = "" }: ApiRequest): Promise<ApiResponse> => {
    const answer = (status: number, sent: object) => ({ status, headers: {}, body: JSON.stringify(sent) });
    const isThere = path.includes("fieldSelector") || now.metadata.labels[CLUSTER_BUDGETS_LABEL] !== undefined;
    if (method === "GET") return answer(200, { metadata: { resourceVersion: "9" }, items: isThere ? [now] : [] });
    if (method === "POST") return answer(409, { kind: "Status", reason: "AlreadyExists" });
    patches.push(JSON.parse(body).metadata);
    return answer(200, now);
  };
  const stream = new ScriptedStream();
  const time = new VirtualTime();
  const merger = new BudgetMerger({
    transport: { ...cluster(undefined, stream), request },
    clusters: [{ name: "a", transport: cluster(asked) }],
    ...{ ports: time, keepMs: 600_000, covers: () => true, mayWrite: () => true },
    ...{ onEvent: () => {}, onWatch: () => {} },
  });
  const end = new AbortController();
  const ended = merger.lead(end.signal);
  await time.advance(1_000);
  expect(patches).toEqual([]);
  now = { ...now, metadata: { ...now.metadata, ...altered, resourceVersion: "11" } };
  stream.event(type, now);
  await time.advance(5_000);
  expect(patches[0]).toEqual({ uid: "u1", resourceVersion: "11", labels, annotations: wanted?.annotations });
  end.abort();
  await time.advance(1_000);
  await ended;
});
