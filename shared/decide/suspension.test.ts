/** Where a suspension holds (docs/design.md#suspension), and what still denies under it. */
import { expect, test } from "vitest";
import { makeCell, makePod, makeProtector, makeRequest, makeSpec } from "../../test/support/decide/fixtures.ts";
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
])("suspended %s", (_, cells, pod, change, expected) => {
  const spec = { suspend: { enabled: true, ...(cells === undefined ? {} : { cells: [...cells] }) } };
  const state = parseProtector(makeProtector([makeCell("a", 0, [], {}, makeSpec(spec))], spec));
  const request = { ...makeRequest(makePod("x", pod), { operation: "DELETE" }), ...change };
  const decision = decide(state, request);
  expect(decision.allowed ? decision.reason : decision.cause).toBe(expected);
  // What may pass unrecorded, and by a lost protector, is never what is denied here.
  if (!decision.allowed) expect([needsNoQuota(state, request), decideLost(state, request)]).toEqual([false, undefined]);
});
