import { describe, expect, test } from "vitest";
import type { Pod } from "../shared/schema/pod.ts";
import { VirtualTime } from "../test/support/runtime/virtual-ports.ts";
import { disruption, noncesOf, pod, protector, unready } from "../test/support/webhook/fixtures.ts";
import {
  ALLOWED,
  admissionReview,
  denial,
  handler,
  type JsonObject,
  responseOf,
} from "../test/support/webhook/handler-harness.ts";
import { ProtectorStore } from "../test/support/webhook/protector-store.ts";
import type { HandlerOptions } from "./handler.ts";
import type { ListPods, PodsOfNode } from "./request/node-deletion.ts";
import { decideAll, type JointVerdict } from "./reserve/decide-all.ts";
import { Nonces } from "./reserve/nonces.ts";
import { type Disruption, Pipeline } from "./reserve/pipeline.ts";
import { ProtectorWriter } from "./reserve/protector-writer.ts";
import type { Verdict } from "./reserve/verdict.ts";

const RESOURCE = { group: "", version: "v1", resource: "nodes" };

function deletion(request: JsonObject = {}): string {
  const oldObject = { apiVersion: "v1", kind: "Node", metadata: { name: "node-1" } };
  return admissionReview({ resource: RESOURCE, name: "node-1", namespace: "", oldObject, ...request });
}

function cell(listed: PodsOfNode | undefined): Pick<HandlerOptions, "cells"> {
  if (listed === undefined) return { cells: new Map([["cell-1", { id: "cell-1", readPod: undefined }]]) };
  const listPods: ListPods = async (_node, _timeoutMs, isAtStake) =>
    listed.kind === "listed" ? { ...listed, pods: listed.pods.filter(isAtStake) } : listed;
  return { cells: new Map([["cell-1", { id: "cell-1", readPod: undefined, listPods }]]) };
}

const with4 = cell({ kind: "listed", pods: [0, 1, 2, 3].map((index) => pod(`web-${index}`)) });

interface Store {
  readonly pipeline: Pipeline;
  readonly store: ProtectorStore;
  readonly time: VirtualTime;
}

/** A pipeline over one protector, which covers every pod. */
function world(minAvailable: number): Store {
  const time = new VirtualTime();
  const nonces = new Nonces(time.random);
  const store = new ProtectorStore({ ports: time, object: protector(minAvailable) });
  const writer: ProtectorWriter = new ProtectorWriter({
    ...{ namespace: "default", name: "web", ports: time, client: store.client(), onEvent: () => undefined },
    ...{ watched: store.watch(time, 3, () => writer.watchChanged()), tag: nonces.tag },
  });
  const match = { core: "core", namespace: "default", name: "web", writer };
  const core = { name: "core", problem: () => undefined, match: () => [match] };
  return { time, store, pipeline: new Pipeline({ cores: [core], ports: time, nonces, settleMs: 75_000 }) };
}

const disruptions = (count: number): readonly Disruption[] =>
  Array.from({ length: count }, (_, index) => disruption(pod(`web-${index}`)));

