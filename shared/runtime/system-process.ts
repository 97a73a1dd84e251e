import type { ProcessPort } from "./lifecycle.ts";

/** Longer than any process lives between restarts; the callback does nothing. */
const HOLD_INTERVAL_MS = 2 ** 30;

/** The process that this code runs in. */
export const systemProcess: ProcessPort = {
  onSignal(handler) {
    process.on("SIGTERM", () => handler("SIGTERM"));
    process.on("SIGINT", () => handler("SIGINT"));
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
