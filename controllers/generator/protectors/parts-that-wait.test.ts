/** Of the protectors of one source, each is written by itself: what the core refuses of one keeps no other waiting. */
import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse } from "../../../shared/kube/client/transport.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { ProtectionSource, RequiredProtector } from "../sources/protection-source.ts";
import { type GeneratorEvent, ProblemReports } from "./events.ts";
import { newProtector } from "./protector.ts";
import { reconciler } from "./reconcile.ts";

const KEY = "databases.fleet.example.com/shop/web";
const SCALABLE = "fleet.example.com/v1/databases?name={.n}&replicas=.r&selector=.s";
const plugin = pluginNamed("databases.fleet.example.com", { scalable: [SCALABLE] });
const kind = { ...plugin.kind, kind: "Database" };

function shard(name: string, minAvailable = 2): RequiredProtector {
  const spec = { minAvailable, minReadySeconds: 0, selector: { matchLabels: { shard: name } } };
  return { name: `database-web-${name}`, spec, derivation: `${name}: minAvailable ${minAvailable}` };
}

function source(...protectors: RequiredProtector[]): ProtectionSource {
  return {
    ...{ namespace: "shop", name: "web", uid: "u1", resourceVersion: "7", deleting: false },
    ...{ finalizers: ["podseidon.kubewharf.io/generator"], decision: "Protected", protectors },
  };
}

function present(required: RequiredProtector, changes: Partial<PodProtector["metadata"]> = {}): PodProtector {
  const { metadata, spec } = newProtector(kind, source(required), required, required.name);
  const stored = { uid: `p-${required.name}`, resourceVersion: "9", generation: 1 };
  return parsePodProtector({ metadata: { ...metadata, ...stored, ...changes }, spec });
}

const last = (path: string): string => path.split("/").at(-1) ?? "";

/** What the core is asked to write, of which it refuses what `refuses` says. */
async function reconcile(
  of: ProtectionSource | undefined,
  own: readonly PodProtector[],
  refuses: (asked: string) => string,
) {
  const asked: string[] = [];
  const events: GeneratorEvent[] = [];
  const request = async ({ method, path, body }: ApiRequest): Promise<ApiResponse> => {
    const sent = JSON.parse(body ?? "{}");
    const what = `${method} ${sent.metadata?.name ?? last(path)}`;
    asked.push(what);
    const message = refuses(what);
    if (message !== "") return { status: 403, headers: {}, body: JSON.stringify({ kind: "Status", message }) };
    const found = own.find(({ metadata }) => metadata.name === last(path));
    const object = found ?? { ...sent, metadata: { uid: "p", resourceVersion: "10", ...sent.metadata } };
    return { status: 200, headers: {}, body: JSON.stringify(object) };
  };
  const stream = (): Promise<never> => Promise.reject(new Error("nothing is watched here"));
  const onEvent = (event: GeneratorEvent): unknown => events.push(event);
  const run = reconciler({
    api: new ApiClient({ request, stream, close: () => {} }),
    ports: new VirtualTime().process(),
    plugins: [plugin],
    kinds: new Map([[plugin.name, { kind, get: () => of }]]),
    resolver: { resolve: () => expect.fail("it needs nothing else"), forget: () => {} },
    protectors: {
      of: () => [...own],
      get: (key) => own.find(({ metadata }) => metadata.name === last(key)),
      wrote: () => {},
      released: () => {},
    },
    lost: { of: () => [] },
    register: { record: async () => ({ kind: "ok", object: undefined }) },
    mayWrite: () => true,
    timeoutMs: 1000,
    onEvent,
    reports: new ProblemReports(new VirtualTime().clock, onEvent),
  });
  const outcome = await run(KEY, { signal: new AbortController().signal, failures: 0 });
  return { asked, outcome, told: events.flatMap((event) => ("why" in event ? [`${event.kind}: ${event.why}`] : [])) };
}

