import { observed, type Transport } from "../kube/client/transport.ts";
import type { Clock } from "../runtime/clock.ts";
import type { Metrics } from "./metrics.ts";

/** Interval at which the `Date` of a response is read. */
const LOOK_EVERY_MS = 10_000;
/** The header has whole seconds, rounded down. */
const HALF_SECOND_MS = 500;
const MAX_SERVERS = 100;

interface ClockObserver {
  /** Returns the same transport, whose responses show the clock of `server`. */
  watch(server: string, transport: Transport): Transport;
}

/**
 * Shows the difference between this machine's clock and those of the apiservers, from the dates of their responses, to
 * a second. No decision compares clocks, but `minReadySeconds`, the end of suspensions, and heartbeats depend on a
 * clock.
 */
export function observeClocks(metrics: Metrics, clock: Clock): ClockObserver {
  const skewMs = new Map<string, number>();
  metrics.gaugeFrom(
    {
      name: "clock_skew_seconds",
      help: "How far this machine's clock is ahead of an apiserver's; negative when it is behind. Good to a second.",
      labels: { server: { max: MAX_SERVERS } },
    },
    (set) => {
      for (const [server, ms] of skewMs) set({ server }, ms / 1000);
    },
  );
  return {
    watch(server, transport) {
      let lookedMs = Number.NEGATIVE_INFINITY;
      return observed(transport, ({ headers }) => {
        if (clock.monotonicMs() - lookedMs < LOOK_EVERY_MS) return;
        lookedMs = clock.monotonicMs();
        const atMs = Date.parse(headers.date ?? "");
        if (!Number.isNaN(atMs)) skewMs.set(server, clock.nowMs() - (atMs + HALF_SECOND_MS));
      });
    },
  };
}
