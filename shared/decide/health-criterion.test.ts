/** What a protector counts by its own criterion (docs/design.md#criterion-of-a-protector). */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  admit,
  bucketsOf,
  cellUpdate,
  makeCell,
  makePod,
  makeProtector,
  makeRequest,
  makeSpec,
  NOW_MS,
  type PodOptions,
} from "../../test/support/decide/fixtures.ts";
import { decideLost } from "../recovery/lost-protector.ts";
import type { Pod } from "../schema/pod.ts";
import { HEALTH_CRITERIA, type HealthCriterion, type Operation } from "../schema/podprotector.ts";
import { classifyPod, countPods, maturityCutoffMs } from "./availability/availability.ts";
import { specFacts, specHash } from "./availability/spec-facts.ts";
import { Ledger } from "./ledger/ledger.ts";
import { decide } from "./quota.ts";
import { criterionInForce } from "./state/estimate.ts";
import { parseProtector } from "./state/protector-state.ts";

const NOT_READY: PodOptions = { readyForSeconds: undefined };
const INITIALIZED: PodOptions = { ...NOT_READY, phase: "Pending", conditions: { Initialized: true } };

describe("a pod counts", () => {
  const cases: [string, PodOptions, readonly HealthCriterion[]][] = [
    ["Ready for long", { conditions: { Initialized: true } }, HEALTH_CRITERIA],
    ["Ready, not mature", { readyForSeconds: 5 }, ["Ready", "Running", "Scheduled"]],
    ["Running, not Ready", NOT_READY, ["Running", "Scheduled"]],
    ["of a dead node", { ...NOT_READY, conditions: { ContainersReady: true } }, ["Running", "Scheduled"]],
    ["Pending, its init containers are done", INITIALIZED, ["Scheduled", "Initialized"]],
    ["Pending on a node", { ...NOT_READY, phase: "Pending" }, ["Scheduled"]],
    ["Pending without a node", { ...NOT_READY, phase: "Pending", scheduled: false }, []],
    ["of phase Unknown", { ...NOT_READY, phase: "Unknown" }, ["Scheduled"]],
    ["terminating", { terminating: true }, []],
    ["Succeeded", { phase: "Succeeded" }, []],
    ["the mirror of a static pod", { mirror: true }, []],
  ];
  test.each(cases)("%s", (_, options, expected) => {
    const pod = makePod("x", options);
    const counts = (healthCriterion: HealthCriterion): boolean => {
      const spec = specFacts(makeSpec({ healthCriterion, minReadySeconds: 60 }));
      const cutoffMs = maturityCutoffMs(NOW_MS, spec);
      const isCounted = countPods([pod], spec, cutoffMs).available.has(pod.uid);
      const podClass = classifyPod(pod, spec, { cutoffMs, position: pod.resourceVersion });
      expect(podClass === "Available").toBe(isCounted);
      return isCounted;
    };
    expect(HEALTH_CRITERIA.filter(counts)).toEqual(expected);
  });

  test("only with what the spec asks for beside the criterion", () => {
    const conditions = specFacts(makeSpec({ healthCriterion: "Running", availabilityConditions: ["warm"] }));
    const labels = specFacts(makeSpec({ healthCriterion: "Running", unavailableLabelPrefix: "out/" }));
    const pods = [
      makePod("cold", NOT_READY),
      makePod("warm", { ...NOT_READY, conditions: { warm: true } }),
      makePod("out", { ...NOT_READY, labels: { app: "web", "out/x": "" } }),
    ];
    expect([...countPods(pods, conditions, 0).available]).toEqual(["uid-warm"]);
    expect([...countPods(pods, labels, 0).available]).toEqual(["uid-cold", "uid-warm"]);
  });
});

test.each(["Ready", "Running", "Scheduled"] as const)(
  "a cell without a number by %s, or below 0, adds nothing",
  (criterion) => {
    const spec = { allowedHealthCriteria: [criterion] };
    const cells = [3, undefined, -5].map((count, index) => {
      const counts = { readyReplicas: count, runningReplicas: count, scheduledReplicas: count };
      return makeCell(["a", "b", "c"][index] ?? "", 9, [], counts, makeSpec(spec));
    });
    const state = parseProtector(makeProtector(cells, spec));
    const { facts } = decide(state, makeRequest(makePod("x"), { criterion }));
    expect(facts).toMatchObject({ criterion, available: 3, estimated: 3 });
  },
);

test("the hash of the spec tells criteria apart, and is the same as before without one", () => {
  const hashes = HEALTH_CRITERIA.map((healthCriterion) => specHash(makeSpec({ healthCriterion })));
  expect(new Set(hashes).size).toBe(HEALTH_CRITERIA.length);
  expect(hashes[0]).toBe(specHash(makeSpec()));
  // A version that does not know the criterion must not use the counts of one that does.
  expect(specHash(makeSpec({ healthCriterion: "Warm" }))).toBe(hashes[0]);
});

