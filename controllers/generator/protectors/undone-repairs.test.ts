/** A core or another controller that undoes what the generator repairs, in virtual time. */
import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse } from "../../../shared/kube/client/transport.ts";
import { GENERATOR_FINALIZER, SOURCE_NAME_LABEL } from "../../../shared/schema/annotations.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { ProtectionSource, RequiredProtector } from "../sources/protection-source.ts";
import { type GeneratorEvent, ProblemReports } from "./events.ts";
import type { ReconcileStep } from "./plan.ts";
import { newProtector, repairedProtector } from "./protector.ts";
import { reconciler } from "./reconcile.ts";
import { UndoneRepairs } from "./undone-repairs.ts";

const deployments = pluginNamed("deployment");
const KEY = "deployment/shop/web";

function altered({ metadata, ...rest }: PodProtector): PodProtector {
  return { ...rest, metadata: { ...metadata, labels: { ...metadata.labels, [SOURCE_NAME_LABEL]: "other" } } };
}

/** A Deployment, its protector with an altered label, and the generator's reconciler of both. */
function rig({ holdsSource = true, admit = (written: PodProtector) => written } = {}) {
  const time = new VirtualTime();
  const events: GeneratorEvent[] = [];
  const writes: string[] = [];
  const state = { replicas: 4, deleted: false };
  const object = () => ({
    metadata: {
      ...{ namespace: "shop", name: "web", uid: "d1", resourceVersion: "7" },
      finalizers: holdsSource ? [GENERATOR_FINALIZER] : [],
    },
    spec: { replicas: state.replicas, selector: { matchLabels: { app: "web" } }, template: {} },
  });
  const source = (): ProtectionSource => deployments.interpret(object());
  const required = (): RequiredProtector => {
    const [first] = source().protectors;
    if (first === undefined) throw new Error("the Deployment asks for no protector");
    return first;
  };
  const made = newProtector(deployments.kind, source(), required(), "deployment-web");
  const metadata = { ...made.metadata, uid: "p1", resourceVersion: "1", generation: 1 };
  let protector = altered(parsePodProtector({ ...made, metadata }));
  const request = async ({ method, path }: ApiRequest): Promise<ApiResponse> => {
    writes.push(`${method} ${path.split("/").at(-1)?.replace(/\?.*/, "")}`);
    const ofSource = path.includes("/deployments/");
    if (!ofSource) protector = admit(repairedProtector(protector, deployments.kind, source(), required()) ?? protector);
    return { status: 200, headers: {}, body: JSON.stringify(ofSource ? object() : protector) };
  };
  const reports = new ProblemReports(time.clock, (event) => events.push(event));
  const reconcile = reconciler({
    api: new ApiClient({ request, stream: () => Promise.reject(new Error("no watch")), close: () => {} }),
    ports: time.process(),
    plugins: [deployments],
    kinds: new Map([["deployment", { ...deployments, get: source }]]),
    resolver: { resolve: () => Promise.reject(new Error("nothing to resolve")), forget: () => {} },
    protectors: { of: () => [protector], get: () => protector, wrote: () => {}, released: () => {} },
    lost: { of: () => [] },
    register: { record: async () => ({ kind: "ok", object: undefined }) },
    mayWrite: () => true,
    timeoutMs: 1000,
    onEvent: (event) => events.push(event),
    reports,
  });
  return {
    ...{ time, events, writes, reports },
    run: () => reconcile(KEY, { signal: new AbortController().signal, failures: 0 }),
    alter: (change?: Partial<PodProtector["spec"]>) => {
      protector = change === undefined ? altered(protector) : { ...protector, spec: { ...protector.spec, ...change } };
    },
    deleted: () => {
      const deletionTimestamp = "2026-01-01T00:00:00Z";
      protector = { ...protector, metadata: { ...protector.metadata, deletionTimestamp } };
    },
    scale: (replicas: number) => {
      state.replicas = replicas;
    },
  };
}

