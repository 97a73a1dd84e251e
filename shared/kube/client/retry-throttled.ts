import { type Ports, sleep } from "../../runtime/clock.ts";
import type { ApiResult } from "./api-result.ts";

/**
 * The result of `call`. Like client-go, repeats a call that a busy server rejects with 429 and `Retry-After`, if the
 * next try begins before `endMs` (monotonic).
 */
export async function retryThrottled<T>(
  ports: Pick<Ports, "clock" | "timers">,
  endMs: number,
  call: (timeoutMs: number) => Promise<ApiResult<T>>,
): Promise<ApiResult<T>> {
  const { clock } = ports;
  for (;;) {
    const result = await call(Math.max(1, endMs - clock.monotonicMs()));
    const retryMs = retryInMs(result);
    if (clock.monotonicMs() + retryMs >= endMs) return result;
    await sleep(ports, retryMs);
  }
}

function retryInMs(result: ApiResult<unknown>): number {
  const isThrottled = result.kind === "unavailable" && result.status === 429;
  // A `Retry-After` of 0 ends the repeats: they would have no pause.
  return (isThrottled && result.retryAfterMs) || Number.POSITIVE_INFINITY;
}
