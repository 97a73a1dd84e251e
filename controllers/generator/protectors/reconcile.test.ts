import { describe, expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse, Transport } from "../../../shared/kube/client/transport.ts";
import { markOfCell } from "../../../shared/recovery/restore-protector.ts";
import type { Enforcement, PodProtector } from "../../../shared/schema/podprotector.ts";
import { parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { Resolver } from "../budgets/resolve.ts";
import { WorkloadScales } from "../budgets/workload-scales.ts";
import { plugins } from "../sources/plugins.ts";
import type { ProtectionSource } from "../sources/protection-source.ts";
import { type GeneratorEvent, ProblemReports } from "./events.ts";
import { alternativeName } from "./names.ts";
import { newProtector } from "./protector.ts";
import { type ReconcilerOptions, reconciler } from "./reconcile.ts";

type Resolve = Resolver["resolve"];

const GROUP = "podseidon.kubewharf.io";
const KEY = "podunavailablebudget/shop/web";
const plugin = pluginNamed("podunavailablebudget");
const source = plugin.interpret({
  metadata: { namespace: "shop", name: "web", uid: "b1", resourceVersion: "7", finalizers: [`${GROUP}/generator`] },
  spec: { maxUnavailable: 1, targetRef: { apiVersion: "apps/v1", kind: "Deployment", name: "web" } },
});
const required = {
  name: "podunavailablebudget-web",
  spec: {
    minAvailable: 9,
    minReadySeconds: 0,
    selector: { matchLabels: { app: "web" } },
    unhealthyPodPolicy: "AlwaysAllow",
    protectedOperations: ["EVICT"],
  },
  derivation: "expected 10 (Deployment web) - maxUnavailable 1 = minAvailable 9",
};

function protector(changes: Partial<PodProtector["metadata"]> = {}): PodProtector {
  const object = newProtector(plugin.kind, source, required, required.name);
  return parsePodProtector({
    ...object,
    metadata: { ...object.metadata, uid: "p1", resourceVersion: "9", ...changes },
  });
}

const unresolved: Resolve = async () => ({ kind: "unresolved", why: "Deployment web is not there" });

/** By default there are no protectors, and sources can't be resolved. */
function reconcilerOn(
  request: Transport["request"],
  options: Pick<ReconcilerOptions, "kinds"> & Partial<ReconcilerOptions>,
): ReturnType<typeof reconciler> {
  const stream = (): Promise<never> => Promise.reject(new Error("nothing is watched here"));
  return reconciler({
    api: new ApiClient({ request, stream, close: () => {} }),
    ports: new VirtualTime().process(),
    plugins: plugins({ protectSelector: "", protectNonZero: true }),
    resolver: { resolve: unresolved, forget: () => {} },
    protectors: { of: () => [], get: () => undefined, wrote: () => {}, released: () => {} },
    lost: { of: () => [] },
    register: { record: async () => ({ kind: "ok", object: undefined }) },
    mayWrite: () => true,
    timeoutMs: 1000,
    onEvent: () => {},
    reports: new ProblemReports(new VirtualTime().clock, options.onEvent ?? (() => {})),
    ...options,
  });
}

/** Reconciles the budget with these protectors; returns the writes. */
async function writes(
  present: readonly PodProtector[],
  lost: readonly PodProtector[] = [],
  resolve = unresolved,
  of = source,
): Promise<string[]> {
  const made: string[] = [];
  const request = async ({ method, path, body }: ApiRequest): Promise<ApiResponse> => {
    made.push(`${method} ${path.split("/").slice(-2).join("/")}`);
    const object = JSON.parse(body ?? "{}");
    const metadata = { uid: "p2", resourceVersion: "10", ...object.metadata };
    return { status: method === "POST" ? 201 : 200, headers: {}, body: JSON.stringify({ ...object, metadata }) };
  };
  const reconcile = reconcilerOn(request, {
    kinds: new Map([[plugin.name, { kind: plugin.kind, get: () => of }]]),
    resolver: { resolve, forget: () => {} },
    protectors: {
      of: () => [...present],
      get: (key) => present.find(({ metadata }) => `shop/${metadata.name}` === key),
      wrote: () => {},
      released: () => {},
    },
    lost: { of: () => [...lost] },
  });
  expect(await reconcile(KEY, { signal: new AbortController().signal, failures: 0 })).toMatchObject({ kind: "later" });
  return made;
}

test.each<[Enforcement | undefined, Enforcement | undefined, string | undefined]>([
  [undefined, undefined, undefined],
  [undefined, "Enforce", undefined],
  [undefined, "Warn", "Warn"],
  ["Enforce", "Warn", undefined],
  ["Off", "Warn", "Off"],
])("a source that states %s in a namespace with %s has a protector with %s", async (stated, inNamespace, expected) => {
  const made: unknown[] = [];
  const stating: ProtectionSource = { ...source, ...(stated === undefined ? {} : { enforcement: stated }) };
  const reconcile = reconcilerOn(
    async ({ body }) => {
      const object = JSON.parse(body ?? "{}");
      made.push(object.spec?.enforcement);
      return {
        status: 201,
        headers: {},
        body: JSON.stringify({ ...object, metadata: { ...object.metadata, uid: "p", resourceVersion: "1" } }),
      };
    },
    {
      kinds: new Map([[plugin.name, { kind: plugin.kind, get: () => stating }]]),
      resolver: {
        resolve: async () => ({ kind: "resolved", protectors: [required], recheck: false }),
        forget: () => {},
      },
      enforcementIn: inNamespace === undefined ? undefined : () => inNamespace,
    },
  );
  await reconcile(KEY, { signal: new AbortController().signal, failures: 0 });
  expect(made).toEqual([expected]);
});

test("while a budget can't be resolved, a protector that warned denies once nothing asks for less", async () => {
  const warned = protector();
  const present = { ...warned, spec: { ...warned.spec, enforcement: "Warn" } };
  expect(await writes([present])).toEqual([`PUT podprotectors/${required.name}`]);
});

describe("a budget that can't be resolved keeps its protector", () => {
  const COLLECTION = "shop/podprotectors";
  const OBJECT = `podprotectors/${required.name}`;
  test.each<[string, PodProtector[], PodProtector[], string[]]>([
    ["as it is", [protector()], [], []],
    ["but gets no new one", [], [], []],
    ["and gets it again when it is lost", [], [protector()], [`POST ${COLLECTION}`]],
    [
      "which is replaced when it was deleted",
      [protector({ deletionTimestamp: "2026-01-01T00:00:00Z" })],
      [],
      [`POST ${COLLECTION}?dryRun=All`, `PUT ${OBJECT}`, `POST ${COLLECTION}`],
    ],
    ["which gets its owner again", [protector({ ownerReferences: [] })], [], [`PUT ${OBJECT}`]],
    [
      "which loses the cells to remove",
      [protector({ annotations: { ...protector().metadata.annotations, [`${GROUP}/remove-cell-once`]: "a" } })],
      [],
      [`PUT ${OBJECT}`],
    ],
  ])("%s", async (_, present, lost, expected) => {
    expect(await writes(present, lost)).toEqual(expected);
  });
});

test.each([
  [true, [["PUT", required.spec]]],
  [false, []],
])("nor is a cell believed that made it, which pods count; as the leader: %s", async (isLeader, expected) => {
  const made = protector({ annotations: { [`${GROUP}/restored`]: "cell a: gone" } });
  const written: unknown[] = [];
  const request = async ({ method, body = "" }: ApiRequest): Promise<ApiResponse> => {
    written.push([method, JSON.parse(body).spec]);
    return { status: 200, headers: {}, body };
  };
  const reconcile = reconcilerOn(request, {
    kinds: new Map([[plugin.name, { kind: plugin.kind, get: () => ({ ...source, finalizers: [] }) }]]),
    protectors: {
      ...{
        of: () => [{ ...made, spec: { ...required.spec, healthCriterion: "Scheduled" as const } }],
        get: () => made,
      },
      ...{ wrote: () => {}, released: () => {} },
    },
    mayWrite: () => isLeader,
  });
  await reconcile(KEY, { signal: new AbortController().signal, failures: 0 });
  expect(written).toEqual(expected);
});

describe("a source of which a part can't be resolved", () => {
  const known = { ...required, spec: { ...required.spec, minAvailable: 5 } };
  const partly: Resolve = async () => ({ kind: "unresolved", why: "a group has no replicas", protectors: [known] });
  const other = protector({ name: "podunavailablebudget-web-b", uid: "p3" });
  const taken = protector({ name: alternativeName(required.name, KEY) });
  const withoutOwner = protector({ name: taken.metadata.name, ownerReferences: [] });

  test.each<[string, PodProtector[], string[]]>([
    ["has protectors of the others", [], ["POST shop/podprotectors"]],
    [
      "keeps its protector, and repairs those of the others",
      [protector(), other],
      [`PUT podprotectors/${required.name}`],
    ],
    ["has those of the others by the names that they have", [taken], [`PUT podprotectors/${taken.metadata.name}`]],
    ["gives them their owner once", [withoutOwner], [`PUT podprotectors/${taken.metadata.name}`]],
  ])("%s", async (_, present, expected) => {
    expect(await writes(present, [], partly)).toEqual(expected);
  });
});

test.each<[string, PodProtector[], PodProtector[]]>([
  ["exists", [protector()], []],
  ["is lost", [], [protector()]],
])("the resolver knows what the budget required before, when its protector %s", async (_, present, lost) => {
  const asked: (number | undefined)[] = [];
  await writes(present, lost, async (question) => {
    asked.push(question.presents[0]?.spec.minAvailable);
    return { kind: "unresolved", why: "no workload is there" };
  });
  expect(asked).toEqual([9]);
});

describe("the number of a protector that a cell alone made", () => {
  const made = protector({ annotations: { "podseidon.kubewharf.io/restored": markOfCell("a") } });
  const isNew: ProtectionSource = { ...source, finalizers: [] };
  // A worker cluster that is taken over makes it before the budget, so that the number of it is kept.
  test.each<[string, PodProtector[], PodProtector[], ProtectionSource, number | undefined]>([
    ["is none to keep for a budget", [made], [], isNew, undefined],
    ["is none to keep for a budget once it is lost", [], [made], isNew, undefined],
    ["is kept for a budget that is held, which has had one", [made], [], source, 9],
    // Its own number is 0 until its controller has counted, which is soon.
    ["is kept for a DaemonSet", [made], [], { ...isNew, need: { kind: "status", required: [required] } }, 9],
  ])("%s", async (_, present, lost, of, expected) => {
    const asked: (number | undefined)[] = [];
    const resolve: Resolve = async ({ presents }) => {
      asked.push(presents[0]?.spec.minAvailable);
      return { kind: "unresolved", why: "no workload is there" };
    };
    await writes(present, lost, resolve, of);
    expect(asked).toEqual([expected]);
  });
});

test("a source counts as one in trouble until its problem is gone, or the source itself", async () => {
  const reports = new ProblemReports(new VirtualTime().clock, () => {});
  let found: Awaited<ReturnType<Resolve>> = { kind: "unresolved", why: "no workload is there" };
  let present: ProtectionSource | undefined = source;
  const reconcile = reconcilerOn(async () => ({ status: 200, headers: {}, body: JSON.stringify(protector()) }), {
    kinds: new Map([["podunavailablebudget", { ...plugin, get: () => present }]]),
    resolver: { resolve: async () => found, forget: () => {} },
    reports,
  });
  const counts = async (): Promise<number> => {
    await reconcile(KEY, { signal: new AbortController().signal, failures: 0 });
    return reports.count("unresolved");
  };
  expect([await counts(), await counts(), reports.count("refused")]).toEqual([1, 1, 0]);
  found = { kind: "resolved", protectors: [required], recheck: false };
  expect(await counts()).toBe(0);
  found = { kind: "unresolved", why: "no workload is there any more" };
  expect(await counts()).toBe(1);
  present = undefined;
  expect(await counts()).toBe(0);
});

test("a DaemonSet that was erased and applied again keeps the minimum of its protector", async () => {
  const agents = pluginNamed("daemonset");
  const applied = agents.interpret({
    metadata: { namespace: "shop", name: "web", uid: "d2", resourceVersion: "20", finalizers: [`${GROUP}/generator`] },
    spec: { selector: { matchLabels: { app: "web" } } },
    status: { desiredNumberScheduled: 0 },
  });
  const { need } = applied;
  if (need === undefined) throw new Error("it needs nothing");
  const kinds = new Map<string, { ready: boolean; get: () => undefined }>();
  const api = new ApiClient({ request: () => Promise.reject(new Error()), stream: () => Promise.reject(), close() {} });
  const { clock } = new VirtualTime();
  const workloads = new WorkloadScales({ api, kinds, timeoutMs: 1000, clock });
  const resolver = new Resolver({ workloads, pods: { of: () => undefined, forget: () => {} }, clock });
  const { signal } = new AbortController();
  const question = { key: "daemonset/shop/web", kind: agents.kind, source: applied, need, signal };
  const minimum = (resolution: Awaited<ReturnType<Resolve>>): number | undefined =>
    resolution.kind === "resolved" ? resolution.protectors[0]?.spec.minAvailable : undefined;
  expect(minimum(await resolver.resolve({ ...question, presents: [protector()] }))).toBe(9);
  expect(minimum(await resolver.resolve({ ...question, presents: [] }))).toBe(0);
});

test("a StatefulSet of one pod, of which none is promised, is told once", async () => {
  const statefulSets = pluginNamed("statefulset");
  const metadata = { namespace: "shop", name: "db", uid: "s1", resourceVersion: "7" };
  const raw = { metadata, spec: { replicas: 1, selector: { matchLabels: { app: "db" } } } };
  const told: string[] = [];
  const request = async (): Promise<ApiResponse> => ({ status: 409, headers: {}, body: "{}" });
  const reconcile = reconcilerOn(request, {
    kinds: new Map([["statefulset", { ...statefulSets, get: () => statefulSets.interpret(raw) }]]),
    onEvent: (event) => event.kind === "ignored" && told.push(event.why),
  });
  for (let time = 0; time < 2; time++)
    await reconcile("statefulset/shop/db", { signal: new AbortController().signal, failures: 0 });
  expect(told).toEqual([expect.stringContaining("none of its pods is promised (replicas 1 - maxUnavailable 1")]);
});

const OF_BUDGET = "its annotation expected-pods must be core, cells or a number above 0";
const OF_NAMESPACE = "the label enforcement of its namespace must be Enforce, Warn or Off";
test.each<[string, Partial<ProtectionSource>, readonly string[]]>([
  ["annotation says nothing", { why: OF_BUDGET }, [OF_BUDGET]],
  ["namespace's label says nothing", {}, [OF_NAMESPACE]],
  ["namespace's label says nothing, which it does not need,", { enforcement: "Warn" }, []],
])("a budget whose %s is told so, though it has its protector", async (_, stated, expected) => {
  const told: string[] = [];
  const request = async (): Promise<ApiResponse> => ({ status: 409, headers: {}, body: "{}" });
  const reconcile = reconcilerOn(request, {
    kinds: new Map([[plugin.name, { kind: plugin.kind, get: () => ({ ...source, ...stated }) }]]),
    invalidIn: () => OF_NAMESPACE,
    resolver: {
      resolve: async () => ({ kind: "resolved", protectors: [required], recheck: false }),
      forget: () => {},
    },
    onEvent: (event) => event.kind === "ignored" && told.push(event.why),
  });
  await reconcile(KEY, { signal: new AbortController().signal, failures: 0 });
  expect(told).toEqual(expected);
});

test("a terminating namespace is reported once, although earlier steps are repeated", async () => {
  const deployment = { metadata: { namespace: "shop", name: "web", uid: "d1", resourceVersion: "7" } };
  const deployments = pluginNamed("deployment");
  const spec = { replicas: 4, selector: { matchLabels: { app: "web" } }, template: {} };
  const events: GeneratorEvent[] = [];
  const held = { metadata: { ...deployment.metadata, finalizers: [`${GROUP}/generator`] } };
  const request = async ({ method }: ApiRequest): Promise<ApiResponse> =>
    method === "POST"
      ? { status: 403, headers: {}, body: '{"kind":"Status","message":"namespace shop is being terminated"}' }
      : { status: 200, headers: {}, body: JSON.stringify(held) };
  const reconcile = reconcilerOn(request, {
    // The watch lags, so the finalizer is added each time.
    kinds: new Map([["deployment", { ...deployments, get: () => deployments.interpret({ ...deployment, spec }) }]]),
    onEvent: (event) => events.push(event),
  });
  for (let time = 0; time < 2; time++) {
    const { signal } = new AbortController();
    expect(await reconcile("deployment/shop/web", { signal, failures: 0 })).toMatchObject({ kind: "later" });
  }
  expect(events.map((event) => event.kind)).toEqual(["held", "namespaceTerminating", "held"]);
});

test.each([
  [403, "exceeded quota: objects", /^create protector deployment-web: .* \(403\): .* exceeded quota: objects$/],
  [
    500,
    'Internal error occurred: failed calling webhook "policy.example.com": Post "https://policy": refused',
    /^create protector deployment-web: the apiserver can't call the admission webhook policy.example.com/,
  ],
])(
  "a write that the core refuses (%i) is told at the source once, and again after a success",
  async (code, text, why) => {
    const deployment = { metadata: { namespace: "shop", name: "web", uid: "d1", resourceVersion: "7" } };
    const deployments = pluginNamed("deployment");
    const spec = { replicas: 4, selector: { matchLabels: { app: "web" } }, template: {} };
    const events: GeneratorEvent[] = [];
    let [status, failures] = [code, 0];
    const denied = JSON.stringify({ kind: "Status", message: text });
    const held = { spec, metadata: { ...deployment.metadata, finalizers: [`${GROUP}/generator`] } };
    const request = async ({ method }: ApiRequest): Promise<ApiResponse> => {
      const held = { metadata: { ...deployment.metadata, finalizers: [`${GROUP}/generator`] } };
      if (method !== "POST") return { status: 200, headers: {}, body: JSON.stringify(held) };
      return status === code
        ? { status, headers: {}, body: denied }
        : { status, headers: {}, body: JSON.stringify(protector({ name: "deployment-web" })) };
    };
    const reconcile = reconcilerOn(request, {
      kinds: new Map([["deployment", { ...deployments, get: () => deployments.interpret(held) }]]),
      onEvent: (event) => events.push(event),
    });
    const run = (): ReturnType<typeof reconcile> =>
      reconcile("deployment/shop/web", { signal: new AbortController().signal, failures });
    for (let time = 0; time < 2; time++) expect(await run()).toMatchObject({ kind: "failed", retriable: true });
    failures = 20;
    const late = await run();
    // Nobody raises a quota within seconds; a webhook that was restarted is there again.
    const inAMinute =
      late.kind === "failed" && Number(late.retryAfterMs) >= 30_000 && Number(late.retryAfterMs) <= 60_000;
    expect(inAMinute).toBe(code === 403);
    const refused = events.filter((event) => event.kind === "refused");
    expect(refused).toEqual([
      {
        kind: "refused",
        source: "deployment/shop/web",
        about: { apiVersion: "apps/v1", kind: "Deployment", namespace: "shop", name: "web", uid: "d1" },
        why: expect.stringMatching(why),
      },
    ]);
    status = 201;
    expect(await run()).toEqual({ kind: "done" });
    status = code;
    await run();
    expect(events.filter((event) => event.kind === "refused")).toHaveLength(2);
  },
);
