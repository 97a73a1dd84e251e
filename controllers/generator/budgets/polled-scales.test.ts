import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { type ApiRequest, type ApiResponse, TransportError } from "../../../shared/kube/client/transport.ts";
import { sleep } from "../../../shared/runtime/clock.ts";
import { makeProtector } from "../../../test/support/decide/fixtures.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { WorkloadRef } from "../sources/protection-source.ts";
import { PolledScales } from "./polled-scales.ts";
import { Resolver } from "./resolve.ts";
import { WorkloadScales } from "./workload-scales.ts";

const API = "/apis/apps.kruise.io/v1alpha1";
const LATENCY_MS = 5;
const TIMEOUT_MS = 500;

/** A budget over the pods of so many CloneSets of one replica each, in a cluster that answers in 5 ms. */
function rig(count: number) {
  const time = new VirtualTime();
  const paths: string[] = [];
  const replicas = new Map(Array.from({ length: count }, (_, index) => [`c${index}`, 1]));
  const uids = new Map<string, string>();
  const latencies = new Map<string, number>();
  let failure: number | "timeout" | undefined;
  const request = async ({ path }: ApiRequest): Promise<ApiResponse> => {
    paths.push(path);
    const name = path.split("/").at(-2) ?? "";
    await sleep(time, latencies.get(name) ?? LATENCY_MS);
    const body =
      path === API
        ? { resources: ["clonesets", "clonesets/scale"].map((one) => ({ name: one, kind: "CloneSet" })) }
        : { metadata: { name, uid: uids.get(name) ?? name }, spec: { replicas: replicas.get(name) } };
    const isScale = path !== API;
    if (isScale && failure === "timeout") {
      await sleep(time, TIMEOUT_MS);
      throw new TransportError("timeout", true, "no answer");
    }
    const status = typeof failure === "number" && (isScale || failure === 503) ? failure : 200;
    return { status, headers: {}, body: status === 200 ? JSON.stringify(body) : "" };
  };
  const api = new ApiClient({ request, stream: () => Promise.reject(new Error("nothing is watched")), close() {} });
  const refs = (): WorkloadRef[] =>
    [...replicas.keys()].map((name) => ({
      ...{ apiVersion: "apps.kruise.io/v1alpha1", kind: "CloneSet", name },
      uid: uids.get(name) ?? name,
    }));
  const workloads = new WorkloadScales({
    ...{ api, kinds: new Map(), timeoutMs: 1000, clock: time.clock },
  });
  const pods = { of: () => ({ total: count, controllers: refs(), jobPods: 0 }), forget: () => {} };
  const resolver = new Resolver({ workloads, pods, clock: time.clock });
  const pdb = pluginNamed("poddisruptionbudget");
  const metadata = { name: "web", namespace: "shop", uid: "u1", resourceVersion: "1" };
  const source = pdb.interpret({ metadata });
  const need = { kind: "budget", budget: { selector: {}, maxUnavailable: 1, spec: {}, owns: [] } } as const;
  /** What it comes to, and how many requests and milliseconds it took. */
  const resolve = async (kept?: number) => {
    const [before, fromMs] = [paths.length, time.elapsedMs];
    const { signal } = new AbortController();
    const presents = kept === undefined ? [] : [makeProtector([], { minAvailable: kept, selector: {} })];
    let tookMs = 0;
    const asked = resolver.resolve({ key: "k", kind: pdb.kind, source, need, presents, signal });
    void asked.then(() => {
      tookMs = time.elapsedMs - fromMs;
    });
    await time.advance(1_000);
    const resolution = await asked;
    const minimum = resolution.kind === "resolved" ? resolution.protectors[0]?.spec.minAvailable : resolution.kind;
    const soon = resolution.kind === "resolved" && resolution.soon === true;
    const why = resolution.kind === "resolved" ? resolution.why : undefined;
    return { minimum, soon, requests: paths.length - before, tookMs, ...(why === undefined ? {} : { why }) };
  };
  const breakDown = (how: number | "timeout"): void => {
    failure = how;
  };
  /** How long so many workers take that ask for one CloneSet after the other. */
  const askForAll = async (workers: number): Promise<number> => {
    const [waiting, fromMs] = [refs().values(), time.elapsedMs];
    const work = async (): Promise<void> => {
      for (const ref of waiting) await workloads.find("k", ref, "shop", new AbortController().signal);
    };
    let tookMs = 0;
    const all = Promise.all(Array.from({ length: workers }, work)).then(() => {
      tookMs = time.elapsedMs - fromMs;
    });
    await time.advance(60_000);
    await all;
    return tookMs;
  };
  return { time, replicas, uids, latencies, resolve, breakDown, askForAll };
}

