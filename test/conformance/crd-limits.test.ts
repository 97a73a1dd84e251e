/**
 * The limits of the CRD, each at its edge, on a real apiserver: a bound that is too narrow refuses what a user needs,
 * and one that is too wide lets in what the components do not expect.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ApiAnswer, field } from "../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { root } from "../../scripts/root.ts";

const CRD = readFileSync(join(root, "crds/podseidon.kubewharf.io_podprotectors.yaml"), "utf8");
const PATH = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors";

let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start({ name: "crd-limits", ...BARE });
  await cluster.apply(CRD);
  await cluster.waitFor("the CRD", async () => (await cluster.admin.request("GET", PATH)).status === 200);
});

afterAll(() => cluster?.stop());

function times<T>(count: number, item: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => item(index));
}

function create(spec: object): Promise<ApiAnswer> {
  const object = {
    apiVersion: "podseidon.kubewharf.io/v1alpha1",
    kind: "PodProtector",
    metadata: { name: "limits" },
    spec: { minAvailable: 1, minReadySeconds: 0, selector: {}, ...spec },
  };
  return cluster.admin.request("POST", `${PATH}?dryRun=All`, object);
}

async function expectTaken(answer: Promise<ApiAnswer>): Promise<void> {
  const { status, body } = await answer;
  expect([status, field(body, "message")]).toEqual([201, undefined]);
}

async function refusalOf(answer: Promise<ApiAnswer>): Promise<unknown> {
  const { status, body } = await answer;
  expect(status).toBe(422);
  return field(body, "message");
}

describe.each(["selector", "aggregationSelector", "ignoredPodSelector"])("spec.%s", (path) => {
  const ofMany = (count: number): object => Object.fromEntries(times(count, (index) => [`k${index}`, "v"]));
  const required = (rest: object): object => ({ matchExpressions: [{ key: "a", ...rest }] });
  const values = (...given: readonly string[]): object => required({ operator: "In", values: given });
  const keyed = (key: string): object => required({ key, operator: "Exists" });
  const exist = (count: number): object => ({
    matchExpressions: times(count, (index) => ({ key: `k${index}`, operator: "Exists" })),
  });
  const many = (requirements: number, valuesEach: number): object => ({
    matchExpressions: times(requirements, (key) => ({
      ...{ key: `k${key}`, operator: "NotIn", values: times(valuesEach, (value) => `v${value}`) },
    })),
  });
  const [prefix, name] = ["p".repeat(253), "n".repeat(63)];
  const dryRun = (selector: object): Promise<ApiAnswer> => create({ [path]: selector });

  test.each<[string, object]>([
    ["64 labels with values of 63 characters", { matchLabels: { ...ofMany(63), a: name } }],
    ["no value", { matchLabels: { app: "" } }],
    ["the longest key", keyed(`${prefix}/${name}`)],
    ["64 requirements", exist(64)],
    ["1,024 values in all", many(4, 256)],
    ["256 values, one of them of 63 characters", values(name, ...times(255, (index) => `v${index}`))],
  ])("takes %s", async (_, selector) => {
    await expectTaken(dryRun(selector));
  });

  test.each<[string, object, string]>([
    ["65 labels", { matchLabels: ofMany(65) }, "matchLabels: Too many"],
    ["a value of 64 characters", { matchLabels: { a: `${name}n` } }, "matchLabels.a: Too long"],
    ["a value that no label has", { matchLabels: { a: "-" } }, "matchLabels.a: Invalid value"],
    ["an empty key", keyed(""), "matchExpressions[0].key: Invalid value"],
    ["a key that no label has", keyed("a/b/c"), "matchExpressions[0].key: Invalid value"],
    ["a key of 318 characters", keyed(`${prefix}/${name}n`), "matchExpressions[0].key: Too long"],
    ["an unknown operator", required({ operator: "Near" }), "operator: Unsupported value"],
    ["65 requirements", exist(65), "matchExpressions: Too many"],
    ["257 values", values(...times(257, (index) => `v${index}`)), "matchExpressions[0].values: Too many"],
    ["1,025 values in all", many(5, 205), "must have at most 1024 values in all"],
    ["an item of 64 characters", values(`${name}n`), "matchExpressions[0].values[0]: Too long"],
    ["an item that no label has", values("a b"), "matchExpressions[0].values[0]: Invalid value"],
    ["In without values", required({ operator: "In" }), "values: Invalid value"],
    ["NotIn with an empty list", required({ operator: "NotIn", values: [] }), "values: Invalid value"],
    ["Exists with values", required({ operator: "Exists", values: ["b"] }), "must be empty when operator is Exists"],
    ["DoesNotExist with values", required({ operator: "DoesNotExist", values: ["b"] }), "values: Invalid value"],
  ])("refuses %s", async (_, selector, message) => {
    const refusal = await refusalOf(dryRun(selector));
    expect(refusal).toContain(`spec.${path}.match`);
    expect(refusal).toContain(message);
  });
});

const probe = (rest: object): object => ({ probe: { endpoint: "db:1", ...rest } });
const until = (text: string): object => ({ suspend: { enabled: true, until: text } });
const cells = (...given: readonly string[]): object => ({ suspend: { enabled: true, cells: given } });
const conditions = (...given: readonly string[]): object => ({ availabilityConditions: given });

test.each<[string, object]>([
  ["32 conditions", conditions(...times(32, (index) => `c${index}`))],
  ["a condition with a name of 316 characters", conditions("c".repeat(316))],
  ["a prefix of 317 characters", { unavailableLabelPrefix: "p".repeat(317) }],
  ["a suspension until a time with an offset", until("2030-01-01t00:00:00.123456789+23:59")],
  ["a suspension with a reason of 1,024 characters", { suspend: { enabled: true, reason: "r".repeat(1024) } }],
  ["a suspension in 256 cells", cells(...times(256, (index) => `cell-${index}`))],
  ["a suspension in a cell with an id of 253 characters", cells("c".repeat(253))],
  ["a probe of 2,048 characters", probe({ endpoint: `dns:///${"h".repeat(2041)}` })],
  ["the shortest timeout of a probe", probe({ timeoutMillis: 1 })],
  ["certificates of 64 KiB", probe({ caBundle: "Q".repeat(65_536) })],
])("takes %s", (_, spec) => expectTaken(create(spec)));

test.each<[string, object, string]>([
  ["33 conditions", conditions(...times(33, (index) => `c${index}`)), "spec.availabilityConditions: Too many"],
  ["a condition of 317 characters", conditions("c".repeat(317)), "spec.availabilityConditions[0]: Too long"],
  ["a condition twice", conditions("c", "c"), "spec.availabilityConditions[1]: Duplicate value"],
  ["an empty prefix", { unavailableLabelPrefix: "" }, "spec.unavailableLabelPrefix: Invalid value"],
  ["a prefix of 318 characters", { unavailableLabelPrefix: "p".repeat(318) }, "spec.unavailableLabelPrefix: Too long"],
  [
    "a criterion twice",
    { allowedHealthCriteria: ["Ready", "Ready"] },
    "spec.allowedHealthCriteria[1]: Duplicate value",
  ],
  ["a suspension until an offset that no clock has", until("2030-01-01T00:00:00+24:00"), "spec.suspend.until: Invalid"],
  [
    "a reason of 1,025 characters",
    { suspend: { enabled: true, reason: "r".repeat(1025) } },
    "spec.suspend.reason: Too long",
  ],
  ["a suspension in no cell", cells(), "spec.suspend.cells: Invalid value"],
  ["a suspension in 257 cells", cells(...times(257, (index) => `cell-${index}`)), "spec.suspend.cells: Too many"],
  ["a suspension in a cell twice", cells("a", "a"), "spec.suspend.cells[1]: Duplicate value"],
  ["a suspension in a cell without an id", cells(""), "spec.suspend.cells[0]: Invalid value"],
  ["an id of 254 characters", cells("c".repeat(254)), "spec.suspend.cells[0]: Too long"],
  ["a probe of 2,049 characters", probe({ endpoint: `dns:///${"h".repeat(2042)}` }), "spec.probe.endpoint: Too long"],
  ["certificates of more than 64 KiB", probe({ caBundle: "Q".repeat(65_537) }), "spec.probe.caBundle: Too long"],
])("refuses %s", async (_, spec, message) => {
  expect(await refusalOf(create(spec))).toContain(message);
});
