import { describe, expect, test } from "vitest";
import { noncesOf, pod, protector } from "../../test/support/webhook/fixtures.ts";
import { ask, type Setup, setup, writerOn } from "../../test/support/webhook/writer-harness.ts";

describe("a roll-back", () => {
  const rollBack = ({ time, writer }: Setup, nonce: string): void => {
    const arrivedMs = time.clock.monotonicMs();
    writer.submit({
      kind: "rollBack",
      cell: "cell-1",
      uid: "uid-web-0",
      operation: "DELETE",
      nonce,
      arrivedMs,
      deadlineMs: arrivedMs + 30_000,
    });
  };

  test("removes the reservation", async () => {
    const all = setup(8);
    const asked = ask(all.time, all.writer, pod("web-0"));
    await all.time.advance(1_000);
    rollBack(all, asked.pending.request.nonce);
    await all.time.advance(1_000);
    expect(all.writer.idle).toBe(true);
    expect(noncesOf(all.store.object).size).toBe(0);
  });

  test("without a response has removed the reservation, and no history counts as lost", async () => {
    // Only between two versions of one count, a missing reservation is a loss.
    const all = setup(8, { aggregation: { heartbeatTime: "2026-01-01T00:00:00.000000Z" } });
    let losses = 0;
    const writer = writerOn(all.store, all.time, "self", ({ kind }) => {
      if (kind === "historyLost") losses++;
    });
    const asked = ask(all.time, writer, pod("web-0"));
    await all.time.advance(1_000);
    all.store.faults.push("lostResponse");
    rollBack({ ...all, writer }, asked.pending.request.nonce);
    await all.time.advance(5_000);
    expect(writer.idle).toBe(true);
    expect(noncesOf(all.store.object).size).toBe(0);
    expect(losses).toBe(0);
  });

  test("of a reservation that is not there writes nothing", async () => {
    const all = setup(8);
    rollBack(all, "none0000");
    await all.time.advance(1_000);
    expect(all.writer.idle).toBe(true);
    expect(all.store.writes).toBe(0);
  });
});

test("a re-assertion is written once, and puts its cells on hold", async () => {
  const { time, store, writer } = setup(8);
  const asked = ask(time, writer, pod("web-0"));
  await time.advance(1_000);
  if (asked.decision?.kind !== "allowed") throw new Error("the request was not allowed");
  const { decision } = asked.decision;
  const reassertions = [{ request: asked.pending.request, decision }];
  // The core was restored to the state before the reservation.
  store.put((object) => ({ ...object, status: protector(8).status ?? object.status }));
  await time.advance(1_000);
  const times = { arrivedMs: 1_000, deadlineMs: 31_000 };
  writer.submit({ kind: "reassert", reassertions, cells: ["cell-1", "cell-2"], hold: "Gone/1", ...times });
  await time.advance(5_000);
  expect(writer.idle).toBe(true);
  expect(store.writes).toBe(2);
  expect([...noncesOf(store.object).keys()]).toEqual(["uid-web-0"]);
  const holds = store.object.status?.cells.map(({ cellID, aggregation }) => [cellID, aggregation?.hold]);
  expect(holds).toEqual([
    ["cell-1", "Gone/1"],
    ["cell-2", "Gone/1"],
  ]);
});
