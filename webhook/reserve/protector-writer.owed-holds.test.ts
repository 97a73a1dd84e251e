import { describe, expect, test } from "vitest";
import { holdOf } from "../../shared/decide/state/hold.ts";
import { pod, protector } from "../../test/support/webhook/fixtures.ts";
import { ask, type Setup, setup } from "../../test/support/webhook/writer-harness.ts";

const FOR_MS = 60_000;

/** A writer that has noticed lost history, and has to put its cell on hold. */
function lost(forMs = FOR_MS, minAvailable = 1): Setup {
  const made = setup(minAvailable);
  const nowMs = made.time.clock.monotonicMs();
  const timed = { arrivedMs: nowMs, deadlineMs: nowMs + forMs };
  made.writer.submit({ kind: "reassert", reassertions: [], cells: ["cell-1"], hold: "WentBack/1-t", ...timed });
  return made;
}

describe("a hold that the core does not take", () => {
  const failure = { kind: "unavailable", error: new Error("a webhook is down"), sent: false } as const;

  test.each<[string, (made: Setup) => Promise<unknown>]>([
    [
      "because it refuses the write",
      async ({ store, time }) => {
        store.faults.push("rejected");
        await time.advance(1_000);
      },
    ],
    [
      "for as long as it was tried",
      async ({ store, time }) => {
        store.writesFail = failure;
        await time.advance(FOR_MS + 5_000);
        store.writesFail = undefined;
      },
    ],
  ])("%s is written before the next reservation", async (_, fail) => {
    const made = lost();
    const { time, writer, store } = made;
    await fail(made);
    expect(store.object.status?.cells[0]?.aggregation?.hold).toBeUndefined();
    const asked = ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(asked.decision).toMatchObject({ kind: "denied", decision: { cause: "OnHold" } });
    expect(store.object.status?.cells[0]?.aggregation?.hold).toMatch(/^WentBack\/\d+-t$/);
    expect(store.writes).toBe(1);
  });

  test("has the time of the write that stores it, however long that was refused", async () => {
    const { time, writer, store } = lost();
    store.faults.push("rejected");
    await time.advance(3_600_000);
    const written = holdOf("WentBack", "t", time.clock.nowMs());
    ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(store.object.status?.cells[0]?.aggregation?.hold).toBe(written);
  });

  test("keeps no denial from being told that the stored counts ask for", async () => {
    const { time, writer, store } = lost(FOR_MS, 10);
    store.faults.push("rejected", "rejected", "rejected");
    await time.advance(1_000);
    const asked = [ask(time, writer, pod("web-0")), ask(time, writer, pod("web-1"))];
    await time.advance(1_000);
    const denied = { kind: "denied", decision: { kind: "Denial", cause: "AtMinimum" } };
    expect(asked.map(({ decision }) => decision)).toMatchObject([denied, denied]);
    // It is confirmed by a read (L6), and the core is not asked again and again to take the hold.
    expect([store.reads, store.faults.length]).toEqual([1, 0]);
  });

  test("lets nothing be reserved while the core refuses it again, and is written once", async () => {
    const { time, writer, store } = lost();
    store.faults.push("rejected", "rejected");
    await time.advance(1_000);
    const refused = ask(time, writer, pod("web-0"));
    await time.advance(1_000);
    expect(refused.decision).toMatchObject({ kind: "failed" });
    const later = [ask(time, writer, pod("web-1")), ask(time, writer, pod("web-2"))];
    await time.advance(1_000);
    expect(later.map(({ decision }) => decision?.kind)).toEqual(["denied", "denied"]);
    expect(store.writes).toBe(1);
  });
});

test("a hold that the core takes at the last moment is written once", async () => {
  const { time, writer, store } = lost(100);
  store.slowMs = 200;
  await time.advance(1_000);
  expect(store.object.status?.cells[0]?.aggregation?.hold).toBe("WentBack/1-t");
  // The aggregator has ended it since.
  store.put((object) => ({ ...object, status: protector(1).status ?? object.status }));
  await time.advance(1_000);
  const asked = ask(time, writer, pod("web-0"));
  await time.advance(1_000);
  expect(asked.decision).toMatchObject({ kind: "allowed" });
});
