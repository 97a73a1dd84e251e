import { expect, test } from "vitest";
import { decide } from "../../shared/decide/quota.ts";
import { encodeStatus } from "../../shared/decide/state/encode-status.ts";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Bucket } from "../../shared/schema/podprotector.ts";
import { disruption, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { ask, setup } from "../../test/support/webhook/writer-harness.ts";
import { dropsFields, isMissing, planBatch } from "./batch.ts";
import type { Reassertion } from "./pending-queue.ts";

const own: Bucket = { startTime: "2026-01-01T00:00:00Z", podUID: "uid-web-0", nonce: "n", podResourceVersion: "50" };
const { nonce: _, ...withoutNonce } = own;
const { podResourceVersion: __, ...withoutVersion } = own;

test.each<[string, Bucket[], boolean, boolean]>([
  ["has the fields of the reservation", [own], false, false],
  ["has no nonce of it", [withoutNonce], true, false],
  ["has no version of its pod", [withoutVersion], true, false],
  ["has it packed", [{ startTime: own.startTime, packed: "1;" }], false, false],
  [
    "has only a number of a packed one",
    [{ startTime: own.startTime, endTime: own.startTime, counter: 2 }],
    true,
    false,
  ],
  ["has only others, as plain ones", [{ ...own, podUID: "uid-web-1" }], true, true],
])("what a core has stored %s", (_name, buckets, drops, lacks) => {
  const { time, writer } = setup(0);
  const { pending } = ask(time, writer, pod("web-0"));
  const object = protector(0);
  const cells = (object.status?.cells ?? []).map((cell) => ({ ...cell, admissionHistory: { buckets } }));
  const stored = new ProtectorVersion({ ...object, status: { ...Object(object.status), cells } }, 0);
  expect(dropsFields(stored, { writes: [pending], decisions: new Map() })).toBe(drops);
  expect(isMissing(stored, pending)).toBe(lacks);
  expect(dropsFields(stored, { writes: [], decisions: new Map() })).toBe(false);
});

test("a hold is written whatever was reserved before: lost reservations that do not fit are left out", () => {
  const base = new ProtectorVersion(protector(0), 0);
  // Each was settled within moments, so that the history never had many of them at once.
  const reassertions = Array.from({ length: 4_000 }, (_, index): Reassertion => {
    const startTime = "2026-01-01T00:00:00Z";
    const lost = pod(`${index}`.padEnd(250, "x"), { uid: `uid-${index}` });
    const request = { ...disruption(lost), nonce: `${index}`.padEnd(8, "-"), startTime, staleRefreshBefore: startTime };
    const decision = decide(base.state, request);
    return decision.allowed ? { request, decision } : expect.fail("denied");
  });
  const timed = { arrivedMs: 0, deadlineMs: 1_000 };
  const reassert = { kind: "reassert", ...timed, reassertions, cells: ["cell-1"], hold: "WentBack/1-t" } as const;
  const { working, writes } = planBatch(base, [reassert], () => 0);
  expect(writes).toEqual([reassert]);
  const { cells } = encodeStatus(working, base.object.status);
  expect(cells[0]?.aggregation?.hold).toBe("WentBack/1-t");
  expect(working.cells.get("cell-1")?.ledger.size).toBeGreaterThan(1_000);
  expect(JSON.stringify(cells).length).toBeLessThan(1 << 20);
});
