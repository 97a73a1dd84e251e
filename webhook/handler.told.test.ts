/** What a response says of protectors that are suspended or do not enforce, and of annotations that bypass them. */
import { expect, test } from "vitest";
import { parseAnyPod } from "../shared/schema/pod.ts";
import type { PodProtectorSpec } from "../shared/schema/podprotector.ts";
import { disruption, pod, protector } from "../test/support/webhook/fixtures.ts";
import {
  ALLOWED,
  admissionReview,
  deletion,
  found,
  handler,
  podJson,
  responseOf,
} from "../test/support/webhook/handler-harness.ts";
import { world } from "../test/support/webhook/pipeline-harness.ts";

/** Of a protector that has no pod to spare. */
const verdictOf = (spec: Partial<PodProtectorSpec>) =>
  world([{ core: "core", object: protector(10, { spec }) }]).decide(disruption(pod("web-0")));
const NODE = admissionReview({
  oldObject: { apiVersion: "v1", kind: "Node", metadata: { name: "node-1" } },
  ...{ resource: { group: "", version: "v1", resource: "nodes" }, name: "node-1", namespace: "" },
});
const listPods = async () => ({ kind: "listed" as const, pods: [pod("web-0")] });
const cells = new Map([["cell-1", { id: "cell-1", readPod: undefined, listPods }]]);

test("the deletion of a node is told what is not enforced", async () => {
  const { ask, records } = handler(await verdictOf({ enforcement: "Warn" }), { cells });
  const response = responseOf(await ask(NODE));
  expect(response).toMatchObject({ allowed: true, auditAnnotations: { "not-enforced": "core/default/web=AtMinimum" } });
  expect(String(response.warnings)).toMatch(/^not enforced: node node-1 may not be deleted/);
  expect(records).toMatchObject([{ outcome: "dryRunDenied", node: "node-1" }]);
});

test("the deletion of a node is told that a protector is suspended", async () => {
  const { ask } = handler(await verdictOf({ suspend: { enabled: true } }), { cells });
  const response = responseOf(await ask(NODE));
  expect(String(response.warnings)).toMatch(/is suspended/);
});

const until = "2030-05-01T12:00:00Z";
test.each<[Partial<PodProtectorSpec>["suspend"], string]>([
  [{ enabled: true }, "is suspended: it does not protect pod web-0"],
  [{ enabled: true, reason: "" }, "is suspended: it does not protect pod web-0"],
  [{ enabled: true, until, reason: "move" }, `is suspended until ${until} (move): it does not protect pod web-0`],
])("a deletion is told until when and why a protector is suspended: %j", async (suspend, text) => {
  const { ask, records } = handler(await verdictOf({ suspend }));
  expect(responseOf(await ask(deletion()))).toMatchObject({
    allowed: true,
    warnings: [`PodProtector default/web ${text}`],
    auditAnnotations: { decision: "core/default/web=Suspended", suspended: "default/web" },
  });
  expect(records).toMatchObject([{ outcome: "suspended" }]);
});

test("a deletion is told no more of the end of a suspension than a time takes, whatever its author wrote", async () => {
  const { ask } = handler(
    await verdictOf({ suspend: { enabled: true, until: `${until.slice(0, -1)}.${"0".repeat(1e5)}Z` } }),
  );
  const response = responseOf(await ask(deletion()));
  expect(String(response.warnings)).toMatch(
    /is suspended until 2030-05-01T12:00:00\.0+: it does not protect pod web-0$/,
  );
  expect(String(response.warnings).length).toBeLessThan(256);
});

const FORCE_DELETE = "podseidon.kubewharf.io/force-delete";
const annotated = (value: string): string =>
  deletion(podJson({ metadata: { annotations: { [FORCE_DELETE]: value } } }));

test.each([
  ["force-delete", "true"],
  ["no-protect", undefined],
])("a pod that its annotation %s bypasses is told so", async (name, audited) => {
  const pipeline = world([{ core: "core", object: protector(10) }]);
  const live = found({ annotations: { [`podseidon.kubewharf.io/${name}`]: "true" } });
  const verdict = await pipeline.decide(disruption(pod("web-0"), { forced: true }));
  const { ask, records } = handler(verdict, {}, live);
  const response = responseOf(await ask(audited === undefined ? deletion() : annotated(audited)));
  expect(response.warnings).toEqual([`pod default/web-0 is allowed by its annotation ${name}`]);
  expect(Object(response.auditAnnotations)["force-delete"]).toBe(audited);
  expect(records).toMatchObject([{ outcome: "forced" }]);
});

