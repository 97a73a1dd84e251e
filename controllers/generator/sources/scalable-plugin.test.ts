import { describe, expect, test } from "vitest";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import type { Need, ProtectionSource } from "./protection-source.ts";

const GROUP = "podseidon.kubewharf.io";
const CLUSTERS =
  "ray.io/v1/rayclusters?name=.spec.workers[*].name&replicas=.spec.workers[*].replicas" +
  "&selector=ray.io/cluster={.metadata.name}&selector=ray.io/group={.spec.workers[*].name}" +
  "&maxUnavailable=.spec.workers[*].maxUnavailable";

function read(scalable: readonly string[], spec: object, metadata: object = {}): ProtectionSource {
  const [, , resource = ""] = scalable[0]?.split("?")[0]?.split("/") ?? [];
  const group = scalable[0]?.split("/")[0];
  const plugin = pluginNamed(`${resource}.${group}`, { scalable });
  return plugin.interpret({
    metadata: { name: "web", namespace: "shop", uid: "u1", resourceVersion: "7", ...metadata },
    spec,
  });
}

type Groups = Extract<Need, { kind: "groups" }>;

function groupsOf({ need }: ProtectionSource): Groups {
  if (need?.kind !== "groups") throw new Error(`it needs ${need?.kind}`);
  return need;
}

const numbers = (source: ProtectionSource): [string, number][] =>
  groupsOf(source).groups.map(({ name, minimum }) => [name, minimum.minAvailable]);

describe("a custom resource with a list of groups", () => {
  const workers = [
    { name: "cpu", replicas: 8, maxUnavailable: 1 },
    { name: "Big_GPU", replicas: 4, maxUnavailable: "50%" },
    { name: "spare", replicas: 4 },
  ];

  test("has a group for each of them, with its own selector and number", () => {
    const source = read([CLUSTERS], { workers });
    expect(numbers(source)).toEqual([
      ["cpu", 7],
      ["big-gpu", 2],
      ["spare", 3],
    ]);
    const { groups, problem } = groupsOf(source);
    expect(problem).toBeUndefined();
    const values = groups.map(({ selector }) => selector.matchExpressions?.map(({ values: all }) => all?.join()));
    expect(values).toEqual([
      ["web", "cpu"],
      ["web", "Big_GPU"],
      ["web", "spare"],
    ]);
    expect(groups[0]?.minimum.derivation).toBe("replicas 8 - maxUnavailable 1 = minAvailable 7");
  });

  test("an annotation of the object holds for each group", () => {
    const annotations = { [`${GROUP}/max-unavailable`]: "2" };
    expect(numbers(read([CLUSTERS], { workers }, { annotations }))).toEqual([
      ["cpu", 6],
      ["big-gpu", 2],
      ["spare", 2],
    ]);
  });

  test.each<[string, object, string]>([
    ["no list", {}, "it has no list for .spec.workers[*].replicas"],
    ["another thing than a list", { workers: "all" }, "it has no list for .spec.workers[*].replicas"],
    ["a group without a name", { workers: [{ replicas: 1 }] }, "has no name at .spec.workers[*].name"],
    ["a name that is no word", { workers: [{ name: "a,b!=c", replicas: 1 }] }, "no label selector at ray.io/group="],
    ["no replicas", { workers: [{ name: "a" }] }, "the replicas of its group a at .spec.workers[*].replicas are no"],
    ["less than none", { workers: [{ name: "a", replicas: -1 }] }, "are no number of pods"],
    ["a part of a pod", { workers: [{ name: "a", replicas: 1.5 }] }, "are no number of pods"],
    ["one name twice", { workers: ["a", "A"].map((name) => ({ name, replicas: 1 })) }, "several groups"],
  ])("%s: says so, and reads no such group", (_, spec, problem) => {
    const source = read([CLUSTERS], spec);
    expect(groupsOf(source)).toMatchObject({ groups: [], problem: expect.stringContaining(problem) });
    // It may ask for pods.
    const deletionTimestamp = "2026-01-01T00:00:00Z";
    expect(read([CLUSTERS], spec, { deletionTimestamp }).decision).toBe("DeletingWithReplicas");
  });

  test("a group that can't be read does not hide the others", () => {
    const source = read([CLUSTERS], { workers: [{ name: "a", replicas: 4 }, { name: "b" }, {}] });
    expect(numbers(source)).toEqual([["a", 3]]);
    expect(groupsOf(source).problem).toMatch(/of its group b .*, and 1 more such reasons$/);
  });

  test("more groups than a bound are not read", () => {
    const many = Array.from({ length: 101 }, (_, index) => ({ name: `g${index}`, replicas: 1 }));
    expect(groupsOf(read([CLUSTERS], { workers: many.slice(1) }))).toMatchObject({ problem: undefined });
    const source = read([CLUSTERS], { workers: many });
    expect(groupsOf(source).groups).toHaveLength(100);
    expect(groupsOf(source).problem).toBe("it has more than 100 groups of pods");
  });

  test("is deleted when all its groups are at zero", () => {
    const deleted = { deletionTimestamp: "2026-01-01T00:00:00Z" };
    const none = workers.map((worker) => ({ ...worker, replicas: 0 }));
    expect(read([CLUSTERS], { workers: none }, deleted).decision).toBe("Deleting");
    expect(read([CLUSTERS], { workers: [...none, { name: "last", replicas: 1 }] }, deleted).decision).toBe(
      "DeletingWithReplicas",
    );
  });
});

