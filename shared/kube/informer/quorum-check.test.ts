import { describe, expect, test } from "vitest";
import { page, ScriptedTransport, statusAnswer } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { QuorumCheck } from "./quorum-check.ts";

class Harness {
  readonly time = new VirtualTime();
  readonly transport = new ScriptedTransport();
  readonly log: string[] = [];
  position: string | undefined = "10";
  size = 0;
  leavesOut = false;
  readonly confirmation: QuorumCheck;
  readonly stopping = new AbortController();

  constructor(intervalMs?: number, query: Readonly<Record<string, string>> = {}) {
    this.confirmation = new QuorumCheck({
      name: "things",
      transport: this.transport,
      ports: this.time,
      collection: { path: "/things", query },
      intervalMs,
      store: this,
      leavesOut: () => this.leavesOut,
      miscounted: (message) => this.log.push(message),
      confirmed: (sentMs) => this.log.push(`confirmed ${Math.round(sentMs)}`),
      wentBack: (from, to) => this.log.push(`back ${from} > ${to}`),
      failed: (failure) => this.log.push(failure.tag),
    });
    void this.confirmation.run(this.stopping.signal);
  }

  reach(position: string): void {
    this.position = position;
    this.confirmation.advanced();
  }
}

describe("evidence", () => {
  test("is the send time of a LIST, and counts when the stream has reached its version, not before", async () => {
    const it = new Harness();
    it.transport.confirmations.push(page("15", []));
    await it.time.advance(100);
    it.confirmation.request();
    await it.time.advance(100);
    expect(it.log).toEqual([]);
    it.reach("14");
    expect(it.confirmation.confirmedSentMs).toBe(undefined);
    it.reach("15");
    expect([it.log, it.confirmation.confirmedSentMs]).toEqual([["confirmed 100"], 100]);
  });

  test("counts at once when the stream is already at the version", async () => {
    const it = new Harness();
    it.transport.confirmations.push(page("10", []));
    it.confirmation.request();
    await it.time.settle();
    expect(it.log).toEqual(["confirmed 0"]);
  });

  test("a stream that lags behind every LIST is still confirmed by the oldest that it reaches", async () => {
    const it = new Harness(3000);
    for (let version = 20; version < 30; version++) it.transport.confirmations.push(page(`${version}`, []));
    await it.time.advance(12_000);
    it.reach("20");
    expect(it.log).toHaveLength(1);
    it.reach("29");
    expect(it.log.length).toBeGreaterThan(1);
  });

  test("versions that are not integers confirm nothing", async () => {
    const it = new Harness();
    it.position = "abc";
    it.transport.confirmations.push(page("abc", []));
    it.confirmation.request();
    await it.time.settle();
    expect(it.log).toEqual([]);
  });

  test("a LIST whose version is no integer stands in the way of no later one", async () => {
    const it = new Harness();
    it.transport.confirmations.push(page("abc", []), page("12", []));
    it.confirmation.request();
    await it.time.advance(1000);
    it.confirmation.request();
    await it.time.advance(1000);
    it.reach("12");
    expect(it.log).toEqual(["confirmed 1000"]);
  });

  test("a LIST older than the position at its start means a restored server", async () => {
    const it = new Harness();
    it.transport.confirmations.push(page("7", []));
    it.confirmation.request();
    await it.time.settle();
    expect(it.log).toEqual(["back 10 > 7"]);
  });

  test("a LIST older than an earlier one, which the stream has not reached, means the same", async () => {
    const it = new Harness();
    it.transport.confirmations.push(page("900", []), page("12", []));
    it.confirmation.request();
    await it.time.advance(1000);
    it.reach("11");
    it.confirmation.request();
    await it.time.advance(1000);
    expect(it.log).toEqual(["back 900 > 12"]);
  });

  test("LISTs from before a restore are forgotten", async () => {
    const it = new Harness();
    it.transport.confirmations.push(page("15", []));
    it.confirmation.request();
    await it.time.settle();
    it.confirmation.forget();
    it.reach("15");
    expect([it.log, it.confirmation.confirmedSentMs]).toEqual([[], undefined]);
  });

  test("a confirmation from before a restore is none after it", () => {
    const it = new Harness();
    it.confirmation.accept({ sentMs: 50, version: "10" });
    expect(it.confirmation.confirmedSentMs).toBe(50);
    it.confirmation.forget();
    expect(it.confirmation.confirmedSentMs).toBeUndefined();
  });

  test("a LIST that was sent earlier takes nothing back", () => {
    const it = new Harness();
    it.confirmation.accept({ sentMs: 50, version: "10" });
    it.confirmation.accept({ sentMs: 20, version: "10" });
    expect([it.log, it.confirmation.confirmedSentMs]).toEqual([["confirmed 50"], 50]);
  });
});

