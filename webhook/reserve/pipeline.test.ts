import { describe, expect, test } from "vitest";
import { specHash } from "../../shared/decide/availability/spec-facts.ts";
import { sleep } from "../../shared/runtime/clock.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { disruption, noncesOf, pod, protector, unready } from "../../test/support/webhook/fixtures.ts";
import { type PipelineWorld, type Protected, world } from "../../test/support/webhook/pipeline-harness.ts";
import type { LiveRead } from "../request/cell-client.ts";
import type { Requester } from "./caller-shares.ts";
import { Nonces } from "./nonces.ts";
import { Pipeline } from "./pipeline.ts";
import type { ProtectorLookup } from "./protector-cache.ts";
import { MAX_AT_ONCE, type Verdict } from "./verdict.ts";

const good = (name: string, core = "a"): Protected => ({ core, object: protector(5, { name }) });
const full = (name: string, core = "a"): Protected => ({ core, object: protector(10, { name }) });

function writes({ stores }: PipelineWorld): Record<string, number> {
  return Object.fromEntries([...stores].map(([key, store]) => [key, store.writes]));
}

function reserved({ stores }: PipelineWorld): string[] {
  return [...stores].filter(([, store]) => noncesOf(store.object).has("uid-web-0")).map(([key]) => key);
}

