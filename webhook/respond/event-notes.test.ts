import { beforeEach, describe, expect, test } from "vitest";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import type { EventOutcome } from "../../shared/observe/event-recorder.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { protector } from "../../test/support/webhook/fixtures.ts";
import type { Allowance, Denial } from "../reserve/verdict.ts";
import type { AdmissionOutcome, AdmissionRecord } from "./admission-response.ts";
import { DisruptionEvents } from "./disruption-events.ts";
import { EventNotes } from "./event-notes.ts";
import { controllingOwner, isWorkloadController } from "./workload-controller.ts";

interface Made {
  readonly cluster: string;
  readonly involvedObject: unknown;
  readonly reason: unknown;
  readonly message: unknown;
}

let time: VirtualTime;
let made: Made[];
let outcomes: EventOutcome[];

beforeEach(() => {
  time = new VirtualTime();
  made = [];
  outcomes = [];
});

function transport(cluster: string): Transport {
  return {
    async request({ body }) {
      const { involvedObject, reason, message } = JSON.parse(body ?? "{}");
      made.push({ cluster, involvedObject, reason, message });
      return { status: 201, headers: {}, body: "{}" };
    },
    stream: () => Promise.reject(new Error("unused")),
    close: () => {},
  };
}

function events(load?: () => Promise<EventNotes>, tellsAccepted = false): DisruptionEvents {
  const options = {
    tellsAccepted,
    cores: [{ name: "core", transport: transport("core"), uidOf: (key: string) => `uid of ${key}` }],
    cells: [
      { name: "east", transport: transport("east") },
      { name: "blind", transport: undefined },
    ],
    ports: time,
    onOutcome: (outcome: EventOutcome) => outcomes.push(outcome),
  };
  return new DisruptionEvents({ ...options, load: load ?? (async () => new EventNotes(options)) });
}

const denial: Denial = {
  protector: { core: "core", namespace: "shop", name: "web" },
  decision: { kind: "overloaded", cause: "queue" },
};

const suspendedBy: Allowance = {
  protector: { core: "core", namespace: "shop", name: "web" },
  decision: {
    kind: "allowed",
    decision: {
      ...{ allowed: true, reason: "Suspended", write: "none" },
      facts: { minAvailable: 1, available: 1, reserved: 0, estimated: 1, unreliable: 0, notReady: 0 },
    },
    version: new ProtectorVersion(protector(1), 0),
    written: false,
  },
};

function record(outcome: AdmissionOutcome, change: Partial<AdmissionRecord> = {}): AdmissionRecord {
  return {
    kind: "delete",
    outcome,
    durationMs: 1,
    cell: "east",
    uid: "request-1",
    username: "eve",
    pod: { namespace: "shop", name: "web-0", uid: "u0" },
    decisions: [denial],
    message: "pod shop/web-0 may not be deleted now",
    ...change,
  };
}

test("a denial is reported at the pod, in its cell, and at the protector, in its core", async () => {
  events().record(record("denied"));
  await time.advance(10);
  const message = "pod shop/web-0 may not be deleted now (asked by eve in cell east, as the request says)";
  expect(made).toEqual([
    {
      cluster: "east",
      involvedObject: { apiVersion: "v1", kind: "Pod", namespace: "shop", name: "web-0", uid: "u0" },
      reason: "DisruptionRefused",
      message,
    },
    {
      cluster: "core",
      involvedObject: {
        apiVersion: "podseidon.kubewharf.io/v1alpha1",
        kind: "PodProtector",
        namespace: "shop",
        name: "web",
        uid: "uid of shop/web",
      },
      reason: "DisruptionRefused",
      message,
    },
  ]);
  expect(outcomes).toEqual(["created", "created"]);
});

test.each<[AdmissionOutcome, string, RegExp]>([
  ["dryRunDenied", "DisruptionWouldBeRefused", /may not be deleted/],
  ["forced", "ProtectionBypassed", /^pod shop\/web-0 is deleted whatever its protectors need/],
  ["suspended", "ProtectionSuspended", /^pod shop\/web-0 is deleted while its protector is suspended/],
])("%s is reported as %s", async (outcome, reason, message) => {
  const decisions = outcome === "suspended" ? [suspendedBy] : [denial];
  events().record(record(outcome, { decisions }));
  await time.advance(10);
  expect(made).toHaveLength(2);
  for (const one of made) expect(one).toMatchObject({ reason, message: expect.stringMatching(message) });
});

