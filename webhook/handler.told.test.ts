/** What a response says of protectors that are suspended or do not enforce. */
import { expect, test } from "vitest";
import type { PodProtector, PodProtectorSpec } from "../shared/schema/podprotector.ts";
import { VirtualTime } from "../test/support/runtime/virtual-ports.ts";
import { disruption, pod, protector } from "../test/support/webhook/fixtures.ts";
import { admissionReview, deletion, handler, podJson, responseOf } from "../test/support/webhook/handler-harness.ts";
import { ProtectorStore } from "../test/support/webhook/protector-store.ts";
import { Nonces } from "./reserve/nonces.ts";
import { type Disruption, Pipeline } from "./reserve/pipeline.ts";
import { ProtectorWriter } from "./reserve/protector-writer.ts";
import type { Verdict } from "./reserve/verdict.ts";

function world(...objects: PodProtector[]) {
  const time = new VirtualTime();
  const nonces = new Nonces(time.random);
  const stores: ProtectorStore[] = [];
  const matches = objects.map((object) => {
    const name = object.metadata.name;
    const store = new ProtectorStore({ ports: time, object });
    stores.push(store);
    const writer: ProtectorWriter = new ProtectorWriter({
      ...{ namespace: "default", name, ports: time, client: store.client(), onEvent: () => undefined },
      ...{ watched: store.watch(time, 3, () => writer.watchChanged()), tag: nonces.tag },
    });
    return { core: "core", namespace: "default", name, writer };
  });
  const core = { name: "core", problem: () => undefined, match: () => matches };
  const pipeline = new Pipeline({ cores: [core], ports: time, nonces, settleMs: 75_000 });
  const run = async <T>(work: Promise<T> | T): Promise<T> => {
    let done: { value: T } | undefined;
    void Promise.resolve(work).then((value) => {
      done = { value };
    });
    await time.runUntil(() => done !== undefined, 20_000);
    if (done === undefined) throw new Error("no verdict");
    return done.value;
  };
  const decide = (one: Disruption): Promise<Verdict> => {
    const nowMs = time.clock.monotonicMs();
    return run(pipeline.decide({ ...one, arrivedMs: nowMs, deadlineMs: nowMs + 9_500 }));
  };
  return { time, stores, pipeline, decide, run };
}
const spec =
  (change: Partial<PodProtectorSpec>) =>
  (object: PodProtector): PodProtector => ({
    ...object,
    spec: { ...object.spec, ...change },
  });

function notEnforced(w: ReturnType<typeof world>, change: Partial<PodProtectorSpec>): Promise<Verdict> {
  w.stores[0]?.put(spec(change));
  return w.time.advance(10).then(() => w.decide(disruption(pod("web-0"))));
}
const NODE = admissionReview({
  oldObject: { apiVersion: "v1", kind: "Node", metadata: { name: "node-1" } },
  ...{ resource: { group: "", version: "v1", resource: "nodes" }, name: "node-1", namespace: "" },
});
const listPods = async () => ({ kind: "listed" as const, pods: [pod("web-0")] });
const cells = new Map([["cell-1", { id: "cell-1", readPod: undefined, listPods }]]);

test("the deletion of a node is told what is not enforced", async () => {
  const { ask, records } = handler(await notEnforced(world(protector(10)), { enforcement: "Warn" }), { cells });
  const response = responseOf(await ask(NODE));
  expect(response).toMatchObject({ allowed: true, auditAnnotations: { "not-enforced": "core/default/web=AtMinimum" } });
  expect(String(response.warnings)).toMatch(/^not enforced: node node-1 may not be deleted/);
  expect(records).toMatchObject([{ outcome: "dryRunDenied", node: "node-1" }]);
});

test("the deletion of a node is told that a protector is suspended", async () => {
  const { ask } = handler(await notEnforced(world(protector(10)), { suspend: { enabled: true } }), { cells });
  const response = responseOf(await ask(NODE));
  expect(String(response.warnings)).toMatch(/is suspended/);
});

test("the health-criterion annotation hides nothing of what is not enforced", async () => {
  const { ask, records } = handler(await notEnforced(world(protector(10)), { enforcement: "Warn" }));
  const object = podJson({ metadata: { annotations: { "podseidon.kubewharf.io/health-criterion": "Ready" } } });
  const response = responseOf(await ask(deletion(object)));
  expect(response).toMatchObject({ auditAnnotations: { "not-enforced": "core/default/web=AtMinimum" } });
  expect(records).toMatchObject([{ outcome: "dryRunDenied" }]);
});
