import { randomBytes } from "node:crypto";
import { performance } from "node:perf_hooks";
import type { Ports } from "./clock.ts";

/** The longest delay of Node's timers: a longer one would fire at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The ports of a real process. Only this file may read the machine's clocks and randomness. */
export const systemPorts: Ports = {
  clock: { nowMs: () => Date.now(), monotonicMs: () => performance.now() },
  timers: {
    after(delayMs, callback) {
      let leftMs = Math.max(0, delayMs);
      let handle: NodeJS.Timeout;
      const arm = (): void => {
        const stepMs = Math.min(leftMs, LONGEST_TIMER_MS);
        leftMs -= stepMs;
        handle = setTimeout(leftMs > 0 ? arm : callback, stepMs);
        handle.unref();
      };
      arm();
      return { cancel: () => clearTimeout(handle) };
    },
  },
  random: { fraction: () => Math.random(), token: () => randomBytes(6).toString("base64url") },
};
