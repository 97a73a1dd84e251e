/** Rules that change while a disruption is under way, and what is let through whatever they say. */
import { describe, expect, test } from "vitest";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector, PodProtectorSpec } from "../../shared/schema/podprotector.ts";
import { disruption, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { deletion, handler, podJson, responseOf } from "../../test/support/webhook/handler-harness.ts";
import { type PipelineWorld, world } from "../../test/support/webhook/pipeline-harness.ts";
import type { Disruption } from "./pipeline.ts";
import type { Verdict } from "./verdict.ts";

/** A world with this protector alone, and its store. */
function worldOf(object: PodProtector) {
  const all = world([{ core: "core", object }]);
  const [store] = all.stores.values();
  if (store === undefined) throw new Error("there is no store");
  return { ...all, store };
}

/** The verdict of a request that comes now. */
function ask({ time, decide }: PipelineWorld, one: Pod, given: Partial<Disruption> = {}): Promise<Verdict> {
  const nowMs = time.clock.monotonicMs();
  return decide(disruption(one, { ...given, arrivedMs: nowMs, deadlineMs: nowMs + 9_500 }));
}

const spec =
  (change: Partial<PodProtectorSpec>) =>
  (object: PodProtector): PodProtector => ({ ...object, spec: { ...object.spec, ...change } });

describe("what was allowed whatever the counts said has not paid:", () => {
  const pods: Pod[] = Array.from({ length: 10 }, (_, i) => pod(`web-${i}`));
  test.each<[string, Partial<PodProtectorSpec>, Partial<PodProtectorSpec>]>([
    ["a suspension that ends", { suspend: { enabled: true } }, { suspend: { enabled: false } }],
    ["Warn that becomes Enforce", { enforcement: "Warn" }, { enforcement: "Enforce" }],
  ])("%s is kept", async (_, before, after) => {
    const w = worldOf(protector(8, { spec: before }));
    for (const one of pods) expect(await ask(w, one, { operation: "EVICT" })).toMatchObject({ kind: "allowed" });
    // Nothing of it has happened: a PodDisruptionBudget denied each of them. Now the protector enforces 8.
    w.store.put(spec(after));
    await w.time.advance(1_000);
    const again = [];
    for (const one of pods) again.push((await ask(w, one, { operation: "EVICT" })).kind);
    expect(again.filter((kind) => kind === "allowed").length).toBeLessThanOrEqual(2);
  });
  test("force-delete that is taken off", async () => {
    const w = worldOf(protector(10));
    expect(await ask(w, pod("web-0"), { forced: true })).toMatchObject({ kind: "allowed" });
    await w.time.advance(1_000);
    expect(await ask(w, pod("web-0"))).toMatchObject({ kind: "denied" });
  });
});

test("a minimum that is raised while the record of its disruption waits", async () => {
  const w = worldOf(protector(0));
  const { store } = w;
  store.put(spec({ minAvailable: 8 }));
  const verdict = w.pipeline.decide(disruption(pod("web-0")));
  // The write meets a conflict, and the read after it finds the minimum. Then the core is silent.
  await w.time.advance(6);
  expect(store).toMatchObject({ conflicts: 1, reads: 1, writes: 0 });
  store.isDown = true;
  expect(await w.time.result(verdict)).toMatchObject({ kind: "failed" });
  expect(store.writes).toBe(0);
});

test("a Pending pod whose label takes it out is kept while the count may have it", async () => {
  const w = worldOf(protector(10, { spec: { healthCriterion: "Scheduled", unavailableLabelPrefix: "out/" } }));
  const replica = handler([], { pipeline: w.pipeline, clock: w.time.clock });
  const object = {
    ...podJson({
      metadata: { resourceVersion: "500", labels: { app: "web", "out/x": "" } },
      status: { phase: "Pending", conditions: [] },
    }),
    spec: { nodeName: "n" },
  };
  const response = responseOf(await w.time.result(replica.ask(deletion(object))));
  expect(response.allowed).toBe(false);
});
