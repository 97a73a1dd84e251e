import { describe, expect, test } from "vitest";
import { GENERATOR_FINALIZER, RELEASED_ANNOTATION } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { pod, protector, unready } from "../../test/support/webhook/fixtures.ts";
import {
  generated,
  LostProtectorHarness,
  type Spec,
  VANISHED,
} from "../../test/support/webhook/lost-protector-harness.ts";
import type { ProbeAnswer } from "../probe/probe-request.ts";
import type { LiveRead } from "../request/cell-client.ts";
import { denyStatus } from "../respond/deny-status.ts";
import type { Disruption } from "./pipeline.ts";
import type { Verdict } from "./verdict.ts";

const PRE_ACTIVITY = { "pre-activity.xpdb.form3.tech/flush": "" };

describe("a lost protector", () => {
  test.each<[string, Spec, Pod, Partial<Disruption>, object]>([
    ["denies an available pod, whatever its quota was", { minAvailable: 1 }, pod("a"), {}, VANISHED],
    ["allows a pod of which nothing was promised", { minAvailable: 0 }, pod("a"), {}, { kind: "allowed" }],
    ["but for one with a pre-activity", { minAvailable: 0 }, pod("a", { annotations: PRE_ACTIVITY }), {}, VANISHED],
    ["denies the eviction of an available pod", {}, pod("a"), { operation: "EVICT" }, VANISHED],
    ["denies a dry run", {}, pod("a"), { dryRun: true }, VANISHED],
    ["denies a Ready pod that may not be mature", { minReadySeconds: 3600 }, pod("a"), {}, VANISHED],
    ["allows an unavailable pod", {}, unready("a"), {}, { kind: "allowed" }],
    [
      "denies an unavailable pod under IfHealthyBudget",
      { unhealthyPodPolicy: "IfHealthyBudget" },
      unready("a"),
      {},
      VANISHED,
    ],
    ["denies a pod with a pre-activity", {}, unready("a", { annotations: PRE_ACTIVITY }), {}, VANISHED],
    [
      "but for what has never run",
      {},
      pod("a", { phase: "Pending", annotations: PRE_ACTIVITY }),
      { operation: "EVICT" },
      { kind: "allowed" },
    ],
    [
      "and what its annotation forces",
      {},
      unready("a", { annotations: PRE_ACTIVITY }),
      { forced: true },
      { kind: "allowed" },
    ],
    ["allows a pod with force-delete", {}, pod("a"), { forced: true }, { kind: "allowed" }],
    ["stays suspended", { suspend: { enabled: true } }, pod("a"), {}, { kind: "allowed" }],
    ["says nothing about other pods", {}, pod("a", { labels: { app: "other" } }), {}, { kind: "allowed" }],
    [
      "says nothing about what it does not protect from",
      { protectedOperations: ["DELETE"] },
      pod("a"),
      { operation: "EVICT" },
      { kind: "allowed" },
    ],
  ])("%s", async (_name, spec, of, overrides, expected) => {
    const harness = new LostProtectorHarness(generated(spec));
    harness.vanish();
    expect(await harness.ask(of, overrides)).toMatchObject(expected);
    expect(harness.told).toEqual(["default/web vanished"]);
  });

  test.each<[string, Spec, Pod, Partial<Disruption>]>([
    ["Forced", {}, pod("a"), { forced: true }],
    ["Suspended", { suspend: { enabled: true } }, pod("a"), {}],
    ["NothingPromised", { minAvailable: 0 }, pod("a"), {}],
    ["Unavailable", {}, unready("a"), {}],
  ])("gives the audit log the reason of an allowed deletion: %s", async (reason, spec, of, overrides) => {
    for (const isKnown of [true, false]) {
      const harness = new LostProtectorHarness(generated(spec));
      if (isKnown) harness.vanish();
      else harness.store.remove();
      expect(await harness.ask(of, overrides)).toMatchObject({
        kind: "allowed",
        decisions: [{ decision: { decision: { reason } } }],
      });
    }
  });

  test.each<[ProbeAnswer["result"], Verdict["kind"]]>([
    ["allowed", "allowed"],
    ["refused", "denied"],
  ])("asks the owner before it allows: %s", async (result, kind) => {
    const harness = new LostProtectorHarness(generated({ probe: { endpoint: "db:1" } }));
    harness.vanish();
    harness.answer = result;
    expect(await harness.ask(unready("a"))).toMatchObject({ kind });
    expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
    expect(harness.requests).toMatchObject([{ podName: "a", budgetName: "web", probe: { endpoint: "db:1" } }]);
  });

  test("asks the owner, too, when the protector is lost during the decision", async () => {
    const spec = { probe: { endpoint: "db:1" } };
    const onHold = protector(5, { spec, aggregation: { hold: "WentBack/x" } });
    const harness = new LostProtectorHarness({
      ...onHold,
      metadata: { ...onHold.metadata, finalizers: [GENERATOR_FINALIZER] },
    });
    harness.answer = "refused";
    harness.store.remove();
    harness.time.timers.after(0.5, () => harness.vanish());
    expect(await harness.ask(unready("a"), { operation: "EVICT" })).toMatchObject({ kind: "denied" });
    expect(harness.requests).toHaveLength(1);
  });

  test("denies while its core is out of reach, when other pods of the core get no decision", async () => {
    const harness = new LostProtectorHarness(generated());
    harness.vanish();
    harness.reachable = false;
    expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
    expect(await harness.ask(unready("a"))).toMatchObject({ kind: "failed" });
  });

  test("ends when the protector is restored: its quota decides again, with its history in doubt", async () => {
    const harness = new LostProtectorHarness(generated());
    harness.vanish();
    harness.store.put(() => ({ ...generated(), metadata: { ...generated().metadata, uid: "another" } }));
    harness.show(harness.store.object);
    expect(harness.told).toEqual(["default/web vanished", "default/web back"]);
    expect(harness.lost).toEqual(["replaced default/web"]);
    expect(await harness.ask(pod("a"))).toMatchObject({ kind: "allowed" });
  });

  test("ends when its release is recorded", async () => {
    const harness = new LostProtectorHarness(generated());
    harness.vanish();
    harness.recorded.add("uid-of-web");
    harness.core.dropReleased();
    expect(harness.told).toEqual(["default/web vanished", "default/web released"]);
    expect(await harness.ask(pod("a"))).toMatchObject({ kind: "allowed", decisions: [] });
  });

  test("leaves no writer behind when it ends", () => {
    const harness = new LostProtectorHarness(generated());
    harness.vanish();
    const writer = () => harness.core.match(pod("a"))[0]?.writer;
    const before = writer();
    harness.recorded.add("uid-of-web");
    harness.core.dropReleased();
    harness.show(generated());
    expect(before).toBeDefined();
    expect(writer()).not.toBe(before);
  });

  test("a read that misses the protector before the watch does allows nothing", async () => {
    const harness = new LostProtectorHarness(generated());
    harness.store.remove();
    expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
  });

  test("says what to do", () => {
    const protector = { core: "core", namespace: "default", name: "web" };
    const denial = { protector, decision: { kind: "lost", uid: "1-2-3" } } as const;
    const { message, details } = denyStatus({ operation: "DELETE", namespace: "default", pod: "a" }, [denial], {
      ownNamespace: "podseidon-system",
      hasSeveralCores: true,
      settleMs: 75_000,
      nowMs: 0,
    });
    expect(message).toMatch(/PodProtector default\/web \(core core\) vanished without a release/);
    expect(message).toContain(
      "kubectl -n podseidon-system patch configmap " +
        "podseidon-released-by-hand --type merge -p " +
        `'{"data":{"1-2-3":"default/web"}}'`,
    );
    expect(details).not.toHaveProperty("retryAfterSeconds");
  });
});