test("a budget over many polled workloads asks for each once, several at a time, and not at each pod", async () => {
  const { resolve, replicas, time } = rig(200);
  const { tookMs, ...first } = await resolve();
  expect(first).toEqual({ minimum: 199, soon: false, requests: 201 });
  expect(tookMs).toBeLessThanOrEqual(30 * LATENCY_MS);
  replicas.set("c0", 11);
  replicas.set("new", 1);
  // A pod of a new workload: the others are known, and will be read again soon.
  expect(await resolve()).toMatchObject({ minimum: 200, soon: true, requests: 1 });
  await time.advance(5_000);
  expect(await resolve()).toMatchObject({ minimum: 210, soon: false, requests: 201 });
});

test("a late answer does not take the place of a newer one", async () => {
  const time = new VirtualTime();
  // How many replicas each read finds, and after which time its answer comes.
  const reads = [
    { replicas: 2, afterMs: 800 },
    { replicas: 10, afterMs: 10 },
  ];
  const request = async ({ path }: ApiRequest): Promise<ApiResponse> => {
    const { replicas, afterMs } = (path === API ? undefined : reads.shift()) ?? { replicas: 0, afterMs: 1 };
    await sleep(time, afterMs);
    const resources = ["clonesets", "clonesets/scale"].map((name) => ({ name, kind: "CloneSet" }));
    const body = path === API ? { resources } : { metadata: { uid: "u" }, spec: { replicas } };
    return { status: 200, headers: {}, body: JSON.stringify(body) };
  };
  const api = new ApiClient({ request, stream: () => Promise.reject(new Error("nothing is watched")), close() {} });
  const scales = new PolledScales({ api, clock: time.clock, timeoutMs: 1_000 });
  const ref = { apiVersion: "apps.kruise.io/v1alpha1", kind: "CloneSet", name: "web" };
  const find = () => scales.find(ref, "shop", new AbortController().signal);
  const first = find();
  await time.advance(100);
  const second = find();
  await time.advance(1_000);
  expect([await first, await second, await find()]).toMatchObject([
    { replicas: 2 },
    { replicas: 10 },
    { replicas: 10 },
  ]);
});

test("an answer that takes longer than it would be kept counts each time", async () => {
  const time = new VirtualTime();
  const request = async ({ path }: ApiRequest): Promise<ApiResponse> => {
    await sleep(time, 6_000);
    const resources = ["clonesets", "clonesets/scale"].map((name) => ({ name, kind: "CloneSet" }));
    const body = path === API ? { resources } : { metadata: { uid: "u" }, spec: { replicas: 4 } };
    return { status: 200, headers: {}, body: JSON.stringify(body) };
  };
  const api = new ApiClient({ request, stream: () => Promise.reject(new Error("nothing is watched")), close() {} });
  const scales = new PolledScales({ api, clock: time.clock, timeoutMs: 10_000 });
  const ref = { apiVersion: "apps.kruise.io/v1alpha1", kind: "CloneSet", name: "web" };
  for (let times = 0; times < 3; times++) {
    const found = scales.find(ref, "shop", new AbortController().signal);
    await time.advance(12_000);
    expect(await found).toMatchObject({ kind: "found", replicas: 4 });
  }
});

test("a workload that was created again under its name is read again", async () => {
  const { resolve, replicas, uids } = rig(1);
  await resolve();
  uids.set("c0", "another");
  replicas.set("c0", 5);
  expect(await resolve()).toMatchObject({ minimum: 4, soon: false, requests: 1 });
});

test("the first failure ends the reads", async () => {
  const { resolve, time, breakDown } = rig(200);
  await resolve();
  await time.advance(5_000);
  breakDown(429);
  expect(await resolve()).toMatchObject({ minimum: "failed", requests: 8 });
});

