import type { Randomness } from "../../runtime/clock.ts";
import type { WatchFailure } from "./watch-failure.ts";

/** `Retry-After` is a floor; this fraction of it is added at random, so that those who were sent away together return apart. */
const RETRY_AFTER_SPREAD = 0.25;

/** How long to wait after `failure`: `ownMs`, what the backoff says, or longer where the server asked for it (design 8). */
export function retryDelayMs(ownMs: number, failure: WatchFailure, random: Pick<Randomness, "fraction">): number {
  if (failure.retryAfterMs === undefined) return ownMs;
  return Math.max(ownMs, failure.retryAfterMs * (1 + RETRY_AFTER_SPREAD * random.fraction()));
}