describe("the deletion of a node", () => {
  test("is asked about where the last finalizer is taken off through the node's status", async () => {
    const metadata = { name: "node-1", deletionTimestamp: "2026-01-01T00:00:00Z" };
    const oldObject = { apiVersion: "v1", kind: "Node", metadata: { ...metadata, finalizers: ["drain"] } };
    const object = { ...oldObject, metadata };
    const { asked, records, ask } = handler(ALLOWED, with4);
    await ask(deletion({ operation: "UPDATE", subResource: "status", oldObject, object }));
    expect(asked).toHaveLength(8);
    expect(records).toMatchObject([{ kind: "node" }]);
  });

  test("asks for each pod that serves, and for no other", async () => {
    const pods = [
      pod("web-0"),
      unready("web-1"),
      pod("web-2", { terminating: true }),
      pod("web-3", { phase: "Failed" }),
      pod("web-4", { mirror: true }),
      pod("web-5", { phase: "Pending" }),
      pod("web-6", { namespace: "podseidon-system" }),
    ];
    const { asked, records, ask } = handler(ALLOWED, cell({ kind: "listed", pods }));
    expect(responseOf(await ask(deletion()))).toMatchObject({ allowed: true });
    expect(new Set(asked.map(({ pod: { name } }) => name))).toEqual(new Set(["web-0"]));
    expect(asked).toMatchObject([{ operation: "DELETE", together: expect.anything() }, { operation: "DELETE" }]);
    expect(asked[1]?.together).toBeUndefined();
    expect(records).toMatchObject([{ kind: "node", outcome: "unprotected" }]);
  });

  // Each decision took 5 KB: a thousand pods of 300 protectors took all memory, and ended each replica that was asked.
  test("whose pods have thousands of protectors, which a tenant can make, is not decided, and says whose", async () => {
    const pods = [
      pod("db"),
      ...Array.from({ length: 2_000 }, (_, index) => pod(`web-${index}`, { namespace: "many" })),
    ];
    let counted = 0;
    const protectorsOf = ({ namespace }: Pod): number => {
      counted++;
      return namespace === "many" ? 1_000 : world(1).pipeline.protectorsOf(pod("db"));
    };
    const asked: string[] = [];
    const decide = ({ pod: { name } }: Disruption): Verdict => {
      asked.push(name);
      return ALLOWED;
    };
    const of = (these: readonly Pod[]) => ({
      ...cell({ kind: "listed", pods: these }),
      pipeline: { decide, protectorsOf },
    });
    const response = responseOf(await handler(ALLOWED, of(pods)).ask(deletion()));
    expect([asked, counted]).toEqual([[], 6]);
    expect(response).toMatchObject({ allowed: false, status: { code: 503 } });
    expect(JSON.stringify(response)).toContain("more than 5000 protectors together, most of them in namespace many");
    expect(responseOf(await handler(ALLOWED, of(pods.slice(0, 5))).ask(deletion()))).toMatchObject({ allowed: true });
  });

  test("asks for a pod that is not Ready where a protector counts it, and for no exempt one", async () => {
    const pods = [unready("web-1"), pod("web-3", { phase: "Failed" }), unready("web-5", { phase: "Pending" })];
    const asked: string[] = [];
    const decide = ({ pod: { name }, mayGoUnhealthy }: Disruption): Verdict => {
      asked.push(`${name} ${mayGoUnhealthy}`);
      return ALLOWED;
    };
    const options = { ...cell({ kind: "listed", pods }), pipeline: { decide, countsUnready: () => true } };
    await handler(ALLOWED, options).ask(deletion());
    expect(new Set(asked)).toEqual(new Set(["web-1 true", "web-5 true"]));
  });

  test.each([
    ["eve", 1],
    ["system:serviceaccount:kube-system:node-controller", undefined],
  ])(
    "busy, it is repeated by the client of %s after %s s: a cloud controller manager goes on to the next",
    async (username, seconds) => {
      const busy: Verdict = { kind: "denied", decisions: [denial("Busy")], rollBack: undefined };
      const response = responseOf(await handler(busy, with4).ask(deletion({ userInfo: { username } })));
      expect(response).toMatchObject({ status: { code: 429, details: { kind: "nodes" } } });
      expect(Object(Reflect.get(Object(response.status), "details")).retryAfterSeconds).toBe(seconds);
    },
  );

  test("with finalizers, an update of it, and in a cluster that opted out: asks nobody", async () => {
    const metadata = { name: "node-1", finalizers: ["drain"] };
    for (const [body, options] of [
      [deletion({ oldObject: { metadata } }), with4],
      [deletion({ operation: "UPDATE", object: { metadata: { name: "node-1" } } }), with4],
      [deletion(), { ...with4, reviewsNodes: false }],
    ] as const) {
      const { asked, records, ask } = handler(ALLOWED, options);
      await ask(body);
      expect(asked).toEqual([]);
      expect(records).toMatchObject([{ kind: "node", outcome: "ignored" }]);
    }
  });

  describe("that is asked about again with a finalizer, which does not keep the node any more,", () => {
    const nodeWith = (metadata: JsonObject): JsonObject => ({
      oldObject: { apiVersion: "v1", kind: "Node", metadata: { name: "node-1", ...metadata } },
    });
    const again = (metadata: JsonObject = {}): string =>
      deletion(nodeWith({ uid: "node-uid", finalizers: ["drain"], ...metadata }));

    test.each<[string, JsonObject, string, number, boolean]>([
      ["is decided", {}, again(), 0, true],
      [
        "is decided where another deletion has marked it",
        {},
        again({ deletionTimestamp: "2026-01-01T00:00:00Z" }),
        0,
        true,
      ],
      ["is decided as long as kube-apiserver may work on it", {}, again(), 59_000, true],
      ["is a new one a minute later", {}, again(), 60_000, false],
      ["is another one where the node is another", {}, again({ uid: "other-uid" }), 0, false],
      ["is a new one after a dry run, which deletes nothing", { dryRun: true }, again(), 0, false],
    ])("%s", async (_name, first, second, afterMs, isDecided) => {
      let nowMs = 0;
      const clock = { nowMs: () => nowMs, monotonicMs: () => nowMs };
      const { asked, records, ask } = handler(ALLOWED, { ...with4, clock });
      await ask(deletion({ ...nodeWith({ uid: "node-uid" }), ...first }));
      const before = asked.length;
      nowMs = afterMs;
      await ask(second);
      expect(asked.length > before).toBe(isDecided);
      expect(records[1]?.outcome === "ignored").toBe(!isDecided);
    });

    test("is decided though forged reviews of ten thousand others came in between, for a minute", async () => {
      let nowMs = 0;
      const clock = { nowMs: () => nowMs, monotonicMs: () => nowMs };
      const { records, ask } = handler(ALLOWED, { ...with4, clock });
      await ask(deletion(nodeWith({ uid: "node-uid" })));
      for (let count = 0; count < 10_000; count++) await ask(deletion(nodeWith({ uid: `forged-${count}` })));
      nowMs = 59_000;
      await ask(again());
      nowMs = 60_000;
      await ask(again());
      expect(records.slice(-2).map(({ outcome }) => outcome === "ignored")).toEqual([false, true]);
    });
  });

  test("lists nothing where nothing is protected", async () => {
    const pipeline = { decide: (): Verdict => ALLOWED, protectsNothing: () => true };
    const { ask } = handler(ALLOWED, { ...cell({ kind: "failed", message: "no list" }), pipeline });
    expect(responseOf(await ask(deletion()))).toMatchObject({ allowed: true });
  });

  test.each<[string, PodsOfNode | undefined, RegExp]>([
    ["can't be listed", { kind: "failed", message: "pods is forbidden" }, /can't be listed.*pods is forbidden/],
    ["nobody can list", undefined, /give --cell cell-1=KUBECONFIG/],
  ])("is denied when its pods %s", async (_name, listed, text) => {
    const response = responseOf(await handler(ALLOWED, cell(listed)).ask(deletion()));
    expect(response).toMatchObject({ allowed: false, status: { code: 503, message: expect.stringMatching(text) } });
  });
});

describe("the pods of a node", () => {
  test("that are too many are denied together, without a write, and each protector is named once", async () => {
    const w = world(8);
    const { ask } = handler(ALLOWED, { ...with4, pipeline: w.pipeline, clock: w.time.clock });
    const response = responseOf(await w.time.result(ask(deletion())));
    expect(response).toMatchObject({
      allowed: false,
      status: {
        code: 429,
        message:
          "node node-1 may not be deleted now, because its pods go with " +
          "it: PodProtector default/web needs " +
          "8 available pods, 10 are available, 0 of them reserved, and 4 of its pods would go at once (on this node: " +
          "default/web-0, default/web-1, default/web-2, default/web-3); drain the node first " +
          "(and stop its kubelet, where pods of DaemonSets are left), or try again when more " +
          "pods are available",
        details: { name: "node-1", kind: "nodes", causes: [{ reason: "DisruptionBudget" }] },
      },
      auditAnnotations: { decision: "core/default/web=TooManyTogether", "reject-by-podprotector": "default/web" },
    });
    expect(w.store.writes).toBe(0);
  });

  test("that can be spared are named by their protector and its reason in the audit log", async () => {
    const w = world(6);
    const { ask } = handler(ALLOWED, { ...with4, pipeline: w.pipeline, clock: w.time.clock });
    expect(responseOf(await w.time.result(ask(deletion())))).toMatchObject({
      ...{ allowed: true, auditAnnotations: { decision: "core/default/web=Reserved" } },
    });
  });

  test("that can be spared are reserved in one write, and a repeat uses no more quota", async () => {
    const w = world(6);
    const first = await w.time.result<JointVerdict>(decideAll(w.pipeline, disruptions(4)));
    expect(first).toMatchObject({ kind: "allowed" });
    expect([w.store.writes, noncesOf(w.store.object).size]).toEqual([1, 4]);
    expect(await w.time.result<JointVerdict>(decideAll(w.pipeline, disruptions(4)))).toMatchObject({ kind: "allowed" });
    expect(noncesOf(w.store.object).size).toBe(4);
    expect(await w.time.result<JointVerdict>(decideAll(w.pipeline, [disruption(pod("other"))]))).toMatchObject({
      kind: "denied",
    });
  });

  test("are taken back when quota is gone between the evaluation and the write", async () => {
    const w = world(6);
    let calls = 0;
    const pipeline = {
      decide: (one: Disruption) => {
        calls += 1;
        // Somebody else was faster: the first of the four is written, and then the minimum rises.
        if (calls === 5) w.store.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: 9 } }));
        return w.pipeline.decide(one);
      },
    };
    const verdict = await w.time.result<JointVerdict>(decideAll(pipeline, disruptions(4)));
    expect(verdict).toMatchObject({ kind: "denied", denied: [{ pods: [{}, {}, {}] }] });
    expect(noncesOf(w.store.object).size).toBe(1);
    if (verdict.kind === "denied") verdict.rollBack?.();
    await w.time.advance(1_000);
    expect(noncesOf(w.store.object).size).toBe(0);
  });

  test("are taken back, too, where the pod that is denied has reserved at another protector", async () => {
    const back: string[] = [];
    const protector = { core: "core", namespace: "default", name: "web" };
    const denied = { protector, decision: { kind: "lost", uid: "u" } } as const;
    const verdicts: Verdict[] = [
      ...[ALLOWED, ALLOWED],
      { kind: "allowed", decisions: [], rollBack: () => void back.push("allowed") },
      { kind: "denied", decisions: [denied], rollBack: () => void back.push("denied") },
    ];
    const verdict = await decideAll({ decide: () => verdicts.shift() ?? ALLOWED }, disruptions(2));
    if (verdict.kind === "denied") verdict.rollBack?.();
    expect([verdict.kind, back]).toEqual(["denied", ["allowed", "denied"]]);
  });

  test("are asked for as a dry run without a write", async () => {
    const w = world(6);
    const { ask } = handler(ALLOWED, { ...with4, pipeline: w.pipeline, clock: w.time.clock });
    expect(responseOf(await w.time.result(ask(deletion({ dryRun: true }))))).toMatchObject({ allowed: true });
    expect(w.store.writes).toBe(0);
  });
});
