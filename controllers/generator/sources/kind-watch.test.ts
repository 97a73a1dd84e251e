import { getEventListeners } from "node:events";
import { afterEach, describe, expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import { JSON_TYPE, ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { KindWatch } from "./kind-watch.ts";
import { plugins } from "./plugins.ts";
import type { SourcePlugin } from "./protection-source.ts";

/** A server with one object of one kind, in some versions of its API; 503 while it is down. */
class Server implements Transport {
  served: string[] = [];
  resources: object[] = [];
  spec: object = { selector: {}, minAvailable: 1 };
  isDown = false;
  isDenied = false;
  /** A proxy answers lists with an empty one of another kind. */
  isMixedUp = false;
  /** Discovery names the kind, whose path is not served. */
  isHollow = false;
  readonly requests: string[] = [];
  readonly #open: ScriptedStream[] = [];

  async request({ path }: ApiRequest): Promise<ApiResponse> {
    const [plain = ""] = path.split("?");
    this.requests.push(plain);
    if (this.isDown || this.isDenied) return { status: this.isDown ? 503 : 403, headers: {}, body: "" };
    const version = plain.split("/")[3] ?? "";
    const isDiscovery = plain.split("/").length === 4;
    const isServed = this.served.includes(version) && (isDiscovery || !this.isHollow);
    if (!isServed) return { status: 404, headers: {}, body: "404 page not found" };
    const metadata = { name: "web", namespace: "shop", uid: "u1", resourceVersion: "5" };
    const mixedUp = JSON.stringify({ kind: "SecretList", metadata: { resourceVersion: "20" }, items: [] });
    if (this.isMixedUp) return { status: 200, headers: {}, body: mixedUp };
    const body = isDiscovery
      ? { resources: this.resources }
      : { metadata: { resourceVersion: "9" }, items: [{ metadata, spec: this.spec }] };
    return { status: 200, headers: {}, body: JSON.stringify(body) };
  }

  async stream({ path, signal }: ApiRequest): Promise<ApiStream> {
    const isServed = this.served.includes(path.split("/")[3] ?? "");
    const stream = isServed ? new ScriptedStream() : new ScriptedStream().text("404 page not found").end();
    if (isServed) this.#open.push(stream);
    return { status: isServed ? 200 : 404, headers: JSON_TYPE, chunks: stream.read(signal), close: () => {} };
  }

  /** Uninstalls the kind, which ends its streams. */
  uninstall(): void {
    this.served = [];
    for (const stream of this.#open.splice(0)) stream.end();
  }

  down(): void {
    this.isDown = true;
    for (const stream of this.#open.splice(0)) stream.end();
  }

  /** The streams are too old, so that a list follows. */
  expire(): void {
    for (const stream of this.#open) stream.event("ERROR", { kind: "Status", code: 410, message: "too old" });
  }

  /** Another version of the object. */
  changed(type: string, resourceVersion: string, metadata: object): void {
    const object = { metadata: { name: "web", namespace: "shop", uid: "u1", ...metadata, resourceVersion } };
    for (const stream of this.#open) stream.event(type, { ...object, spec: this.spec });
  }

  close(): void {}
}

const BUDGETS = [{ name: "podunavailablebudgets", kind: "PodUnavailableBudget" }];
const SCALABLE = [
  "fleet.example.com/v1/workloads",
  "fleet.example.com/v1/pools?replicas=.spec.size&selector=.spec.pods",
];
const all = plugins({ protectSelector: "", protectNonZero: true, scalable: SCALABLE });

class Harness {
  readonly time = new VirtualTime({ seed: 3 });
  readonly server = new Server();
  readonly events: string[] = [];
  readonly watch: KindWatch;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  constructor(name: string) {
    const plugin = all.find((one): one is SourcePlugin => one.name === name);
    if (plugin === undefined) throw new Error(`there is no plugin ${name}`);
    this.watch = new KindWatch({
      plugin,
      transport: this.server,
      ports: this.time,
      ...{ api: new ApiClient(this.server), timeoutMs: 1000 },
      onWatch: () => {},
      onChanged: (before, after) => this.events.push(`${before?.name ?? "-"} > ${after?.name ?? "-"}`),
      onReady: () => this.events.push("ready"),
      onServed: (served, { version, kind }) => this.events.push(`${served ? "served" : "gone"} ${version} ${kind}`),
    });
  }

  async run(ms: number): Promise<void> {
    this.#running ??= this.watch.run(this.#stopping.signal);
    await this.time.advance(ms);
  }

  /** What waits for the end of the term. */
  get listeners(): number {
    return getEventListeners(this.#stopping.signal, "abort").length;
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.time.advance(60_000);
    await this.#running;
  }
}

let harness: Harness;
afterEach(() => harness.stop());

test("a kind that this process may not list is told of once the denials are no apiserver's start", async () => {
  harness = new Harness("daemonset");
  const { server, watch, events } = harness;
  server.served = ["v1"];
  server.isDenied = true;
  await harness.run(0);
  expect([watch.isDenied, events]).toEqual([false, []]);
  await harness.run(60_000);
  expect([watch.ready, watch.isDenied, events]).toEqual([false, true, ["ready"]]);
  server.isDenied = false;
  await harness.run(60_000);
  expect([watch.ready, watch.isDenied, events]).toEqual([true, false, ["ready", "- > web", "ready"]]);
});

test("a kind that can't be listed in an outage is not denied", async () => {
  harness = new Harness("daemonset");
  harness.server.isDown = true;
  await harness.run(60_000);
  expect([harness.watch.isDenied, harness.events]).toEqual([false, []]);
});

describe("an optional kind", () => {
  test("is ready while it is not installed; discovery asks often at first and rarely later", async () => {
    harness = new Harness("xpoddisruptionbudget");
    await harness.run(0);
    expect(harness.events).toEqual(["ready"]);
    expect(harness.watch.ready).toBe(true);
    await harness.run(10_000);
    const soon = harness.server.requests.length;
    expect(soon).toBeGreaterThanOrEqual(4);
    await harness.run(60_000);
    const before = harness.server.requests.length;
    await harness.run(600_000);
    expect(harness.server.requests.length - before).toBeLessThanOrEqual(80);
    expect(harness.server.requests.length - before).toBeGreaterThanOrEqual(30);
  });

  test("does not count as missing while the server is down", async () => {
    harness = new Harness("podunavailablebudget");
    harness.server.isDown = true;
    await harness.run(60_000);
    expect(harness.events).toEqual([]);
    expect(harness.watch.ready).toBe(false);
  });

  test("is watched when it is installed, in the best version that is served", async () => {
    harness = new Harness("podunavailablebudget");
    await harness.run(60_000);
    Object.assign(harness.server, { served: ["v1alpha1"], resources: BUDGETS });
    await harness.run(30_000);
    expect(harness.events).toEqual(["ready", "served v1alpha1 PodUnavailableBudget", "- > web", "ready"]);
    expect(harness.watch.kind.version).toBe("v1alpha1");
    expect(harness.watch.get("shop/web")?.decision).toBe("Protected");
  });

  test("that discovery names and nobody serves is ready as one that is not installed", async () => {
    harness = new Harness("podunavailablebudget");
    Object.assign(harness.server, { served: ["v1beta1"], resources: BUDGETS, isHollow: true });
    await harness.run(5000);
    expect(harness.watch.ready).toBe(true);
    const tried = ["served v1beta1 PodUnavailableBudget", "gone v1beta1 PodUnavailableBudget"];
    expect(harness.events.slice(0, 3)).toEqual([...tried, "ready"]);
  });

  test("leaves nothing behind that waits for the end of the term", async () => {
    harness = new Harness("podunavailablebudget");
    const counts: number[] = [];
    for (let round = 0; round < 3; round++) {
      Object.assign(harness.server, { served: ["v1beta1"], resources: BUDGETS });
      await harness.run(60_000);
      counts.push(harness.listeners);
      harness.server.uninstall();
      await harness.run(60_000);
    }
    expect(harness.events.filter((event) => event.startsWith("gone"))).toHaveLength(3);
    expect(counts).toEqual([counts[0], counts[0], counts[0]]);
  });

  test("is dropped when it is uninstalled, with its objects as vanished, and watched again", async () => {
    harness = new Harness("podunavailablebudget");
    Object.assign(harness.server, { served: ["v1beta1", "v1alpha1"], resources: BUDGETS });
    await harness.run(5000);
    harness.events.length = 0;
    harness.server.uninstall();
    await harness.run(30_000);
    expect(harness.events).toEqual(["web > -", "gone v1beta1 PodUnavailableBudget"]);
    // Nobody asked for it by name.
    expect(harness.watch.isMissing).toBe(false);
    expect(harness.watch.ready).toBe(true);
    expect([...harness.watch.values()]).toEqual([]);
    harness.server.served = ["v1beta1"];
    await harness.run(60_000);
    expect(harness.events.slice(2)).toEqual(["served v1beta1 PodUnavailableBudget", "- > web", "ready"]);
  });

  test("stays while its server is down, and where it is not found now and then, as after its start", async () => {
    harness = new Harness("podunavailablebudget");
    Object.assign(harness.server, { served: ["v1beta1"], resources: BUDGETS });
    await harness.run(5000);
    harness.events.length = 0;
    harness.server.down();
    await harness.run(60_000);
    harness.server.isDown = false;
    await harness.run(60_000);
    for (let times = 0; times < 4; times++) {
      const before = harness.server.requests.length;
      harness.server.uninstall();
      while (harness.server.requests.length === before) await harness.run(50);
      harness.server.served = ["v1beta1"];
      await harness.run(60_000);
    }
    expect(harness.events).toEqual([]);
    expect(harness.watch.get("shop/web")).toBeDefined();
  });

  test("has an object that can't be read, too: it has not vanished", async () => {
    harness = new Harness("podunavailablebudget");
    Object.assign(harness.server, { served: ["v1beta1"], resources: BUDGETS, spec: { protectOperations: "DELETE" } });
    await harness.run(5000);
    expect(harness.watch.get("shop/web")).toMatchObject({ decision: "Protected", need: { kind: "unreadable" } });
  });

  test("whose path alone is known is named by discovery, needs a scale subresource, and says so once", async () => {
    harness = new Harness("workloads.fleet.example.com");
    Object.assign(harness.server, { served: ["v1"], resources: [{ name: "workloads", kind: "Workload" }] });
    await harness.run(30_000);
    harness.server.resources.push({ name: "workloads/scale", kind: "Scale" });
    // Its objects are of the whole cluster, and a protector is in the namespace of its source.
    Object.assign(harness.server.resources[0] ?? {}, { namespaced: false });
    await harness.run(30_000);
    expect(harness.events).toEqual(["gone v1 ", "ready"]);
    expect(harness.watch.isMissing).toBe(true);
    Object.assign(harness.server.resources[0] ?? {}, { namespaced: true });
    await harness.run(30_000);
    expect(harness.watch.isMissing).toBe(false);
    expect(harness.watch.kind.kind).toBe("Workload");
    expect(harness.watch.get("shop/web")?.need).toEqual({
      kind: "scale",
      stated: { minAvailable: undefined, maxUnavailable: undefined },
    });
  });
});

test("a custom resource of which the paths are known needs no scale subresource", async () => {
  harness = new Harness("pools.fleet.example.com");
  Object.assign(harness.server, { served: ["v1"], resources: [{ name: "pools", kind: "Pool" }] });
  await harness.run(30_000);
  expect(harness.watch.kind.kind).toBe("Pool");
  expect(harness.watch.get("shop/web")?.need).toMatchObject({ kind: "groups", groups: [] });
});

test("a built-in kind is watched without discovery", async () => {
  harness = new Harness("poddisruptionbudget");
  Object.assign(harness.server, { served: ["v1"] });
  await harness.run(1000);
  expect(harness.events).toEqual(["- > web", "ready"]);
  expect(harness.server.requests).toEqual(["/apis/policy/v1/poddisruptionbudgets"]);
});

test("a built-in kind that is not found for a while, as while its server starts, has not vanished", async () => {
  harness = new Harness("deployment");
  Object.assign(harness.server, { served: ["v1"] });
  await harness.run(5000);
  harness.events.length = 0;
  harness.server.uninstall();
  await harness.run(60_000);
  expect(harness.events).toEqual([]);
});

// Of a budget whose pods run in other clusters, a core without its Deployments would ask for fewer pods.
test("an empty list of another kind, which a proxy has mixed up, takes no workload away", async () => {
  harness = new Harness("deployment");
  const { server, watch } = harness;
  Object.assign(server, { served: ["v1"], spec: { replicas: 3, selector: { matchLabels: { app: "web" } } } });
  await harness.run(20_000);
  server.isMixedUp = true;
  server.expire();
  await harness.run(60_000);
  expect(harness.events).toEqual(["- > web", "ready"]);
  expect(watch.get("shop/web")?.scale?.replicas).toBe(3);
});

test("that a deletion leaves the pods is remembered after its finalizer is gone, until the object is", async () => {
  harness = new Harness("deployment");
  const { server, watch } = harness;
  Object.assign(server, { served: ["v1"], spec: { replicas: 3, selector: { matchLabels: { app: "web" } } } });
  await harness.run(1000);
  const deletionTimestamp = "2026-01-01T00:00:00Z";
  const seen = async (type: string, version: string, metadata: object): Promise<unknown> => {
    server.changed(type, version, metadata);
    await harness.run(10);
    return watch.get("shop/web")?.leavesPods;
  };
  expect(await seen("MODIFIED", "10", { finalizers: ["orphan"] })).toBeUndefined();
  expect(await seen("MODIFIED", "11", { finalizers: ["orphan"], deletionTimestamp })).toBe(true);
  expect(await seen("MODIFIED", "12", { deletionTimestamp })).toBe(true);
  await seen("DELETED", "13", { deletionTimestamp });
  expect(watch.get("shop/web")).toBeUndefined();
  expect(await seen("ADDED", "14", { deletionTimestamp })).toBeUndefined();
});
