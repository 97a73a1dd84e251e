import { expect, test } from "vitest";
import { decide } from "../../shared/decide/quota.ts";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { aggregation, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { denyStatus } from "./deny-status.ts";

test("the hold of another cell is not that of this one", () => {
  const nowMs = Date.parse("2026-01-01T00:10:00Z");
  const at = (secondsAgo: number) => `Gone/${nowMs / 1000 - secondsAgo}-t`;
  const one = protector(5, { aggregation: { hold: at(70) } });
  const cells = [...(one.status?.cells ?? []), { cellID: "cell-2", aggregation: aggregation(5, { hold: at(5) }) }];
  const version = new ProtectorVersion({ ...one, status: { ...Object(one.status), cells } }, 0);
  const request = {
    cell: "cell-1",
    operation: "DELETE" as const,
    forced: false,
    criterion: "Available" as const,
    nonce: "n",
    pod: pod("x"),
    startTime: "2026-01-01T00:10:00Z",
    staleRefreshBefore: "2025-12-31T23:00:00Z",
  };
  const decision = decide(version.state, request);
  if (decision.allowed) throw new Error();
  const denial = {
    protector: { core: "c", namespace: "default", name: "web" },
    decision: { kind: "denied" as const, decision, version },
  };
  const context = { ownNamespace: "p", hasSeveralCores: false, cell: "cell-1", nowMs, settleMs: 75_000 };
  const { message } = denyStatus({ operation: "DELETE", namespace: "default", pod: "x" }, [denial], context);
  expect(message).toContain("(5 s)");
});
