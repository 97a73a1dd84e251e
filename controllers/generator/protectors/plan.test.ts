import { describe, expect, test } from "vitest";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import type { ProtectionSource } from "../sources/protection-source.ts";
import { alternativeName } from "./names.ts";
import { plan, type ReconcileStep, type SourceFacts } from "./plan.ts";
import { newProtector } from "./protector.ts";

const plugin = pluginNamed("deployment");

const GENERATOR = "podseidon.kubewharf.io/generator";
const RELEASED = "podseidon.kubewharf.io/released";
const required = {
  name: "deployment-web",
  spec: { minAvailable: 8, minReadySeconds: 0, selector: { matchLabels: { app: "web" } } },
  derivation: "replicas 10 - maxUnavailable 2 = minAvailable 8",
};

function source(changes: Partial<ProtectionSource> = {}): ProtectionSource {
  return {
    namespace: "shop",
    name: "web",
    uid: "u1",
    resourceVersion: "7",
    finalizers: [GENERATOR],
    deleting: false,
    decision: "Protected",
    protectors: [required],
    ...changes,
  };
}

/** The protector as the generator creates it, with the fields that the apiserver adds. */
function protector(changes: (object: PodProtector) => PodProtector = (object) => object): PodProtector {
  const { metadata, spec } = newProtector(plugin.kind, source(), required, "deployment-web");
  const { labels, annotations } = metadata;
  return changes({
    metadata: {
      name: metadata.name,
      namespace: metadata.namespace,
      uid: "p1",
      resourceVersion: "9",
      labels: { ...labels },
      annotations: { ...annotations },
      finalizers: [...metadata.finalizers],
      ownerReferences: [...metadata.ownerReferences],
    },
    spec,
  });
}

function withMetadata(changes: Partial<PodProtector["metadata"]>): PodProtector {
  return protector((object) => ({ ...object, metadata: { ...object.metadata, ...changes } }));
}

function withSpec(changes: Partial<PodProtector["spec"]>): PodProtector {
  return protector((object) => ({ ...object, spec: { ...object.spec, ...changes } }));
}

function planned(
  present: ProtectionSource | undefined,
  protectors: PodProtector[],
  others: PodProtector[] = [],
  lost: PodProtector[] = [],
): ReconcileStep[] {
  const facts: SourceFacts = {
    kind: plugin.kind,
    plugins: [plugin],
    identity: { plugin: "deployment", namespace: "shop", name: "web" },
    source: present,
    protectors,
    named: (name) => [...protectors, ...others].find(({ metadata }) => metadata.name === name),
    lost,
  };
  return plan(facts);
}

const kinds = (steps: ReconcileStep[]): string[] => steps.map(({ kind }) => kind);

describe("a source that asks for protection", () => {
  test.each<[string, ProtectionSource, PodProtector[], string[]]>([
    ["gets the finalizer first, then its protector", source({ finalizers: [] }), [], ["addSourceFinalizer", "create"]],
    ["gets no second finalizer", source({ finalizers: ["other", GENERATOR] }), [], ["create"]],
    ["needs nothing when nothing has changed", source(), [protector()], []],
    [
      "gets its finalizer again when a client has removed it",
      source({ finalizers: [] }),
      [protector()],
      ["addSourceFinalizer"],
    ],
    ["keeps its protector while it is deleted with replicas", source({ deleting: true }), [protector()], []],
    ["gets its protector again even then", source({ deleting: true }), [], ["create"]],
    ["gets none while it is deleted without the finalizer", source({ deleting: true, finalizers: [] }), [], []],
    [
      "loses a protector that it no longer requires",
      source(),
      [protector(), withMetadata({ name: "old" })],
      ["release"],
    ],
  ])("%s", (_, present, protectors, expected) => {
    expect(kinds(planned(present, protectors))).toEqual(expected);
  });

  test("creates the protector that upstream would create", () => {
    const [, step] = planned(source({ finalizers: [] }), []);
    expect(step).toEqual({
      kind: "create",
      object: {
        apiVersion: "podseidon.kubewharf.io/v1alpha1",
        kind: "PodProtector",
        metadata: {
          name: "deployment-web",
          namespace: "shop",
          labels: {
            "podseidon.kubewharf.io/source-name": "web",
            "podseidon.kubewharf.io/source-group": "apps",
            "podseidon.kubewharf.io/source-kind": "Deployment",
            "podseidon.kubewharf.io/source-resource": "deployments",
          },
          annotations: { "podseidon.kubewharf.io/derivation": required.derivation },
          finalizers: [GENERATOR],
          ownerReferences: [{ apiVersion: "apps/v1", kind: "Deployment", name: "web", uid: "u1", controller: true }],
        },
        spec: required.spec,
      },
    });
  });
});

