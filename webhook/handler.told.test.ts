/** What a response says of protectors that are suspended or do not enforce. */
import { expect, test } from "vitest";
import type { PodProtectorSpec } from "../shared/schema/podprotector.ts";
import { disruption, pod, protector } from "../test/support/webhook/fixtures.ts";
import { admissionReview, deletion, handler, podJson, responseOf } from "../test/support/webhook/handler-harness.ts";
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

test("the health-criterion annotation hides nothing of what is not enforced", async () => {
  const { ask, records } = handler(await verdictOf({ enforcement: "Warn" }));
  const object = podJson({ metadata: { annotations: { "podseidon.kubewharf.io/health-criterion": "Ready" } } });
  const response = responseOf(await ask(deletion(object)));
  expect(response).toMatchObject({ auditAnnotations: { "not-enforced": "core/default/web=AtMinimum" } });
  expect(records).toMatchObject([{ outcome: "dryRunDenied" }]);
});