describe("a custom resource whose replicas have several pods each", () => {
  const HOSTS = CLUSTERS.replace("&selector", "&replicas=.spec.workers[*].hosts&selector");

  test("asks for the product, as KubeRay with numOfHosts", () => {
    const source = read([HOSTS], { workers: [{ name: "tpu", replicas: 2, hosts: 4 }] });
    expect(numbers(source)).toEqual([["tpu", 6]]);
    expect(groupsOf(source).groups[0]?.replicas).toBe(8);
  });

  test("asks for none where one of the numbers is 0", () => {
    expect(numbers(read([HOSTS], { workers: [{ name: "tpu", replicas: 0, hosts: 4 }] }))).toEqual([["tpu", 0]]);
  });

  test("is not read where one of the numbers is unreadable, and says which", () => {
    const source = read([HOSTS], { workers: [{ name: "tpu", replicas: 2 }] });
    expect(groupsOf(source)).toMatchObject({
      groups: [],
      problem: "the replicas of its group tpu at .spec.workers[*].hosts are no number of pods",
    });
  });
});

describe("a custom resource with groups at paths of their own", () => {
  const of = (name: string): string =>
    `pingcap.com/v1alpha1/tidbclusters?name=${name}&replicas=.spec.${name}.replicas&selector=component=${name}`;

  test("has a group for each value of --scalable", () => {
    expect(numbers(read([of("pd"), of("tikv")], { pd: { replicas: 3 }, tikv: { replicas: 20 } }))).toEqual([
      ["pd", 3 - 1],
      ["tikv", 15],
    ]);
  });
});

describe("the selector", () => {
  const at = (selector: unknown, template = ".spec.selector"): Groups =>
    groupsOf(read([`a.b/v1/cs?replicas=.spec.size&selector=${template}`], { size: 4, selector }));

  test.each<[unknown, object]>([
    [{ matchLabels: { app: "web" } }, { matchLabels: { app: "web" } }],
    [{ app: "web", tier: "a" }, { matchLabels: { app: "web", tier: "a" } }],
    ["app in (web)", { matchExpressions: [{ key: "app", operator: "In", values: ["web"] }] }],
  ])("may be %j", (value, expected) => {
    expect(at(value)).toMatchObject({ groups: [{ name: "", selector: expected, minimum: { minAvailable: 3 } }] });
  });

  test.each<[unknown, string]>([
    [{}, "selects all pods"],
    [{ matchLabels: {} }, "selects all pods"],
    ["", "selects all pods"],
    [7, "there is no label selector at .spec.selector"],
    [undefined, "there is no label selector"],
    ["app=~web", "there is no label selector"],
    [{ matchExpressions: [{ key: "app", operator: "Like" }] }, "can't be read"],
  ])("may not be %j", (value, problem) => {
    const found = at(value);
    expect(found.groups).toEqual([]);
    expect(found.problem).toContain(problem);
  });

  test("of several parts, which exclude each other, selects no pod", () => {
    const both = ".spec.selector&selector=.spec.other";
    const other = { app: "db" };
    const source = read([`a.b/v1/cs?replicas=.spec.size&selector=${both}`], {
      size: 4,
      selector: { app: "web" },
      other,
    });
    expect(groupsOf(source).problem).toContain("exclude each other");
  });
});

describe("a custom resource with a scale subresource", () => {
  test("has its number from there, and the rest from its paths", () => {
    const scalable = "a.b/v1/cs?selector=app={.metadata.name}&maxUnavailable=.spec.rollout.maxUnavailable";
    const { need } = read([scalable], { rollout: { maxUnavailable: "10%" } });
    expect(need).toMatchObject({
      kind: "scale",
      maxUnavailable: "10%",
      selector: { matchExpressions: [{ key: "app", operator: "In", values: ["web"] }] },
    });
  });

  test("is unresolved without the selector that it should have", () => {
    const { need } = read(["a.b/v1/cs?selector=.spec.selector"], {});
    expect(need).toMatchObject({ kind: "groups", groups: [], problem: expect.stringContaining(".spec.selector") });
  });
});

test.each<[unknown, number | undefined]>([
  [30, 30],
  [0.5, 1],
  [2 ** 40, 2 ** 31 - 1],
  [undefined, undefined],
  [0, undefined],
  [-1, undefined],
  ["30", undefined],
])("minReadySeconds of %j count as those of a Deployment do", (minReadySeconds, expected) => {
  for (const scalable of ["a.b/v1/cs", "a.b/v1/cs?replicas=.spec.replicas&selector=.spec.selector"]) {
    const { need } = read([scalable], { minReadySeconds, replicas: 3, selector: { app: "web" } });
    expect(need).toHaveProperty("kind", scalable.includes("?") ? "groups" : "scale");
    expect(need && "minReadySeconds" in need ? need.minReadySeconds : undefined).toBe(expected);
  }
});
