import { describe, expect, test } from "vitest";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse } from "../../shared/kube/client/transport.ts";
import { VirtualTime } from "../../test/support/runtime/virtual-ports.ts";
import { podJson } from "../../test/support/webhook/handler-harness.ts";
import { createPodReader, type LiveRead } from "./cell-client.ts";

const BUSY = { kind: "Status", code: 429, reason: "TooManyRequests", message: "please try again later" };

/** Reads a pod from a server that puts the first reads off. */
function reading(putOff: number, headers: Readonly<Record<string, string>>, timeoutMs: number, details = {}) {
  const time = new VirtualTime();
  const sentMs: number[] = [];
  const limitsMs: number[] = [];
  const request = async (asked: ApiRequest): Promise<ApiResponse> => {
    sentMs.push(time.clock.monotonicMs());
    limitsMs.push(asked.timeoutMs);
    if (sentMs.length <= putOff) return { status: 429, headers, body: JSON.stringify({ ...BUSY, details }) };
    return { status: 200, headers: {}, body: JSON.stringify(podJson()) };
  };
  const transport = { request, stream: () => Promise.reject(new Error("no stream")), close: () => undefined };
  const startMs = time.clock.monotonicMs();
  const read: Promise<LiveRead> = createPodReader(new ApiClient(transport), time)("default", "web-0", timeoutMs);
  return { time, read, sentMs: () => sentMs.map((at) => at - startMs), limitsMs, startMs };
}

describe("a busy apiserver of a cell that puts the read of a pod off (429)", () => {
  test("is asked again when it wants it, within the time of the read", async () => {
    const { time, read, sentMs, limitsMs, startMs } = reading(2, { "retry-after": "1" }, 10_000);
    await time.advance(2_500);
    expect(await read).toMatchObject({ kind: "found", sentMs: startMs + 2_000 });
    expect(sentMs()).toEqual([0, 1_000, 2_000]);
    expect(limitsMs).toEqual([3_000, 2_000, 1_000]);
  });

  test.each([
    ["where there is no time for it", { "retry-after": "1" }, 900],
    ["where it wants more time than a read has", { "retry-after": "8" }, 10_000],
    ["where it does not say when", {}, 10_000],
    ["where it says at once", { "retry-after": "0" }, 10_000],
    ["where it says almost at once", {}, 10_000, { retryAfterSeconds: 0.001 }],
  ])("is not asked again %s", async (_, headers, timeoutMs, details?: object) => {
    const { time, read, sentMs } = reading(1, headers, timeoutMs, details);
    await time.advance(1);
    expect(await read).toMatchObject({ kind: "failed", message: expect.stringContaining("HTTP 429") });
    expect(sentMs()).toHaveLength(1);
  });
});
