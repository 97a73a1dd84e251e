/** What a protector allows that does not enforce its decisions (docs/design.md#enforcement). */
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  makeCell,
  makePod,
  makeProtector,
  makeRequest,
  makeSpec,
  type PodOptions,
} from "../../test/support/decide/fixtures.ts";
import { decideLost } from "../recovery/lost-protector.ts";
import { PRE_ACTIVITY_PREFIX } from "../schema/annotations.ts";
import { OPERATIONS } from "../schema/podprotector.ts";
import { allowUnrecorded, type DisruptionRequest, decide } from "./quota.ts";
import { type ProtectorState, parseProtector } from "./state/protector-state.ts";

const WAITS = { annotations: { [`${PRE_ACTIVITY_PREFIX}copy`]: "" } };

function stateWith(change: object, available: number, cell = "a"): ProtectorState {
  const spec = { minAvailable: 2, ...change };
  return parseProtector(makeProtector([makeCell(cell, available, [], {}, makeSpec(spec))], spec));
}

test.each<[string, number, object, Partial<DisruptionRequest>, string, string | undefined]>([
  ["quota is left", 3, {}, {}, "Reserved", undefined],
  ["the counts are at the minimum", 2, {}, {}, "NotEnforced", "AtMinimum"],
  ["the cell is not counted", 3, {}, { cell: "b" }, "NotEnforced", "NotCounted"],
  ["a pre-activity holds the pod back", 3, WAITS, {}, "NotEnforced", "PreActivity"],
  ["the pod is forced", 2, {}, { forced: true }, "Forced", undefined],
  ["the pod is finished", 2, { phase: "Succeeded" }, {}, "Finished", undefined],
])("Warn, where %s", (_, available, pod, change, reason, cause) => {
  const request = { ...makeRequest(makePod("x", pod), { operation: "DELETE" }), ...change };
  const decision = decide(stateWith({ enforcement: "Warn" }, available), request);
  expect(decision).toMatchObject({ allowed: true, reason });
  expect(decision.allowed ? decision.instead?.cause : "").toBe(cause);
});

test("what is allowed against the counts is recorded as a reservation, so that the next decision knows of it", () => {
  const request = makeRequest(makePod("x", {}), { operation: "DELETE" });
  expect(decide(stateWith({ enforcement: "Warn" }, 2), request)).toMatchObject({ write: { weight: 1, paid: false } });
});

test("Warn without a minimum warns of nothing", () => {
  const state = stateWith({ enforcement: "Warn", minAvailable: 0 }, 0);
  const decision = decide(state, makeRequest(makePod("x", {}), { operation: "DELETE" }));
  expect(decision).toMatchObject({ reason: "NothingPromised" });
  expect(decision).not.toHaveProperty("instead");
  const one = stateWith({ enforcement: "Warn", minAvailable: 1 }, 0);
  expect(decide(one, makeRequest(makePod("x", {})))).toMatchObject({ reason: "NotEnforced" });
});

test("Warn allows while nothing can be recorded, and when the protector is lost", () => {
  const state = stateWith({ enforcement: "Warn" }, 2);
  const request = makeRequest(makePod("x", {}), { operation: "EVICT" });
  expect(allowUnrecorded(state, request)).toMatchObject({ reason: "NotEnforced", write: "none" });
  expect(decideLost(state, request)).toMatchObject({ allowed: true });
});

test("Warn denies nothing while the protector is suspended either", () => {
  const request = makeRequest(makePod("x", WAITS), { operation: "DELETE" });
  const state = stateWith({ enforcement: "Warn", suspend: { enabled: true } }, 2);
  expect(decide(state, request)).toMatchObject({ reason: "Suspended" });
});

test("Off is a suspension in all cells and without an end, whatever spec.suspend says", () => {
  const suspend = { enabled: true, until: "2020-01-01T00:00:00Z", cells: ["other"], reason: "over" };
  const { spec } = stateWith({ enforcement: "Off", suspend }, 2);
  expect(spec).toMatchObject({ suspendedUntilMs: Number.POSITIVE_INFINITY, suspendedCells: undefined });
  const request = makeRequest(makePod("x", {}), { operation: "DELETE" });
  expect(decide(stateWith({ enforcement: "Off", suspend }, 2), request)).toMatchObject({ reason: "Suspended" });
});

test("an unknown word enforces", () => {
  const request = makeRequest(makePod("x", {}), { operation: "DELETE" });
  for (const enforcement of ["Enforce", "warn", "", undefined])
    expect(decide(stateWith({ enforcement }, 2), request)).toMatchObject({ allowed: false, cause: "AtMinimum" });
});

test("Warn denies nothing, and warns of exactly what would be denied", () => {
  const request = fc.record({
    operation: fc.constantFrom(...OPERATIONS),
    cell: fc.constantFrom("a", "b"),
    forced: fc.boolean(),
    available: fc.integer({ min: 0, max: 4 }),
    pod: fc.constantFrom<PodOptions>({}, WAITS, { phase: "Pending" }, { conditions: {} }, { phase: "Failed" }),
  });
  fc.assert(
    fc.property(request, ({ available, pod, operation, ...change }) => {
      const asked = { ...makeRequest(makePod("x", pod), { operation }), ...change };
      const enforced = decide(stateWith({}, available), asked);
      const warned = decide(stateWith({ enforcement: "Warn" }, available), asked);
      if (enforced.allowed) expect(warned).toEqual(enforced);
      else expect(warned).toMatchObject({ allowed: true, reason: "NotEnforced", instead: enforced });
    }),
  );
});