describe("protectors of one pod", () => {
  test("without a protector the disruption is allowed", async () => {
    expect(await world([]).decide(disruption(pod("web-0")))).toEqual({ kind: "allowed", decisions: [] });
  });

  test("when all allow, each reserves, in the order of core, namespace and name", async () => {
    const w = world([good("z", "a"), good("a", "b"), good("m", "a")]);
    const verdict = await w.decide(disruption(pod("web-0")));
    expect(verdict).toMatchObject({ kind: "allowed" });
    const names =
      verdict.kind === "allowed" ? verdict.decisions.map(({ protector }) => `${protector.core}/${protector.name}`) : [];
    expect(names).toEqual(["a/m", "a/z", "b/a"]);
    expect(reserved(w).sort()).toEqual(["a/m", "a/z", "b/a"]);
  });

  test("a change of labels concerns those that do not select the pod any more", async () => {
    const w = world([full("a"), good("b"), full("c", "b")]);
    const relabelled = (labelsAfter: Record<string, string>): Promise<Verdict> =>
      w.decide({ ...disruption(pod("web-0")), labelsAfter });
    expect(await relabelled({ note: "other" })).toEqual({ kind: "allowed", decisions: [] });
    expect(await relabelled({ b: "left" })).toMatchObject({ kind: "allowed" });
    expect(reserved(w)).toEqual(["a/b"]);
    const verdict = await relabelled({ b: "left", c: "left" });
    expect(verdict).toMatchObject({ kind: "denied", decisions: [{ protector: { name: "c" } }] });
  });

  test("a change of labels that takes the pod out of a count concerns the protector that leaves it out", async () => {
    const leavesOut = ({ core, object }: Protected): Protected => {
      return { core, object: { ...object, spec: { ...object.spec, unavailableLabelPrefix: "out/" } } };
    };
    const w = world([full("a"), leavesOut(good("b")), leavesOut(full("c", "b"))]);
    const web = pod("web-0");
    const out = await w.decide({ ...disruption(web), labelsAfter: { "out/x": "" } });
    expect(out).toMatchObject({ kind: "denied", decisions: [{ protector: { name: "c" } }] });
    const isOut = { ...web, labels: { ...web.labels, "out/x": "" } };
    const later = await w.decide({ ...disruption(isOut), labelsAfter: { "out/x": "", "out/y": "" } });
    expect(later).toEqual({ kind: "allowed", decisions: [] });
  });

  test("when some deny, nothing is written, and each of them is named", async () => {
    const w = world([good("a"), full("b"), full("c", "b")]);
    const verdict = await w.decide(disruption(pod("web-0")));
    expect(verdict).toMatchObject({ kind: "denied", rollBack: undefined });
    expect(verdict.kind === "denied" && verdict.decisions.map(({ protector }) => protector.name)).toEqual(["b", "c"]);
    expect(writes(w)).toEqual({ "a/a": 0, "a/b": 0, "b/c": 0 });
  });

  test("a denial on a stale version is confirmed by a read", async () => {
    const w = world([good("a"), full("b")]);
    w.stores.get("a/b")?.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: 1 } }));
    expect(await w.decide(disruption(pod("web-0")))).toMatchObject({ kind: "allowed" });
  });

  test("a denial by a later protector rolls the earlier reservations back once it is delivered", async () => {
    const w = world([good("a"), good("b")]);
    const second = w.stores.get("a/b");
    // Allows when all are evaluated, and has no quota when it is written.
    second?.put((object) => ({ ...object, spec: { ...object.spec, minAvailable: 10 } }));
    const verdict = await w.decide(disruption(pod("web-0")));
    expect(verdict).toMatchObject({ kind: "denied", decisions: [{ protector: { name: "b" } }] });
    expect(reserved(w)).toEqual(["a/a"]);
    if (verdict.kind === "denied") verdict.rollBack?.();
    await w.time.advance(1_000);
    expect(reserved(w)).toEqual([]);
  });

  test("a reservation that another request shares stays when one is rolled back", async () => {
    const w = world([good("a"), good("b")]);
    expect(await w.decide(disruption(pod("web-0")))).toMatchObject({ kind: "allowed" });
    const second = w.stores.get("a/b");
    second?.put((object) => {
      const cells = (object.status?.cells ?? []).map((cell) => ({ ...cell, admissionHistory: { buckets: [] } }));
      const status = {
        ...object.status,
        cells,
        summary: object.status?.summary ?? {
          totalReplicas: 0,
          aggregatedAvailableReplicas: 0,
          estimatedAvailableReplicas: 0,
        },
      };
      return { ...object, status, spec: { ...object.spec, minAvailable: 10 } };
    });
    const verdict = await w.decide(disruption(pod("web-0")));
    expect(verdict).toMatchObject({ kind: "denied" });
    if (verdict.kind === "denied") verdict.rollBack?.();
    await w.time.advance(1_000);
    expect(reserved(w)).toEqual(["a/a"]);
    const kept = w.stores.get("a/a")?.object ?? protector(0);
    expect(noncesOf(kept).get("uid-web-0")).toHaveLength(1);
    expect(kept.status?.cells[0]?.admissionHistory?.buckets).toMatchObject([{ podUID: "uid-web-0", paid: true }]);
  });

  test.each([
    ["a later", "a/b", ["a/a"]],
    ["the first", "a/a", []],
  ])("a failure of %s protector fails the request, and the reservations stay", async (_, failing, kept) => {
    const w = world([good("a"), good("b")]);
    w.stores.get(failing)?.faults.push("rejected");
    expect(await w.decide(disruption(pod("web-0")))).toMatchObject({ kind: "failed", tag: "core-rejected" });
    await w.time.advance(10_000);
    expect(reserved(w)).toEqual(kept);
  });

  test("a protector that was deleted meanwhile has no say", async () => {
    const w = world([good("a"), full("b")]);
    w.stores.get("a/b")?.remove();
    expect(await w.decide(disruption(pod("web-0")))).toMatchObject({ kind: "allowed" });
  });
});