test("a source that had a protector before gets one with a mark, because its reservations are lost", () => {
  const [step] = planned(source(), []);
  expect(step?.kind === "create" && step.object.metadata.annotations).toHaveProperty([
    "podseidon.kubewharf.io/restored",
  ]);
});

test("a restored protector has the labels and annotations that an operator has set", () => {
  const { metadata } = protector();
  const gate = { "podseidon.kubewharf.io/counted-gate": "enabled" };
  const vanished = withMetadata({
    labels: { ...metadata.labels, team: "shop" },
    annotations: { ...metadata.annotations, ...gate, "podseidon.kubewharf.io/derivation": "as it was" },
  });
  const [step] = planned(source(), [], [], [vanished]);
  const mark = { "podseidon.kubewharf.io/restored": expect.any(String) };
  expect(step).toMatchObject({
    kind: "restore",
    object: {
      metadata: {
        labels: { ...metadata.labels, team: "shop" },
        annotations: { ...gate, ...mark, "podseidon.kubewharf.io/derivation": required.derivation },
      },
    },
  });
});

test("cells are removed from the protector of a vanished source, too", () => {
  const annotations = { "podseidon.kubewharf.io/remove-cell-once": "a, b" };
  const [first, ...others] = planned(undefined, [withMetadata({ annotations })]);
  expect(first).toMatchObject({ kind: "removeCells", cells: ["a", "b"] });
  expect(kinds(others)).toEqual([]);
});

describe("an altered protector is repaired", () => {
  test.each<[string, PodProtector]>([
    ["a smaller minimum", withSpec({ minAvailable: 1 })],
    ["another selector", withSpec({ selector: { matchLabels: { app: "other" } } })],
    ["a narrower selector", withSpec({ selector: { matchLabels: { app: "web", tier: "x" } } })],
    ["ignored pods", withSpec({ ignoredPodSelector: { matchLabels: { app: "web" } } })],
    ["more pods counted", withSpec({ aggregationSelector: {} })],
    ["fewer operations", withSpec({ protectedOperations: ["DELETE", "UPDATE"] })],
    ["no labels", withMetadata({ labels: {} })],
    ["no finalizer", withMetadata({ finalizers: [] })],
    ["no owner", withMetadata({ ownerReferences: [] })],
    ["the mark of a release, without a reason", withMetadata({ annotations: { [RELEASED]: "x" } })],
  ])("%s", (_, altered) => {
    const [step, ...others] = planned(source(), [altered]);
    expect(others).toEqual([]);
    if (step?.kind !== "update") throw new Error(`expected an update, not ${step?.kind}`);
    const { metadata, spec } = step.object;
    expect({ spec, ...metadata }).toEqual({ spec: protector().spec, ...protector().metadata });
  });

  test.each<[string, PodProtector]>([
    ["suspend", withSpec({ suspend: { enabled: true } })],
    ["the size of the admission history", withSpec({ admissionHistoryConfig: { compactThreshold: 10 } })],
    ["more operations", withSpec({ protectedOperations: ["DELETE", "EVICT", "UPDATE"] })],
    [
      "labels, annotations and finalizers of others",
      withMetadata({
        labels: { ...protector().metadata.labels, team: "shop" },
        annotations: { ...protector().metadata.annotations, note: "x" },
        finalizers: [GENERATOR, "backup"],
      }),
    ],
  ])("fields of an operator stay: %s", (_, present) => {
    expect(planned(source(), [present])).toEqual([]);
  });

  test("a protector that is deleted without the finalizer can't get it again, so nothing is written", () => {
    const going = withMetadata({ finalizers: ["backup"], deletionTimestamp: "2026-01-01T00:00:00Z" });
    expect(planned(source(), [going])).toEqual([]);
  });

  test("a workload that was deleted and created again adopts its protector", () => {
    const [step] = planned(source({ uid: "u2" }), [protector()]);
    expect(step?.kind === "update" && step.object.metadata.ownerReferences?.[0]?.uid).toBe("u2");
    expect(step?.kind === "update" && step.object.metadata.ownerReferences).toHaveLength(1);
  });
});

