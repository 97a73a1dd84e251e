/** Where a suspension holds (docs/design.md#suspension), and what still denies under it. */
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
import { type DisruptionRequest, decide, needsNoQuota } from "./quota.ts";
import { parseProtector } from "./state/protector-state.ts";

const WAITS = { annotations: { [`${PRE_ACTIVITY_PREFIX}copy`]: "" } };

test.each<[string, readonly string[] | undefined, object, Partial<DisruptionRequest>, string]>([
  ["in all cells", undefined, {}, {}, "Suspended"],
  ["in this cell", ["b", "a"], {}, {}, "Suspended"],
  ["in another cell", ["b"], {}, {}, "AtMinimum"],
  ["in no cell", [], {}, {}, "AtMinimum"],
  ["and a pre-activity", undefined, WAITS, {}, "PreActivity"],
  ["and a pre-activity, force-delete", undefined, WAITS, { forced: true }, "Suspended"],
  ["and a pre-activity of a pod that never ran", undefined, { ...WAITS, phase: "Pending" }, {}, "Suspended"],
  ["and a pre-activity of a finished pod", undefined, { ...WAITS, phase: "Succeeded" }, {}, "Suspended"],
  ["and a pre-activity, not protected", undefined, WAITS, { operation: "UPDATE" }, "Suspended"],
])("suspended %s", (_, cells, pod, change, expected) => {
  const spec = { suspend: { enabled: true, ...(cells === undefined ? {} : { cells: [...cells] }) } };
  const state = parseProtector(makeProtector([makeCell("a", 0, [], {}, makeSpec(spec))], spec));
  const request = { ...makeRequest(makePod("x", pod), { operation: "DELETE" }), ...change };
  const decision = decide(state, request);
  expect(decision.allowed ? decision.reason : decision.cause).toBe(expected);
  // What may pass unrecorded, and by a lost protector, is never what is denied here.
  if (!decision.allowed) expect([needsNoQuota(state, request), decideLost(state, request)]).toEqual([false, undefined]);
});

const NOT_READY = { readyForSeconds: undefined };

test.each<[string, Partial<DisruptionRequest>, PodOptions, object | "none"]>([
  ["an available pod", {}, {}, { weight: 1, paid: false }],
  ["a finished pod", {}, { phase: "Succeeded" }, "none"],
  ["a pod that never ran", {}, { phase: "Pending", ...NOT_READY }, "none"],
  ["a change that is not protected", { operation: "UPDATE" }, {}, "none"],
  ["an eviction of a pod that is not Ready", { operation: "EVICT" }, NOT_READY, { weight: 0, paid: false }],
  [
    "an eviction of a pod that is not Ready, and that the counts may still contain",
    { operation: "EVICT" },
    { ...NOT_READY, resourceVersion: "1001" },
    { weight: 1, paid: false },
  ],
])("the record of what is allowed while suspended: %s", (_, change, pod, write) => {
  const state = parseProtector(makeProtector([makeCell("a", 2)], { suspend: { enabled: true } }));
  expect(decide(state, makeRequest(makePod("x", pod), change))).toMatchObject({ reason: "Suspended", write });
});
