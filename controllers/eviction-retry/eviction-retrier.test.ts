import { beforeEach, expect, onTestFinished, test } from "vitest";
import type { CallOptions } from "../../shared/kube/client/api-client.ts";
import type { ApiResult } from "../../shared/kube/client/api-result.ts";
import { TransportError } from "../../shared/kube/client/transport.ts";
import type { InformerHandler } from "../../shared/kube/informer/informer.ts";
import { sleep } from "../../shared/runtime/clock.ts";
import type { TaintedNode } from "../../shared/schema/taints.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { type EvictionEvent, EvictionRetrier } from "./eviction-retrier.ts";

const INTERVAL_MS = 1_000;
const TAINT = { key: "node.kubernetes.io/unreachable", value: "" };
const DENIED: ApiResult<undefined> = {
  kind: "unavailable",
  error: new Error("at the minimum"),
  sent: false,
  status: 429,
};
const OK: ApiResult<undefined> = { kind: "ok", object: undefined };

/** A cluster: its nodes with their taints, its pods, and what it says to evictions. */
class FakeCluster {
  readonly nodes = new Map<string, TaintedNode>();
  readonly pods: { node: string; raw: unknown }[] = [];
  readonly handlers: InformerHandler<TaintedNode>[] = [];
  readonly evictions: { path: string; uid: unknown; atMs: number }[] = [];
  readonly time = new VirtualTime();
  answer: ApiResult<undefined> | "read fails" | "hangs" = OK;
  /** Pods that fit into one response. */
  fit = Number.POSITIVE_INFINITY;
  /** What each page of a list without end has. */
  endless: readonly unknown[] | undefined;
  pages = 0;
  lists = 0;

  node(name: string, ...taints: TaintedNode["taints"]): void {
    const before = this.nodes.get(name);
    const after = { name, uid: name, resourceVersion: "1", taints };
    this.nodes.set(name, after);
    for (const { changed } of this.handlers) changed?.(before, after, false);
  }

  pod(name: string, node = "node-1", tolerations: unknown[] = [], conditions = ["DisruptionTarget"]): void {
    const raw = {
      metadata: { namespace: "shop", name, uid: `uid-${name}` },
      spec: { tolerations },
      status: { conditions: conditions.map((type) => ({ type, status: "False" })) },
    };
    this.pods.push({ node, raw });
  }

  get = async <T>(path: string, parse: (raw: unknown) => T): Promise<ApiResult<T>> => {
    this.lists++;
    if (this.answer === "read fails") return { kind: "unavailable", error: new Error("down"), sent: false };
    if (this.endless !== undefined) {
      const metadata = ++this.pages < 20_000 ? { continue: `${this.pages}` } : {};
      return { kind: "ok", object: parse({ metadata, items: this.endless }) };
    }
    const node = /spec\.nodeName%3D([^&]+)/.exec(path)?.[1];
    const all = this.pods.filter((pod) => pod.node === node).map(({ raw }) => raw);
    const query = new URLSearchParams(path.split("?")[1]);
    const from = Number(query.get("continue") ?? 0);
    const end = from + Number(query.get("limit") ?? all.length);
    if (end - from > this.fit) {
      return { kind: "unavailable", error: new TransportError("oversized", true, "too large"), sent: true };
    }
    const metadata = end < all.length ? { continue: String(end) } : {};
    return { kind: "ok", object: parse({ metadata, items: all.slice(from, end) }) };
  };

  create = async <T>(
    path: string,
    body: unknown,
    parse: (raw: unknown) => T,
    { signal }: CallOptions,
  ): Promise<ApiResult<T>> => {
    const uid = JSON.parse(JSON.stringify(body)).deleteOptions.preconditions.uid;
    this.evictions.push({ path, uid, atMs: this.time.elapsedMs });
    if (this.answer === "read fails") throw new Error("unreachable");
    if (this.answer === "hangs") {
      await sleep(this.time, 86_400_000, signal);
      return { kind: "unavailable", error: new TransportError("aborted", true, "aborted"), sent: true };
    }
    if (this.answer.kind !== "ok") return this.answer;
    const index = this.pods.findIndex(({ raw }) => JSON.stringify(raw).includes(`"${uid}"`));
    this.pods.splice(index, 1);
    return { kind: "ok", object: parse({}) };
  };
}

