/** When the owner of a workload is asked, and what its answer does (docs/design.md#owner-probe). */
import { describe, expect, test } from "vitest";
import { SOURCE_KIND_LABEL, SOURCE_NAME_LABEL } from "../../shared/schema/annotations.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { disruption, noncesOf, pod, protector, unready } from "../../test/support/webhook/fixtures.ts";
import { ProtectorStore } from "../../test/support/webhook/protector-store.ts";
import { type ProbeAnswer, type ProbeRequest, probeRequestOf } from "../probe/probe-request.ts";
import type { LiveRead } from "../request/cell-client.ts";
import { denyStatus } from "../respond/deny-status.ts";
import { Nonces } from "./nonces.ts";
import { type Disruption, Pipeline } from "./pipeline.ts";
import type { ProtectorMatch } from "./protector-cache.ts";
import { ProtectorWriter } from "./protector-writer.ts";
import { isBusy, type Verdict } from "./verdict.ts";

const PROBE = { endpoint: "db:1" };
const YES: ProbeAnswer = { result: "allowed", message: "" };
const NO: ProbeAnswer = { result: "refused", message: "is told by its probe db:1 that it may not go: leader" };

interface World {
  readonly time: VirtualTime;
  readonly store: ProtectorStore;
  readonly requests: ProbeRequest[];
  decide(disruption: Disruption): Promise<Verdict>;
  /** The same, and virtual time stands still. */
  begin(disruption: Disruption): Promise<Verdict>;
}

/** One protector, or `second` as well; `answer` is the owner's. */
function world(
  object: PodProtector,
  answer?: (time: VirtualTime, request: ProbeRequest) => Promise<ProbeAnswer>,
  second?: PodProtector,
): World {
  const time = new VirtualTime();
  const nonces = new Nonces(time.random);
  const store = new ProtectorStore({ ports: time, object });
  const requests: ProbeRequest[] = [];
  const matchOf = (name: string, stored: ProtectorStore): ProtectorMatch => {
    const writer: ProtectorWriter = new ProtectorWriter({
      namespace: "default",
      name,
      ports: time,
      client: stored.client(),
      watched: stored.watch(time, 3, () => writer.watchChanged()),
      onEvent: () => undefined,
      tag: nonces.tag,
    });
    return { core: "a", namespace: "default", name, writer };
  };
  const matches = [matchOf("web", store)];
  if (second !== undefined) matches.push(matchOf("web-too", new ProtectorStore({ ports: time, object: second })));
  const pipeline = new Pipeline({
    cores: [{ name: "a", problem: () => undefined, match: () => [...matches] }],
    ports: time,
    nonces,
    settleMs: 75_000,
    askOwner: async (request) => {
      requests.push(request);
      return (await answer?.(time, request)) ?? YES;
    },
  });
  return {
    time,
    store,
    requests,
    begin: async (one) => pipeline.decide(one),
    decide: (one) => time.result(pipeline.decide(one)),
  };
}

const probed = (minAvailable: number, spec: Partial<PodProtector["spec"]> = {}): PodProtector =>
  protector(minAvailable, { spec: { probe: PROBE, ...spec } });

const CONTEXT = { ownNamespace: "podseidon-system", hasSeveralCores: false, settleMs: 75_000, nowMs: 0 };