describe("while readiness has collapsed", () => {
  const answer = (pod: PodOptions, counted: number, operation: Operation, countedBy: HealthCriterion): string => {
    const spec = { healthCriterion: "Running", minAvailable: 2 };
    const stored = makeCell("a", counted, [], {}, makeSpec({ ...spec, healthCriterion: countedBy }));
    const decision = decide(
      parseProtector(makeProtector([stored], spec)),
      makeRequest(makePod("x", pod), { operation }),
    );
    return decision.allowed ? decision.reason : `${decision.kind} ${decision.cause}`;
  };
  test.each<[string, PodOptions, number, Operation, HealthCriterion, string]>([
    ["a running pod goes while others run", NOT_READY, 3, "DELETE", "Running", "Reserved"],
    ["none goes at the minimum", NOT_READY, 2, "DELETE", "Running", "Denial AtMinimum"],
    ["none is evicted at the minimum", NOT_READY, 2, "EVICT", "Running", "Denial AtMinimum"],
    ["nothing is spent of what was counted by another criterion", NOT_READY, 9, "DELETE", "Available", "Busy Reserved"],
    ["a Pending pod is free to go", { ...NOT_READY, phase: "Pending" }, 2, "DELETE", "Running", "Pending"],
    ["a pod of phase Unknown is free to go", { ...NOT_READY, phase: "Unknown" }, 2, "DELETE", "Running", "Unavailable"],
    ["its eviction leaves a pin", { ...NOT_READY, phase: "Unknown" }, 2, "EVICT", "Running", "PinnedUnavailable"],
  ])("%s", (_, pod, counted, operation, countedBy, expected) => {
    expect(answer(pod, counted, operation, countedBy)).toBe(expected);
  });

  test("a lost protector keeps the pods that run", () => {
    const state = parseProtector(makeProtector([], { healthCriterion: "Running" }));
    expect(decideLost(state, makeRequest(makePod("x", NOT_READY)))).toBeUndefined();
    expect(decideLost(state, makeRequest(makePod("x", { ...NOT_READY, phase: "Unknown" })))?.reason).toBe(
      "Unavailable",
    );
  });
});

test("the annotation that asks for the protector's own criterion changes nothing", () => {
  const spec = { healthCriterion: "Running", minAvailable: 2 };
  const cell = makeCell("a", 2, [], { readyReplicas: 9, runningReplicas: 9 }, makeSpec(spec));
  const state = parseProtector(makeProtector([cell], spec));
  for (const criterion of ["Available", "Running", "Ready"] as const)
    expect(decide(state, makeRequest(makePod("x", NOT_READY), { criterion }))).toMatchObject({ cause: "AtMinimum" });
});

/** The definition in words, without the code of the product. */
function isCountedBy(criterion: HealthCriterion, pod: Pod, cutoffMs: number): boolean {
  if (pod.terminating || pod.mirror || pod.phase === "Succeeded" || pod.phase === "Failed") return false;
  const since = (type: string): number | undefined =>
    pod.conditions.find((one) => one.type === type && one.status)?.sinceMs;
  const isReady = pod.phase !== "Pending" && since("Ready") !== undefined;
  return {
    Available: isReady && (since("Ready") ?? 0) <= cutoffMs,
    Ready: isReady,
    Running: pod.phase === "Running",
    Scheduled: pod.scheduled,
    Initialized: since("Initialized") !== undefined,
  }[criterion];
}

const podOptions: fc.Arbitrary<PodOptions> = fc.record({
  phase: fc.constantFrom("Pending", "Running", "Succeeded", "Failed", "Unknown"),
  terminating: fc.boolean(),
  mirror: fc.boolean(),
  scheduled: fc.boolean(),
  readyForSeconds: fc.option(fc.integer({ min: 0, max: 60 }), { nil: undefined }),
  conditions: fc.record({ Initialized: fc.boolean() }),
  resourceVersion: fc.constantFrom("90", "110"),
});

test("A - sum(w) is the number of counted pods without a reservation, by every criterion", () => {
  const story = fc.record({
    healthCriterion: fc.constantFrom(...HEALTH_CRITERIA),
    minReadySeconds: fc.constantFrom(0, 30),
    pods: fc.array(podOptions, { maxLength: 8 }),
    /** What the webhook reviews: the same pods, in another state. */
    reviewed: fc.array(fc.tuple(podOptions, fc.constantFrom<Operation>("DELETE", "EVICT", "UPDATE")), { maxLength: 8 }),
    counted: fc.nat(8),
  });
  fc.assert(
    fc.property(story, ({ healthCriterion, minReadySeconds, pods: options, reviewed, counted }) => {
      const spec = makeSpec({
        healthCriterion,
        minReadySeconds,
        minAvailable: 1,
        protectedOperations: ["DELETE", "EVICT", "UPDATE"],
      });
      const pods = options.map((one, index) => makePod(`p${index}`, one));
      const stored = makeCell("a", counted, [], { resourceVersion: "80" }, spec);
      const state = parseProtector(makeProtector([stored], spec));
      for (const [index, [pod, operation]] of reviewed.entries())
        admit(state, makeRequest(makePod(`p${index}`, pod), { operation }));
      const buckets = state.cells.get("a")?.ledger.encode(100) ?? [];
      const { entry } = cellUpdate({
        spec,
        pods,
        position: "100",
        stored: { ...stored, admissionHistory: { buckets } },
      });
      const ledger = Ledger.parse(bucketsOf(entry));
      const reserved = new Set([...ledger.reservations()].map(({ uid }) => uid));
      const cutoffMs = NOW_MS - minReadySeconds * 1000;
      const truth = pods.filter((pod) => isCountedBy(healthCriterion, pod, cutoffMs));
      expect(entry.aggregation?.availableReplicas).toBe(truth.length);
      expect(truth.length - ledger.weight).toBe(truth.filter(({ uid }) => !reserved.has(uid)).length);
    }),
    { numRuns: 1000 },
  );
});

test("a request for the protector's own criterion is decided like any other, whoever may choose", () => {
  const state = parseProtector(makeProtector([], { healthCriterion: "Running" }));
  expect(criterionInForce(state, "Running", true)).toBe("Available");
  expect(criterionInForce(state, "Scheduled", true)).toBe("Scheduled");
});
