/** Rules that change while a disruption is under way, and what is let through whatever they say. */
import { describe, expect, test } from "vitest";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector, PodProtectorSpec } from "../../shared/schema/podprotector.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { disruption, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { deletion, handler, podJson, responseOf } from "../../test/support/webhook/handler-harness.ts";
import { ProtectorStore } from "../../test/support/webhook/protector-store.ts";
import { Nonces } from "./nonces.ts";
import { type Disruption, Pipeline } from "./pipeline.ts";
import { ProtectorWriter } from "./protector-writer.ts";
import type { Verdict } from "./verdict.ts";

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

describe("what was allowed whatever the counts said has not paid:", () => {
  const pods: Pod[] = Array.from({ length: 10 }, (_, i) => pod(`web-${i}`));
  test.each<[string, Partial<PodProtectorSpec>, Partial<PodProtectorSpec>]>([
    ["a suspension that ends", { suspend: { enabled: true } }, { suspend: { enabled: false } }],
    ["Warn that becomes Enforce", { enforcement: "Warn" }, { enforcement: "Enforce" }],
  ])("%s is kept", async (_, before, after) => {
    const w = world(protector(8, { spec: before }));
    for (const one of pods)
      expect(await w.decide(disruption(one, { operation: "EVICT" }))).toMatchObject({ kind: "allowed" });
    // Nothing of it has happened: a PodDisruptionBudget denied each of them. Now the protector enforces 8.
    w.stores[0]?.put(spec(after));
    await w.time.advance(1_000);
    const again = [];
    for (const one of pods) again.push((await w.decide(disruption(one, { operation: "EVICT" }))).kind);
    expect(again.filter((kind) => kind === "allowed").length).toBeLessThanOrEqual(2);
  });
  test("force-delete that is taken off", async () => {
    const w = world(protector(10));
    expect(await w.decide(disruption(pod("web-0"), { forced: true }))).toMatchObject({ kind: "allowed" });
    await w.time.advance(1_000);
    expect(await w.decide(disruption(pod("web-0")))).toMatchObject({ kind: "denied" });
  });
});

test("a minimum that is raised while the record of its disruption waits", async () => {
  const w = world(protector(0));
  const [store] = w.stores;
  if (store === undefined) throw new Error();
  store.put(spec({ minAvailable: 8 }));
  const verdict = w.pipeline.decide(disruption(pod("web-0")));
  // The write meets a conflict, and the read after it finds the minimum. Then the core is silent.
  await w.time.advance(6);
  expect(store).toMatchObject({ conflicts: 1, reads: 1, writes: 0 });
  store.isDown = true;
  expect(await w.run(verdict)).toMatchObject({ kind: "failed" });
  expect(store.writes).toBe(0);
});

test("a Pending pod whose label takes it out is kept while the count may have it", async () => {
  const w = world(protector(10, { spec: { healthCriterion: "Scheduled", unavailableLabelPrefix: "out/" } }));
  const { ask } = handler([], { pipeline: w.pipeline, clock: w.time.clock });
  const object = {
    ...podJson({
      metadata: { resourceVersion: "500", labels: { app: "web", "out/x": "" } },
      status: { phase: "Pending", conditions: [] },
    }),
    spec: { nodeName: "n" },
  };
  const response = responseOf(await w.run(ask(deletion(object))));
  expect(response.allowed).toBe(false);
});
