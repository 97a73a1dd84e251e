import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { PRE_ACTIVITY_PREFIX } from "./annotations.ts";
import { MAX_KEY_LENGTH, MAX_LABEL_LENGTH, MAX_NAME_LENGTH } from "./lengths.ts";
import { type Pod, parseAnyPod, parsePod } from "./pod.ts";
import { SchemaError } from "./schema-error.ts";

const TIME = "2026-03-01T10:00:00Z";

function rawPod(parts: { metadata?: object; spec?: unknown; status?: unknown } = {}): object {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "web-1", namespace: "shop", uid: "u-1", resourceVersion: "7", ...parts.metadata },
    spec: "spec" in parts ? parts.spec : { nodeName: "node-1", containers: [] },
    status: "status" in parts ? parts.status : { phase: "Running" },
  };
}

describe("a pod", () => {
  test("is trimmed to the fields in use", () => {
    const raw = rawPod({
      metadata: {
        generateName: "web-",
        generation: 3,
        deletionTimestamp: TIME,
        labels: { app: "web", "podseidon.kubewharf.io/protect": "true" },
        annotations: {
          "kubectl.kubernetes.io/last-applied-configuration": "{}",
          "podseidon.kubewharf.io/force-delete": "yes",
          "pub.kruise.io/no-protect": "true",
          "pre-activity.xpdb.form3.tech/backup": "",
          "kubernetes.io/config.mirror": "abc",
        },
      },
      spec: { nodeName: "node-1", readinessGates: [{ conditionType: "a.io/b" }] },
      status: {
        phase: "Running",
        conditions: [
          { type: "Ready", status: "True", lastTransitionTime: TIME },
          { type: "a.io/b", status: "Unknown", lastTransitionTime: null },
        ],
      },
    });
    expect(parsePod(raw)).toEqual({
      namespace: "shop",
      name: "web-1",
      uid: "u-1",
      resourceVersion: "7",
      generation: 3,
      labels: { app: "web", "podseidon.kubewharf.io/protect": "true" },
      annotations: {
        "podseidon.kubewharf.io/force-delete": "yes",
        "pub.kruise.io/no-protect": "true",
        "pre-activity.xpdb.form3.tech/backup": "",
        "kubernetes.io/config.mirror": "abc",
      },
      terminating: true,
      phase: "Running",
      conditions: [
        { type: "Ready", status: true, sinceMs: Date.parse(TIME) },
        { type: "a.io/b", status: false, sinceMs: 0 },
      ],
      readinessGates: ["a.io/b"],
      waitsForGates: false,
      scheduled: true,
      mirror: true,
    });
  });

  test.each([
    ["no spec and no status", rawPod({ metadata: { generation: 0 }, spec: undefined, status: undefined })],
    [
      "null for what may be left out",
      rawPod({
        metadata: { labels: null, annotations: null, deletionTimestamp: null, generation: null },
        spec: null,
        status: null,
      }),
    ],
    [
      "null inside",
      rawPod({ spec: { nodeName: null, readinessGates: null }, status: { phase: null, conditions: null } }),
    ],
  ])("with %s is complete and plain", (_, raw) => {
    expect(parsePod(raw)).toMatchObject({
      generation: 0,
      labels: {},
      annotations: undefined,
      terminating: false,
      phase: "Unknown",
      conditions: [],
      readinessGates: undefined,
      waitsForGates: false,
      scheduled: false,
      mirror: false,
    });
  });

  test.each(["Pending", "Running", "Succeeded", "Failed", "Unknown"])("in phase %s", (phase) => {
    expect(parsePod(rawPod({ status: { phase } })).phase).toBe(phase);
  });

  test("in a phase of a later Kubernetes is in phase Unknown, readable or not", () => {
    expect(parsePod(rawPod({ status: { phase: "Asleep" } })).phase).toBe("Unknown");
    expect(parseAnyPod(rawPod({ spec: 5, status: { phase: "Asleep" } })).phase).toBe("Unknown");
  });

  test("may have texts as long as Kubernetes allows", () => {
    const [key, value] = ["k".repeat(MAX_KEY_LENGTH), "v".repeat(MAX_LABEL_LENGTH)];
    const conditions = [{ type: key, status: "True" }];
    const raw = rawPod({ metadata: { name: "n".repeat(MAX_NAME_LENGTH), labels: { [key]: value } } });
    expect(parsePod({ ...raw, status: { conditions } })).toMatchObject({
      ...{ labels: { [key]: value }, conditions: [{ type: key, status: true }] },
    });
    expect(parseAnyPod({ ...raw, spec: 5 }).labels).toEqual({ [key]: value });
  });

  test.each<[string, unknown, string]>([
    ["no object", 5, ""],
    ["no metadata", {}, "metadata"],
    ["no name", rawPod({ metadata: { name: undefined } }), "metadata.name"],
    ["no namespace", rawPod({ metadata: { namespace: "" } }), "metadata.namespace"],
    ["no UID", rawPod({ metadata: { uid: null } }), "metadata.uid"],
    ["no version", rawPod({ metadata: { resourceVersion: undefined } }), "metadata.resourceVersion"],
    ["a fractional generation", rawPod({ metadata: { generation: 0.5 } }), "metadata.generation"],
    ["a generation that is no int64", rawPod({ metadata: { generation: 2 ** 63 } }), "metadata.generation"],
    ["a negative generation", rawPod({ metadata: { generation: -1 } }), "metadata.generation"],
    ["labels in a list", rawPod({ metadata: { labels: ["a"] } }), "metadata.labels"],
    ["a label that is a number", rawPod({ metadata: { labels: { a: 1 } } }), "metadata.labels"],
    [
      "a deletion time that is no text",
      rawPod({ metadata: { deletionTimestamp: true } }),
      "metadata.deletionTimestamp",
    ],
    ["a spec that is no object", rawPod({ spec: "x" }), "spec"],
    ["a node name that is no text", rawPod({ spec: { nodeName: {} } }), "spec.nodeName"],
    ["a gate without a type", rawPod({ spec: { readinessGates: [{}] } }), "spec.readinessGates[0].conditionType"],
    ["a phase that is no text", rawPod({ status: { phase: 1 } }), "status.phase"],
    ["conditions in a map", rawPod({ status: { conditions: {} } }), "status.conditions"],
    [
      "a condition without a type",
      rawPod({ status: { conditions: [{ status: "True" }] } }),
      "status.conditions[0].type",
    ],
    ["a condition of null", rawPod({ status: { conditions: [null] } }), "status.conditions[0]"],
    [
      "a condition whose type is longer than keys are",
      rawPod({ status: { conditions: [{ type: "t".repeat(MAX_KEY_LENGTH + 1) }] } }),
      "status.conditions[0].type",
    ],
    ["a name that no object has", rawPod({ metadata: { name: "n".repeat(MAX_NAME_LENGTH + 1) } }), "metadata.name"],
    [
      "a key that is longer than keys are",
      rawPod({ metadata: { labels: { ["k".repeat(MAX_KEY_LENGTH + 1)]: "" } } }),
      "metadata.labels",
    ],
    [
      "a label that is longer than labels are",
      rawPod({ metadata: { labels: { a: "v".repeat(MAX_LABEL_LENGTH + 1) } } }),
      "metadata.labels",
    ],
    [
      "an annotation in use that is no text",
      rawPod({ metadata: { annotations: { "kubernetes.io/config.mirror": 5 } } }),
      "metadata.annotations",
    ],
  ])("is refused: %s", (_, raw, path) => {
    expect(() => parsePod(raw)).toThrow(expect.objectContaining({ name: "SchemaError", path }));
  });
});