test("a pod that is denied is told that its annotation is not followed", async () => {
  const { ask, records } = handler(await verdictOf({}));
  expect(responseOf(await ask(annotated("{}")))).toMatchObject({
    allowed: false,
    warnings: [expect.stringMatching(/^the annotation .*force-delete is not followed: /)],
    auditAnnotations: { "force-delete-ignored": "malformed", decision: "core/default/web=AtMinimum" },
  });
  expect(records).toMatchObject([{ outcome: "denied" }]);
});

test("an annotation that is not followed is told of beside what allows the pod", async () => {
  const { ask } = handler(await verdictOf({ suspend: { enabled: true } }));
  expect(responseOf(await ask(annotated("{}"))).warnings).toEqual([
    expect.stringContaining("is suspended"),
    expect.stringContaining("is not followed"),
  ]);
});

test("the health-criterion annotation hides nothing of what is not enforced", async () => {
  const { ask, records } = handler(await verdictOf({ enforcement: "Warn" }));
  const object = podJson({ metadata: { annotations: { "podseidon.kubewharf.io/health-criterion": "Ready" } } });
  const response = responseOf(await ask(deletion(object)));
  expect(response).toMatchObject({ auditAnnotations: { "not-enforced": "core/default/web=AtMinimum" } });
  expect(records).toMatchObject([{ outcome: "dryRunDenied" }]);
});

/** As of a Deployment with the strategy Recreate: no protector asks for a DELETE. */
test.each<[string, Partial<PodProtectorSpec>]>([
  ["in force", {}],
  ["suspended", { suspend: { enabled: true } }],
  ["off", { enforcement: "Off" }],
])(
  "a pre-activity keeps a pod from a deletion that its protector does not ask for: one that is %s",
  async (_, spec) => {
    const metadata = { annotations: { "pre-activity.xpdb.form3.tech/copy": "" } };
    const { ask } = handler(await verdictOf({ ...spec, protectedOperations: ["EVICT"] }));
    expect(responseOf(await ask(deletion(podJson({ metadata }))))).toMatchObject({
      allowed: false,
      status: { code: 429 },
    });
  },
);

test.each<[string, readonly Partial<PodProtectorSpec>[], number]>([
  ["keeps a pod while its core is out of reach", [{}], 200],
  ["keeps a pod while the core is out of reach that may have its protector", [], 200],
  ["leaves a pod to failurePolicy then, of which is only known that it is warned of", [{ enforcement: "Warn" }], 500],
  ["keeps a pod then that another protector keeps", [{ enforcement: "Warn" }, {}], 200],
])("a pre-activity %s", async (_, specs, status) => {
  const protectors = specs.map((spec, index) => ({
    core: "core",
    object: protector(10, { name: `web-${index}`, spec }),
  }));
  const { pipeline, problems } = world([...protectors, { core: "other", object: protector(1, { name: "api" }) }]);
  problems.set("core", "no answer").set("other", "no answer");
  const waiting = podJson({
    metadata: { annotations: { "pre-activity.xpdb.form3.tech/copy": "" }, labels: { api: "left" } },
  });
  const { ask } = handler(ALLOWED, { pipeline });
  const reply = await ask(deletion(waiting));
  expect(reply.status).toBe(status);
  if (status === 200) expect(responseOf(reply)).toMatchObject({ allowed: false, status: { code: 429 } });
});

test("a forged pre-activity with a name of a megabyte is repeated by none of the pod's protectors", async () => {
  const annotations = {
    [`pre-activity.xpdb.form3.tech/${"x".repeat(1_000_000)}`]: "",
    "pre-activity.xpdb.form3.tech/a": "",
  };
  const raw = podJson({ metadata: { annotations } });
  const protectors = Array.from({ length: 30 }, (_, index) => protector(5, { name: `web-${index}` }));
  const { decide } = world(protectors.map((object) => ({ core: "core", object })));
  const { ask, records } = handler(await decide(disruption(parseAnyPod(raw))));
  const response = await ask(deletion(raw));
  expect(responseOf(response)).toMatchObject({ allowed: false });
  expect(response.body.length + JSON.stringify(records[0]?.message).length).toBeLessThan(20_000);
});
