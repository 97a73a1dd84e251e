/**
 * The admission table (docs/design.md#admission-table) on a real kube-apiserver: one test for each row, with its
 * verdict and what it leaves in the status.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ApiAnswer, field } from "../../scripts/control-plane/api-client.ts";
import { specHash } from "../../shared/decide/availability/spec-facts.ts";
import { AdmissionHarness, CELL, NAMESPACE, type PodSetting } from "../support/cluster/admission-harness.ts";
import { ask, kubectlDecided, messageOf, verdictOf } from "../support/cluster/ask.ts";
import { type AdmissionCase, allow, denial, type Expected, FORCE, ROWS, unready } from "./admission-table.ts";

let harness: AdmissionHarness;

beforeAll(async () => {
  harness = await AdmissionHarness.start();
});

afterAll(() => harness?.[Symbol.asyncDispose]());

const selector = (app: string): Readonly<Record<string, unknown>> => ({ matchLabels: { app } });

/** Creates a pod and a protector that needs `min` of `available` pods. */
async function given(
  min: number,
  available: number,
  pod: PodSetting = {},
  spec: Readonly<Record<string, unknown>> = {},
  aggregation: Readonly<Record<string, unknown>> = {},
): Promise<AdmissionCase> {
  const app = harness.unique("app");
  await harness.pod(`${app}-0`, app, pod);
  await harness.protector(app, { minAvailable: min, selector: selector(app), ...spec }, { available, aggregation });
  return { app, pod: `${app}-0` };
}

async function expectVerdict(answer: ApiAnswer, app: string, { verdict, records, message }: Expected): Promise<void> {
  expect({ verdict: verdictOf(answer), text: messageOf(answer) }).toEqual({
    verdict,
    text: message === undefined ? expect.anything() : expect.stringMatching(message),
  });
  await expect.poll(async () => (await harness.buckets(app)).length).toBe(records);
}

