import { expect, test } from "vitest";
import { pack } from "../../../shared/decide/ledger/pack.ts";
import { type Bucket, OPERATIONS } from "../../../shared/schema/podprotector.ts";
import { cellUpdateInput, makeCell, makeProtector } from "../../../test/support/decide/fixtures.ts";
import { planReconcile } from "./reconcile-plan.ts";

test("a forged history of as many records as an object holds can be planned for", () => {
  const record = { podResourceVersion: undefined, podGeneration: undefined, nonces: [""], paid: false };
  const records = new Map(OPERATIONS.map((operation) => [operation, { ...record, startMicros: 0, firstMicros: 0 }]));
  const forged = (from: number, to: number): Bucket => {
    const hashes = Array.from({ length: to - from }, (_, index) => String(from + index).padStart(8, "0"));
    const of = (uidHash: string) => ({ uid: undefined, uidHash, podName: undefined, weight: 0, records }) as const;
    return { startTime: "2026-01-01T00:00:00.000000Z", counter: 0, packed: pack(hashes.map(of)) };
  };
  const stored = makeCell("a", 3, [forged(0, 28_000), forged(28_000, 41_900)]);
  const protector = makeProtector([stored]);
  expect(JSON.stringify(protector).length).toBeLessThan(1.5 * 1024 * 1024);
  const { evidence } = planReconcile({
    protector,
    isSelectorCurrent: false,
    historyInDoubt: false,
    problems: [],
    account: cellUpdateInput({ stored }),
    etcdRestoreID: undefined,
    settings: { rateMs: undefined, staleAfterMs: Number.POSITIVE_INFINITY },
    state: {
      staleSinceMs: undefined,
      unadoptedEpoch: undefined,
      windowSinceMs: undefined,
      yieldsUntilMs: Number.NEGATIVE_INFINITY,
    },
  });
  expect(evidence).toEqual({ pods: [], listDueMs: 1 });
});
