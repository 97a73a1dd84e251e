import { expect, test } from "vitest";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { pod } from "../../test/support/webhook/fixtures.ts";
import { ask, setup } from "../../test/support/webhook/writer-harness.ts";
import { PendingQueue, type PendingRequest } from "./pending-queue.ts";

function reserve(arrivedMs: number, deadlineMs: number): PendingRequest {
  const { time, writer } = setup(0);
  return ask(time, writer, pod("web-0"), { arrivedMs, deadlineMs }).pending;
}

test("the bounds of the waiting requests follow who comes and who leaves", () => {
  const queue = new PendingQueue(new VirtualTime());
  const bounds = () => [queue.earliestDeadlineMs, queue.latestDeadlineMs];
  expect(bounds()).toEqual([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]);
  const [first, second, third] = [reserve(10, 500), reserve(20, 300), reserve(30, 400)];
  for (const pending of [first, second, third]) queue.add(pending);
  expect(bounds()).toEqual([300, 500]);
  expect([9, 10, 20].map((timeMs) => queue.allArrivedAfter(timeMs))).toEqual([true, false, false]);
  queue.remove(first);
  expect(bounds()).toEqual([300, 400]);
  expect(queue.allArrivedAfter(10)).toBe(true);
});

test("re-assertions are the most urgent, then roll-backs, then the earliest deadline", () => {
  const queue = new PendingQueue(new VirtualTime());
  const times = { arrivedMs: 0, deadlineMs: 9_000 };
  const rollBack: PendingRequest = {
    ...{ kind: "rollBack", cell: "cell-1", uid: "uid-web-0", operation: "DELETE", nonce: "n", ...times },
  };
  const reassert: PendingRequest = { kind: "reassert", reassertions: [], cells: [], hold: "Gone/1", ...times };
  const [late, soon] = [reserve(0, 800), reserve(1, 700)];
  for (const pending of [late, soon, rollBack, reassert]) queue.add(pending);
  expect(queue.mostUrgent(9)).toEqual([reassert, rollBack, soon, late]);
  expect(queue.mostUrgent(3)).not.toContain(late);
});

test("a hold that was stored is not owed, whoever settles it later", () => {
  const queue = new PendingQueue(new VirtualTime());
  const times = { arrivedMs: 0, deadlineMs: 9_000 };
  const reassert: PendingRequest = { kind: "reassert", reassertions: [], cells: [], hold: "Gone/1", ...times };
  queue.add(reassert);
  expect(queue.remove(reassert)).toBe(true);
  queue.settle(reassert, { kind: "overloaded", cause: "time" });
  queue.addOwed();
  expect(queue.size).toBe(0);
});