describe("admission table", () => {
  test.each(ROWS.filter(({ needsNoQuota }) => needsNoQuota !== true))("$row", async (row) => {
    const one = await given(row.min, row.available, row.pod, row.spec, row.aggregation);
    await expectVerdict(await row.act(harness, one), one.app, row.expected);
  });

  test.each(ROWS.filter(({ needsNoQuota }) => needsNoQuota === true))("$row", async (row) => {
    const { min, available, pod, spec, aggregation, act, expected } = row;
    await harness.cluster.waitFor("a record that is written within a second", async () => {
      const one = await given(min, available, pod, spec, aggregation);
      expect(verdictOf(await act(harness, one))).toBe(expected.verdict);
      return (await harness.buckets(one.app)).length === expected.records;
    });
  });

  test("all quota is reserved: busy, with a time to try again", async () => {
    const { app, pod } = await given(1, 2);
    await harness.pod(`${app}-1`, app);
    await expectVerdict(await harness.delete(`${app}-1`), app, allow(1));
    const answer = await harness.delete(pod);
    await expectVerdict(answer, app, { verdict: "busy", records: 1, message: /2 are available, 1 of them reserved/ });
    expect(answer.headers["retry-after"]).toBe("1");
  });

  test("the same UID again while its reservation exists: allowed, without more quota", async () => {
    const { app, pod } = await given(1, 2);
    const object = await harness.cluster.admin.get(`/api/v1/namespaces/${NAMESPACE}/pods/${pod}`);
    for (const nonces of [1, 2, 3]) {
      const answer = await harness.review({ name: pod, oldObject: object });
      expect(field(answer.body, "response", "allowed")).toBe(true);
      const buckets = await harness.buckets(app);
      expect(buckets).toHaveLength(1);
      expect(buckets[0]?.nonce?.split(",")).toHaveLength(nonces);
    }
    const evicted = await harness.evict(pod);
    expect(verdictOf(evicted)).toBe("allow");
  });

  test("the same name with another UID: by quota again", async () => {
    const { app, pod } = await given(1, 2);
    await expectVerdict(await harness.delete(pod), app, allow(1));
    await harness.pod(pod, app);
    await expectVerdict(await harness.delete(pod), app, { verdict: "busy", records: 1 });
  });

  test("deletionTimestamp already set: the final deletion and a second force are allowed", async () => {
    const { app, pod } = await given(1, 2, { scheduled: true });
    await expectVerdict(await harness.delete(pod), app, allow(1));
    await harness.count(app, { available: 1 });
    await expectVerdict(await harness.delete(pod), app, allow(0));
    await expectVerdict(await harness.delete(pod, FORCE), app, allow(0));
  });

  test("Ready but not mature: allowed and pinned; mature: by quota", async () => {
    const app = harness.unique("app");
    const spec = { minAvailable: 2, minReadySeconds: 600, selector: { matchLabels: { app } } };
    const published = {
      maturityCutoff: new Date(Date.now() - 600_000).toISOString().replace(/\.\d+Z$/, ".000000Z"),
      specHash: specHash(spec),
    };
    await harness.pod(`${app}-young`, app, { readySinceMs: Date.now() - 5_000 });
    await harness.pod(`${app}-old`, app);
    await harness.protector(app, spec, { available: 2, aggregation: published });
    await expectVerdict(await harness.delete(`${app}-young`), app, allow(1));
    expect(await harness.buckets(app)).toMatchObject([{ counter: 0 }]);
    await expectVerdict(await harness.delete(`${app}-old`), app, { verdict: "denial", records: 1 });
  });

  test("eviction, policy/v1beta1 body: the same", async () => {
    const { app, pod } = await given(2, 2);
    const answer = await harness.review({
      operation: "CREATE",
      subResource: "eviction",
      kind: { group: "policy", version: "v1beta1", kind: "Eviction" },
      name: pod,
      object: { apiVersion: "policy/v1beta1", kind: "Eviction", metadata: { name: pod, namespace: NAMESPACE } },
    });
    expect(field(answer.body, "response", "allowed")).toBe(false);
    expect(field(answer.body, "response", "status", "code")).toBe(429);
    expect(await harness.buckets(app)).toHaveLength(0);
  });

  test("eviction of a pod that does not exist", async () => {
    const answer = await harness.evict("nobody");
    expect(verdictOf(answer)).toBe("404");
  });

  test("an eviction reserves the UID that is evicted, and has it as precondition", async () => {
    const { app, pod } = await given(1, 2, { scheduled: true });
    const uid = field(
      await harness.cluster.admin.get(`/api/v1/namespaces/${NAMESPACE}/pods/${pod}`),
      "metadata",
      "uid",
    );
    await expectVerdict(await harness.evict(pod), app, allow(1));
    expect(await harness.buckets(app)).toMatchObject([{ podUID: uid, operation: "EVICT" }]);
  });

  test("deletecollection: each pod by quota", async () => {
    const { app } = await given(2, 3);
    await harness.pod(`${app}-1`, app);
    await harness.pod(`${app}-2`, app);
    const answer = await harness.cluster.admin.request(
      "DELETE",
      `/api/v1/namespaces/${NAMESPACE}/pods?labelSelector=app%3D${app}`,
    );
    await expectVerdict(answer, app, { verdict: "busy", records: 1 });
  });

  test("protector absent: allowed", async () => {
    const app = harness.unique("app");
    await harness.pod(app, app);
    expect(verdictOf(await harness.delete(app))).toBe("allow");
  });

  test("protector terminating but with its finalizer: enforced", async () => {
    const { app, pod } = await given(2, 2);
    const path = `/apis/podseidon.kubewharf.io/v1alpha1/namespaces/${NAMESPACE}/podprotectors/${app}`;
    await harness.cluster.admin.call("PATCH", path, { metadata: { finalizers: ["podseidon.kubewharf.io/generator"] } });
    await harness.cluster.admin.call("DELETE", path);
    await expectVerdict(await harness.delete(pod), app, denial);
    await harness.removeProtector(app);
  });

  test("the pod's cell was never aggregated: busy", async () => {
    const app = harness.unique("app");
    await harness.pod(app, app);
    await harness.protector(app, { minAvailable: 1, selector: selector(app) }, { available: 5, cell: "another" });
    await expectVerdict(await harness.delete(app), app, {
      verdict: "busy",
      records: 0,
      message: /no aggregator has counted/,
    });
  });

  test("several protectors, some deny: denied, every blocker named, nothing reserved in any", async () => {
    const app = harness.unique("app");
    await harness.pod(app, app, { labels: { tier: app } });
    await harness.protector(`${app}-a`, { minAvailable: 1, selector: selector(app) }, { available: 2 });
    await harness.protector(`${app}-b`, { minAvailable: 2, selector: selector(app) }, { available: 2 });
    await harness.protector(
      `${app}-c`,
      { minAvailable: 3, selector: { matchLabels: { tier: app } } },
      { available: 3 },
    );
    const answer = await harness.delete(app);
    expect(verdictOf(answer)).toBe("denial");
    for (const name of [`${app}-b`, `${app}-c`]) expect(messageOf(answer)).toContain(`${NAMESPACE}/${name}`);
    expect(messageOf(answer)).not.toContain(`${app}-a`);
    for (const name of ["a", "b", "c"]) expect(await harness.buckets(`${app}-${name}`)).toHaveLength(0);
  });

  test("several protectors, all allow: reserved in each", async () => {
    const app = harness.unique("app");
    await harness.pod(app, app);
    for (const name of ["a", "b"]) {
      await harness.protector(`${app}-${name}`, { minAvailable: 1, selector: selector(app) }, { available: 2 });
    }
    expect(verdictOf(await harness.delete(app))).toBe("allow");
    for (const name of ["a", "b"]) expect(await harness.buckets(`${app}-${name}`)).toHaveLength(1);
  });

  test.each([
    ["the namespace controller", "system:serviceaccount:kube-system:namespace-controller", denial],
    ["the garbage collector", "system:serviceaccount:kube-system:generic-garbage-collector", denial],
    ["scheduler preemption", "system:kube-scheduler", denial],
    // It is told to come back, which no other denial for want of quota says.
    ["taint eviction", "system:serviceaccount:kube-system:node-controller", { ...denial, verdict: "busy" } as const],
  ])("%s: a Ready pod by quota, an unready one is allowed", async (_name, username, denied) => {
    const { app, pod } = await given(2, 2);
    const path = `/api/v1/namespaces/${NAMESPACE}/pods`;
    const asUser = { headers: { "impersonate-user": username, "impersonate-group": "system:masters" } };
    const answer = await ask(harness.cluster, "DELETE", `${path}/${pod}`, undefined, asUser);
    await expectVerdict(answer, app, denied);
    await harness.pod(`${app}-1`, app, unready);
    const second = await ask(harness.cluster, "DELETE", `${path}/${app}-1`, undefined, asUser);
    await expectVerdict(second, app, allow(0));
  });

  test("the project's own pods are allowed, whatever protector covers them", async () => {
    const app = harness.unique("app");
    const labels = { "app.kubernetes.io/part-of": "podseidon" };
    await harness.pod(app, app, { namespace: "podseidon-system", labels });
    const spec = { minAvailable: 1, selector: selector(app) };
    await harness.protector(app, spec, { available: 1 }, "podseidon-system");
    expect(verdictOf(await harness.delete(app, undefined, "", "podseidon-system"))).toBe("allow");
  });

  test("other operations and subresources are allowed and counted", async () => {
    const answer = await harness.review({
      operation: "UPDATE",
      subResource: "ephemeralcontainers",
      name: "x",
      object: {},
      oldObject: {},
    });
    expect(field(answer.body, "response", "allowed")).toBe(true);
    const [replica] = harness.environment.webhooks;
    const labels = { kind: "other", outcome: "ignored" };
    expect(await replica?.component.metric("podseidon_webhook_reviews_total", labels)).toBeGreaterThan(0);
  });
});

