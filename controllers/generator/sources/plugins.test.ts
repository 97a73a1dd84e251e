/** The contract of all plugins: one row for each kind of `--kinds`, and two custom resources. */
import { describe, expect, test } from "vitest";
import { KINDS, plugins } from "./plugins.ts";
import { type ProtectionSource, SOURCE_FIELDS, type SourcePlugin } from "./protection-source.ts";

const PROTECT = "podseidon.kubewharf.io/protect";
const PATHS = "?name=.spec.shards[*].name&replicas=.spec.shards[*].size&selector=shard={.spec.shards[*].name}";
const SCALABLE = ["fleet.example.com/v1/workloads", `fleet.example.com/v1/databases${PATHS}`];
const all = plugins({ protectSelector: `${PROTECT}=true`, protectNonZero: true, scalable: SCALABLE });
const lenient = plugins({ protectSelector: "", protectNonZero: false, scalable: SCALABLE });
const narrow = plugins({
  protectSelector: "",
  protectNonZero: true,
  namespaces: ["shop", "bank"],
  excludedNamespaces: ["bank"],
  scalable: SCALABLE,
});

const selector = { matchLabels: { app: "web" } };
const SPECS: Readonly<Record<string, { spec: object; status?: object }>> = {
  deployment: { spec: { replicas: 4, selector } },
  statefulset: { spec: { replicas: 4, selector } },
  replicaset: { spec: { replicas: 4, selector } },
  replicationcontroller: { spec: { replicas: 4, selector: { app: "web" } } },
  daemonset: { spec: { selector }, status: { desiredNumberScheduled: 4 } },
  job: { spec: { parallelism: 4 } },
  cronjob: { spec: { schedule: "@daily" } },
  poddisruptionbudget: { spec: { maxUnavailable: 1, selector } },
  podunavailablebudget: { spec: { maxUnavailable: 1, selector } },
  xpoddisruptionbudget: { spec: { maxUnavailable: 1, selector } },
  "workloads.fleet.example.com": { spec: { replicas: 4 } },
  "databases.fleet.example.com": {
    spec: {
      shards: [
        { name: "a", size: 4 },
        { name: "b", size: 0 },
      ],
    },
  },
};
const IGNORED = ["job", "cronjob"];
const BUDGETS = ["poddisruptionbudget", "podunavailablebudget", "xpoddisruptionbudget"];
/** Kinds whose protectors depend on other objects. */
const RESOLVED = [...BUDGETS, "workloads.fleet.example.com", "databases.fleet.example.com"];

function object(name: string, metadata: object = {}): object {
  return {
    ...SPECS[name],
    metadata: {
      name: "web",
      namespace: "shop",
      uid: "u1",
      resourceVersion: "7",
      labels: { [PROTECT]: "true" },
      ...metadata,
    },
  };
}

function read(name: string, metadata: object = {}, from: readonly SourcePlugin[] = all): ProtectionSource {
  const plugin = from.find((one) => one.name === name);
  if (plugin === undefined) throw new Error(`there is no plugin ${name}`);
  return plugin.interpret(object(name, metadata));
}

const declining = (annotations: object) => ({ labels: { [PROTECT]: "false" }, annotations });
const requires = (source: ProtectionSource): boolean => source.protectors.length > 0 || source.need !== undefined;
const DELETED = { deletionTimestamp: "2026-01-01T00:00:00Z" };

test("there is a row for each plugin, and a name for each kind", () => {
  expect(Object.keys(SPECS).sort()).toEqual(all.map(({ name }) => name).sort());
  expect(KINDS).toEqual(
    Object.keys(SPECS)
      .filter((name) => !name.includes("."))
      .sort(),
  );
  expect(new Set(all.map(({ name }) => name)).size).toBe(all.length);
  for (const { name } of all) expect(name).toMatch(/^[a-z][a-z0-9.-]*$/);
});

