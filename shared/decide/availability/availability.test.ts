import { describe, expect, test } from "vitest";
import { makePod, makeSpec, NOW_MS, type PodOptions } from "../../../test/support/decide/fixtures.ts";
import { COUNTED_CONDITION } from "../../schema/annotations.ts";
import { parsePod } from "../../schema/pod.ts";
import {
  availableSinceMs,
  classifyPod,
  countPods,
  isAvailable,
  leftOutMark,
  maturityCutoffMs,
  notReadyMark,
  notReadyOf,
  type PodClass,
} from "./availability.ts";
import { specFacts } from "./spec-facts.ts";

const NOT_READY: PodOptions = { readyForSeconds: undefined };
const gated = (conditions: Record<string, boolean>, ...others: string[]): PodOptions => ({
  ...NOT_READY,
  readinessGates: [COUNTED_CONDITION, ...others],
  waitsForGates: true,
  conditions,
});

/** A pod with the counted gate and ready containers, whose condition Ready is `ready`. */
function rawGated(ready: Readonly<Record<string, string>> | undefined, counted: string | undefined): unknown {
  const at = { lastTransitionTime: "2026-01-01T00:00:00Z" };
  const conditions = [
    { type: "ContainersReady", status: "True", ...at },
    ...(ready === undefined ? [] : [{ type: "Ready", ...ready, ...at }]),
    ...(counted === undefined ? [] : [{ type: COUNTED_CONDITION, status: counted, ...at }]),
  ];
  return {
    metadata: { namespace: "default", name: "x", uid: "u", resourceVersion: "1" },
    spec: { nodeName: "node", readinessGates: [{ conditionType: COUNTED_CONDITION }] },
    status: { phase: "Running", conditions },
  };
}

describe("available", () => {
  const cases: [string, PodOptions, string[], boolean][] = [
    ["Ready", {}, [], true],
    ["not Ready", NOT_READY, [], false],
    ["terminating", { terminating: true }, [], false],
    ["Succeeded", { phase: "Succeeded" }, [], false],
    ["Failed", { phase: "Failed" }, [], false],
    ["Pending, whatever its conditions say", { phase: "Pending" }, [], false],
    ["phase Unknown", { phase: "Unknown" }, [], true],
    ["a further condition that is missing", {}, ["warm"], false],
    ["a further condition that is False", { conditions: { warm: false } }, ["warm"], false],
    ["a further condition that is True", { conditions: { warm: true } }, ["warm"], true],
    ["one of two further conditions", { conditions: { warm: true } }, ["warm", "hot"], false],
    ["a further condition instead of Ready", { ...NOT_READY, conditions: { warm: true } }, ["warm"], false],
    ["waiting for the count alone", gated({ ContainersReady: true }), [], true],
    [
      "waiting for the count, asked for by the protector too",
      gated({ ContainersReady: true }),
      [COUNTED_CONDITION],
      true,
    ],
    ["the count asked for without its gate", {}, [COUNTED_CONDITION], false],
    ["waiting for the count and another gate", gated({ ContainersReady: true }, "other"), [], false],
    ["waiting for the count, the other gate is open", gated({ ContainersReady: true, other: true }, "other"), [], true],
    ["waiting for the count and its containers", gated({ ContainersReady: false }), [], false],
    [
      "counted before its containers were lost",
      { ...NOT_READY, readinessGates: [COUNTED_CONDITION], conditions: { [COUNTED_CONDITION]: true } },
      [],
      false,
    ],
  ];
  test.each(cases)("%s", (_, pod, availabilityConditions, expected) => {
    const spec = specFacts(makeSpec({ availabilityConditions }));
    expect(isAvailable(makePod("x", pod), spec, 0)).toBe(expected);
  });

  const gates: [string, Readonly<Record<string, string>> | undefined, string | undefined, boolean][] = [
    ["its kubelet waits for the gates", { status: "False", reason: "ReadinessGatesNotReady" }, undefined, true],
    [
      "its gate is open, its kubelet has not seen it",
      { status: "False", reason: "ReadinessGatesNotReady" },
      "True",
      true,
    ],
    ["Ready", { status: "True" }, "True", true],
    ["node-lifecycle found its node dead", { status: "False" }, "True", false],
    ["its node died, and its gate was lost", { status: "False" }, undefined, false],
    ["not Ready for another reason", { status: "False", reason: "ContainersNotReady" }, "True", false],
    ["Ready is Unknown", { status: "Unknown", reason: "ReadinessGatesNotReady" }, undefined, false],
    ["no kubelet has said anything about Ready", undefined, undefined, false],
  ];
  test.each(gates)("with the counted gate: %s", (_, ready, counted, expected) => {
    const pod = parsePod(rawGated(ready, counted));
    expect(isAvailable(pod, specFacts(makeSpec()), 0)).toBe(expected);
  });

  test("matures when the last of its gates opened, not before", () => {
    const spec = specFacts(makeSpec({ minReadySeconds: 30 }));
    const pod = makePod("x", { ...gated({ ContainersReady: true, other: true }, "other"), resourceVersion: "1" });
    const late = {
      ...pod,
      conditions: pod.conditions.map((one) =>
        one.type === "other" ? { ...one, sinceMs: NOW_MS } : { ...one, sinceMs: 0 },
      ),
    };
    expect(isAvailable(late, spec, maturityCutoffMs(NOW_MS + 29_999, spec))).toBe(false);
    expect(isAvailable(late, spec, maturityCutoffMs(NOW_MS + 30_000, spec))).toBe(true);
  });
});