describe("labels", () => {
  const of = (name: string, labels: object) =>
    parsePod(rawPod({ metadata: { name, generateName: "rs-", labels } })).labels;

  test("of pods of one owner are shared when they are equal", () => {
    expect(of("a", { app: "web", hash: "1" })).toBe(of("b", { app: "web", hash: "1" }));
  });

  test.each([
    ["one more", { app: "web", hash: "1", added: "x" }],
    ["one less", { app: "web" }],
    ["one changed", { app: "web", hash: "2" }],
    ["none", {}],
  ])("are not mixed up: %s", (_, labels) => {
    of("a", { app: "web", hash: "1" });
    expect(of("b", labels)).toEqual(labels);
    expect(of("c", { app: "web", hash: "1" })).toEqual({ app: "web", hash: "1" });
  });

  test.each<[string, number, (index: number) => object]>([
    ["as many owners as a server may have", 20_000, () => ({ app: "web" })],
    ["huge sets", 120, (index) => Object.fromEntries(Array.from({ length: 1100 }, (_, key) => [`${key}`, `${index}`]))],
  ])("of %s are not all kept", (_, owners, labels) => {
    const shared = (owner: number) =>
      parsePod(rawPod({ metadata: { generateName: `${owner}-`, labels: labels(owner) } })).labels;
    const first = shared(0);
    expect(shared(0)).toBe(first);
    for (let owner = 1; owner <= owners; owner++) shared(owner);
    expect(shared(owners)).toBe(shared(owners));
    expect(shared(0)).not.toBe(first);
  });

  test("of one huge set, or of an owner without a name, are not kept", () => {
    const huge = Object.fromEntries(Array.from({ length: 1300 }, (_, key) => [`${key}`, ""]));
    expect(of("a", huge)).not.toBe(of("b", huge));
    const metadata = { generateName: "g".repeat(MAX_NAME_LENGTH + 1), labels: { app: "web" } };
    expect(parsePod(rawPod({ metadata })).labels).not.toBe(parsePod(rawPod({ metadata })).labels);
  });
});