describe("several cores", () => {
  test.each([good, full])("a core without a current cache fails the request when the others allow", async (other) => {
    const w = world([good("a"), other("b", "b")]);
    w.problems.set("b", "core cluster b is unreachable");
    const verdict = await w.decide(disruption(pod("web-0")));
    expect(verdict).toEqual({ kind: "failed", tag: "core-unavailable", message: "core cluster b is unreachable" });
    expect(writes(w)).toEqual({ "a/a": 0, "b/b": 0 });
    expect(w.stores.get("b/b")?.reads).toBe(0);
  });

  test.each(["a", "b"])("core %s without a current cache may have a protector, so no other allows", async (core) => {
    const w = world([good("x", "a"), good("y", "b")]);
    const unmatched = pod("web-0", { labels: { x: "left", y: "left" } });
    expect(await w.decide(disruption(unmatched))).toEqual({ kind: "allowed", decisions: [] });
    w.problems.set(core, "not current");
    expect(await w.decide(disruption(unmatched))).toMatchObject({ kind: "failed", message: "not current" });
  });

  test("protect nothing only where each of them has no protector, for sure", () => {
    const empty: ProtectorLookup = { name: "a", isEmpty: true, problem: () => undefined, match: () => [] };
    const protectsNothing = (cores: readonly ProtectorLookup[], cellProblem?: string): boolean => {
      const { time } = world([]);
      const options = { cores, ports: time, nonces: new Nonces(time.random), settleMs: 75_000 };
      return new Pipeline({ ...options, cellProblem: () => cellProblem }).protectsNothing("cell-1");
    };
    expect(protectsNothing([empty, empty])).toBe(true);
    expect(protectsNothing([empty, empty], "no backup was read")).toBe(false);
    expect(protectsNothing([empty, { ...empty, isEmpty: false }])).toBe(false);
    expect(protectsNothing([empty, { ...empty, problem: () => "old" }])).toBe(false);
  });

  test("a denial by another core stands", async () => {
    const w = world([full("a"), good("b", "b")]);
    w.problems.set("b", "core cluster b is unreachable");
    expect(await w.decide(disruption(pod("web-0")))).toMatchObject({
      kind: "denied",
      decisions: [{ protector: { name: "a" } }],
    });
  });

  test("a core that hangs delays only its own pods", async () => {
    const w = world([good("a")]);
    const other = world([good("b", "b")]);
    const hanging = w.stores.get("a/a");
    if (hanging !== undefined) hanging.isDown = true;
    expect(await other.decide(disruption(pod("web-0")))).toMatchObject({ kind: "allowed" });
    expect(other.time.elapsedMs).toBeLessThan(10);
    const verdict = await w.decide(disruption(pod("web-0"), { deadlineMs: 2_000 }));
    expect(verdict).toMatchObject({ kind: "failed" });
    expect(w.time.elapsedMs).toBeLessThanOrEqual(2_000);
  });
});

describe("a dry run", () => {
  test.each([
    ["with quota is allowed", 5, "allowed"],
    ["without quota is denied", 10, "denied"],
  ])("%s, and nothing is written", async (_name, min, kind) => {
    const w = world([{ core: "a", object: protector(min, { name: "a" }) }]);
    expect(await w.decide(disruption(pod("web-0"), { dryRun: true }))).toMatchObject({ kind });
    expect(writes(w)).toEqual({ "a/a": 0 });
  });
});

// Each protector that was asked took half a millisecond: some twenty denials a second were all that a replica made.
test("of a pod with hundreds of protectors, no more are asked once some deny for good", async () => {
  const named = (min: number, count: number, first = 0): Protected[] =>
    Array.from({ length: count }, (_, index) => {
      const name = `p${String(first + index).padStart(3, "0")}`;
      return { core: "a", object: protector(min, { name }) };
    });
  const denials = async (all: readonly Protected[]): Promise<number> => {
    const verdict = await world(all).decide(disruption(pod("web-0"), { dryRun: true }));
    return verdict.kind === "denied" ? verdict.decisions.length : 0;
  };
  expect(await denials(named(10, 500))).toBe(MAX_AT_ONCE);
  expect(await denials([...named(5, 300), ...named(10, 1, 300)])).toBe(1);
  expect(await denials(named(5, 300))).toBe(0);
});

describe("a pod", () => {
  test("that is not available is allowed without a write", async () => {
    const w = world([full("a")]);
    expect(await w.decide(disruption(unready("web-0")))).toMatchObject({
      kind: "allowed",
      decisions: [{ decision: { decision: { reason: "Unavailable" } } }],
    });
    expect(writes(w)).toEqual({ "a/a": 0 });
  });

  test("that is forced is allowed without quota, and reserved", async () => {
    const w = world([full("a")]);
    const verdict = await w.decide(disruption(pod("web-0"), { forced: true }));
    expect(verdict).toMatchObject({ kind: "allowed", decisions: [{ decision: { decision: { reason: "Forced" } } }] });
    expect(reserved(w)).toEqual(["a/a"]);
  });
});