test("a gated pod with many gates and many conditions does not cost their product", () => {
  const readsOf = (count: number): number => {
    let reads = 0;
    const names = Array.from({ length: count }, (_, index) => `example.com/${index}`);
    const pod = makePod("x", gated({ ContainersReady: true }, ...names));
    const conditions = names.map((type) => ({
      get type() {
        reads++;
        return type;
      },
      status: true,
      sinceMs: 1,
    }));
    expect(isAvailable({ ...pod, conditions: [...pod.conditions, ...conditions] }, specFacts(makeSpec()), 1)).toBe(
      true,
    );
    return reads;
  };
  expect(readsOf(40)).toBeGreaterThan(0);
  expect(readsOf(80)).toBeLessThan(3 * readsOf(40));
});

test("a pod with many conditions does not cost their product with those that a protector asks for", () => {
  const readsFor = (asked: number): number => {
    let reads = 0;
    const conditions = Array.from({ length: 1_000 }, (_, index) => ({
      get type() {
        reads++;
        return `example.com/${index}`;
      },
      status: true,
      sinceMs: 1,
    }));
    const availabilityConditions = Array.from({ length: asked }, (_, index) => `example.com/${999 - index}`);
    const pod = makePod("x");
    const spec = specFacts(makeSpec({ availabilityConditions }));
    expect(classifyPod({ ...pod, conditions: [...conditions, ...pod.conditions] }, spec)).toBe("Available");
    return reads;
  };
  expect(readsFor(1)).toBeGreaterThan(0);
  expect(readsFor(32)).toBeLessThan(2 * readsFor(1));
});

