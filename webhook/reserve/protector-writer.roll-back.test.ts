import { describe, expect, test } from "vitest";
import { noncesOf, pod, quietObserver } from "../../test/support/webhook/fixtures.ts";
import { ask, type Setup, setup, slotOn } from "../../test/support/webhook/writer-harness.ts";
import type { ProtectorOutcome } from "./pending.ts";

describe("a roll-back", () => {
  const rollBack = ({ time, slot }: Setup, nonce: string): (() => ProtectorOutcome | undefined) => {
    let outcome: ProtectorOutcome | undefined;
    const arrivedMs = time.clock.monotonicMs();
    slot.submit({
      kind: "rollBack",
      cell: "cell-1",
      uid: "uid-web-0",
      operation: "DELETE",
      nonce,
      arrivedMs,
      deadlineMs: arrivedMs + 30_000,
      settle: (settled) => {
        outcome = settled;
      },
    });
    return () => outcome;
  };

  test("takes away what was written", async () => {
    const all = setup(8);
    const asked = ask(all.time, all.slot, pod("web-0"));
    await all.time.advance(1_000);
    const outcome = rollBack(all, asked.work.request.nonce);
    await all.time.advance(1_000);
    expect(outcome()).toEqual({ kind: "done" });
    expect(noncesOf(all.store.object).size).toBe(0);
  });

  test("whose answer is lost has taken away what was meant, and no history is lost", async () => {
    const all = setup(8);
    let losses = 0;
    const slot = slotOn(all.store, all.time, "self", { ...quietObserver, historyLost: () => losses++ });
    const asked = ask(all.time, slot, pod("web-0"));
    await all.time.advance(1_000);
    all.store.faults.push("lostAnswer");
    const outcome = rollBack({ ...all, slot }, asked.work.request.nonce);
    await all.time.advance(5_000);
    expect(outcome()).toEqual({ kind: "done" });
    expect(noncesOf(all.store.object).size).toBe(0);
    expect(losses).toBe(0);
  });

  test("of what is not there writes nothing", async () => {
    const all = setup(8);
    const outcome = rollBack(all, "none0000");
    await all.time.advance(1_000);
    expect(outcome()).toEqual({ kind: "done" });
    expect(all.store.writes).toBe(0);
  });
});
