import type { ProcessPort } from "./lifecycle.ts";

/** Longer than any process lives between restarts; the callback does nothing. */
const HOLD_INTERVAL_MS = 2 ** 30;

function exitUnstarted(): void {
  process.exit(0);
}

/**
 * A signal ends the process until its lifecycle takes over: there is nothing to drain yet. In a container it is the first process, from
 * which the kernel keeps every signal that it has no handler for: it would go on starting, and serve until it is killed.
 */
export function endBySignals(): void {
  process.on("SIGTERM", exitUnstarted);
  process.on("SIGINT", exitUnstarted);
}

/** The process that this code runs in. */
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