describe("maturity", () => {
  test("a pod that waits for its count matures since the last of its other conditions, in any order", () => {
    const pod = makePod("x", gated({}, "a", "b"));
    const since = [5, 9, 7];
    const conditions = ["ContainersReady", "a", "b"].map((type, index) => ({
      ...{ type, status: true, sinceMs: since[index] ?? 0 },
    }));
    for (let turn = 0; turn < 3; turn++) {
      expect(availableSinceMs({ ...pod, conditions }, specFacts(makeSpec()))).toBe(9);
      conditions.unshift(...conditions.splice(2));
    }
  });

  test.each([
    [0, NOW_MS, NOW_MS],
    [60, NOW_MS + 999, NOW_MS - 60_000],
    [-5, NOW_MS, NOW_MS],
    [2_147_483_647, NOW_MS, 0],
  ])("the cutoff of minReadySeconds %i is in whole seconds and never negative", (minReadySeconds, nowMs, expected) => {
    expect(maturityCutoffMs(nowMs, specFacts(makeSpec({ minReadySeconds })))).toBe(expected);
  });

  test.each([{}, { lastTransitionTime: null }, { lastTransitionTime: "0001-01-01T00:00:00Z" }])(
    "a pod that does not say since when it is Ready (%j) never matures, as for Kubernetes",
    (since) => {
      const metadata = { namespace: "default", name: "x", uid: "u", resourceVersion: "1" };
      const conditions = [{ type: "Ready", status: "True", ...since }];
      const pod = parsePod({ metadata, spec: { nodeName: "node" }, status: { phase: "Running", conditions } });
      const spec = specFacts(makeSpec({ minReadySeconds: 30 }));
      const atOnce = specFacts(makeSpec({ minReadySeconds: 0 }));
      const cutoffMs = maturityCutoffMs(NOW_MS, spec);
      expect([isAvailable(pod, spec, cutoffMs), isAvailable(pod, atOnce, NOW_MS)]).toEqual([false, true]);
      expect(classifyPod(pod, spec, { cutoffMs, position: "1", leftOut: undefined })).toBe("Immature");
      expect(countPods([pod], spec, cutoffMs).counts).toMatchObject({ ready: 1, available: 0 });
    },
  );

  test("a negative or zero minReadySeconds matures at once, whatever the clocks say", () => {
    for (const minReadySeconds of [0, -1]) {
      const spec = specFacts(makeSpec({ minReadySeconds }));
      const fromTheFuture = makePod("x", { readyForSeconds: -1000 });
      expect(isAvailable(fromTheFuture, spec, 0)).toBe(true);
      const published = { cutoffMs: 0, position: fromTheFuture.resourceVersion };
      expect(classifyPod(fromTheFuture, spec, published)).toBe("Available");
    }
  });
});

test("webhook and aggregator agree: a counted pod is always classified as Available", () => {
  const pods: PodOptions[] = [
    {},
    NOT_READY,
    { terminating: true },
    { phase: "Succeeded" },
    { phase: "Pending" },
    { mirror: true },
    { phase: "Unknown" },
    { readyForSeconds: 30 },
    { readyForSeconds: 29 },
    { conditions: { warm: true } },
    gated({ ContainersReady: true, warm: true }),
  ];
  for (const minReadySeconds of [0, 30]) {
    for (const availabilityConditions of [[], ["warm"]]) {
      const spec = specFacts(makeSpec({ minReadySeconds, availabilityConditions }));
      const cutoffMs = maturityCutoffMs(NOW_MS, spec);
      for (const [index, options] of pods.entries()) {
        const pod = makePod(`p${index}`, options);
        const counted = countPods([pod], spec, cutoffMs).available.has(pod.uid);
        expect(
          classifyPod(pod, spec, { cutoffMs, position: pod.resourceVersion, leftOut: undefined }) === "Available",
        ).toBe(counted);
      }
    }
  }
});

test("the five counts leave out terminating and finished pods, and mirrors of static pods", () => {
  const pods = [
    makePod("available"),
    makePod("immature", { readyForSeconds: 10 }),
    makePod("unready", NOT_READY),
    makePod("pending", { ...NOT_READY, phase: "Pending" }),
    makePod("unscheduled", { ...NOT_READY, phase: "Pending", scheduled: false }),
    makePod("terminating", { terminating: true }),
    makePod("succeeded", { phase: "Succeeded" }),
    makePod("failed", { phase: "Failed" }),
    makePod("mirror", { mirror: true }),
  ];
  const spec = specFacts(makeSpec({ minReadySeconds: 60 }));
  const result = countPods(pods, spec, maturityCutoffMs(NOW_MS, spec));
  expect(result.counts).toEqual({ total: 5, available: 1, ready: 2, scheduled: 4, running: 3 });
  expect(result.nextMaturityMs).toBe(NOW_MS + 50_000);
  expect([...result.available]).toEqual(["uid-available"]);
});