describe("an eviction that passes because its pod is not available", () => {
  const SLOW_MS = 400;
  const evicted = (w: PipelineWorld, now: Pod, slowMs: number, readMs = 0): Promise<Verdict> => {
    for (const store of w.stores.values()) store.slowMs = slowMs;
    const reread = async (timeoutMs: number): Promise<LiveRead> => {
      const sentMs = w.time.clock.monotonicMs();
      await sleep(w.time, Math.min(readMs, timeoutMs));
      return readMs < timeoutMs ? { kind: "found", pod: now, sentMs } : { kind: "failed", message: "timeout" };
    };
    return w.decide(disruption(unready("web-0"), { operation: "EVICT", podReadMs: 0, reread }));
  };

  test("is denied when its pod is available after slow writes, and leaves no record", async () => {
    const w = world([full("one"), good("two", "b")]);
    const verdict = await evicted(w, pod("web-0"), SLOW_MS);
    expect(verdict).toMatchObject({ kind: "denied", decisions: [{ protector: { name: "one" } }] });
    if (verdict.kind === "denied") verdict.rollBack?.();
    await w.time.advance(10_000);
    expect(reserved(w)).toEqual([]);
  });

  test("is denied by a lost protector, which allowed it before the slow writes", async () => {
    const w = world([{ ...good("one"), isLost: true }, good("two", "b")]);
    const verdict = await evicted(w, pod("web-0"), SLOW_MS);
    expect(verdict).toMatchObject({ kind: "denied", decisions: [{ protector: { name: "one" } }] });
  });

  test("is denied by a lost protector that the watch shows, where its pod may mature meanwhile", async () => {
    const spec = { ...protector(5).spec, minReadySeconds: 3_600 };
    const maturityCutoff = "1970-01-01T00:00:00Z";
    const object = protector(5, { name: "one", spec, aggregation: { specHash: specHash(spec), maturityCutoff } });
    const given = [{ core: "a", object }, good("two", "b")] as const;
    expect(await evicted(world(given), pod("web-0"), SLOW_MS)).toMatchObject({
      kind: "allowed",
      decisions: [{ decision: { decision: { reason: "PinnedUnavailable" } } }, {}],
    });
    const lost = world([{ ...given[0], isLost: true }, given[1]]);
    const vanished = world([{ ...given[0], vanishes: true }, given[1]]);
    vanished.stores.get("a/one")?.remove();
    const denied = { kind: "denied", decisions: [{ protector: { name: "one" } }] };
    for (const one of [lost, vanished]) expect(await evicted(one, pod("web-0"), SLOW_MS)).toMatchObject(denied);
  });

  test.each([
    ["is decided by a read of 900 ms", 900, { kind: "allowed" }],
    ["is not decided without a read of a second", 1_100, { kind: "failed", tag: "cell-unavailable" }],
  ])("in a cell that is far away %s", async (_, readMs, expected) => {
    const w = world([full("one")]);
    expect(await evicted(w, unready("web-0"), SLOW_MS, readMs)).toMatchObject(expected);
  });

  test("pays where there is quota", async () => {
    const w = world([good("one"), good("two", "b")]);
    expect(await evicted(w, pod("web-0"), SLOW_MS)).toMatchObject({
      kind: "allowed",
      decisions: [
        { decision: { decision: { reason: "Reserved" } } },
        { decision: { decision: { reason: "Reserved" } } },
      ],
    });
  });

  test.each([
    ["its pod is still not available", unready("web-0"), SLOW_MS],
    ["the writes were fast", pod("web-0"), 0],
  ])("stands on its pins when %s", async (_, now, slowMs) => {
    const w = world([full("one"), full("two", "b")]);
    const verdict = await evicted(w, now, slowMs);
    expect(verdict.kind).toBe("allowed");
    expect(writes(w)).toEqual({ "a/one": 1, "b/two": 1 });
  });

  test.each<[string, LiveRead, object]>([
    ["is gone", { kind: "gone" }, { kind: "podGone" }],
    ["can't be read", { kind: "failed", message: "no route" }, { kind: "failed", tag: "cell-unavailable" }],
  ])("is not decided when its pod %s", async (_, live, expected) => {
    const w = world([good("one")]);
    for (const store of w.stores.values()) store.slowMs = SLOW_MS;
    const given = { operation: "EVICT" as const, podReadMs: 0, reread: () => Promise.resolve(live) };
    expect(await w.decide(disruption(unready("web-0"), given))).toMatchObject(expected);
  });
});

