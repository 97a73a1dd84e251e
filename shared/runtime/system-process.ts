import type { ProcessPort } from "./lifecycle.ts";

/** Longer than any process lives. */
const HOLD_INTERVAL_MS = 2 ** 30;

function exitUnstarted(): void {
  process.exit(0);
}

/**
 * Lets signals end the process until its lifecycle starts: there is nothing to drain yet. Without a handler, the kernel
 * delivers no signal to the first process of a container, which would start and serve until it is killed.
 */
export function endBySignals(): void {
  process.on("SIGTERM", exitUnstarted);
  process.on("SIGINT", exitUnstarted);
}

export const systemProcess: ProcessPort = {
  onSignal(handler) {
    process.on("SIGTERM", () => handler("SIGTERM"));
    process.on("SIGINT", () => handler("SIGINT"));
    process.off("SIGTERM", exitUnstarted);
    process.off("SIGINT", exitUnstarted);
  },
  onUncaught(handler) {
    process.on("uncaughtException", handler);
    process.on("unhandledRejection", (reason) => {
      handler(
        reason instanceof Error
          ? reason
          : new Error("a promise was rejected with something that is no error", { cause: reason }),
      );
    });
  },
  hold() {
    const handle = setInterval(() => {}, HOLD_INTERVAL_MS);
    return () => clearInterval(handle);
  },
  exit(code) {
    process.exit(code);
  },
};