describe("fields that a source decides", () => {
  const owning = source({ protectors: [{ ...required, owns: ["suspend", "probe"] }] });

  test("are removed when the source has none", () => {
    const [step] = planned(owning, [withSpec({ suspend: { enabled: true }, probe: { endpoint: "x:1" } })]);
    expect(step?.kind === "update" && step.object.spec).toEqual(required.spec);
  });

  test("leave the other fields to the operator", () => {
    expect(planned(owning, [withSpec({ unhealthyPodPolicy: "IfHealthyBudget" })])).toEqual([]);
  });

  test("are repaired", () => {
    const spec = { ...required.spec, suspend: { enabled: true } };
    const suspended = source({ protectors: [{ ...required, spec, owns: ["suspend"] }] });
    const [step] = planned(suspended, [withSpec({ suspend: { enabled: false } })]);
    expect(step?.kind === "update" && step.object.spec.suspend).toEqual({ enabled: true });
  });
});

test("a source that is out of scope keeps its protectors as they are", () => {
  const other = source({ decision: "OutOfScope", protectors: [] });
  expect(planned(other, [withMetadata({ ownerReferences: [] })])).toEqual([]);
});

describe("a source that is there again", () => {
  const noted = (status: string): PodProtector =>
    protector((object) => ({
      ...object,
      status: {
        cells: [],
        summary: { totalReplicas: 0, aggregatedAvailableReplicas: 0, estimatedAvailableReplicas: 0 },
        conditions: [
          { type: "SourceVanished", status, reason: "x", message: "", lastTransitionTime: "2026-01-01T00:00:00Z" },
        ],
      },
    }));

  test("clears the condition once; a source that is still gone is not reported again", () => {
    expect(planned(source(), [noted("True")])).toMatchObject([{ kind: "setSourceState", state: "present" }]);
    expect(planned(source(), [noted("False")])).toEqual([]);
    expect(planned(undefined, [noted("True")])).toEqual([]);
    expect(kinds(planned(undefined, [noted("False")]))).toEqual(["reportSource", "setSourceState"]);
  });
});

test("a deletion that waits is reported, and noted in a condition", () => {
  const waiting = source({ deleting: true, decision: "DeletingWithReplicas" });
  expect(planned(waiting, [protector()])).toMatchObject([
    { kind: "reportSource", state: "deleting" },
    { kind: "setSourceState", state: "deleting" },
  ]);
});

describe("a source that vanished and is there again without asking for protection", () => {
  const silent = source({ uid: "u2", decision: "NotSelected", protectors: [], finalizers: [] });
  const marked = withMetadata({ annotations: { [RELEASED]: "by hand" } });
  const restored = withMetadata({ ownerReferences: [] });

  test.each<[string, ProtectionSource, PodProtector, string]>([
    ["is adopted", silent, protector(), "adopt"],
    ["is adopted where the protector was restored, too", silent, restored, "adopt"],
    ["is not where an operator has released the protector", silent, marked, "release"],
    [
      "is not where it says that it is not to be protected",
      { ...silent, decision: "Declined" },
      protector(),
      "release",
    ],
    ["is not while it is being deleted", { ...silent, deleting: true }, protector(), "release"],
    ["is not where it is the same object, which lost the label", { ...silent, uid: "u1" }, protector(), "release"],
  ])("%s", (_, present, found, step) => {
    expect(kinds(planned(present, [found]))).toEqual([step]);
  });

  test("is adopted where the protector is lost, too", () => {
    expect(kinds(planned(silent, [], [], [protector()]))).toEqual(["adopt"]);
  });
});

describe("a name that is taken", () => {
  const foreign = (changes: Partial<PodProtector["metadata"]>): PodProtector =>
    withMetadata({ labels: {}, ownerReferences: [], finalizers: [], ...changes });
  const spare = alternativeName("deployment-web", "deployment/shop/web");

  test("by a user: the source gets a protector of another name, and the user's stays", () => {
    const [step] = planned(source(), [], [foreign({})]);
    expect(step?.kind === "create" && step.object.metadata.name).toBe(spare);
  });

  test("the other name stays, even when the first is free later", () => {
    expect(planned(source(), [withMetadata({ name: spare })], [foreign({})])).toEqual([]);
    expect(planned(source(), [withMetadata({ name: spare })])).toEqual([]);
  });

  test("by a protector of the generator without labels and owner: the source adopts it", () => {
    const [step] = planned(source(), [], [foreign({ finalizers: [GENERATOR] })]);
    expect(step?.kind === "update" && step.object.metadata.labels).toEqual(protector().metadata.labels);
  });
});