test("a repair that the core undoes as it stores it is told, and repeated less and less often", async () => {
  const { time, events, writes, reports, run } = rig({ admit: altered });
  expect(reports.count("undone")).toBe(0);
  expect(await run()).toEqual({ kind: "later", afterMs: 1_000 });
  expect(reports.count("undone")).toBe(1);
  expect(events.find(({ kind }) => kind === "undone")).toEqual({
    kind: "undone",
    source: KEY,
    about: { apiVersion: "apps/v1", kind: "Deployment", namespace: "shop", name: "web", uid: "d1" },
    why: expect.stringMatching(/^the repair of metadata.labels\[.*source-name\] of protector deployment-web has no ef/),
  });
  for (const [afterMs, waitMs] of [
    [1_000, 2_000],
    [2_000, 4_000],
    [4_000, 8_000],
  ] as const) {
    await time.advance(afterMs - 1);
    // Whatever happens meanwhile.
    expect(await run()).toEqual({ kind: "later", afterMs: 1 });
    await time.advance(1);
    expect(await run()).toEqual({ kind: "later", afterMs: waitMs });
  }
  expect(writes).toHaveLength(4);
  for (let minutes = 0; minutes < 60; minutes++) {
    await time.advance(60_000);
    await run();
  }
  // Once in a minute.
  expect(writes.length).toBeLessThan(70);
  expect(writes.length).toBeGreaterThan(55);
  // An Event lives for an hour: there is always one.
  expect(events.filter(({ kind }) => kind === "undone")).toHaveLength(3);
});

test("of a write, only the fields that were undone are told", async () => {
  const { events, run, scale } = rig({ admit: altered });
  scale(8);
  await run();
  const told = events.flatMap((event) => (event.kind === "undone" ? [event.why] : []));
  expect(told).toEqual([expect.stringMatching(/^the repair of metadata.labels\[\S+source-name\] of protector dep/)]);
});

test("a repair that another controller undoes again and again is told and repeated less and less often", async () => {
  const { time, events, writes, run, alter } = rig();
  for (let times = 0; times < 100; times++) {
    await run();
    alter();
    await time.advance(100);
  }
  expect(writes.length).toBeLessThan(10);
  expect(events.filter(({ kind }) => kind === "undone")).toHaveLength(1);
});

test("another change of the same protector does not wait, nor what needs no repair", async () => {
  const { writes, run, scale, deleted } = rig({ admit: altered });
  await run();
  scale(8);
  await run();
  expect(writes).toEqual(["PATCH deployment-web", "PATCH deployment-web"]);
  // The label alone is left to repair, which waits. A protector that was deleted without a release is created again all
  // the same.
  await run();
  deleted();
  await run();
  expect(writes.slice(2)).toEqual(["POST podprotectors", "PUT deployment-web", "POST podprotectors"]);
});

test("a repair that holds is made at once for a long time after another one was undone", async () => {
  const { time, events, writes, run, alter } = rig();
  for (let days = 0; days < 5; days++) {
    expect(await run()).toEqual({ kind: "done" });
    alter();
    await time.advance(24 * 3_600_000);
  }
  expect(writes).toHaveLength(5);
  expect(events.filter(({ kind }) => kind === "undone")).toEqual([]);
});

test("a finalizer that the core takes off its source is told, and its protector is repaired all the same", async () => {
  const { events, writes, run } = rig({ holdsSource: false });
  expect(await run()).toEqual({ kind: "later", afterMs: 1_000 });
  expect(writes).toEqual(["PATCH web", "PATCH deployment-web"]);
  expect(events.find(({ kind }) => kind === "undone")).toMatchObject({
    why: expect.stringContaining("the repair of metadata.finalizers of deployment/shop/web has no effect"),
  });
  expect(events.filter(({ kind }) => kind === "held")).toEqual([]);
});

const CHANGES = {
  "one field and another": [{ minReadySeconds: 5 }, { minAvailable: 0 }],
  "one value and another of a field that keeps what others add": [
    { protectedOperations: ["DELETE", "EVICT", "UPDATE"], minReadySeconds: 5 },
    { protectedOperations: ["EVICT"], minReadySeconds: 5 },
  ],
  "more and more fields": [{ minReadySeconds: 5 }, { minReadySeconds: 5, minAvailable: 0 }],
};

test.each(Object.entries(CHANGES))(
  "somebody who undoes in turn %s is not answered at full speed",
  async (_, changes) => {
    const { time, events, writes, run, alter } = rig();
    await run();
    for (let times = 0; times < 100; times++) {
      alter(changes[times % changes.length]);
      await run();
      await time.advance(100);
    }
    expect(writes.length).toBeLessThan(15);
    // The first field, and both.
    expect(events.filter(({ kind }) => kind === "undone")).toHaveLength(2);
  },
);