const OWNER = { apiVersion: "apps/v1", kind: "ReplicaSet", name: "web-5d9", uid: "u-rs" };
const OLD_OBJECT = {
  metadata: { namespace: "shop", name: "web-0", ownerReferences: [{ ...OWNER, controller: true }] },
};

test("a catastrophe is one Event at the workload and one at the protector, with a count", async () => {
  const one = events();
  for (let index = 0; index < 20; index++) {
    const pod = { namespace: "shop", name: `web-${index}`, uid: `u${index}` };
    const message = `pod shop/web-${index} may not be deleted now`;
    one.record(record("denied", { pod, message, username: `user-${index % 2}`, oldObject: OLD_OBJECT }));
    await time.advance(10);
  }
  await time.advance(60_000);
  const created = made.filter(({ involvedObject }) => involvedObject !== undefined);
  expect(created.map(({ involvedObject }) => Object(involvedObject).name)).toEqual(["web-5d9", "web"]);
  expect(made.at(-1)?.message).toContain("pod shop/web-19 may not be deleted now (asked by user-1");
  expect(outcomes.filter((outcome) => outcome === "counted")).toHaveLength(38);
});

test("another cause is another Event", async () => {
  const one = events();
  one.record(record("denied"));
  one.record(record("denied", { decisions: [{ ...denial, decision: { kind: "lost", uid: "u" } }] }));
  await time.advance(10);
  expect(made.filter(({ cluster }) => cluster === "core")).toHaveLength(2);
});

test("an eviction is reported at the protector alone: a drain is no Event at each pod", async () => {
  events().record(record("denied", { kind: "evict" }));
  await time.advance(10);
  expect(made.map(({ cluster }) => cluster)).toEqual(["core"]);
});

test("a denial of a workload's controller says how long its pauses get", async () => {
  const username = "system:serviceaccount:kube-system:replicaset-controller";
  events().record(record("denied", { username, oldObject: OLD_OBJECT }));
  await time.advance(10);
  expect(made.find(({ involvedObject }) => Object(involvedObject).uid === "u-rs")?.message).toMatch(
    /now \(asked by .*\); if that is the controller of ReplicaSet web-5d9, it repeats .* at most 1000 s after/,
  );
  const strangers = ["namespace-controller", "generic-garbage-collector", "pod-garbage-collector", "node-controller"];
  // Deletes pods of every workload, and its queue is its own: a change of the workload wakes nobody.
  strangers.push("device-taint-eviction-controller");
  for (const name of ["eve", ...strangers.map((account) => `system:serviceaccount:kube-system:${account}`)])
    expect(isWorkloadController(name)).toBe(false);
  expect(controllingOwner({ metadata: { ...OLD_OBJECT.metadata, ownerReferences: [OWNER] } })).toBeUndefined();
  for (const broken of [undefined, null, 7, {}, { metadata: { namespace: "shop", ownerReferences: [null] } }])
    expect(controllingOwner(broken)).toBeUndefined();
});

test("nobody is told that a pipeline, which has a service account as well, repeats its deletion", async () => {
  events().record(record("denied", { username: "system:serviceaccount:ci:deployer", oldObject: OLD_OBJECT }));
  await time.advance(10);
  const told = String(made.find(({ involvedObject }) => Object(involvedObject).uid === "u-rs")?.message);
  expect(told).not.toContain("; the controller of ReplicaSet web-5d9 repeats");
  expect(told).toContain("asked by system:serviceaccount:ci:deployer in cell east");
});

test.each(["apiVersion", "kind", "name", "uid"])("a forged owner with a long %s is in no Event", async (field) => {
  const forged = { ...OWNER, controller: true, [field]: "x".repeat(2 ** 20) };
  const oldObject = { metadata: { namespace: "shop", ownerReferences: [forged] } };
  events().record(record("denied", { oldObject }));
  await time.advance(10);
  expect(made).toMatchObject([{ involvedObject: { kind: "Pod", name: "web-0" } }, { cluster: "core" }]);
  expect(JSON.stringify(made).length).toBeLessThan(2_000);
});

test("the denial of a node's deletion is reported at the protectors", async () => {
  const { pod: _, ...about } = record("denied", { kind: "node", message: "node n may not be deleted now" });
  events().record({ ...about, node: "n" });
  await time.advance(10);
  expect(made).toMatchObject([
    { cluster: "core", message: "node n may not be deleted now (asked by eve in cell east, as the request says)" },
  ]);
});

test("a cell without a kubeconfig gets no Event", async () => {
  events().record(record("denied", { cell: "blind" }));
  await time.advance(10);
  expect(made.map(({ cluster }) => cluster)).toEqual(["core"]);
});