describe("a LIST that counts", () => {
  /** The page of a LIST with `limit=1`, of `total` objects. */
  function counted(version: string, total: number): ReturnType<typeof page> {
    const remainingItemCount = total > 1 ? total - 1 : undefined;
    const metadata = { resourceVersion: version, continue: total > 1 ? "token" : "", remainingItemCount };
    return { status: 200, body: { metadata, items: total > 0 ? [{}] : [] } };
  }

  const MISSED = "the server has 2 objects at version 15, and its stream has shown";

  async function afterCount(it: Harness, version = "15", total = 2): Promise<void> {
    it.transport.confirmations.push(counted(version, total));
    it.confirmation.request();
    await it.time.advance(1000);
  }

  test.each([
    [2, false, "confirmed 0"],
    [3, false, `${MISSED} 3`],
    [1, false, `${MISSED} 1`],
    [1, true, "confirmed 0"],
    [3, true, `${MISSED} 3`],
  ])("of 2 objects, beside %i in the store (some left out: %s): %s", async (size, leavesOut, line) => {
    const it = new Harness();
    Object.assign(it, { size, leavesOut });
    await afterCount(it);
    it.confirmation.passing("15");
    expect(it.log).toEqual([]);
    it.reach("15");
    expect(it.log).toEqual([line]);
    expect(it.confirmation.confirmedSentMs).toBe(line === "confirmed 0" ? 0 : undefined);
  });

  test.each([0, 1])("counts a collection of %i objects", async (total) => {
    const it = new Harness();
    it.size = 5;
    await afterCount(it, "10", total);
    expect(it.log[0]).toMatch(`the server has ${total} objects at version 10, and its stream has shown 5`);
  });

  test("is compared before an event that passes its version is applied", async () => {
    const it = new Harness();
    it.size = 2;
    await afterCount(it);
    it.confirmation.passing("17");
    it.size = 3;
    it.reach("17");
    expect(it.log).toEqual(["confirmed 0"]);
  });

  test("is compared once: later events change what the server has", async () => {
    const it = new Harness();
    it.size = 2;
    await afterCount(it);
    it.reach("15");
    it.size = 3;
    it.reach("16");
    it.confirmation.passing("17");
    expect(it.log).toEqual(["confirmed 0"]);
  });

  test("is not compared after a restore: it belongs to the lost history", async () => {
    const it = new Harness();
    it.size = 7;
    await afterCount(it);
    it.confirmation.forget();
    it.reach("15");
    expect(it.log).toEqual([]);
  });

  test("is not compared where the stream has passed it already, or a complete list came after it", async () => {
    const it = new Harness();
    it.position = "11";
    const answer = it.transport.request.bind(it.transport);
    it.transport.request = async (request) => {
      it.position = "20";
      return await answer(request);
    };
    await afterCount(it);
    it.confirmation.passing("21");
    await afterCount(it, "30");
    it.confirmation.listed();
    it.reach("30");
    expect(it.log.filter((line) => !line.startsWith("confirmed"))).toEqual([]);
  });

  test("is not compared where the server did not count, or a selector leaves objects out", async () => {
    const it = new Harness();
    it.size = 7;
    it.transport.confirmations.push({
      status: 200,
      body: { metadata: { resourceVersion: "15", continue: "token" }, items: [{}] },
    });
    it.confirmation.request();
    await it.time.settle();
    it.reach("15");
    const selected = new Harness(undefined, { labelSelector: "a=b" });
    selected.size = 7;
    await afterCount(selected);
    selected.reach("15");
    expect([it.log, selected.log]).toEqual([["confirmed 0"], ["confirmed 0"]]);
  });

  test("costs a server that counts badly one complete list in ten seconds", async () => {
    const it = new Harness();
    it.size = 7;
    for (let second = 0; second < 25; second++) {
      await afterCount(it, `${100 + second}`);
      it.reach(`${100 + second}`);
    }
    expect(it.log.filter((line) => line.startsWith("the server has"))).toHaveLength(3);
  });

  test.each([
    [{}, 600_000, 1],
    [{}, 599_000, 0],
    [{ labelSelector: "a=b" }, 600_000, 0],
  ])("is sent where nothing else asks (query %j, %i ms after the list: %i)", async (query, afterMs, lists) => {
    const it = new Harness(undefined, query);
    it.confirmation.listed();
    await it.time.advance(afterMs);
    for (let stream = 0; stream < 3; stream++) {
      it.transport.confirmations.push(counted("10", 0));
      it.confirmation.streamEnded(it.time.clock.monotonicMs());
      await it.time.advance(300);
    }
    expect(it.transport.requests).toHaveLength(lists);
  });
});