describe("an owner", () => {
  test("is asked when there is quota, before anything is written, and its yes allows the disruption", async () => {
    let writesWhenAsked = -1;
    const w: World = world(probed(5), async () => {
      writesWhenAsked = w.store.writes;
      return YES;
    });
    expect((await w.decide(disruption(pod("web-0")))).kind).toBe("allowed");
    expect(writesWhenAsked).toBe(0);
    expect(w.requests).toMatchObject([
      { podNamespace: "default", podName: "web-0", budgetNamespace: "default", budgetName: "web" },
    ]);
    expect([...noncesOf(w.store.object).keys()]).toEqual(["uid-web-0"]);
  });

  test("denies in its own words, and nothing is written", async () => {
    const w = world(probed(5), async () => NO);
    const verdict = await w.decide(disruption(pod("web-0")));
    if (verdict.kind !== "denied") throw new Error(verdict.kind);
    const status = denyStatus({ operation: "DELETE", namespace: "default", pod: "web-0" }, verdict.decisions, CONTEXT);
    expect(status.message).toBe(
      "pod default/web-0 may not be deleted now: PodProtector default/web is " +
        "told by its probe db:1 that it may not go: leader; try again later. " +
        "More: kubectl podseidon why web-0 -n default",
    );
    expect(status.details?.retryAfterSeconds).toBeUndefined();
    expect(w.store.writes).toBe(0);
  });

  test.each<[ProbeAnswer["result"], number | undefined]>([
    ["failed", undefined],
    ["down", undefined],
    ["overloaded", 1],
  ])("that is %s denies, and the client retries only where that helps", async (result, retryAfter) => {
    const w = world(probed(5), async () => ({ result, message: "did not answer" }));
    const verdict = await w.decide(disruption(pod("web-0")));
    if (verdict.kind !== "denied") throw new Error(verdict.kind);
    const { details } = denyStatus(
      { operation: "EVICT", namespace: "default", pod: "web-0" },
      verdict.decisions,
      CONTEXT,
    );
    expect(details?.retryAfterSeconds).toBe(retryAfter);
  });

  test.each<[string, PodProtector, Partial<Disruption>, Parameters<typeof pod>[1]]>([
    ["there is no quota", probed(10), {}, {}],
    ["the pod is forced without quota", probed(10), { forced: true }, {}],
    ["the pod is forced with quota", probed(5), { forced: true }, {}],
    ["the protector is suspended", probed(10, { suspend: { enabled: true } }), {}, {}],
    ["the protector only warns", probed(5, { enforcement: "Warn" }), {}, {}],
    ["the operation is not protected", probed(10, { protectedOperations: ["EVICT"] }), {}, {}],
    ["the pod waits for a pre-activity", probed(5), {}, { annotations: { "pre-activity.xpdb.form3.tech/x": "" } }],
    ["the pod is Pending", probed(5), { operation: "EVICT" }, { phase: "Pending", conditions: [] }],
  ])("is not asked when %s", async (_, object, change, change2) => {
    const w = world(object, async () => NO);
    await w.decide(disruption(pod("web-0", change2), change));
    expect(w.requests).toEqual([]);
  });

  test("does not keep a Pending pod from being evicted", async () => {
    const w = world(probed(5), async () => ({ result: "down", message: "does not answer" }));
    const pending = pod("web-0", { phase: "Pending", conditions: [] });
    expect((await w.decide(disruption(pending, { operation: "EVICT" }))).kind).toBe("allowed");
    expect([...noncesOf(w.store.object).keys()]).toEqual(["uid-web-0"]);
  });

  test("is asked by the next attempt about a pod that was Pending and runs when it is pinned", async () => {
    const w = world(probed(5), async () => YES);
    const pending = pod("web-0", { phase: "Pending", conditions: [] });
    const reread = async (): Promise<LiveRead> => ({
      kind: "found",
      pod: pod("web-0"),
      sentMs: w.time.clock.monotonicMs(),
    });
    const verdict = await w.decide(disruption(pending, { operation: "EVICT", podReadMs: -1, reread }));
    if (verdict.kind !== "denied") throw new Error(verdict.kind);
    expect(verdict.decisions.every(isBusy)).toBe(true);
    verdict.rollBack?.();
    await w.time.advance(1_000);
    expect([...noncesOf(w.store.object).keys()]).toEqual([]);
    expect((await w.decide(disruption(pod("web-0"), { operation: "EVICT" }))).kind).toBe("allowed");
    expect(w.requests).toHaveLength(1);
  });

  test.each<[string, Partial<PodProtector["spec"]>]>([
    ["suspended", { probe: PROBE, suspend: { enabled: true } }],
    ["not for deletions", { probe: PROBE, protectedOperations: ["EVICT"] }],
    ["without a probe", {}],
  ])("is asked by the next attempt where the protector was %s, and is not when it is written", async (_, spec) => {
    const second: PodProtector = protector(5, { spec: { probe: { endpoint: "slow:1" } } });
    const w: World = world(
      protector(5, { spec }),
      async (time, { probe }) => {
        if (probe.endpoint === PROBE.endpoint) return YES;
        w.store.put((object) => ({ ...object, spec: probed(5).spec }));
        await new Promise<void>((resolve) => time.timers.after(1_000, resolve));
        return YES;
      },
      second,
    );
    const verdict = await w.decide(disruption(pod("web-0")));
    if (verdict.kind !== "denied") throw new Error(verdict.kind);
    expect(verdict.decisions.every(isBusy)).toBe(true);
    expect(w.requests.map(({ probe }) => probe.endpoint)).toEqual(["slow:1"]);
    verdict.rollBack?.();
    await w.time.advance(1_000);
    expect([...noncesOf(w.store.object).keys()]).toEqual([]);
    expect((await w.decide(disruption(pod("web-0")))).kind).toBe("allowed");
    expect(w.requests.map(({ probe }) => probe.endpoint).slice(1)).toEqual(["db:1", "slow:1"]);
  });

  test("is asked by the next attempt where the protector got its probe between decision and write", async () => {
    const w = world(protector(5), async () => YES);
    w.store.put((object) => ({ ...object, spec: probed(5).spec }));
    const verdict = await w.decide(disruption(pod("web-0")));
    if (verdict.kind !== "denied") throw new Error(verdict.kind);
    expect(verdict.decisions.every(isBusy)).toBe(true);
    verdict.rollBack?.();
    await w.time.advance(1_000);
    expect([...noncesOf(w.store.object).keys()]).toEqual([]);
    expect((await w.decide(disruption(pod("web-0")))).kind).toBe("allowed");
    expect(w.requests).toHaveLength(1);
  });

  test.each<[string, Parameters<typeof disruption>[0]]>([
    ["available", pod("web-0")],
    ["not available", unready("web-0")],
  ])("is not asked about a forced pod that is %s", async (_, one) => {
    const w = world(probed(5), async () => NO);
    expect((await w.decide(disruption(one, { operation: "EVICT", forced: true }))).kind).toBe("allowed");
    expect([...noncesOf(w.store.object).keys()]).toEqual(["uid-web-0"]);
  });

  test("is asked about an unavailable pod, and in a dry run, which writes nothing", async () => {
    const w = world(probed(5), async () => NO);
    expect((await w.decide(disruption(unready("web-0")))).kind).toBe("denied");
    expect((await w.decide(disruption(pod("web-0"), { dryRun: true }))).kind).toBe("denied");
    expect(w.requests).toHaveLength(2);
    expect(w.store.writes).toBe(0);
  });

  test("that is slow holds up no other disruption", async () => {
    const w = world(probed(5), async (time, { podName }) => {
      if (podName === "web-0") await new Promise<void>((resolve) => time.timers.after(2_000, resolve));
      return YES;
    });
    let slow: Verdict | undefined;
    const pending = w.begin(disruption(pod("web-0"))).then((verdict) => {
      slow = verdict;
    });
    expect((await w.decide(disruption(pod("web-1")))).kind).toBe("allowed");
    expect(w.time.elapsedMs).toBeLessThan(100);
    expect(slow).toBeUndefined();
    await w.time.advance(3_000);
    await pending;
    expect(slow?.kind).toBe("allowed");
  });

  test("that is slow holds no quota: quota is checked again after its answer", async () => {
    const w = world(probed(9), async (time, { podName }) => {
      if (podName === "web-0") await new Promise<void>((resolve) => time.timers.after(1_000, resolve));
      return YES;
    });
    let slow: Verdict | undefined;
    const pending = w.begin(disruption(pod("web-0"))).then((verdict) => {
      slow = verdict;
    });
    expect((await w.decide(disruption(pod("web-1")))).kind).toBe("allowed");
    await w.time.advance(3_000);
    await pending;
    expect(slow?.kind).toBe("denied");
  });
});

test("the owner's deadline leaves time for the write", () => {
  const names = { namespace: "default", name: "web-0" };
  expect(probeRequestOf(probed(1), "Reserved", names, 1_000, 10_500)?.deadlineMs).toBe(10_000);
  expect(probeRequestOf(probed(1), "Reserved", names, 1_000, 1_400)?.deadlineMs).toBe(1_300);
});

test("the probe of an XPodDisruptionBudget gets that budget's name", () => {
  const object = probed(1);
  const labels = { [SOURCE_KIND_LABEL]: "XPodDisruptionBudget", [SOURCE_NAME_LABEL]: "db" };
  const made = { ...object, metadata: { ...object.metadata, labels } };
  expect(probeRequestOf(made, "Reserved", { namespace: "a", name: "b" }, 0, 1)?.budgetName).toBe("db");
});
