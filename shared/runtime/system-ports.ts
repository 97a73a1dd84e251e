import { randomBytes } from "node:crypto";
import { performance } from "node:perf_hooks";
import type { Ports } from "./clock.ts";

/** The ports of a real process. The only file that may read the machine's clocks and randomness. */
export const systemPorts: Ports = {
  clock: {
    nowMs: () => Date.now(),
    monotonicMs: () => performance.now(),
  },
  timers: {
    after(delayMs, callback) {
      const handle = setTimeout(callback, Math.max(0, delayMs));
      handle.unref();
      return { cancel: () => clearTimeout(handle) };
    },
  },
  random: {
    fraction: () => Math.random(),
    token: () => randomBytes(6).toString("base64url"),
  },
};
