import { expect, test } from "vitest";
import { DEFAULT_STATUS_RULES, statusChange } from "./status-change.ts";

const GATE = "KruisePodReady";

interface Written {
  readonly phase?: string;
  readonly ready?: string;
  readonly reason?: string;
  readonly gate?: string;
}

/** A pod of this status; `gates` are those of its spec. */
function podOf({ phase = "Running", ready = "True", reason, gate = "True" }: Written, gates = [GATE]): object {
  const conditions = [
    { type: "Ready", status: ready, reason },
    { type: GATE, status: gate },
    { type: "Ready", status: "False", reason: "Evict" },
  ];
  return { spec: { readinessGates: gates.map((conditionType) => ({ conditionType })) }, status: { phase, conditions } };
}

test.each<[string, Written, Written, string | undefined]>([
  ["nothing", {}, {}, undefined],
  ["the end of a pod that runs", {}, { phase: "Failed" }, "DELETE"],
  ["another end of a pod that has ended", { phase: "Succeeded" }, { phase: "Failed" }, undefined],
  ["a pod that is not Ready", {}, { ready: "False", reason: "Other" }, undefined],
  ["an eviction that begins", {}, { ready: "False", reason: "Evict" }, "DELETE"],
  ["an eviction of a pod that was not Ready", { ready: "False" }, { ready: "False", reason: "Evict" }, undefined],
  ["the reason of an eviction for a pod that stays Ready", {}, { reason: "Evict" }, undefined],
  ["a gate that is closed", {}, { gate: "False" }, "UPDATE"],
  ["a gate that was closed before", { gate: "False" }, { gate: "False" }, undefined],
  ["a gate of a pod that has not run yet", { phase: "Pending" }, { phase: "Pending", gate: "False" }, undefined],
])("a write of %s disrupts its pod where it has to", (_, before, after, operation) => {
  const change = statusChange({ oldObject: podOf(before), object: podOf(after) }, DEFAULT_STATUS_RULES);
  expect(change?.operation).toBe(operation);
});

test("a condition of the name of a gate takes no pod out of service that does not have the gate", () => {
  const [oldObject, object] = [{}, { gate: "False" }].map((status) => podOf(status, ["example.com/other"]));
  expect(statusChange({ oldObject, object }, DEFAULT_STATUS_RULES)).toBeUndefined();
});

test("a pod with many gates and many conditions does not cost their product", () => {
  const readsOf = (count: number): number => {
    let reads = 0;
    const conditions = Array.from({ length: count }, () => ({
      get type() {
        reads++;
        return "example.com/other";
      },
    }));
    const readinessGates = Array.from({ length: count }, () => ({ conditionType: "KruisePodReady" }));
    const pod = { spec: { readinessGates }, status: { conditions } };
    expect(statusChange({ oldObject: pod, object: pod }, DEFAULT_STATUS_RULES)).toBeUndefined();
    return reads;
  };
  expect(readsOf(40)).toBeGreaterThan(0);
  expect(readsOf(80)).toBeLessThan(3 * readsOf(40));
});