test("a source whose replicas go up and down is followed at once, and nobody is accused", async () => {
  const { time, events, writes, run, scale } = rig();
  await run();
  for (let times = 1; times <= 100; times++) {
    scale(times % 2 === 0 ? 4 : 8);
    expect(await run()).toEqual({ kind: "done" });
    expect(writes).toHaveLength(1 + times);
    await time.advance(100);
  }
  expect(events.filter(({ kind }) => kind === "undone")).toEqual([]);
});

/** A Deployment with this UID, and its protector, which has another minimum than the Deployment asks for. */
function objectsOf(uid: string) {
  const object = {
    metadata: { namespace: "shop", name: "web", uid, resourceVersion: "7" },
    spec: { replicas: 4, selector: { matchLabels: { app: "web" } }, template: {} },
  };
  const source = deployments.interpret(object);
  const [required] = source.protectors;
  if (required === undefined) throw new Error("the Deployment asks for no protector");
  const made = newProtector(deployments.kind, source, required, "deployment-web");
  const metadata = { ...made.metadata, uid: `protector of ${uid}`, resourceVersion: "1" };
  const repaired = parsePodProtector({ ...made, metadata });
  return { source, repaired, protector: { ...repaired, spec: { ...repaired.spec, minAvailable: 0 } } };
}

test.each<[string, (time: number) => ReconcileStep[]]>([
  [
    "that gives its protection up and asks for it again",
    () => {
      const { source } = objectsOf("d1");
      return [
        { kind: "addSourceFinalizer", source },
        { kind: "removeSourceFinalizer", source },
      ];
    },
  ],
  [
    "that is created again by the same name",
    (time) => {
      const { source, protector, repaired } = objectsOf(`d${time}`);
      return [
        { kind: "addSourceFinalizer", source },
        { kind: "update", protector, object: repaired },
      ];
    },
  ],
])("a source %s undoes no repair: it is protected at once, and nobody is accused", (_, stepsOf) => {
  const repairs = new UndoneRepairs(new VirtualTime().clock);
  for (let times = 0; times < 10; times++) {
    const steps = stepsOf(times);
    expect(steps.filter((step) => repairs.isWaiting(KEY, step))).toEqual([]);
    for (const step of steps) repairs.made(KEY, step, false, () => undefined);
    expect(repairs.why(KEY)).toBeUndefined();
  }
});

test("a repair waits for itself alone: another field or value is written at once", () => {
  const time = new VirtualTime();
  const present = parsePodProtector({
    metadata: { namespace: "shop", name: "web", uid: "p1", resourceVersion: "1" },
    spec: { minAvailable: 3, minReadySeconds: 0, selector: {} },
  });
  const update = (metadata: object, spec: object = {}): ReconcileStep => {
    const object = { ...present, metadata: { ...present.metadata, ...metadata }, spec: { ...present.spec, ...spec } };
    return { kind: "update", protector: present, object };
  };
  const owner = { apiVersion: "apps/v1", kind: "Deployment", name: "web", uid: "d1" };
  const changes = [
    ...[update({ labels: { a: "1" } }), update({ labels: { a: "2" } })],
    ...[update({ annotations: { a: "1" } }), update({ annotations: { a: "2" } })],
    ...[update({ finalizers: ["f"] }), update({ finalizers: ["g"] }), update({ ownerReferences: [owner] })],
    update({ ownerReferences: [{ ...owner, uid: "d2" }] }),
    ...[update({}, { minAvailable: 4 }), update({}, { minAvailable: 5 }), update({}, { minReadySeconds: 4 })],
  ];
  for (const change of changes) {
    const repairs = new UndoneRepairs(time.clock);
    repairs.made(KEY, change, true, () => undefined);
    expect(changes.filter((other) => repairs.isWaiting(KEY, other))).toEqual([change]);
  }
});

test("of many fields that are undone, five are told", () => {
  const repairs = new UndoneRepairs(new VirtualTime().clock);
  const present = parsePodProtector({
    metadata: { namespace: "shop", name: "web", uid: "p1", resourceVersion: "1" },
    spec: { minAvailable: 3, minReadySeconds: 0, selector: {} },
  });
  const labels = Object.fromEntries([..."abcdefg"].map((key) => [key, "1"]));
  const object = { ...present, metadata: { ...present.metadata, labels } };
  repairs.made(KEY, { kind: "update", protector: present, object }, true, () => undefined);
  expect(repairs.why(KEY)).toMatch(/^the repair of (metadata.labels\[[a-e]\](, | )){5}and 2 more of protector web has/);
});
