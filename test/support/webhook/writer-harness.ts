/** A protector writer in virtual time, over a store whose calls take time and fail, and requests to it. */

import type { Ports } from "../../../shared/runtime/clock.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import type { PendingReserve } from "../../../webhook/reserve/pending-queue.ts";
import type { ProtectorEvent } from "../../../webhook/reserve/protector-event.ts";
import { ProtectorWriter, type ProtectorWriterOptions } from "../../../webhook/reserve/protector-writer.ts";
import type { ProtectorDecision } from "../../../webhook/reserve/verdict.ts";
import { VirtualTime } from "../runtime/virtual-ports.ts";
import { type ProtectorFixture, pod, protector } from "./fixtures.ts";
import { ProtectorStore } from "./protector-store.ts";

export interface Setup {
  readonly time: VirtualTime;
  readonly store: ProtectorStore;
  readonly writer: ProtectorWriter;
}

export const WATCH_LAG_MS = 3;

export function writerOn(
  store: ProtectorStore,
  ports: Ports,
  tag = "self",
  onEvent: (event: ProtectorEvent) => void = () => undefined,
  others: Partial<Pick<ProtectorWriterOptions, "isFailing" | "isRecovering" | "watched" | "onIdle">> = {},
): ProtectorWriter {
  const writer: ProtectorWriter = new ProtectorWriter({
    namespace: "default",
    name: "web",
    ports,
    client: store.client(ports),
    watched: store.watch(ports, WATCH_LAG_MS, () => writer.watchChanged()),
    onEvent,
    tag,
    ...others,
  });
  return writer;
}

export function setup(minAvailable: number, fixture: ProtectorFixture = {}): Setup {
  const time = new VirtualTime();
  const store = new ProtectorStore({ ports: time, object: protector(minAvailable, fixture) });
  return { time, store, writer: writerOn(store, time) };
}

export interface Asked {
  readonly pending: PendingReserve;
  decision: ProtectorDecision | undefined;
  /** Virtual time of the decision. */
  atMs: number | undefined;
}

let tokens = 0;

export function ask(
  time: Pick<VirtualTime, "clock" | "elapsedMs">,
  writer: ProtectorWriter,
  target: Pod,
  overrides: Partial<PendingReserve> = {},
  nonce = `self${String(tokens++).padStart(4, "0")}`,
): Asked {
  const nowMs = time.clock.nowMs();
  const pending: PendingReserve = {
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
    decideOnly: false,
    podReadMs: undefined,
    reread: undefined,
    arrivedMs: time.clock.monotonicMs(),
    deadlineMs: time.clock.monotonicMs() + 9_500,
    isCallerGone: () => false,
    attempt: undefined,
    settle: (decision) => {
      asked.decision = decision;
      asked.atMs = time.elapsedMs;
    },
    ...overrides,
  };
  const asked: Asked = { pending, decision: undefined, atMs: undefined };
  writer.submit(pending);
  return asked;
}

export function many(count: number): Pod[] {
  return Array.from({ length: count }, (_, index) => pod(`web-${index}`));
}

export function tally(asked: readonly Asked[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { decision } of asked) {
    const key = decision === undefined ? "pending" : decision.kind;
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}