// `kept` is the number of the protector that there is.
test.each<[number | "timeout", number | undefined, number]>([
  [500, undefined, 3],
  // To discovery, too: the server of an APIService is away.
  [503, undefined, 3],
  ["timeout", undefined, 3],
  [403, undefined, 3],
  [500, 2, 2],
])(
  "a scale that can't be read by itself (%s) does not keep the budget from its protector",
  async (how, kept, least) => {
    const { resolve, breakDown } = rig(3);
    breakDown(how);
    expect(await resolve(kept)).toMatchObject({ minimum: least });
  },
);

test("of several scales that can't be read, the same one is told of, whichever answers first", async () => {
  const { resolve, breakDown, latencies } = rig(3);
  breakDown(500);
  const told = async (first: string) => {
    for (const name of ["c0", "c1", "c2"]) latencies.set(name, name === first ? 1 : LATENCY_MS);
    return (await resolve()).why;
  };
  const expected = expect.stringContaining("CloneSet c0 can't be read");
  expect([await told("c0"), await told("c1"), await told("c2")]).toEqual([expected, expected, expected]);
});

test("a workload that asks for fewer pods than none takes none from those that others ask for", async () => {
  const { resolve, replicas } = rig(5);
  replicas.set("c0", -4);
  expect(await resolve()).toMatchObject({ minimum: 3 });
});

test("discovery that has failed is asked again at once", async () => {
  const { resolve, breakDown } = rig(3);
  breakDown(503);
  expect(await resolve()).toMatchObject({ minimum: 3, requests: 1 });
  breakDown(200);
  expect(await resolve()).toMatchObject({ minimum: 2, requests: 4 });
});

test("an API that hangs takes the time of the workers once, and not for each of its objects", async () => {
  const { askForAll, breakDown, resolve } = rig(200);
  breakDown("timeout");
  expect(await askForAll(20)).toBeLessThan(2 * TIMEOUT_MS);
  breakDown(200);
  expect(await resolve()).toMatchObject({ minimum: 199 });
});

// A custom resource of 9 pods would have a protector of none.
test.each<[string, object]>([
  ["of another name", { metadata: { name: "idle", namespace: "shop" } }],
  ["of another namespace", { metadata: { name: "web", namespace: "bank" } }],
  ["of another kind", { metadata: { name: "web", namespace: "shop", uid: "d1" } }],
])("the scale of an object %s, which a proxy has mixed up, is no number of pods", async (_, scale) => {
  const request = async () => ({ status: 200, headers: {}, body: JSON.stringify({ ...scale, spec: {} }) });
  const api = new ApiClient({ request, stream: () => Promise.reject(new Error("nothing is watched")), close() {} });
  const { clock } = new VirtualTime();
  const workloads = new WorkloadScales({ api, kinds: new Map(), timeoutMs: 1_000, clock });
  const resolver = new Resolver({ workloads, pods: { of: () => undefined, forget: () => {} }, clock });
  const plugin = pluginNamed("workloads.fleet.example.com", { scalable: ["fleet.example.com/v1/workloads"] });
  const kind = { ...plugin.kind, kind: "Workload" };
  const metadata = { name: "web", namespace: "shop", uid: "u1", resourceVersion: "1" };
  const source = plugin.interpret({ metadata, spec: { replicas: 9 } });
  const stated = { minAvailable: undefined, maxUnavailable: undefined, minRunning: undefined };
  const need = { kind: "scale", stated, selector: { matchLabels: { app: "web" } } } as const;
  const { signal } = new AbortController();
  const found = await resolver.resolve({ key: "k", kind, source, need, presents: [], signal });
  expect(found).toEqual({ kind: "unresolved", why: expect.stringMatching(/^Workload web (can't be read|is another)/) });
});

test("the selector of another DaemonSet, which a proxy has mixed up, selects no pods", async () => {
  const body = JSON.stringify({ metadata: { name: "idle", namespace: "shop" }, spec: { selector: {} } });
  const request = async () => ({ status: 200, headers: {}, body });
  const api = new ApiClient({ request, stream: () => Promise.reject(new Error("nothing is watched")), close() {} });
  const scales = new PolledScales({ api, clock: new VirtualTime().clock, timeoutMs: 1_000 });
  const kind = { group: "apps.kruise.io", version: "v1alpha1", kind: "DaemonSet", resource: "daemonsets" };
  const found = await scales.selector(kind, "shop", "agent", new AbortController().signal);
  expect(found).toMatchObject({ kind: "missing", why: expect.stringContaining("DaemonSet agent can't be read") });
});