describe("a protector is released", () => {
  test.each<[string, ProtectionSource, string]>([
    ["when its source is deleted", source({ deleting: true, decision: "Deleting", protectors: [] }), "SourceDeleted"],
    [
      "when its source no longer asks for protection",
      source({ decision: "NotSelected", protectors: [] }),
      "NotRequired",
    ],
  ])("%s, and then the finalizer of the source is removed", (_, present, reason) => {
    expect(planned(present, [protector()])).toEqual([
      { kind: "release", protector: protector(), reason },
      { kind: "removeSourceFinalizer", source: present },
    ]);
  });

  test("a source without the finalizer and without protectors needs nothing", () => {
    expect(planned(source({ decision: "NotSelected", protectors: [], finalizers: ["other"] }), [])).toEqual([]);
  });

  test("never because its source vanished", () => {
    expect(kinds(planned(undefined, [protector()]))).toEqual(["reportSource", "setSourceState"]);
  });

  test("unless an operator marks it as released", () => {
    const marked = withMetadata({ annotations: { [RELEASED]: "by hand" } });
    expect(planned(undefined, [marked])).toEqual([
      { kind: "release", protector: marked, reason: "ReleasedByOperator" },
    ]);
  });
});

test("remove-cell-once names the cells to remove", () => {
  const annotations = { ...protector().metadata.annotations, "podseidon.kubewharf.io/remove-cell-once": "a, b" };
  const [step] = planned(source(), [withMetadata({ annotations })]);
  expect(step?.kind === "removeCells" && step.cells).toEqual(["a", "b"]);
});

describe("a lost protector", () => {
  const OWNERS = ["metadata", "ownerReferences"] as const;

  test("is restored with its reservations and the fields of an operator", () => {
    const lost = withSpec({ minAvailable: 3, admissionHistoryConfig: { maxConcurrentLag: 7 } });
    const [step] = planned(source(), [], [], [lost]);
    expect(step).toMatchObject({
      kind: "restore",
      lost,
      object: { spec: { minAvailable: 8, admissionHistoryConfig: { maxConcurrentLag: 7 } } },
    });
    expect(step).toHaveProperty(
      "object.metadata.annotations",
      expect.objectContaining({
        "podseidon.kubewharf.io/restored": expect.any(String),
      }),
    );
  });

  test("is restored with the mark, also when its source has lost the finalizer", () => {
    const [, step] = planned(source({ finalizers: [] }), [], [], [protector()]);
    expect(step).toHaveProperty(
      ["object", "metadata", "annotations", "podseidon.kubewharf.io/restored"],
      expect.any(String),
    );
  });

  test("is restored without its source, and without an owner reference, for which it would be garbage", () => {
    const [step] = planned(undefined, [], [], [protector()]);
    expect(step).toMatchObject({ kind: "restore", object: { spec: { minAvailable: 8 } } });
    expect(step).not.toHaveProperty(["object", ...OWNERS]);
  });

  test("is not restored for a source that no longer requires it", () => {
    expect(kinds(planned(source({ protectors: [], finalizers: [] }), [], [], [protector()]))).toEqual(["release"]);
  });

  test("is replaced while it is being deleted, with its owner if that exists", () => {
    const deleted = withMetadata({ deletionTimestamp: "2026-01-01T00:00:00Z" });
    const [step] = planned(source(), [deleted]);
    expect(step).toMatchObject({ kind: "replace", protector: deleted });
    expect(step).toHaveProperty(["object", ...OWNERS]);
    expect(kinds(planned(undefined, [deleted]))).toEqual(["replace"]);
    expect(planned(undefined, [deleted])[0]).not.toHaveProperty(["object", ...OWNERS]);
  });

  test("is not replaced once it is released", () => {
    const released = withMetadata({ deletionTimestamp: "2026-01-01T00:00:00Z", annotations: { [RELEASED]: "x" } });
    expect(kinds(planned(undefined, [released]))).toEqual(["release"]);
  });
});
