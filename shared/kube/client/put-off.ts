import { type Ports, sleep } from "../../runtime/clock.ts";
import type { ApiResult } from "./api-result.ts";

/**
 * The result of `call`, which is repeated as client-go would while a busy server (429) says when to ask again, and that
 * is before `endMs` (monotonic).
 */
export async function untilNotPutOff<T>(
  ports: Pick<Ports, "clock" | "timers">,
  endMs: number,
  call: (timeoutMs: number) => Promise<ApiResult<T>>,
): Promise<ApiResult<T>> {
  const { clock } = ports;
  for (;;) {
    const result = await call(Math.max(1, endMs - clock.monotonicMs()));
    const retryMs = putOffMs(result);
    if (clock.monotonicMs() + retryMs >= endMs) return result;
    await sleep(ports, retryMs);
  }
}

function putOffMs(result: ApiResult<unknown>): number {
  const isPutOff = result.kind === "unavailable" && result.status === 429;
  // A server that says "at once" would be asked without a pause.
  return (isPutOff && result.retryAfterMs) || Number.POSITIVE_INFINITY;
}
