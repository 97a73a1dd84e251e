import { expect, test } from "vitest";
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../shared/kube/client/transport.ts";
import { Metrics } from "../../shared/observe/metrics.ts";
import { makeCell } from "../../test/support/decide/fixtures.ts";
import { pluginNamed } from "../../test/support/generator/plugin-named.ts";
import { JSON_TYPE, ScriptedStream } from "../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { Generator } from "./generator.ts";
import { stateMetrics } from "./observe.ts";
import { plugins } from "./sources/plugins.ts";

const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";

/** A core with these protectors and nothing else. It records what is written, and refuses it while `isAway`. */
function core(protectors: readonly object[], isAway: () => boolean = () => false) {
  const writes: string[] = [];
  const request = async ({ method, path }: ApiRequest): Promise<ApiResponse> => {
    if (method !== "GET" && isAway()) return { status: 503, headers: {}, body: "" };
    if (method !== "GET") writes.push(`${method} ${path}`);
    if (method === "PUT") return { status: 200, headers: {}, body: JSON.stringify(protectors[0]) };
    const items = path.startsWith(PROTECTORS) ? protectors : [];
    return { status: 200, headers: {}, body: JSON.stringify({ metadata: { resourceVersion: "9" }, items }) };
  };
  const stream = async ({ signal }: ApiRequest): Promise<ApiStream> => ({
    ...{ status: 200, headers: JSON_TYPE, chunks: new ScriptedStream().read(signal), close: () => {} },
  });
  const transport: Transport = { request, stream, close: () => {} };
  return { transport, writes };
}

// Of an owner's name the apiserver demands only that it is not empty, and anyone who may write one protector names one.
test("a protector whose owner has no possible name ends no generator", async () => {
  const time = new VirtualTime();
  const owner = { apiVersion: "apps/v1", kind: "Deployment", name: "a/b", uid: "u1", controller: true };
  const metadata = { name: "mine", namespace: "tenant", uid: "p1", resourceVersion: "5", ownerReferences: [owner] };
  const { transport } = core([{ metadata, spec: { minAvailable: 0, minReadySeconds: 0, selector: {} } }]);
  const problems: string[] = [];
  const generator = new Generator({
    ...{ transport, ports: time, plugins: [pluginNamed("deployment")], concurrency: 1, mayWrite: () => true },
    observer: {
      generator: () => {},
      watch: (_, event) => event.kind === "handlerFailed" && problems.push(event.error.message),
      queue: () => {},
    },
  });
  const end = new AbortController();
  const ended = generator.lead(end.signal).catch((error: Error) => problems.push(error.message));
  await time.advance(5_000);
  expect(problems).toEqual([]);
  expect(generator.lostSources()).toEqual([]);
  end.abort();
  await time.advance(1_000);
  await ended;
});

test("a resource of --scalable that the core does not serve shows, for PodseidonScalableMissing", async () => {
  const time = new VirtualTime();
  const { transport } = core([]);
  const all = plugins({ protectSelector: "", protectNonZero: true, scalable: ["fleet.example.com/v1/workloads"] });
  const generator = new Generator({
    ...{ transport, ports: time, plugins: all, concurrency: 1, mayWrite: () => true },
    observer: { generator: () => {}, watch: () => {}, queue: () => {} },
  });
  const metrics = new Metrics();
  stateMetrics(metrics, generator);
  const shown = async (): Promise<readonly string[]> =>
    (await metrics.render()).body.split("\n").filter((line) => line.startsWith("podseidon_generator_scalable_missing"));
  expect(await shown()).toEqual([]);
  const end = new AbortController();
  const ended = generator.lead(end.signal);
  await time.advance(5_000);
  expect(await shown()).toEqual(['podseidon_generator_scalable_missing{resource="workloads.fleet.example.com"} 1']);
  end.abort();
  await time.advance(1_000);
  await ended;
  expect(await shown()).toEqual([]);
});

