import { describe, expect, test } from "vitest";
import { specHash } from "../../shared/decide/availability/spec-facts.ts";
import { ApiClient } from "../../shared/kube/client/api-client.ts";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { GET, startServer } from "../../test/support/kube/https-server.ts";
import { pod, protector, unready } from "../../test/support/webhook/fixtures.ts";
import { ProtectorStore } from "../../test/support/webhook/protector-store.ts";
import { type Asked, ask, type Setup, setup, writerOn } from "../../test/support/webhook/writer-harness.ts";
import { createPodReader, type LiveRead } from "../request/cell-client.ts";
import type { PendingReserve } from "./pending-queue.ts";
import type { ProtectorDecision } from "./verdict.ts";

describe("the eviction of a pod that is not available", () => {
  const evict = (
    { time, writer }: Setup,
    reread: (timeoutMs: number) => Promise<LiveRead>,
    podReadMs: number,
    target = unready("web-0"),
  ): Asked => {
    const asked = ask(time, writer, target, { podReadMs, reread });
    return asked;
  };

  test.each([
    ["older than the counts is read again", -1, 1, "50"],
    ["older than the counts, of a version that not all shards have reached, is read again", -1, 1, "9000"],
    ["newer than the counts is used", 1, 0, "50"],
  ])("a live read %s", async (_name, afterMs, reads, resourceVersion) => {
    const target = unready("web-0", { resourceVersion });
    const all = setup(10);
    const { time, writer, store } = all;
    await time.advance(100);
    store.put((object) => object);
    await time.advance(100);
    writer.newest();
    const sinceMs = writer.versions.cellSinceMs("cell-1");
    let rereads = 0;
    const evicted = evict(
      all,
      async () => {
        rereads++;
        return { kind: "found", pod: target, sentMs: time.clock.monotonicMs() };
      },
      sinceMs + afterMs,
      target,
    );
    evicted.pending.request = { ...evicted.pending.request, operation: "EVICT" };
    await time.advance(1_000);
    expect(evicted.decision).toMatchObject({ kind: "allowed", decision: { reason: "PinnedUnavailable" } });
    expect(rereads).toBe(reads);
  });

  test("a pod that was not mature is read again when the counts are newer", async () => {
    const spec = { ...protector(10).spec, minReadySeconds: 30 };
    const all = setup(10, { spec, aggregation: { maturityCutoff: "1970-01-01T00:01:00Z", specHash: specHash(spec) } });
    const young = (sinceMs: number): Pod =>
      pod("web-0", { resourceVersion: "50", conditions: [{ type: "Ready", status: true, sinceMs }] });
    const asked = evict(
      all,
      async () => ({ kind: "found", pod: young(1_000), sentMs: all.time.clock.monotonicMs() }),
      -1,
      young(90_000),
    );
    asked.pending.request = { ...asked.pending.request, operation: "EVICT" };
    await all.time.advance(1_000);
    expect(asked.decision).toMatchObject({ kind: "denied", decision: { cause: "AtMinimum" } });
  });

  test("needs quota when the pod became available meanwhile", async () => {
    const all = setup(10);
    const { time } = all;
    const asked = evict(all, async () => ({ kind: "found", pod: pod("web-0"), sentMs: time.clock.monotonicMs() }), -1);
    asked.pending.request = { ...asked.pending.request, operation: "EVICT" };
    await time.advance(1_000);
    expect(asked.decision).toMatchObject({ kind: "denied", decision: { cause: "AtMinimum" } });
  });

  test.each([
    ["a suspended protector", { suspend: { enabled: true } }, false],
    ["a forced eviction", { unhealthyPodPolicy: "IfHealthyBudget" }, true],
    ["a protector that warns", { unhealthyPodPolicy: "IfHealthyBudget", enforcement: "Warn" }, false],
  ])(
    "%s: what is allowed whatever the counts say is recorded by a read newer than the counts",
    async (_, spec, forced) => {
      const all = setup(11, { spec: { ...protector(11).spec, ...spec } });
      const { time, store } = all;
      const asked = evict(
        all,
        async () => ({ kind: "found", pod: pod("web-0"), sentMs: time.clock.monotonicMs() }),
        -1,
      );
      asked.pending.request = { ...asked.pending.request, operation: "EVICT", forced };
      await time.advance(1_000);
      expect(asked.decision).toMatchObject({ kind: "allowed", written: true });
      const [bucket] = store.object.status?.cells[0]?.admissionHistory?.buckets ?? [];
      expect(bucket).toMatchObject({ podName: "web-0", counter: 1 });
    },
  );

  test("a forced one of an available pod is not read again: its record weighs as much as any", async () => {
    const all = setup(10);
    let rereads = 0;
    const reread = async (): Promise<LiveRead> => {
      rereads++;
      return { kind: "gone" };
    };
    const evicted = evict(all, reread, -1, pod("web-0"));
    evicted.pending.request = { ...evicted.pending.request, operation: "EVICT", forced: true };
    await all.time.advance(1_000);
    expect(evicted.decision).toMatchObject({ kind: "allowed", decision: { reason: "Forced", write: { weight: 1 } } });
    expect(rereads).toBe(0);
  });

  test("reports a pod that is gone meanwhile; a cell that does not answer fails it", async () => {
    const all = setup(10);
    const gone = evict(all, async () => ({ kind: "gone" }), -1);
    gone.pending.request = { ...gone.pending.request, operation: "EVICT" };
    await all.time.advance(1_000);
    expect(gone.decision).toEqual({ kind: "podGone" });
    const failed = evict(all, async () => ({ kind: "failed", message: "no route" }), -1);
    failed.pending.request = { ...failed.pending.request, operation: "EVICT" };
    await all.time.advance(1_000);
    expect(failed.decision).toEqual({ kind: "failed", tag: "cell-unavailable", message: "no route" });
  });
});

test("a frozen server of a cell does not hold up the batch, though every connection to it is taken", async () => {
  const frozen = await startServer(() => {}, { maxRequestSockets: 1 });
  frozen.transport.request({ ...GET, timeoutMs: 3_600_000 }).catch(() => {});
  const readPod = createPodReader(new ApiClient(frozen.transport), systemPorts);
  const writer = writerOn(new ProtectorStore({ ports: systemPorts, object: protector(9) }), systemPorts);
  const time = { clock: systemPorts.clock, elapsedMs: 0 };
  const deadlineMs = systemPorts.clock.monotonicMs() + 3_600_000;
  const decisionOf = (target: Pod, overrides: Partial<PendingReserve>): Promise<ProtectorDecision> =>
    new Promise((settle) => ask(time, writer, target, { ...overrides, deadlineMs, settle }));
  const { request } = ask(time, writer, unready("web-0")).pending;
  const [evicted, deleted] = await Promise.all([
    decisionOf(unready("web-0"), {
      request: { ...request, operation: "EVICT" },
      podReadMs: Number.NEGATIVE_INFINITY,
      reread: (timeoutMs) => readPod("default", "web-0", timeoutMs),
    }),
    decisionOf(pod("web-1"), {}),
  ]);
  expect(evicted).toMatchObject({ kind: "failed", tag: "cell-unavailable" });
  expect(deleted).toMatchObject({ kind: "allowed", written: true });
});
