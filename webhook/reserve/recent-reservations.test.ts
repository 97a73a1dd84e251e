import fc from "fast-check";
import { expect, test } from "vitest";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import { PRE_ACTIVITY_PREFIX } from "../../shared/schema/annotations.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { disruption, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { type Batch, planBatch } from "./batch.ts";
import type { PendingRequest, PendingReserve } from "./pending-queue.ts";
import { RecentReservations } from "./recent-reservations.ts";

const SETTLE_MS = 1_000;
const BASE = new ProtectorVersion(protector(0), 0);
const timed = { arrivedMs: 0, deadlineMs: 1_000 };

function reserve(nonce: string): PendingReserve {
  return {
    ...{ kind: "reserve", ...timed, decideOnly: false, podReadMs: undefined, reread: undefined, attempt: undefined },
    request: { ...disruption(pod(`pod-${nonce}`)), nonce, startTime: "2026-01-01T00:00:00Z", staleRefreshBefore: "" },
    isCallerGone: () => false,
    settle: () => undefined,
  };
}

/** A batch as it was written: roll-backs and reservations. */
function written(reserved: readonly string[], rolledBack: readonly string[] = []): Batch {
  const batch = planBatch(BASE, reserved.map(reserve), () => 0);
  for (const nonce of rolledBack)
    batch.writes.push({ kind: "rollBack", ...timed, cell: "cell-1", uid: "u", operation: "DELETE", nonce });
  return batch;
}

function rig() {
  const time = new VirtualTime();
  const submitted: PendingRequest[] = [];
  const submit = (_: string, pending: PendingRequest): void => void submitted.push(pending);
  const recent = new RecentReservations({ ports: time, settleMs: SETTLE_MS, submit });
  const reasserted = (key: string): string[] => {
    recent.reassert(key, "WentBack/1-t", ["cell-1"]);
    const last = submitted.at(-1);
    return last?.kind === "reassert" ? last.reassertions.map(({ request }) => request.nonce) : expect.fail("nothing");
  };
  return { time, recent, submitted, reasserted };
}

test("those of the last two settle periods are written again, without those that were rolled back", async () => {
  const step = fc.record({ key: fc.constantFrom("p", "q"), waitMs: fc.nat(900), undone: fc.array(fc.nat(20)) });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
      const { time, recent, reasserted } = rig();
      let known: { key: string; nonce: string; atMs: number }[] = [];
      for (const [index, { key, waitMs, undone }] of steps.entries()) {
        await time.advance(waitMs);
        const [nonces, back] = [[`${index}a`, `${index}b`], undone.map((one) => `${one}a`)];
        recent.remember(key, written(nonces, back));
        known = known.filter((one) => one.key !== key || !back.includes(one.nonce));
        for (const nonce of nonces) if (!back.includes(nonce)) known.push({ key, nonce, atMs: time.elapsedMs });
        const young = known.filter(({ atMs }) => time.elapsedMs - atMs <= 2 * SETTLE_MS);
        for (const of of ["p", "q"])
          expect(reasserted(of)).toEqual(young.filter((one) => one.key === of).map(({ nonce }) => nonce));
      }
    }),
  );
});

test("of more than 50,000 those of the protectors that were written longest ago are forgotten", async () => {
  const { time, recent, reasserted } = rig();
  const batch = written(Array.from({ length: 250 }, (_, index) => `n${index}`));
  const names = batch.writes.flatMap((pending) => (pending.kind === "reserve" ? pending.request.nonce : []));
  recent.remember("p0", batch);
  await time.advance(2 * SETTLE_MS + 1);
  for (let key = 0; key < 200; key++) recent.remember(`p${key}`, batch);
  recent.remember("p0", written([], names));
  recent.remember("p0", batch);
  expect([reasserted("p0").length, reasserted("p1").length]).toEqual([250, 250]);
  recent.remember("p200", written(["one more"]));
  expect([reasserted("p1").length, reasserted("p2").length, reasserted("p200").length]).toEqual([0, 250, 1]);
});

test("of one protector, settled ones take no room of new ones, and the bound stays what it was", async () => {
  const { time, recent, reasserted } = rig();
  const batch = written(Array.from({ length: 1_000 }, (_, index) => `n${index}`));
  for (let write = 0; write < 50; write++) recent.remember("hot", batch);
  await time.advance(2 * SETTLE_MS + 1);
  recent.remember("hot", batch);
  expect(reasserted("hot")).toHaveLength(1_000);
  for (let key = 1; key <= 50; key++) recent.remember(`p${key}`, batch);
  expect([reasserted("hot").length, reasserted("p1").length]).toEqual([0, 1_000]);
});

test("hold of a pod what a decision needs, and are tried for a minute", () => {
  const { recent, submitted } = rig();
  recent.remember("p", written(["a"]));
  recent.reassert("p", "WentBack/1-t", ["cell-1"]);
  const of = pod("pod-a");
  expect(submitted).toMatchObject([
    {
      ...{ kind: "reassert", cells: ["cell-1"], hold: "WentBack/1-t", deadlineMs: 60_000 },
      reassertions: [{ request: { pod: { uid: of.uid, labels: {}, conditions: [] } }, decision: { allowed: true } }],
    },
  ]);
});

test("hold nothing of a denial that was not enforced, which may name megabytes of a pod's pre-activities", () => {
  const { recent, submitted } = rig();
  const base = new ProtectorVersion(protector(1, { spec: { enforcement: "Warn" } }), 0);
  const annotations = { [`${PRE_ACTIVITY_PREFIX}backup`]: "" };
  const pending = reserve("a");
  pending.request = { ...pending.request, pod: pod("pod-a", { annotations }) };
  const batch = planBatch(base, [pending], () => 0);
  expect(batch.decisions.get(pending)?.instead?.facts.preActivities).toEqual(["backup"]);
  recent.remember("p", batch);
  recent.reassert("p", "WentBack/1-t", ["cell-1"]);
  expect(submitted).toMatchObject([{ reassertions: [{ decision: { reason: "NotEnforced", write: { weight: 1 } } }] }]);
  expect(JSON.stringify(submitted)).not.toContain("backup");
});
