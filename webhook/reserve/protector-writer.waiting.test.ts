import { expect, test } from "vitest";
import { pod, unready } from "../../test/support/webhook/fixtures.ts";
import { ask, many, setup, tally } from "../../test/support/webhook/writer-harness.ts";

test("busy is told while others keep writing", async () => {
  // Nothing to spare but what is reserved: 10 available, 1 reserved, minimum 9.
  const { time, writer } = setup(9);
  const first = ask(time, writer, pod("web-0"));
  await time.advance(100);
  expect(first.decision).toMatchObject({ kind: "allowed" });
  const busy = ask(time, writer, pod("web-1"));
  // Evictions of pods that are not available keep the writer writing: one arrives every 2 ms, a write takes 4 ms.
  let n = 0;
  for (let ms = 0; ms < 9_000 && busy.decision === undefined; ms += 2) {
    const one = ask(time, writer, unready(`x-${n++}`));
    one.pending.request = { ...one.pending.request, operation: "EVICT" };
    await time.advance(2);
  }
  expect(busy.decision).toMatchObject({ kind: "denied" });
  expect(busy.atMs).toBeLessThan(1_000);
});

test("who waits for Ready pods sees a version that arrives during a live read of another", async () => {
  const { time, store, writer } = setup(10, { aggregation: { notReady: "1@100" }, available: 11 });
  writer.newest();
  const waits = ask(time, writer, pod("web-0"));
  const slow = ask(time, writer, unready("web-1"), {
    podReadMs: -1,
    reread: async () => {
      await new Promise<void>((done) => void time.timers.after(50, done));
      return { kind: "found", pod: unready("web-1", { phase: "Failed" }), sentMs: time.clock.monotonicMs() };
    },
  });
  slow.pending.request = { ...slow.pending.request, operation: "EVICT" };
  await time.advance(20);
  store.put((one) => {
    const cells = (one.status?.cells ?? []).map((cell) => ({
      ...cell,
      aggregation: { totalReplicas: 11, availableReplicas: 11, resourceVersion: "101" },
    }));
    return { ...one, status: { ...Object(one.status), cells } };
  });
  await time.advance(5_000);
  expect(waits.atMs).toBeLessThan(200);
});

test("who waits for Ready pods holds up nobody who is beyond the batch", async () => {
  const { time, writer } = setup(8, { aggregation: { notReady: "2@100" } });
  const asked = many(1_100).map((target) => ask(time, writer, target));
  await time.advance(500);
  expect(tally(asked)).toEqual({ denied: 1_050, pending: 50 });
});

test("after slow writes, requests with less time than those took are tried again", async () => {
  const { time, store, writer } = setup(8, { available: 100 });
  store.slowMs = 1_500;
  for (const target of many(16)) {
    ask(time, writer, target);
    await time.advance(2_000);
  }
  store.slowMs = 0;
  const found: (string | undefined)[] = [];
  for (const name of ["late-0", "late-1", "late-2"]) {
    const asked = ask(time, writer, pod(name), { deadlineMs: time.clock.monotonicMs() + 900 });
    await time.advance(1_000);
    found.push(asked.decision?.kind);
  }
  expect(found.at(-1)).toBe("allowed");
});
