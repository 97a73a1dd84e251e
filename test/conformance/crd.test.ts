import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { field } from "../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { root } from "../../scripts/root.ts";
import { parsePodProtector } from "../../shared/schema/podprotector.ts";

/**
 * The CRD on a real apiserver: objects of upstream stay unchanged, and invalid ones are rejected at the right field.
 */

const NAME = "podprotectors.podseidon.kubewharf.io";
const DEFINITION = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${NAME}`;
const PATH = "/apis/podseidon.kubewharf.io/v1alpha1/namespaces/default/podprotectors";
const UPSTREAM_CRD = readFileSync(join(import.meta.dirname, "upstream/podprotectors.crd.yaml"), "utf8");
const CRD = readFileSync(join(root, `crds/podseidon.kubewharf.io_podprotectors.yaml`), "utf8");

const TIME = "2026-03-01T10:00:00.123456Z";

const selector = {
  matchLabels: { app: "web" },
  matchExpressions: [{ key: "tier", operator: "In", values: ["a", "b"] }],
};

/** Five requirements of 205 values each. */
const WIDE = {
  matchExpressions: Array.from({ length: 5 }, (_, key) => ({
    ...{ key: `k${key}`, operator: "In", values: Array.from({ length: 205 }, (_, value) => `v${value}`) },
  })),
};

/** All fields of upstream. */
const FULL = {
  spec: {
    minAvailable: 8,
    minReadySeconds: -1,
    selector,
    aggregationSelector: { matchExpressions: [{ key: "tier", operator: "Exists" }] },
    admissionHistoryConfig: { maxConcurrentLag: 0, compactThreshold: 50, aggregationRateMillis: 500 },
  },
  status: {
    cells: [
      {
        cellID: "worker-1",
        aggregation: {
          totalReplicas: 10,
          availableReplicas: 9,
          readyReplicas: 9,
          scheduledReplicas: 10,
          runningReplicas: 10,
          lastEventTime: TIME,
        },
        admissionHistory: {
          buckets: [
            { startTime: TIME, endTime: TIME, counter: 3 },
            { startTime: TIME, podUID: "u-1", podName: "web-1" },
          ],
        },
      },
      { cellID: "worker-2", admissionHistory: {} },
    ],
    summary: {
      totalReplicas: 10,
      aggregatedAvailableReplicas: 9,
      estimatedAvailableReplicas: 6,
      maxLatencyMillis: 12_345_678_901,
      aggregatedReady: 9,
      aggregatedScheduled: 10,
      aggregatedRunning: 10,
    },
  },
};
const LEAST = { spec: { minAvailable: 0, minReadySeconds: 0, selector: {} }, status: undefined };

let cluster: Cluster;

function object(name: string, spec: unknown): Record<string, unknown> {
  return { apiVersion: "podseidon.kubewharf.io/v1alpha1", kind: "PodProtector", metadata: { name }, spec };
}

async function create(name: string, { spec, status }: { spec: object; status: object | undefined }): Promise<void> {
  const created = await cluster.admin.call("POST", PATH, object(name, spec));
  if (status === undefined) return;
  await cluster.admin.call("PUT", `${PATH}/${name}/status`, { ...Object(created), status });
}

async function established(): Promise<void> {
  await cluster.waitFor("the CRD to be served", async () => {
    const conditions = field(await cluster.admin.get(DEFINITION), "status", "conditions");
    const holds = (type: string): boolean =>
      Array.isArray(conditions) && conditions.some((one) => one.type === type && one.status === "True");
    return holds("Established") && (await cluster.admin.request("GET", PATH)).status === 200;
  });
}

beforeAll(async () => {
  cluster = await Cluster.start({ name: "crd", ...BARE });
  await cluster.apply(UPSTREAM_CRD);
  await established();
  await create("full", FULL);
  await create("least", LEAST);
  await create("wide", { ...LEAST, spec: { ...LEAST.spec, selector: WIDE } });
  await cluster.apply(CRD);
  await cluster.waitFor("the new schema to be in force", async () => {
    const answer = await cluster.admin.request(
      "POST",
      `${PATH}?dryRun=All`,
      object("bad", { ...FULL.spec, protectedOperations: [] }),
    );
    return answer.status === 422;
  });
  await established();
});

afterAll(() => cluster?.stop());

describe("an object of upstream", () => {
  const cases = [
    ["full", FULL],
    ["least", LEAST],
  ] as const;

  test.each(cases)("from before the CRD's update is unchanged: %s", async (name, { spec, status }) => {
    expect(await cluster.admin.get(`${PATH}/${name}`)).toMatchObject({
      spec,
      ...(status === undefined ? {} : { status }),
    });
  });

  test.each(cases)("is read as it was written: %s", async (name, wanted) => {
    await create(`${name}-again`, wanted);
    const found = await cluster.admin.get(`${PATH}/${name}-again`);
    expect({ spec: field(found, "spec"), status: field(found, "status") }).toEqual(wanted);
    expect(parsePodProtector(found)).toBe(found);
  });

  test("that has more values than a new one may have is written as before", async () => {
    const changed = await cluster.admin.request("PATCH", `${PATH}/wide`, { spec: { minAvailable: 5 } });
    const counted = await cluster.admin.request("PATCH", `${PATH}/wide/status`, { status: FULL.status });
    expect([changed.status, counted.status]).toEqual([200, 200]);
  });

  test("may have the null that Go writes for an unknown time", async () => {
    const status = {
      ...FULL.status,
      cells: [{ cellID: "a", aggregation: { totalReplicas: 0, availableReplicas: 0, lastEventTime: null } }],
    };
    await create("null-time", { spec: FULL.spec, status });
    const found = await cluster.admin.get(`${PATH}/null-time`);
    expect(field(found, "status")).toEqual(status);
    expect(parsePodProtector(found)).toBe(found);
  });
});

describe("kubectl apply", () => {
  test.each<[string, object, string]>([
    ["minAvailable below 0", { minAvailable: -1 }, "spec.minAvailable: Invalid value: -1"],
    ["minAvailable as a text", { minAvailable: "many" }, "spec.minAvailable: Invalid value"],
    ["minAvailable beyond 32 bits", { minAvailable: 2 ** 31 }, "type integer with format int32 in spec.minAvailable"],
    ["no selector", { selector: null }, "spec.selector: Required value"],
    [
      "an unknown policy of one operation",
      { unhealthyPodPolicies: { EVICT: "Never" } },
      'spec.unhealthyPodPolicies.EVICT: Unsupported value: "Never"',
    ],
    ["an unknown policy", { unhealthyPodPolicy: "Never" }, 'spec.unhealthyPodPolicy: Unsupported value: "Never"'],
    [
      "an unknown operation",
      { protectedOperations: ["BURN"] },
      'spec.protectedOperations[0]: Unsupported value: "BURN"',
    ],
    ["an operation twice", { protectedOperations: ["EVICT", "EVICT"] }, "spec.protectedOperations[1]: Duplicate value"],
    ["no operation", { protectedOperations: [] }, "spec.protectedOperations: Invalid value"],
    ["an empty condition type", { availabilityConditions: [""] }, "spec.availabilityConditions[0]: Invalid value"],
    ["a suspension without a decision", { suspend: { reason: "x" } }, "spec.suspend.enabled: Required value"],
    [
      "a suspension until a time that nobody can read, as of date -Ins",
      { suspend: { enabled: true, until: "2030-01-01T00:00:00,123456789+00:00" } },
      "spec.suspend.until: Invalid value",
    ],
    [
      "a suspension until an invalid time",
      { suspend: { enabled: true, until: "tomorrow" } },
      "spec.suspend.until: Invalid value",
    ],
    ["a probe of nothing", { probe: { endpoint: "" } }, "spec.probe.endpoint: Invalid value"],
    [
      "a probe with a password",
      { probe: { endpoint: "https://u:p@db.svc/", protocol: "HTTP" } },
      "must have no user name and no password",
    ],
    [
      "an HTTP probe without a URL",
      { probe: { endpoint: "db:1", protocol: "HTTP" } },
      "spec.probe.endpoint: Invalid value",
    ],
    [
      "a probe with a timeout of zero",
      { probe: { endpoint: "db:1", timeoutMillis: 0 } },
      "spec.probe.timeoutMillis: Invalid value",
    ],
    [
      "a probe with certificates of more than 64 KiB",
      { probe: { endpoint: "db:1", caBundle: "x".repeat(65_537) } },
      "spec.probe.caBundle: Too long",
    ],
    ["a misspelt field", { minAvailible: 1 }, 'unknown field "spec.minAvailible"'],
  ])("refuses %s", async (_, changes, message) => {
    const input = JSON.stringify(object("bad", { ...FULL.spec, ...changes }));
    const { code, stderr } = await cluster.kubectl(["apply", "--filename", "-"], { input });
    expect(stderr).toContain(message);
    expect(code).not.toBe(0);
  });

  test("accepts all fields that this project adds", async () => {
    const spec = {
      ...FULL.spec,
      unhealthyPodPolicy: "IfHealthyBudget",
      availabilityConditions: ["example.com/warm"],
      protectedOperations: ["DELETE", "EVICT", "UPDATE", "RESIZE"],
      ignoredPodSelector: { matchLabels: { tier: "batch", canary: "yes" } },
      suspend: { enabled: false, until: "2026-03-01T10:00:00Z", reason: "maintenance" },
      probe: { endpoint: "https://db.shop:8443/probe", protocol: "HTTP", timeoutMillis: 500, insecure: false },
    };
    await cluster.apply([object("added", spec)]);
    expect(field(await cluster.admin.get(`${PATH}/added`), "spec")).toEqual(spec);
  });
});

describe("a status", () => {
  const put = async (status: object) => {
    const found = await cluster.admin.get(`${PATH}/full`);
    return await cluster.admin.request("PUT", `${PATH}/full/status?dryRun=All`, { ...Object(found), status });
  };

  test("keeps all fields that this project adds", async () => {
    const status = {
      ...FULL.status,
      observedGeneration: 1,
      conditions: [
        {
          type: "Healthy",
          status: "True",
          reason: "EnoughAvailable",
          message: "",
          lastTransitionTime: "2026-03-01T10:00:00Z",
          observedGeneration: 1,
        },
      ],
      summary: { ...FULL.status.summary, disruptionsAllowed: 1 },
      cells: [
        {
          cellID: "worker-1",
          aggregation: {
            totalReplicas: 1,
            availableReplicas: 1,
            resourceVersion: "12,13",
            specHash: "abc",
            epoch: 2,
            hold: "CoreRestored/x",
            maturityCutoff: TIME,
            heartbeatTime: TIME,
          },
          admissionHistory: {
            buckets: [
              {
                startTime: TIME,
                firstTime: TIME,
                podUID: "u",
                counter: 0,
                podResourceVersion: "9",
                podGeneration: 4,
                operation: "EVICT",
                nonce: "+,abcdefgh",
                paid: true,
              },
              { startTime: TIME, endTime: TIME, counter: 2, packed: "1;..." },
            ],
          },
        },
      ],
    };
    const answer = await put(status);
    expect(field(answer.body, "status")).toEqual(status);
  });

  test.each([
    ["a cell that is no path segment", "a/b", "status.cells[0].cellID"],
    ["a cell that is the folder above", "..", "status.cells[0].cellID"],
    ["a cell without an ID", "", "status.cells[0].cellID"],
  ])("is refused with %s", async (_, cellID, path) => {
    const { status, body } = await put({ ...FULL.status, cells: [{ cellID }] });
    expect(status).toBe(422);
    expect(field(body, "details", "causes", 0, "field")).toBe(path);
  });

  // One of more than 53 bits would come back as another, from each component that writes this status.
  test.each([
    ["an epoch", { aggregation: { totalReplicas: 0, availableReplicas: 0, epoch: 2 ** 53 } }, "aggregation.epoch"],
    [
      "a generation",
      { admissionHistory: { buckets: [{ startTime: TIME, podUID: "u", podGeneration: 2 ** 53 }] } },
      "admissionHistory.buckets[0].podGeneration",
    ],
  ])("is refused with %s that a reader can't write back", async (_, entry, path) => {
    const { status, body } = await put({ ...FULL.status, cells: [{ cellID: "a", ...entry }] });
    expect(status).toBe(422);
    expect(field(body, "details", "causes", 0, "field")).toBe(`status.cells[0].${path}`);
  });

  test("has each cell once", async () => {
    const { status, text } = await put({ ...FULL.status, cells: [{ cellID: "a" }, { cellID: "a" }] });
    expect(status).toBe(422);
    expect(text).toContain("Duplicate value");
  });
});

describe("kubectl", () => {
  test("get shows what an operator acts on", async () => {
    const narrow = await cluster.kubectl(["get", "ppr", "full"]);
    expect(narrow.stdout.split("\n")[0]?.split(/ {2,}/)).toEqual([
      "NAME",
      "REQUIRED",
      "AVAILABLE",
      "ESTIMATED",
      "ALLOWED",
      "HEALTH",
      "SUSPENDED",
      "AGE",
    ]);
    expect(narrow.stdout).toMatch(/full\s+8\s+9\s+6\s/);
    const wide = await cluster.kubectl(["get", "ppr", "full", "--output", "wide"]);
    expect(wide.stdout).toMatch(/TOTAL\s+READY\s+BUCKET LAG\s+STALE\s+IMPOSSIBLE/);
  });

  test("explain describes fields", async () => {
    const { stdout } = await cluster.kubectl(["explain", "ppr.spec.unhealthyPodPolicy"]);
    expect(stdout).toContain("IfHealthyBudget");
  });
});