test("streams that end without a confirmation ask for a complete list, but not within seven seconds", async () => {
  const it = new Harness(3000);
  const streamEnded = async (afterMs: number): Promise<boolean> => {
    const startedMs = it.time.clock.monotonicMs();
    await it.time.advance(afterMs);
    return it.confirmation.streamEnded(startedMs);
  };
  await it.time.advance(1000);
  it.confirmation.accept({ sentMs: 1000, version: "10" });
  expect([await streamEnded(2000), await streamEnded(2000), await streamEnded(2999), await streamEnded(1)]).toEqual([
    ...[false, false, false, true],
  ]);
});

describe("a LIST in flight", () => {
  /** Holds back the response to the next LIST until the returned function is called. */
  function holdNext(it: Harness): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    const answer = it.transport.request.bind(it.transport);
    it.transport.request = async (request) => {
      it.transport.request = answer;
      const response = await answer(request);
      await promise;
      return response;
    };
    return resolve;
  }

  test("does not serve a request that came after it was sent", async () => {
    const it = new Harness();
    it.transport.confirmations.push(page("10", []), page("10", []));
    const release = holdNext(it);
    it.confirmation.request();
    await it.time.advance(500);
    it.confirmation.request();
    release();
    await it.time.advance(1000);
    expect(it.log).toEqual(["confirmed 0", "confirmed 500"]);
  });

  test("is forgotten when the server was restored meanwhile", async () => {
    const it = new Harness();
    it.transport.confirmations.push(page("10", []));
    const release = holdNext(it);
    it.confirmation.request();
    await it.time.settle();
    it.confirmation.forget();
    release();
    await it.time.settle();
    expect(it.log).toEqual([]);
  });
});

describe("the pace of LISTs", () => {
  test("follows the interval, with jitter", async () => {
    const it = new Harness(3000);
    for (let i = 0; i < 100; i++) it.transport.confirmations.push(page("10", []));
    await it.time.advance(60_000);
    expect(it.transport.requests.length).toBeGreaterThanOrEqual(60 / 3.6 - 1);
    expect(it.transport.requests.length).toBeLessThanOrEqual(60 / 2.4);
    const confirmedMs = it.log.map((line) => Number(line.split(" ")[1]));
    const gaps = confirmedMs.slice(1).map((ms, index) => ms - (confirmedMs[index] ?? 0));
    expect(new Set(gaps.map(Math.round)).size).toBeGreaterThan(3);
  });

  test("a thousand requests at once make one LIST, and continuous requests are bounded", async () => {
    const it = new Harness();
    for (let i = 0; i < 1000; i++) it.transport.confirmations.push(page("10", []));
    for (let i = 0; i < 1000; i++) it.confirmation.request();
    await it.time.settle();
    expect(it.transport.requests).toHaveLength(1);
    for (let ms = 0; ms < 10_000; ms += 10) {
      it.confirmation.request();
      await it.time.advance(10);
    }
    expect(it.transport.requests.length).toBeLessThanOrEqual(52);
  });

  test("a failed LIST is repeated with backoff until one succeeds that was sent after the request", async () => {
    const it = new Harness();
    it.transport.confirmations.push("reset", statusAnswer(500), "timeout", page("10", []));
    it.confirmation.request();
    await it.time.advance(5000);
    expect(it.log.slice(0, 3)).toEqual(["reset", "server-error", "timeout"]);
    expect(it.log[3]).toMatch(/^confirmed/);
    expect(it.transport.requests).toHaveLength(4);
  });

  test("an outage costs at most ten LISTs in ten seconds, and Retry-After is a floor", async () => {
    const it = new Harness(3000);
    await it.time.advance(13_000);
    expect(it.log.length).toBeLessThanOrEqual(10);
    it.log.length = 0;
    const throttled = new Harness();
    throttled.transport.confirmations.push(statusAnswer(429, {}, { "retry-after": "7" }), page("10", []));
    throttled.confirmation.request();
    await throttled.time.advance(6999);
    expect(throttled.log).toEqual(["throttled"]);
    await throttled.time.advance(1800);
    expect(throttled.log[1]).toMatch(/^confirmed/);
  });

  test("ends with its signal and leaves no timer", async () => {
    const it = new Harness(3000);
    await it.time.advance(10);
    it.stopping.abort();
    await it.time.settle();
    expect(it.time.pendingTimers).toBe(0);
  });
});