let cluster: FakeCluster;
let events: EvictionEvent[];

beforeEach(() => {
  cluster = new FakeCluster();
  events = [];
});

async function start({ afterMs = 0, isLeader = true, stop = new AbortController() } = {}): Promise<EvictionRetrier> {
  const { time } = cluster;
  const retrier = new EvictionRetrier({
    ...{ api: cluster, ports: time, afterMs, intervalMs: INTERVAL_MS },
    mayWrite: () => isLeader,
    nodes: {
      get: (name) => cluster.nodes.get(name),
      values: () => cluster.nodes.values(),
      subscribe: (handler) => {
        cluster.handlers.push(handler);
        return () => cluster.handlers.splice(cluster.handlers.indexOf(handler), 1);
      },
    },
    onEvent: (event) => events.push(event),
  });
  const running = retrier.run(stop.signal);
  onTestFinished(async () => {
    stop.abort();
    await running;
  });
  await time.advance(0);
  return retrier;
}

const kinds = (): string[] => events.map(({ kind, isFirst }) => `${kind}${isFirst ? " first" : ""}`);

test("pods too large for one response are read a few at a time", async () => {
  cluster.fit = 8;
  for (let index = 0; index < 20; index++) cluster.pod(`web-${index}`);
  cluster.node("node-1", TAINT);
  await start();
  expect(cluster.evictions).toHaveLength(20);
});

test.each([
  ["none", 0, 5_000],
  ["a hundred", 100, 400],
])("a server that always says that there are more pods, of which it sends %s, is left soon", async (_, each, most) => {
  cluster.endless = Array.from({ length: each }, (_, index) => ({
    metadata: { namespace: "shop", name: `web-${index}`, uid: `${index}` },
    spec: {},
  }));
  cluster.node("node-1", TAINT);
  const retrier = await start();
  expect(cluster.pages).toBe(most);
  expect(retrier.queue.failing).toBe(1);
});

test("a pod whose deletion was denied is evicted, by its UID; others stay", async () => {
  cluster.pod("web-0");
  cluster.pod("web-1", "node-1", [{ operator: "Exists" }]);
  cluster.pod("web-2", "node-2");
  cluster.pod("web-3", "node-1", [], ["Ready"]);
  cluster.node("node-1", TAINT);
  cluster.node("node-2");
  await start();
  await cluster.time.advance(10 * INTERVAL_MS);
  expect(cluster.evictions).toEqual([
    { path: "/api/v1/namespaces/shop/pods/web-0/eviction", uid: "uid-web-0", atMs: 0 },
  ]);
  expect(events).toEqual([
    {
      kind: "evicted",
      pod: { namespace: "shop", name: "web-0", uid: "uid-web-0" },
      node: "node-1",
      taints: [TAINT.key],
      isFirst: true,
      message: "",
    },
  ]);
});

const NOT_READY = { key: "node.kubernetes.io/not-ready", value: "" };
const FIVE_MINUTES = [{ key: NOT_READY.key, operator: "Exists", tolerationSeconds: 300 }];

test("a pod whose node gets another taint, which it tolerates for longer, waits as long anew", async () => {
  cluster.pod("web-0", "node-1", FIVE_MINUTES);
  cluster.answer = DENIED;
  cluster.node("node-1", TAINT);
  await start();
  await cluster.time.advance(600_000);
  expect(cluster.evictions.length).toBeGreaterThan(0);
  cluster.evictions.length = 0;
  cluster.answer = OK;
  cluster.node("node-1", NOT_READY);
  await cluster.time.advance(299_000);
  expect(cluster.evictions).toEqual([]);
  await cluster.time.advance(2 * INTERVAL_MS);
  expect(cluster.evictions).toHaveLength(1);
});