describe.each(Object.keys(SPECS))("%s", (name) => {
  const ignored = IGNORED.includes(name);

  test("has the identity of the object", () => {
    const metadata = { finalizers: ["other"] };
    expect(read(name, metadata)).toMatchObject({
      namespace: "shop",
      name: "web",
      uid: "u1",
      resourceVersion: "7",
      finalizers: ["other"],
      deleting: false,
    });
  });

  test("is pure", () => {
    const raw = object(name);
    const plugin = all.find((one) => one.name === name);
    const before = JSON.stringify(raw);
    const first = JSON.stringify(plugin?.interpret(raw));
    expect(JSON.stringify(plugin?.interpret(raw))).toBe(first);
    expect(JSON.stringify(raw)).toBe(before);
  });

  test.each<[string, object, boolean, string?]>([
    ["labelled", {}, true],
    ["not labelled", { labels: {} }, false],
    ["without labels", { labels: undefined }, false],
    ["annotated with true, not labelled", { labels: {}, annotations: { [PROTECT]: "true" } }, true],
    ["annotated with false", { annotations: { [PROTECT]: "false" } }, false, "Declined"],
    ["labelled with false", { labels: { [PROTECT]: "false" } }, false, "Declined"],
    ["adopted", { labels: {}, annotations: { [PROTECT]: "adopted" } }, true],
    [
      "adopted, then labelled with false",
      { labels: { [PROTECT]: "false" }, annotations: { [PROTECT]: "adopted" } },
      false,
      "Declined",
    ],
    ["annotated with another value", { annotations: { [PROTECT]: "maybe" } }, true],
  ])("%s", (_, metadata, selected, otherwise = "NotSelected") => {
    const source = read(name, metadata);
    expect(source.decision).toBe(selected ? (ignored ? "Ignored" : "Protected") : otherwise);
    expect(requires(source)).toBe(selected && !ignored);
    expect(source.why === undefined).toBe(!(selected && ignored));
  });

  test.each<[string, object, string]>([
    ["nothing", {}, "Protected"],
    ["the label false", { labels: { [PROTECT]: "false" } }, "Declined"],
    ["the label false and the annotation adopted", declining({ [PROTECT]: "adopted" }), "Declined"],
    ["the label false and the annotation true", declining({ [PROTECT]: "true" }), "Protected"],
  ])("with %s, where a selector takes all objects", (_, metadata, decision) => {
    const source = read(name, { labels: {}, ...metadata }, lenient);
    expect(source.decision).toBe(ignored && decision === "Protected" ? "Ignored" : decision);
  });

  test.each<[string, object]>([
    ["labelled", { labels: { [PROTECT]: "yes" } }],
    ["annotated", { labels: {}, annotations: { [PROTECT]: "True" } }],
  ])("%s with another word than true and false, says why it is not protected", (_, metadata) => {
    const source = read(name, metadata);
    expect(source).toMatchObject({ decision: "NotSelected", why: expect.stringContaining(`${PROTECT} is neither`) });
    expect(requires(source)).toBe(false);
    expect(read(name, { namespace: "bank", ...metadata }, narrow).why).toBeUndefined();
    const [other] = plugins({ protectSelector: "team=a", protectNonZero: true });
    expect(other?.interpret(object(other.name)).why).toBeUndefined();
  });

  test.each<[string, string, boolean]>([
    ["in a covered namespace", "shop", true],
    ["in another namespace", "other", false],
    ["in an excluded namespace", "bank", false],
  ])("%s", (_, namespace, inScope) => {
    const source = read(name, { namespace }, narrow);
    expect(source.decision === "OutOfScope").toBe(!inScope);
    expect(requires(source)).toBe(inScope && !ignored);
  });

  test("of the whole cluster is out of scope, because a protector is in a namespace", () => {
    expect(read(name, { namespace: "" }, lenient).decision).toBe("OutOfScope");
  });

  test.each([
    ["Warn", "Warn"],
    ["Off", "Off"],
    ["Enforce", "Enforce"],
    ["warn", undefined],
    [undefined, undefined],
  ])("with the enforcement %s", (stated, expected) => {
    const annotations = stated === undefined ? {} : { "podseidon.kubewharf.io/enforcement": stated };
    expect(read(name, { annotations }).enforcement).toBe(expected);
  });

  test.each<[string, boolean, readonly string[], readonly string[]]>([
    ["min-available", false, ["0", "4", "150%", "+5%"], ["four", "-1", "1e3", " 4", "4 pods", "%", ""]],
    ["max-unavailable", false, ["0", "4", "150%"], ["-50%", "0x1", "1.5"]],
    ["min-running", false, ["0", "50%"], ["half"]],
    ["expected-pods", true, ["core", "cells", "12"], ["cell", "0", "12pods", "1e3", "-3"]],
    ["enforcement", BUDGETS.includes(name), ["Enforce", "Warn", "Off"], ["warn", "enforce", ""]],
  ])("with a value of the annotation %s that says nothing, says so", (annotation, ofBudgets, known, misread) => {
    const key = `podseidon.kubewharf.io/${annotation}`;
    const why = (value: string, labels = { [PROTECT]: "true" }): string | undefined =>
      read(name, { labels, annotations: { [key]: value } }).why;
    if (ignored) return;
    const told = ofBudgets === BUDGETS.includes(name) ? expect.stringContaining(`${key} must be`) : undefined;
    for (const value of known) expect([value, why(value)]).toEqual([value, undefined]);
    for (const value of misread) expect([value, why(value)]).toEqual([value, told]);
    for (const value of misread) expect(why(value, { [PROTECT]: "false" })).toBeUndefined();
  });

  test("deleted: a budget ends; a workload that asks for pods stays protected, by default", () => {
    if (ignored) return;
    const isBudget = BUDGETS.includes(name);
    expect(read(name, DELETED).decision).toBe(isBudget ? "Deleting" : "DeletingWithReplicas");
    expect(read(name, DELETED).deleting).toBe(true);
    expect(requires(read(name, DELETED))).toBe(!isBudget);
    expect(read(name, DELETED, lenient).decision).toBe("Deleting");
    expect(requires(read(name, DELETED, lenient))).toBe(false);
  });

  test("requires protectors that name it, with a derivation, and with fields that a source may set", () => {
    const source = read(name);
    if (RESOLVED.includes(name)) expect(source.need).toBeDefined();
    for (const { name: protector, spec, derivation } of source.protectors) {
      expect(protector).toBe(`${name}-web`);
      expect(spec).toMatchObject({ minReadySeconds: 0, selector });
      expect(Number.isInteger(spec.minAvailable) && spec.minAvailable >= 0).toBe(true);
      expect(derivation).toContain(`minAvailable ${spec.minAvailable}`);
    }
    if (source.need?.kind === "budget") {
      for (const field of Object.keys(source.need.budget.spec)) expect(source.need.budget.owns).toContain(field);
      for (const field of source.need.budget.owns) expect(SOURCE_FIELDS).toContain(field);
    }
  });

  test.each([[null], [{}], [[]], ["text"], [{ metadata: {} }], [{ metadata: { name: "web" }, spec: {} }]])(
    "rejects another object: %j",
    (raw) => {
      const plugin = all.find((one) => one.name === name);
      expect(() => plugin?.interpret(raw)).toThrow();
    },
  );
});