test("the first pod to mature and the newest that counts are found, wherever they are in the list", () => {
  const spec = specFacts(makeSpec({ minReadySeconds: 60 }));
  const pods = [70, 10, 61, 30, 80, 20].map((seconds) => makePod(`p${seconds}`, { readyForSeconds: seconds }));
  const { nextMaturityMs, newestSinceMs } = countPods(pods, spec, maturityCutoffMs(NOW_MS, spec));
  expect({ nextMaturityMs, newestSinceMs }).toEqual({
    ...{ nextMaturityMs: NOW_MS + 30_000, newestSinceMs: NOW_MS - 61_000 },
  });
});

describe("labels that take a pod out of the count", () => {
  const PREFIX = "unavailable-pod.kruise.io/";
  const spec = specFacts(makeSpec({ unavailableLabelPrefix: PREFIX }));
  const out = makePod("out", { labels: { app: "web", [`${PREFIX}offline`]: "" }, resourceVersion: "50" });

  test("are followed by the count, where the protector asks for it", () => {
    const pods = [out, makePod("in", { labels: { app: "web", unavailable: "", [`x-${PREFIX}`]: "" } })];
    expect(countPods(pods, spec, 0).counts).toMatchObject({ total: 2, ready: 2, available: 1 });
    expect(countPods(pods, specFacts(makeSpec()), 0).counts.available).toBe(2);
    expect(specFacts(makeSpec({ unavailableLabelPrefix: "" })).unavailableLabelPrefix).toBeUndefined();
  });

  test.each<[string, string | undefined, string | undefined, PodClass]>([
    ["the count has this version of the pod", "50", leftOutMark(spec, "50"), "Unavailable"],
    ["the count has a later one", "51", leftOutMark(spec, "51"), "Unavailable"],
    ["the count is older than the label", "49", leftOutMark(spec, "49"), "Available"],
    ["one shard of the count is", "51,49", leftOutMark(spec, "51,49"), "Available"],
    ["the count leaves no pod out", "51", undefined, "Available"],
    ["an aggregator that knows no such labels has counted since", "52", leftOutMark(spec, "51"), "Available"],
    ["the count leaves others out", "51", "other/@51", "Available"],
    ["nothing is counted", undefined, undefined, "Available"],
  ])("at the webhook, where %s: %s and %s make it %s", (_, position, leftOut, expected) => {
    expect(classifyPod(out, spec, { cutoffMs: undefined, position, leftOut })).toBe(expected);
  });

  test("change nothing for other protectors, nor for pods that are not available", () => {
    const counted = { cutoffMs: undefined, position: "51", leftOut: undefined };
    expect(classifyPod(out, specFacts(makeSpec()), counted)).toBe("Available");
    const unready = makePod("unready", { ...NOT_READY, labels: out.labels, resourceVersion: "60" });
    expect(classifyPod(unready, spec, counted)).toBe("Unavailable");
  });
});

test("a gated pod needs each condition that the spec asks for, except that of the gate", () => {
  const waiting = makePod("x", gated({ ContainersReady: true }));
  const sinceMs = (...availabilityConditions: string[]) =>
    availableSinceMs(waiting, specFacts(makeSpec({ availabilityConditions })));
  expect(sinceMs(COUNTED_CONDITION)).toBeDefined();
  expect(sinceMs("warm")).toBeUndefined();
  expect(sinceMs(COUNTED_CONDITION, "warm")).toBeUndefined();
});

describe("a mark of counts", () => {
  test.each<[string | undefined, number]>([
    ["2@100", 2],
    ["2@99", 0],
    ["-2@100", 0],
    ["1.5@100", 0],
    ["many@100", 0],
    ["@100", 0],
    ["100", 0],
    [undefined, 0],
  ])("%s says that at position 100 so many pods are not Ready: %i", (mark, expected) => {
    expect(notReadyOf(mark, "100")).toBe(expected);
  });

  test("is not written without a position", () => {
    expect([notReadyMark(2, "100"), notReadyMark(2, undefined), notReadyMark(0, "100")]).toEqual([
      ...["2@100", undefined, undefined],
    ]);
    const spec = { unavailableLabelPrefix: "out/" };
    expect([leftOutMark(spec, "100"), leftOutMark(spec, undefined)]).toEqual(["out/@100", undefined]);
  });
});