test("no pod goes by a taint that its node has no more, while another one is evicted", async () => {
  for (const name of ["web-0", "web-1"]) cluster.pod(name, "node-1", FIVE_MINUTES);
  const { create } = cluster;
  cluster.create = async (...call) => {
    cluster.node("node-1", NOT_READY);
    return await create(...call);
  };
  cluster.node("node-1", TAINT);
  await start();
  await cluster.time.advance(200_000);
  expect(cluster.evictions.map(({ uid }) => uid)).toEqual(["uid-web-0"]);
});

test("a denied eviction is repeated, ever more slowly, until quota is back", async () => {
  cluster.pod("web-0");
  cluster.answer = DENIED;
  const retrier = await start();
  cluster.node("node-1", TAINT);
  await cluster.time.advance(100 * INTERVAL_MS);
  const gaps = cluster.evictions.map(({ atMs }, index) => atMs - (cluster.evictions[index - 1]?.atMs ?? 0));
  expect(Math.max(...gaps.slice(0, 3))).toBeLessThanOrEqual(3 * INTERVAL_MS);
  expect(Math.max(...gaps)).toBeLessThanOrEqual(9 * INTERVAL_MS);
  expect(cluster.evictions.length).toBeLessThan(30);
  expect([kinds().slice(0, 2), retrier.waiting]).toEqual([["denied first", "denied"], 1]);
  cluster.answer = OK;
  await cluster.time.advance(9 * INTERVAL_MS);
  expect([kinds().at(-1), retrier.waiting, cluster.pods]).toEqual(["evicted", 0, []]);
});

test("the time of the longest wait begins with its first try, and ends with it", async () => {
  cluster.pod("web-0");
  cluster.answer = DENIED;
  cluster.node("node-1", TAINT);
  const retrier = await start({ afterMs: 60_000 });
  await cluster.time.advance(59_000);
  expect(retrier.oldestMs).toBe(0);
  await cluster.time.advance(100_000);
  cluster.pod("web-1");
  await cluster.time.advance(100_000);
  expect(retrier.oldestMs).toBeGreaterThan(180_000);
  cluster.answer = OK;
  await cluster.time.advance(9 * INTERVAL_MS);
  expect(retrier.oldestMs).toBe(0);
});

test("Retry-After of a denial is obeyed", async () => {
  cluster.pod("web-0");
  cluster.answer = { ...DENIED, retryAfterMs: 30 * INTERVAL_MS };
  cluster.node("node-1", TAINT);
  await start();
  await cluster.time.advance(29 * INTERVAL_MS);
  expect(cluster.evictions).toHaveLength(1);
  await cluster.time.advance(3 * INTERVAL_MS);
  expect(cluster.evictions).toHaveLength(2);
});

test("the toleration ends first, and then the time of the callers that repeat by themselves", async () => {
  cluster.pod("web-0", "node-1", [{ operator: "Exists", tolerationSeconds: 300 }]);
  cluster.node("node-1", TAINT);
  await start({ afterMs: 60_000 });
  await cluster.time.advance(359_000);
  expect(cluster.evictions).toEqual([]);
  await cluster.time.advance(2 * INTERVAL_MS);
  expect(cluster.evictions).toHaveLength(1);
});

test("a node that has lost its taint evicts nobody, and its next taint waits anew", async () => {
  cluster.pod("web-0");
  cluster.answer = DENIED;
  cluster.node("node-1", TAINT);
  const retrier = await start({ afterMs: 5_000 });
  await cluster.time.advance(10_000);
  const before = cluster.evictions.length;
  expect(before).toBeGreaterThan(0);
  cluster.node("node-1");
  await cluster.time.advance(100_000);
  expect([cluster.evictions.length, retrier.waiting]).toEqual([before, 0]);
  cluster.node("node-1", TAINT);
  await cluster.time.advance(4_000);
  expect(cluster.evictions).toHaveLength(before);
  await cluster.time.advance(1_400);
  expect(cluster.evictions).toHaveLength(before + 1);
});