test.each<[string, AdmissionRecord]>([
  ["an allowed request", record("allowed")],
  ["a busy denial", record("busy")],
  ["a dry run", record("denied", { dryRun: true })],
])("%s has no Event, and loads nothing", async (_, record) => {
  events(() => Promise.reject(new Error("loaded"))).record(record);
  await time.advance(10);
  expect([made, outcomes]).toEqual([[], []]);
});

test("a catastrophe has a hundred Events, then five a second, and is counted beyond", async () => {
  const one = events(() => Promise.reject(new Error("not loaded")));
  for (let count = 0; count < 1000; count += 1) one.record(record("denied"));
  await time.advance(1000);
  for (let count = 0; count < 1000; count += 1) one.record(record("denied"));
  await time.advance(1);
  expect(outcomes.filter((outcome) => outcome === "failed")).toHaveLength(105);
  expect(outcomes.filter((outcome) => outcome === "limited")).toHaveLength(1895);
});

describe("the rate of a namespace", () => {
  const DENIALS = 1000;

  test("is its own: its denials silence those of no other", async () => {
    const one = events();
    for (let count = 0; count < DENIALS; count++) one.record(record("denied"));
    one.record(record("denied", { pod: { namespace: "bank", name: "db-0", uid: "u1" } }));
    await time.advance(60_000);
    expect(made.map(({ involvedObject }) => Object(involvedObject).name)).toContain("db-0");
  });

  test("is none of its bypasses: nobody hides one behind denials", async () => {
    const one = events();
    for (let count = 0; count < DENIALS; count++) one.record(record("denied"));
    one.record(record("forced"));
    await time.advance(60_000);
    expect(made.map(({ reason }) => reason)).toContain("ProtectionBypassed");
  });
});

describe("admitted disruptions", () => {
  const admittedBy = (kind: string | undefined, written = true): Allowance => {
    const object = protector(1);
    const owner = {
      apiVersion: "x-pdb.form3.tech/v1alpha1",
      kind: kind ?? "",
      name: "db",
      uid: "b1",
      controller: true,
    };
    const metadata = { ...object.metadata, ...(kind === undefined ? {} : { ownerReferences: [owner] }) };
    const facts = { minAvailable: 1, available: 2, reserved: 0, estimated: 2, unreliable: 0, notReady: 0 };
    const decision = { allowed: true, reason: "Reserved", write: { weight: 1, paid: true }, facts } as const;
    const version = new ProtectorVersion({ ...object, metadata }, 0);
    return {
      protector: { core: "core", namespace: "shop", name: "web" },
      decision: { kind: "allowed", decision, version, written },
    };
  };

  test.each<[string, Allowance[], unknown[]]>([
    ["of a budget of x-pdb: at the budget", [admittedBy("XPodDisruptionBudget")], ["XPodDisruptionBudget/db/b1"]],
    ["of another protector: there", [admittedBy("Deployment")], ["PodProtector/web/uid of shop/web"]],
    ["of a protector without a source: there", [admittedBy(undefined)], ["PodProtector/web/uid of shop/web"]],
    ["without a record: nowhere", [admittedBy("XPodDisruptionBudget", false)], []],
    ["without a protector: nowhere", [], []],
  ])("are reported when asked for, %s", async (_, decisions, expected) => {
    const { message: __, ...admitted } = record("allowed", { decisions });
    events(undefined, true).record(admitted);
    await time.advance(10);
    const found = made.map(({ involvedObject }) => {
      const { kind, name, uid } = Object(involvedObject);
      return `${kind}/${name}/${uid}`;
    });
    expect(found).toEqual(expected);
    for (const { reason, message } of made) {
      expect(reason).toBe("Accepted");
      expect(message).toBe("attempted eviction of web-0 (asked by eve in cell east, as the request says)");
    }
  });

  test("are not reported otherwise, nor in a dry run", async () => {
    const admitted = record("allowed", { decisions: [admittedBy(undefined)] });
    events().record(admitted);
    events(undefined, true).record({ ...admitted, dryRun: true });
    await time.advance(10);
    expect(made).toEqual([]);
  });

  test("leave the rate of the others alone", async () => {
    const one = events(undefined, true);
    for (let index = 0; index < 200; index++) one.record(record("allowed", { decisions: [admittedBy(undefined)] }));
    one.record(record("denied"));
    await time.advance(60_000);
    expect(made.map(({ reason }) => reason)).toContain("DisruptionRefused");
    expect(outcomes.filter((outcome) => outcome === "limited").length).toBeGreaterThanOrEqual(100);
  });
});