const [a, b, c] = [shard("a"), shard("b"), shard("c")];

test("a group whose protector a quota refuses keeps no other group from its number, nor from a protector", async () => {
  const refuses = (what: string): string => (what === "POST database-web-a" ? "exceeded quota: objects" : "");
  const { asked, outcome, told } = await reconcile(source(a, shard("b", 1), c), [present(b)], refuses);
  expect(asked).toEqual(["POST database-web-a", "PATCH database-web-b", "POST database-web-c"]);
  expect(outcome).toMatchObject({ kind: "failed", retriable: true });
  expect(told).toEqual([
    expect.stringMatching(/^refused: create protector database-web-a: .* exceeded quota: objects$/),
  ]);
});

test("a group whose number a policy refuses keeps no other group from its number", async () => {
  const refuses = (what: string): string => (what === "PATCH database-web-a" ? "at most 4" : "");
  const { asked, told } = await reconcile(source(shard("a", 5), shard("b", 1)), [present(a), present(b)], refuses);
  expect(asked).toEqual(["PATCH database-web-a", "PATCH database-web-b"]);
  expect(told).toEqual([expect.stringMatching(/^refused: update protector database-web-a: /)]);
});

test("in a namespace that ends, a group that gets no protector keeps no other from going to zero", async () => {
  const refuses = (what: string): string => (what.startsWith("POST ") ? "namespace shop is being terminated" : "");
  const { asked, outcome, told } = await reconcile(source(a, shard("b", 0)), [present(b)], refuses);
  expect(asked).toEqual(["POST database-web-a", "PATCH database-web-b"]);
  expect(outcome).toMatchObject({ kind: "later", afterMs: 60_000 });
  expect(told).toEqual([expect.stringMatching(/^namespaceTerminating: /)]);
});

test("a group whose deleted protector others hold keeps no other group from its number", async () => {
  const deleted = present(a, {
    deletionTimestamp: "2026-01-01T00:00:00Z",
    finalizers: ["podseidon.kubewharf.io/generator", "example.com/hook"],
  });
  const { asked, outcome } = await reconcile(source(a, shard("b", 1)), [deleted, present(b)], () => "");
  expect(asked).toEqual(["POST database-web-a", "PUT database-web-a", "PATCH database-web-b"]);
  expect(outcome).toMatchObject({ kind: "later" });
});

test("nothing is released while the core refuses what takes its place", async () => {
  const refuses = (what: string): string => (what.startsWith("POST ") ? "exceeded quota: objects" : "");
  const { asked } = await reconcile(source(a), [present(b)], refuses);
  expect(asked).toEqual(["POST database-web-a"]);
});

test("a source that may have no finalizer has the numbers of its protectors, and gets no new one", async () => {
  const refuses = (what: string): string => (what === "PATCH web" ? "no finalizers on databases" : "");
  const of = { ...source(a, shard("b", 1)), finalizers: [] };
  const { asked, outcome, told } = await reconcile(of, [present(b), present(c)], refuses);
  expect(asked).toEqual(["PATCH web", "PATCH database-web-b"]);
  expect(outcome).toMatchObject({ kind: "failed", retriable: true });
  expect(told).toEqual([
    expect.stringMatching(/^refused: add the finalizer to the source: .* no finalizers on databases$/),
  ]);
});

test("what the core refuses of the protectors of a source that vanished keeps no other of them", async () => {
  const released = present(a, { annotations: { "podseidon.kubewharf.io/released": "by hand" } });
  const deleted = present(b, { deletionTimestamp: "2026-01-01T00:00:00Z" });
  const refuses = (what: string): string => (what === "DELETE database-web-a" ? "no deletions" : "");
  const { asked } = await reconcile(undefined, [released, deleted], refuses);
  expect(asked).toEqual(["DELETE database-web-a", "POST database-web-b", "PUT database-web-b", "POST database-web-b"]);
});