test.each<[string, ApiResult<undefined>, string, number]>([
  ["it is gone", { kind: "gone" }, "gone first", 0],
  ["it may not be evicted", { kind: "rejected", status: 403, message: "no" }, "failed first", 1],
  ["the webhook does not answer", { ...DENIED, status: 500 }, "failed first", 1],
])("an eviction fails: %s", async (_, answer, kind, waiting) => {
  cluster.pod("web-0");
  cluster.answer = answer;
  cluster.node("node-1", TAINT);
  const retrier = await start();
  expect([kinds(), retrier.waiting]).toEqual([[kind], waiting]);
});

test("after a conflict a pod that is still there is tried soon, and another one of its name waits anew", async () => {
  cluster.pod("web-0");
  cluster.answer = { kind: "conflict", message: "the object has been modified" };
  cluster.node("node-1", TAINT);
  await start({ afterMs: 60_000 });
  await cluster.time.advance(60_000 + 3 * INTERVAL_MS);
  expect(cluster.evictions.length).toBeGreaterThan(1);
  const [other] = cluster.pods.splice(0);
  cluster.pods.push(JSON.parse(JSON.stringify(other).replace("uid-web-0", "uid-next")));
  await cluster.time.advance(50_000);
  expect(cluster.evictions.filter(({ uid }) => uid === "uid-next")).toEqual([]);
});

test("an eviction that the end of a term cuts off is not told of as failed", async () => {
  cluster.pod("web-0");
  cluster.answer = "hangs";
  cluster.node("node-1", TAINT);
  const stop = new AbortController();
  await start({ stop });
  expect(cluster.evictions).toHaveLength(1);
  stop.abort();
  await cluster.time.advance(INTERVAL_MS);
  expect(events).toEqual([]);
  // Nothing of the term stays behind.
  expect(cluster.handlers).toEqual([]);
});

test("a node that loses its taint between two evictions evicts no more", async () => {
  for (const name of ["web-0", "web-1"]) cluster.pod(name);
  cluster.node("node-1", TAINT);
  const { create } = cluster;
  cluster.create = async (...call) => {
    cluster.node("node-1");
    return await create(...call);
  };
  await start();
  await cluster.time.advance(INTERVAL_MS);
  expect(cluster.evictions.map(({ uid }) => uid)).toEqual(["uid-web-0"]);
});

test("a list that fails is repeated", async () => {
  cluster.pod("web-0");
  cluster.answer = "read fails";
  cluster.node("node-1", TAINT);
  await start();
  await cluster.time.advance(10 * INTERVAL_MS);
  cluster.answer = OK;
  await cluster.time.advance(10 * INTERVAL_MS);
  expect(kinds()).toEqual(["evicted first"]);
});

test("nothing is evicted without the Lease", async () => {
  cluster.pod("web-0");
  cluster.node("node-1", TAINT);
  await start({ isLeader: false });
  await cluster.time.advance(10 * INTERVAL_MS);
  expect(cluster.evictions).toEqual([]);
});

test("a tainted node whose status changes all the time has its pods listed at the interval", async () => {
  cluster.pod("web");
  cluster.node("node-1", TAINT);
  await start({ afterMs: 3_600_000 });
  for (let tenth = 0; tenth < 100; tenth++) {
    cluster.node("node-1", { ...TAINT });
    await cluster.time.advance(100);
  }
  expect(cluster.lists).toBeLessThanOrEqual(11);
  const before = cluster.lists;
  cluster.node("node-1", TAINT, { key: "dedicated", value: "a" });
  await cluster.time.advance(10);
  expect(cluster.lists).toBe(before + 1);
});