describe("the eviction of a pod of a lost protector, after an old live read", () => {
  const found = (of: Pod): LiveRead => ({ kind: "found", pod: of, sentMs: 0 });
  const unready = pod("a", { conditions: [] });
  test.each<[string, LiveRead, object]>([
    ["is denied when the pod is available now", found(pod("a")), VANISHED],
    ["is allowed when the pod is still unavailable", found(unready), { kind: "allowed" }],
    ["is not found when the pod is gone", { kind: "gone" }, { kind: "podGone" }],
    ["fails when the pod can't be read again", { kind: "failed", message: "no route" }, { kind: "failed" }],
  ])("%s", async (_name, live, expected) => {
    const harness = new LostProtectorHarness(generated());
    harness.vanish();
    const given = { operation: "EVICT" as const, podReadMs: -1_000, reread: () => Promise.resolve(live) };
    expect(await harness.ask(unready, given)).toMatchObject(expected);
  });
});

describe("a released protector allows its pods", () => {
  const marked = generated();
  test.each<[string, PodProtector, boolean]>([
    [
      "by its mark",
      { ...marked, metadata: { ...marked.metadata, annotations: { [RELEASED_ANNOTATION]: "NotRequired" } } },
      false,
    ],
    ["by the register", generated(), true],
    ["made by hand, by its deletion", protector(5), false],
  ])("%s", async (_name, object, isRecorded) => {
    for (const isSeen of [true, false]) {
      const harness = new LostProtectorHarness(object);
      if (isRecorded) harness.recorded.add("uid-of-web");
      harness.store.remove();
      // Otherwise a read finds it gone before the watch does.
      if (isSeen) harness.vanish();
      expect(await harness.ask(pod("a"))).toMatchObject({ kind: "allowed", decisions: [] });
      expect(harness.told).toEqual([]);
    }
  });
});

test("a release that a restore of the core has undone allows nothing", async () => {
  const harness = new LostProtectorHarness(generated());
  harness.recorded.add("uid-of-web");
  harness.show(generated());
  harness.vanish();
  expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
});

test("a restored core has deleted nothing, not even a protector made by hand", async () => {
  const harness = new LostProtectorHarness(protector(5));
  harness.core.restored(true);
  harness.source.swap(new Map(), "7", true);
  harness.core.restored(false);
  expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
});

test("nor has a core whose list went on by what a restore adds", async () => {
  const harness = new LostProtectorHarness(protector(5));
  harness.source.swap(new Map(), "1000000070", false);
  expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
});

test.each<[string, (harness: LostProtectorHarness, isNow: boolean) => void]>([
  [
    "nor has a core that a read finds empty right after an outage, before the relist",
    (harness, isNow) => void Object.assign(harness, { recovering: isNow }),
  ],
  [
    "nor has one that a read finds empty during the relist after a restore",
    (harness, isNow) => harness.core.restored(isNow),
  ],
])("%s", async (_name, set) => {
  const harness = new LostProtectorHarness(protector(10));
  harness.store.remove();
  set(harness, true);
  expect(await harness.ask(pod("a"))).toMatchObject(VANISHED);
  set(harness, false);
  // Nothing was restored: the watch has seen its deletion.
  harness.vanish();
  expect(await harness.ask(pod("a"))).toMatchObject({ kind: "allowed" });
});