describe("an object that can't be read", () => {
  const odd = (metadata: object = {}, spec: object = { selector, maxUnavailable: 1, suspend: "soon" }): unknown => ({
    ...object("xpoddisruptionbudget", metadata),
    spec,
  });
  const plugin = all.find(({ name }) => name === "xpoddisruptionbudget");
  const unreadable = (metadata: object = {}, last?: ProtectionSource): ProtectionSource | undefined =>
    plugin?.unreadable?.(odd(metadata), (key) => (key === "shop/web" ? last : undefined));

  test("is there, and keeps the protectors that it has", () => {
    expect(() => plugin?.interpret(odd())).toThrow("spec.suspend");
    const why = `it can't be read: spec.suspend: expected a boolean, got "soon"`;
    expect(unreadable()).toMatchObject({ uid: "u1", decision: "Protected", need: { kind: "unreadable" } });
    expect(unreadable()?.need).toEqual({ kind: "unreadable", why });
  });

  test("is as it was read before, while it is the same object", () => {
    const last = read("xpoddisruptionbudget", { resourceVersion: "6" });
    expect(unreadable({}, last)).toEqual({ ...last, resourceVersion: "7" });
    expect(unreadable({ uid: "u2" }, last)?.need?.kind).toBe("unreadable");
  });

  test("can decline protection and be deleted", () => {
    const last = read("xpoddisruptionbudget");
    expect(unreadable({ labels: { [PROTECT]: "false" } }, last)).toMatchObject({
      decision: "Declined",
      protectors: [],
    });
    expect(unreadable(DELETED, last)).toMatchObject({ decision: "Deleting", protectors: [] });
    expect(unreadable(DELETED, last)?.need).toBeUndefined();
  });

  test("keeps its protection when it is a workload that is deleted: it may ask for replicas", () => {
    const workload = all.find(({ name }) => name === "deployment");
    const raw = { ...object("deployment", DELETED), spec: { replicas: "4" } };
    expect(workload?.unreadable?.(raw, () => undefined)?.decision).toBe("DeletingWithReplicas");
  });

  test("states by its metadata alone how its protectors are enforced", () => {
    const last = read("xpoddisruptionbudget", { annotations: { "podseidon.kubewharf.io/enforcement": "Off" } });
    expect(last.enforcement).toBe("Off");
    expect(unreadable({}, last)?.enforcement).toBeUndefined();
    const warning = { annotations: { "podseidon.kubewharf.io/enforcement": "Warn" } };
    expect(unreadable(warning, last)?.enforcement).toBe("Warn");
  });

  test("without metadata is no object", () => {
    expect(plugin?.unreadable?.({ spec: {} }, () => undefined)).toBeUndefined();
  });
});

const owner = { apiVersion: "apps/v1", kind: "Deployment", name: "web", uid: "u0", controller: true };

test.each(["replicaset", "replicationcontroller"])("a %s with a controller is left to that", (name) => {
  expect(read(name, { ownerReferences: [owner] })).toMatchObject({ decision: "Controlled", protectors: [] });
  expect(read(name, { ownerReferences: [{ ...owner, controller: false }] }).decision).toBe("Protected");
});

test("workloads are read for budgets even if --kinds leaves them out", () => {
  const few = plugins({ protectSelector: "", protectNonZero: true, kinds: ["poddisruptionbudget"] });
  expect(few.map(({ name }) => name)).toEqual([
    "deployment",
    "statefulset",
    "replicaset",
    "replicationcontroller",
    "daemonset",
    "poddisruptionbudget",
  ]);
  expect(read("deployment", {}, few)).toMatchObject({ decision: "OutOfScope", protectors: [], scale: { replicas: 4 } });
  expect(plugins({ protectSelector: "", protectNonZero: true, kinds: ["job"] }).map(({ name }) => name)).toEqual([
    "job",
  ]);
});
