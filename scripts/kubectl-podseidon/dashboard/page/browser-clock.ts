/** The browser's clock and timers: the only file of the page that reads them. */
import { signal } from "@preact/signals";

/** Unix milliseconds. */
export const readMs = (): number => Date.now();

/** {@link readMs}, updated once a second, for ages. */
export const nowMs = signal(readMs());

export function startClock(): void {
  repeat(1000, () => {
    nowMs.value = readMs();
  });
}

/** Calls `call` every `everyMs` until the returned function is called. */
export function repeat(everyMs: number, call: () => void): () => void {
  const timer = setInterval(call, everyMs);
  return () => clearInterval(timer);
}