test("an eviction that has paid does not read its pod again, however slow its write was", async () => {
  const w = world([good("one")]);
  for (const store of w.stores.values()) store.slowMs = 400;
  const reread = (): Promise<LiveRead> => Promise.resolve({ kind: "failed", message: "no route" });
  const given = { operation: "EVICT" as const, podReadMs: 0, reread };
  expect(await w.decide(disruption(pod("web-0"), given))).toMatchObject({ kind: "allowed" });
});

test("what a caller has reserved is watched where it used quota, and the caller has an address", async () => {
  const told: string[] = [];
  const reserved = (protector: string, { username }: Requester): void => void told.push(`${protector} ${username}`);
  const w = world([good("one")], { keepsShare: () => false, reserved });
  const by = (username: string, target: Pod, more: object = {}): Promise<Verdict> =>
    w.decide(disruption(target, { caller: { address: "192.0.2.1", username }, ...more }));
  expect(await by("first", pod("web-0"))).toMatchObject({ kind: "allowed" });
  expect(told).toEqual(["a/default/one first"]);
  // A repeat, a pin, and nothing written: none of them uses quota.
  await by("again", pod("web-0"));
  await by("pinned", unready("web-1"), { operation: "EVICT" });
  await by("unready", unready("web-2"));
  await by("nowhere", pod("web-3"), { caller: { address: undefined, username: "nowhere" } });
  expect(told).toEqual(["a/default/one first"]);
  await by("second", pod("web-4"));
  expect(told).toEqual(["a/default/one first", "a/default/one second"]);
});

describe("what is allowed whatever the counts say", () => {
  const suspended = { suspend: { enabled: true } };
  const cases: [string, Protected, string][] = [
    ["a suspended protector", { core: "a", object: protector(10, { name: "one", spec: suspended }) }, "Suspended"],
    ["a minimum of 0", { core: "a", object: protector(0, { name: "one", available: 0 }) }, "NothingPromised"],
  ];

  test.each(cases)("%s: is recorded", async (_, one, reason) => {
    const w = world([one]);
    expect(await w.decide(disruption(pod("web-0")))).toMatchObject({
      decisions: [{ decision: { decision: { reason }, written: true } }],
    });
    expect(reserved(w)).toEqual(["a/one"]);
  });

  test.each(cases)("%s: is allowed after a second when its core does not take the record", async (_, one, reason) => {
    const w = world([one]);
    for (const store of w.stores.values()) store.isDown = true;
    const verdict = await w.decide(disruption(pod("web-0")));
    expect(verdict).toMatchObject({
      kind: "allowed",
      decisions: [{ decision: { decision: { reason }, written: false } }],
    });
    expect(w.time.elapsedMs).toBeLessThanOrEqual(1_000);
  });

  test.each(cases)("%s: is allowed after a second behind a slow write of another", async (_, one, reason) => {
    const w = world([one]);
    for (const store of w.stores.values()) store.slowMs = 5_000;
    void w.pipeline.decide(disruption(pod("web-1")));
    await w.time.advance(100);
    const verdict = await w.decide(disruption(pod("web-0")));
    const decisions = [{ decision: { decision: { reason }, written: false } }];
    expect(verdict).toMatchObject({ kind: "allowed", decisions });
    expect(w.time.elapsedMs).toBeLessThanOrEqual(1_100);
  });

  test("nothing else has only a second", async () => {
    const w = world([good("one")]);
    for (const store of w.stores.values()) store.slowMs = 1_500;
    expect(await w.decide(disruption(pod("web-0")))).toMatchObject({ kind: "allowed" });
    expect(reserved(w)).toEqual(["a/one"]);
  });

  test.each(cases)("%s: is allowed when its core rejects the record", async (_, one, reason) => {
    const w = world([one]);
    for (const store of w.stores.values()) store.faults.push("rejected");
    const verdict = await w.decide(disruption(pod("web-0")));
    expect(verdict).toMatchObject({ kind: "allowed", decisions: [{ decision: { decision: { reason } } }] });
  });

  test("is denied by a protector that has no quota, and leaves no record", async () => {
    const w = world([cases[0]?.[1] ?? full("one"), full("two", "b")]);
    const verdict = await w.decide(disruption(pod("web-0")));
    expect(verdict).toMatchObject({ kind: "denied", decisions: [{ protector: { name: "two" } }] });
    expect(reserved(w)).toEqual([]);
  });
});
