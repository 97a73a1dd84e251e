import { describe, expect, test } from "vitest";
import { pod, unready } from "../../test/support/webhook/fixtures.ts";
import { type Asked, ask, type Setup, setup } from "../../test/support/webhook/writer-harness.ts";
import type { LiveRead } from "./pending.ts";

describe("the eviction of a pod that is not available", () => {
  const evict = (
    { time, slot }: Setup,
    reread: (timeoutMs: number) => Promise<LiveRead>,
    podReadMs: number,
    target = unready("web-0"),
  ): Asked => {
    const asked = ask(time, slot, target, { podReadMs, reread });
    return asked;
  };

  test.each([
    ["older than the counts is read again", -1, 1],
    ["newer than the counts is believed", 1, 0],
  ])("a live read %s", async (_name, afterMs, reads) => {
    const all = setup(10);
    const { time, slot, store } = all;
    await time.advance(100);
    store.put((object) => object);
    await time.advance(100);
    slot.newest();
    const sinceMs = slot.cellSinceMs("cell-1");
    let rereads = 0;
    const work = evict(
      all,
      async () => {
        rereads++;
        return { kind: "found", pod: unready("web-0"), sentMs: time.clock.monotonicMs() };
      },
      sinceMs + afterMs,
    );
    work.work.request = { ...work.work.request, operation: "EVICT" };
    await time.advance(1_000);
    expect(work.outcome).toMatchObject({ kind: "allowed", decision: { reason: "PinnedUnavailable" } });
    expect(rereads).toBe(reads);
  });

  test("that became available meanwhile needs quota", async () => {
    const all = setup(10);
    const { time } = all;
    const asked = evict(all, async () => ({ kind: "found", pod: pod("web-0"), sentMs: time.clock.monotonicMs() }), -1);
    asked.work.request = { ...asked.work.request, operation: "EVICT" };
    await time.advance(1_000);
    expect(asked.outcome).toMatchObject({ kind: "refused", decision: { cause: "AtMinimum" } });
  });

  test("that is gone meanwhile is told so; a cell that does not answer is an error", async () => {
    const all = setup(10);
    const gone = evict(all, async () => ({ kind: "gone" }), -1);
    gone.work.request = { ...gone.work.request, operation: "EVICT" };
    await all.time.advance(1_000);
    expect(gone.outcome).toEqual({ kind: "podGone" });
    const failed = evict(all, async () => ({ kind: "failed", message: "no route" }), -1);
    failed.work.request = { ...failed.work.request, operation: "EVICT" };
    await all.time.advance(1_000);
    expect(failed.outcome).toEqual({ kind: "failed", tag: "cell-unavailable", message: "no route" });
  });
});