test("only a short SchemaError is ever thrown", () => {
  const anything = fc.oneof(fc.jsonValue(), fc.constantFrom("x".repeat(100_000), undefined, 2 ** 53));
  const spread = fc.record(
    {
      metadata: fc.oneof(
        anything,
        fc.dictionary(
          fc.constantFrom("name", "namespace", "uid", "resourceVersion", "labels", "annotations"),
          anything,
        ),
      ),
      spec: anything,
      status: anything,
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.oneof(anything, spread), (raw) => {
      try {
        parsePod(raw);
      } catch (error) {
        if (!(error instanceof SchemaError)) throw error;
        expect(error.message.length).toBeLessThan(300);
      }
    }),
  );
});

describe("a condition's time", () => {
  const LATEST = Math.floor((2 ** 52 - 1) / 1000);
  test.each<[string, unknown, number]>([
    ["is absent", null, 0],
    ["is before 1970", "0001-01-01T00:00:00Z", 0],
    ["is in the year 9999", "9999-12-31T23:59:59Z", LATEST],
    // kube-apiserver stores 9999-12-31T23:59:59-14:00 so.
    ["is in the year 10000", "10000-01-01T13:59:59Z", LATEST],
    ["cannot be read", "noon", LATEST],
    ["is no text", 5, LATEST],
  ])("%s", (_, lastTransitionTime, expected) => {
    const pod = parsePod(rawPod({ status: { conditions: [{ type: "Ready", status: "True", lastTransitionTime }] } }));
    expect(pod.conditions).toEqual([{ type: "Ready", status: true, sinceMs: expected }]);
  });
});

describe("a pod that cannot be read", () => {
  test("is present, selected by the labels that can be read, and not Ready", () => {
    const raw = rawPod({
      metadata: {
        labels: { app: "web", bad: 1 },
        annotations: { "kubernetes.io/config.mirror": "x" },
        generation: 0.5,
      },
      status: { phase: "Running", conditions: [{ type: "Ready", status: "True" }] },
    });
    expect(() => parsePod(raw)).toThrow("metadata.generation");
    expect(parseAnyPod(raw)).toMatchObject({
      ...{ uid: "u-1", resourceVersion: "7", labels: { app: "web" }, conditions: [], terminating: false },
      ...{ phase: "Running", mirror: true, generation: 0 },
    });
  });

  test.each<[string, unknown, Partial<Pod>]>([
    ["is terminating", rawPod({ metadata: { deletionTimestamp: 5 } }), { terminating: true }],
    ["has finished", rawPod({ spec: 5, status: { phase: "Failed" } }), { phase: "Failed" }],
    ["has a phase of no sense", rawPod({ status: { phase: 5 } }), { phase: "Unknown", conditions: [] }],
    ["has a generation that no status can hold", rawPod({ metadata: { generation: 1e300 } }), { generation: 0 }],
    ["has no labels to read", rawPod({ metadata: { labels: [] } }), { labels: {} }],
    [
      "has a spec that is no object",
      rawPod({ metadata: { generation: 3, deletionTimestamp: null }, spec: 5 }),
      { generation: 3, terminating: false, scheduled: true, waitsForGates: false, mirror: false },
    ],
  ])("%s", (_, raw, expected) => {
    expect(parseAnyPod(raw)).toMatchObject(expected);
  });

  test("has so many pre-activities that looking through them costs little", () => {
    const annotations = Object.fromEntries(
      Array.from({ length: 8_000 }, (_, index) => [`${PRE_ACTIVITY_PREFIX}${index}`, ""]),
    );
    for (const metadata of [{ annotations }, { annotations, generation: 1e300 }]) {
      const kept = parseAnyPod(rawPod({ metadata })).annotations;
      expect(Object.keys(kept ?? {})).toHaveLength(100);
    }
  });

  test("is refused without a name, a UID or a version, and with what no apiserver stores", () => {
    for (const metadata of [{ name: "" }, { uid: 5 }, { resourceVersion: null }, { namespace: undefined }])
      expect(() => parseAnyPod(rawPod({ metadata }))).toThrow(SchemaError);
    const [key, value, name] = [MAX_KEY_LENGTH, MAX_LABEL_LENGTH, MAX_NAME_LENGTH].map((most) => "x".repeat(most + 1));
    for (const metadata of [{ name }, { labels: { [`${key}`]: "" } }, { labels: { a: value } }])
      expect(() => parseAnyPod(rawPod({ metadata }))).toThrow(SchemaError);
  });
});
