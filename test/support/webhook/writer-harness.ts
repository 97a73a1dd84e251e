/** A webhook's slot for one protector in virtual time, over a store whose calls take time and fail; and requests to it. */

import type { Ports } from "../../../shared/runtime/clock.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import type { PendingReserve, ProtectorOutcome } from "../../../webhook/reserve/pending.ts";
import { ProtectorWriter } from "../../../webhook/reserve/protector-writer.ts";
import { VirtualTime } from "../runtime/virtual-ports.ts";
import { type ProtectorFixture, pod, protector, quietObserver } from "./fixtures.ts";
import { ProtectorStore } from "./protector-store.ts";

export interface Setup {
  readonly time: VirtualTime;
  readonly store: ProtectorStore;
  readonly slot: ProtectorWriter;
}

export const WATCH_LAG_MS = 3;

export function slotOn(store: ProtectorStore, ports: Ports, tag = "self", observer = quietObserver): ProtectorWriter {
  const slot: ProtectorWriter = new ProtectorWriter({
    namespace: "default",
    name: "web",
    ports,
    calls: store.calls(ports),
    watched: store.watch(ports, WATCH_LAG_MS, () => slot.watchChanged()),
    observer,
    tag,
  });
  return slot;
}

export function setup(minAvailable: number, fixture: ProtectorFixture = {}): Setup {
  const time = new VirtualTime();
  const store = new ProtectorStore({ ports: time, object: protector(minAvailable, fixture) });
  return { time, store, slot: slotOn(store, time) };
}

export interface Asked {
  readonly work: PendingReserve;
  outcome: ProtectorOutcome | undefined;
  /** Virtual time of the outcome. */
  atMs: number | undefined;
}

let tokens = 0;

export function ask(
  time: VirtualTime,
  slot: ProtectorWriter,
  target: Pod,
  overrides: Partial<PendingReserve> = {},
  nonce = `self${String(tokens++).padStart(4, "0")}`,
): Asked {
  const nowMs = time.clock.nowMs();
  const work: PendingReserve = {
    kind: "reserve",
    request: {
      cell: "cell-1",
      operation: "DELETE",
      nonce,
      pod: target,
      forced: false,
      criterion: "Available",
      startTime: formatMs(nowMs),
      staleRefreshBefore: formatMs(nowMs - 150_000),
    },
    verdictOnly: false,
    podReadMs: undefined,
    reread: undefined,
    arrivedMs: time.clock.monotonicMs(),
    deadlineMs: time.clock.monotonicMs() + 9_500,
    gone: () => false,
    attempt: undefined,
    settle: (outcome) => {
      asked.outcome = outcome;
      asked.atMs = time.elapsedMs;
    },
    ...overrides,
  };
  const asked: Asked = { work, outcome: undefined, atMs: undefined };
  slot.submit(work);
  return asked;
}

export function many(count: number): Pod[] {
  return Array.from({ length: count }, (_, index) => pod(`web-${index}`));
}

export function tally(asked: readonly Asked[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome } of asked) {
    const key = outcome === undefined ? "pending" : outcome.kind;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}
