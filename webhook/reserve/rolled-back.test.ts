import { expect, test } from "vitest";
import { decide } from "../../shared/decide/quota.ts";
import { apply, rollBack } from "../../shared/decide/reserve.ts";
import { parseProtector } from "../../shared/decide/state/protector-state.ts";
import { aggregation, pod, protector, unready } from "../../test/support/webhook/fixtures.ts";

test("what a rolled back admission has paid is nobody's", () => {
  const state = parseProtector(protector(10, { available: 11 }));
  const base = {
    cell: "cell-1",
    operation: "EVICT" as const,
    forced: false,
    criterion: "Available" as const,
    startTime: "2026-01-01T00:00:00Z",
    staleRefreshBefore: "2025-12-31T23:00:00Z",
  };
  const step = (nonce: string, of: ReturnType<typeof pod>) => {
    const request = { ...base, nonce, pod: of };
    const decision = decide(state, request);
    apply(state, request, decision);
    return decision.allowed ? decision.reason : decision.cause;
  };
  expect(step("aaaa0001", unready("x"))).toBe("PinnedUnavailable");
  expect(step("aaaa0002", pod("x"))).toBe("Reserved");
  rollBack(state, "cell-1", "uid-x", "EVICT", "aaaa0002", true);
  const cell = state.cells.get("cell-1");
  // Another pod is lost: 10 are left, 1 of them reserved.
  if (cell) state.cells.set("cell-1", { ...cell, aggregation: aggregation(10) });
  expect(step("aaaa0003", pod("x"))).not.toBe("Repeated");
});