// A restored core has the Lease of before, and its holder is another process.
test("a term that ends before the cells of a restored core are on hold leaves them to the next one", async () => {
  const time = new VirtualTime();
  const metadata = { name: "mine", namespace: "shop", uid: "p1", resourceVersion: "5" };
  const status = {
    cells: [makeCell("removed-since", 3)],
    summary: { totalReplicas: 3, aggregatedAvailableReplicas: 3, estimatedAvailableReplicas: 3 },
  };
  let isAway = true;
  const { transport, writes } = core(
    [{ metadata, spec: { minAvailable: 3, minReadySeconds: 0, selector: {} }, status }],
    () => isAway,
  );
  const generator = new Generator({
    ...{ transport, ports: time, plugins: [pluginNamed("deployment")], concurrency: 1, mayWrite: () => true },
    observer: { generator: () => {}, watch: () => {}, queue: () => {} },
  });
  const lead = async (): Promise<string[]> => {
    writes.length = 0;
    const end = new AbortController();
    const ended = generator.lead(end.signal);
    await time.advance(5_000);
    end.abort();
    await time.advance(1_000);
    await ended;
    return writes.filter((write) => write.includes("mine/status"));
  };
  for (const version of ["20", "8"]) generator.leaseSeen(version);
  expect(await lead()).toEqual([]);
  isAway = false;
  expect(await lead()).not.toEqual([]);
  expect(await lead()).toEqual([]);
});

test("workloads over a quota are tried once a minute, and one that asks for something else at once", async () => {
  const time = new VirtualTime();
  const deployment = (name: string, minReadySeconds = 0, more: object = {}): object => ({
    metadata: {
      ...{ namespace: "tenant", name, uid: `uid ${name}`, resourceVersion: "5", ...more },
      labels: { "podseidon.kubewharf.io/protect": "true" },
      finalizers: ["podseidon.kubewharf.io/generator"],
    },
    spec: { replicas: 3, minReadySeconds, selector: { matchLabels: { app: name } }, template: {} },
  });
  const items = Array.from({ length: 300 }, (_, index) => deployment(`web-${index}`));
  const sources = new ScriptedStream();
  const tried: string[] = [];
  const answer = (body: object, status = 200): ApiResponse => ({ status, headers: {}, body: JSON.stringify(body) });
  const transport: Transport = {
    async request({ method, path, body = "" }) {
      const metadata = { resourceVersion: "9" };
      if (method === "GET") return answer({ metadata, items: path.includes("deployments") ? items : [] });
      if (method !== "POST") return answer(items[0] ?? {});
      tried.push(JSON.parse(body).metadata.name);
      return answer({ kind: "Status", code: 403, reason: "Forbidden", message: "exceeded quota: few" }, 403);
    },
    async stream({ path, signal }) {
      const chunks = (path.includes("deployments") ? sources : new ScriptedStream()).read(signal);
      return { status: 200, headers: JSON_TYPE, chunks, close: () => {} };
    },
    close: () => {},
  };
  const generator = new Generator({
    ...{ transport, ports: time, plugins: [pluginNamed("deployment")], concurrency: 4, mayWrite: () => true },
    observer: { generator: () => {}, watch: () => {}, queue: () => {} },
  });
  const end = new AbortController();
  const ended = generator.lead(end.signal);
  await time.advance(180_000);
  expect(new Set(tried).size).toBe(300);
  tried.length = 0;
  await time.advance(60_000);
  expect(tried.length).toBeLessThanOrEqual(600);
  const changed = async (object: object): Promise<number> => {
    tried.length = 0;
    sources.event("MODIFIED", object);
    await time.settle();
    return tried.filter((name) => name === "deployment-web-1").length;
  };
  expect(await changed(deployment("web-1", 0, { resourceVersion: "10" }))).toBe(0);
  expect(await changed(deployment("web-1", 30, { resourceVersion: "11" }))).toBe(1);
  end.abort();
  await time.advance(1_000);
  await ended;
});