describe("a call without an admission request gets a 4xx with its reason, and the next one is decided", () => {
  const path = `/webhook/${CELL}`;
  test.each([
    ["no JSON", () => harness.post(path, "{"), 400, /JSON/],
    ["no AdmissionReview", () => harness.post(path, '{"kind":"Pod","apiVersion":"v1"}'), 400, /request/],
    ["DELETE without oldObject", () => harness.review({ name: "x" }), 400, /oldObject/],
    ["an object that is no pod", () => harness.review({ name: "x", oldObject: { metadata: 1 } }), 400, /metadata/],
    [
      "an eviction without a body",
      () => harness.review({ operation: "CREATE", subResource: "eviction" }),
      400,
      /Eviction/,
    ],
    ["wrong method", () => harness.post(path, "{}", "PUT"), 405, /POST/],
    ["wrong type", () => harness.post(path, "{}", "POST", "text/plain"), 415, /application\/json/],
    ["unknown cell", () => harness.post("/webhook/nowhere", "{}"), 404, /nowhere/],
  ])("%s", async (_name, call, status, text) => {
    const answer = await call();
    expect(answer.status).toBe(status);
    expect(answer.text).toMatch(text);
    expect((await harness.review({ operation: "CONNECT" })).status).toBe(200);
  });
});

describe("a denial", () => {
  test("names protector, minimum, availability and reservations, and has cause and audit annotations", async () => {
    const { app, pod } = await given(2, 2);
    const answer = await harness.delete(pod);
    expect(messageOf(answer)).toBe(
      `admission webhook "pods.podseidon.kubewharf.io" denied the request: ` +
        `pod default/${pod} may not be deleted now: ` +
        `PodProtector default/${app} needs 2 available pods, 2 are available, ` +
        "0 of them reserved by disruptions " +
        "under way: its capacity is at the minimum; no more pods match than must be available: unless pods are " +
        "missing or being replaced, promise less: in the budget or PodProtector that people wrote, else annotate the " +
        "workload with podseidon.kubewharf.io/max-unavailable=1, and lower its min-available and min-running, if " +
        `any. More: kubectl podseidon why ${pod} -n default`,
    );
    expect(field(answer.body, "details", "causes", 0, "reason")).toBe("DisruptionBudget");
    expect(answer.headers["retry-after"]).toBeUndefined();
    const object = await harness.cluster.admin.get(`/api/v1/namespaces/${NAMESPACE}/pods/${pod}`);
    const direct = await harness.review({ name: pod, oldObject: object });
    expect(field(direct.body, "response", "auditAnnotations")).toEqual({
      "reject-by-podprotector": `default/${app}`,
      decision: `core/default/${app}=AtMinimum`,
      review: expect.any(String),
    });
  });

  test("is shown by kubectl", async () => {
    const { app, pod } = await given(2, 2);
    const { code, stderr } = await kubectlDecided(harness.cluster, ["delete", "pod", pod]);
    expect(code).not.toBe(0);
    expect(stderr).toContain(`PodProtector default/${app}`);
  });
});
