/** Pods that are Pending or not Ready, and that a protector counts (docs/design.md#criterion-of-a-protector). */
import { describe, expect, test } from "vitest";
import { ProtectorVersion } from "../shared/decide/state/protector-version.ts";
import type { Pod } from "../shared/schema/pod.ts";
import { VirtualTime } from "../test/support/runtime/virtual-ports.ts";
import { pod, protector, unready } from "../test/support/webhook/fixtures.ts";
import {
  admissionReview,
  deletion,
  eviction,
  handler,
  type JsonObject,
  podJson,
  responseOf,
} from "../test/support/webhook/handler-harness.ts";
import { ProtectorStore } from "../test/support/webhook/protector-store.ts";
import type { ListPods } from "./request/node-deletion.ts";
import { Nonces } from "./reserve/nonces.ts";
import { Pipeline } from "./reserve/pipeline.ts";
import { ProtectorWriter } from "./reserve/protector-writer.ts";

/** A protector of every pod that denies whatever counts, because it is lost. */
function pipelineOf(healthCriterion: string | undefined, problem?: string): Pipeline {
  const time = new VirtualTime();
  const nonces = new Nonces(time.random);
  const spec = { unhealthyPodPolicy: "IfHealthyBudget", ...(healthCriterion === undefined ? {} : { healthCriterion }) };
  const object = protector(2, { spec });
  const store = new ProtectorStore({ ports: time, object });
  const writer: ProtectorWriter = new ProtectorWriter({
    ...{ namespace: "default", name: "web", ports: time, client: store.client(), onEvent: () => undefined },
    ...{ watched: store.watch(time, 3, () => writer.watchChanged()), tag: nonces.tag },
  });
  const match = { core: "core", namespace: "default", name: "web", writer, lost: new ProtectorVersion(object, 0) };
  const core = { name: "core", problem: () => problem, match: () => [match] };
  return new Pipeline({ cores: [core], ports: time, nonces, settleMs: 75_000 });
}

const UNREADY = {
  conditions: [
    { type: "Ready", status: "False" },
    { type: "Initialized", status: "True" },
  ],
};
const INITIALIZED = { ...UNREADY, phase: "Pending" };
const found = (change: Partial<Pod>) => ({
  ...{ kind: "found" as const, sentMs: 0 },
  pod: unready("web-0", { uid: "u", resourceVersion: "5", ...change }),
});
const fails = (status: JsonObject): string =>
  admissionReview({
    ...{ operation: "UPDATE", subResource: "status" },
    ...{ oldObject: podJson({ status }), object: podJson({ status: { phase: "Failed" } }) },
  });

describe("is asked about and kept", () => {
  test.each<[string, string | undefined, string, boolean]>([
    ["a Pending pod that is deleted", "Initialized", deletion(podJson({ status: INITIALIZED })), false],
    ["a Pending pod that is evicted", "Initialized", eviction(), false],
    ["a running pod that is set to Failed", "Running", fails(UNREADY), false],
    ["not: a Pending pod that is deleted", "Running", deletion(podJson({ status: INITIALIZED })), true],
    ["not: a Pending pod without the criterion", undefined, deletion(podJson({ status: INITIALIZED })), true],
    ["not: a running pod that is set to Failed", "Ready", fails(UNREADY), true],
    ["not: the same where the protector keeps unhealthy pods", undefined, fails(UNREADY), true],
  ])("%s (%s)", async (_, criterion, body, allowed) => {
    const live = found({ phase: "Pending", conditions: [{ type: "Initialized", status: true, sinceMs: 0 }] });
    for (const problem of [undefined, "the core is out of reach"]) {
      const { ask } = handler([], { pipeline: pipelineOf(criterion, problem) }, live);
      expect(responseOf(await ask(body))).toMatchObject({ allowed });
    }
  });
});

describe("the deletion of a node", () => {
  const RESOURCE = { group: "", version: "v1", resource: "nodes" };
  const oldObject = { apiVersion: "v1", kind: "Node", metadata: { name: "node-1" } };
  const body = admissionReview({ resource: RESOURCE, name: "node-1", namespace: "", oldObject });
  const unreadyPods = [unready("web-0"), pod("web-1", { phase: "Pending", conditions: [] })];
  test.each<[string, string | undefined, readonly Pod[], boolean]>([
    ["is denied for a pod that runs and is not Ready", "Running", unreadyPods, false],
    ["is denied for a Pending pod that counts", "Scheduled", unreadyPods.slice(1), false],
    ["is allowed where none of them counts", "Ready", unreadyPods, true],
    ["is allowed where the protector keeps unhealthy pods", undefined, unreadyPods, true],
  ])("%s", async (_, criterion, pods, allowed) => {
    const listPods: ListPods = async (_node, _timeoutMs, isAtStake) => ({
      kind: "listed",
      pods: pods.filter(isAtStake),
    });
    const cells = new Map([["cell-1", { id: "cell-1", readPod: undefined, listPods }]]);
    const { ask } = handler([], { pipeline: pipelineOf(criterion), cells });
    expect(responseOf(await ask(body))).toMatchObject({ allowed });
  });
});
