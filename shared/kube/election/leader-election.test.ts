import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anElection, ElectionHarness, LEASE, OK } from "../../../test/support/kube/election.ts";
import type { LinkFault } from "../../../test/support/kube/lease-server.ts";
import { sleep } from "../../runtime/clock.ts";

describe("leader election: taking the lease", () => {
  it.each(["taken", "renewed"])("it is not %s by a write that is answered with 200 and not made", async (when) => {
    const election = anElection();
    election.server.put(LEASE, { metadata: { name: LEASE }, spec: { holderIdentity: "", leaseDurationSeconds: 1 } });
    const first = election.add("a");
    if (when === "taken") first.fault = { kind: "unwritten" };
    await election.pass(10_000);
    first.fault = { kind: "unwritten" };
    election.add("b");
    expect((await election.pass(60_000)).at(-1)).toBe("c1");
    first.fault = OK;
  });

  it("leads from the time at which its renewal was sent, however late the answer is", async () => {
    const election = anElection();
    const times = { leaseDurationMs: 10_500, renewDeadlineMs: 10_000 };
    const first = election.add("a", times);
    await election.pass(5_000);
    for (const identity of ["b", "c", "d", "e", "f"]) election.add(identity, times);
    first.fault = { kind: "slow", requestMs: 4, responseMs: 4_500 };
    await election.pass(20_000);
    first.fault = { kind: "hangs" };
    const [before, after] = await election.pass(40_000);
    expect([before, after === undefined]).toEqual(["c0", false]);
  });

  it("says that it may be silent for a part of a second more rather than less", async () => {
    const election = anElection();
    election.add("a", { leaseDurationMs: 10_500, renewDeadlineMs: 10_200 });
    await election.pass(1_000);
    expect(election.server.spec(LEASE)?.leaseDurationSeconds).toBe(11);
  });

  it("a leader that is asked for patience tries again before its term ends", async () => {
    const election = anElection();
    const first = election.add("a");
    await election.pass(5_000);
    first.fault = { kind: "status", status: 429, retryAfterSeconds: 60 };
    await election.pass(3_000);
    first.fault = OK;
    await election.pass(30_000);
    expect([first.elector.isLeader(), first.started]).toEqual([true, 1]);
  });

  it("a leader pauses after each failed try, however little is left of its term", async () => {
    const election = anElection();
    const pauses: number[] = [];
    const first = election.add("a", { onEvent: (event) => event.kind === "failed" && pauses.push(event.retryMs) });
    await election.pass(5_000);
    first.fault = { kind: "hangs" };
    await election.pass(15_000);
    expect(pauses.length).toBeGreaterThan(1);
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(200);
  });

  it("creates the lease, leads at once and renews it each retry period", async () => {
    const election = anElection();
    const { events } = election.add("a");
    await election.pass(60_000);
    expect(events).toEqual(["observed a", "leading"]);
    expect(election.server.spec(LEASE)).toEqual({
      holderIdentity: "a",
      leaseDurationSeconds: 15,
      acquireTime: "2026-01-01T00:00:00.004000Z",
      renewTime: expect.stringMatching(/^2026-01-01T00:00:5\d\.\d{3}000Z$/),
      leaseTransitions: 0,
    });
    // One read, one create, and then a renewal every 2 s without a read.
    expect(election.server.requests.map(({ method }) => method).slice(0, 4)).toEqual(["GET", "POST", "PUT", "PUT"]);
    expect(election.server.requests.length).toBeLessThanOrEqual(32);
  });

  it.each([
    { name: "released", spec: { holderIdentity: "", leaseDurationSeconds: 1, leaseTransitions: 4 }, afterMs: 100 },
    { name: "without a spec", spec: undefined, afterMs: 100 },
    {
      name: "held by somebody who is gone",
      spec: {
        holderIdentity: "old",
        leaseDurationSeconds: 15,
        renewTime: "2026-01-01T00:00:00.000000Z",
        leaseTransitions: 4,
      },
      afterMs: 20_000,
    },
    {
      name: "held, with a renewal time far ahead",
      spec: {
        holderIdentity: "old",
        leaseDurationSeconds: 15,
        renewTime: "2036-01-01T00:00:00.000000Z",
        leaseTransitions: 4,
      },
      afterMs: 20_000,
    },
    {
      name: "held for a minute by its own word",
      spec: { holderIdentity: "old", leaseDurationSeconds: 60, leaseTransitions: 4 },
      afterMs: 65_000,
    },
    {
      name: "held by somebody who says for no time",
      spec: { holderIdentity: "old", leaseDurationSeconds: 0, leaseTransitions: 4 },
      afterMs: 20_000,
    },
    {
      name: "held by somebody who does not say for how long",
      spec: { holderIdentity: "old", leaseTransitions: 4 },
      afterMs: 20_000,
    },
    {
      name: "held by itself, from an answer that was lost",
      spec: { holderIdentity: "a", leaseDurationSeconds: 15, leaseTransitions: 4 },
      afterMs: 100,
    },
    {
      name: "released, and has the highest number of transitions",
      spec: { holderIdentity: "", leaseDurationSeconds: 1, leaseTransitions: 2_147_483_647 },
      afterMs: 100,
    },
  ])("adopts a lease that is $name", async ({ spec, afterMs }) => {
    const election = anElection();
    election.server.put(LEASE, {
      metadata: { name: LEASE, labels: { keep: "me" } },
      ...(spec === undefined ? {} : { spec: { ...spec, preferredHolder: "kept" } }),
    });
    const { elector } = election.add("a");
    if (afterMs > 1000) {
      await election.pass(afterMs - 5100);
      expect(elector.isLeader()).toBe(false);
      await election.pass(5100);
    } else await election.pass(afterMs);
    expect(elector.isLeader()).toBe(true);
    const { holderIdentity = "", leaseTransitions = 0 } = spec ?? {};
    const transitions = holderIdentity === "a" ? leaseTransitions : Math.min(leaseTransitions + 1, 2_147_483_647);
    expect(election.server.spec(LEASE)).toMatchObject({
      holderIdentity: "a",
      leaseTransitions: transitions,
      ...(spec === undefined ? {} : { preferredHolder: "kept" }),
    });
  });

  it("says that the namespace of its lease does not exist, and leads once it does", async () => {
    const election = anElection();
    election.server.hasNamespace = false;
    const errors: string[] = [];
    const { elector } = election.add("a", {
      onEvent: (event) => event.kind === "failed" && errors.push(`${event.during}: ${event.error.message}`),
    });
    await election.pass(10_000);
    expect(errors[0]).toBe('create: the namespace "podseidon" of the lease does not exist');
    election.server.hasNamespace = true;
    await election.pass(20_000);
    expect(elector.isLeader()).toBe(true);
  });

  it("begins soon after a proxy without a server behind it has asked for minutes", async () => {
    const election = anElection();
    const first = election.add("a");
    first.fault = { kind: "status", status: 503, retryAfterSeconds: 300 };
    await election.pass(1_000);
    first.fault = OK;
    await election.pass(10_000);
    expect(first.elector.isLeader()).toBe(true);
  });

  it.each([{ skewMs: 0 }, { skewMs: 3_600_000 }, { skewMs: -3_600_000 }])(
    "lets one of several lead, whatever their wall clocks say (skew $skewMs ms)",
    async ({ skewMs }) => {
      const election = anElection();
      election.add("a");
      election.add("b", { skewMs });
      election.add("c", { skewMs: -skewMs });
      expect(await election.pass(120_000)).toHaveLength(1);
    },
  );

  it("passes the lease on after it has expired when the leader is killed", async () => {
    const election = new ElectionHarness();
    const a = election.add("a");
    await election.pass(5000);
    const b = election.add("b");
    await election.pass(5000);
    a.ports.kill();
    a.fault = { kind: "hangs" };
    const killedAtMs = election.time.elapsedMs;
    expect(await election.time.runUntil(() => b.elector.isLeader(), 60_000)).toBe(true);
    const tookMs = election.time.elapsedMs - killedAtMs;
    expect(tookMs).toBeGreaterThan(12_000);
    expect(tookMs).toBeLessThan(21_000);
    expect(election.server.spec(LEASE)).toMatchObject({ holderIdentity: "b", leaseTransitions: 1 });
  });
});

describe("leader election: releasing the lease", () => {
  it("releases the lease, so that another leads within a retry", async () => {
    const election = new ElectionHarness();
    const a = election.add("a");
    await election.pass(3000);
    const b = election.add("b");
    await election.pass(3000);
    void a.elector.stop();
    await election.pass(5000);
    expect(a.events.at(-1)).toBe("observed ");
    expect(a.events).toContain("stopped released");
    expect(b.elector.isLeader()).toBe(true);
    expect(election.server.spec(LEASE)).toMatchObject({ holderIdentity: "b", leaseTransitions: 2 - 1 });
    await election.end();
    expect(election.server.spec(LEASE)).toMatchObject({ holderIdentity: "", leaseDurationSeconds: 1 });
  });

  it("releases only when the work has ended, and not at all when it outlives the lease", async () => {
    for (const { workMs, released } of [
      { workMs: 3000, released: true },
      { workMs: 20_000, released: false },
    ]) {
      const election = new ElectionHarness();
      const a = election.add("a", { onStartedLeading: () => {}, onStoppedLeading: () => sleep(election.time, workMs) });
      await election.pass(3000);
      void a.elector.stop();
      await election.pass(2500);
      expect(a.elector.isLeader()).toBe(false);
      expect(election.server.spec(LEASE)).toMatchObject({ holderIdentity: "a" });
      await election.pass(30_000);
      expect(election.server.spec(LEASE)).toMatchObject({ holderIdentity: released ? "" : "a" });
    }
  });

  it("stops at once while a request hangs, and leaves another's lease alone", async () => {
    const election = anElection();
    election.add("a");
    await election.pass(3000);
    const b = election.add("b");
    await election.pass(1000);
    b.fault = { kind: "hangs" };
    await election.pass(5000);
    let stopped = false;
    void b.elector.stop().then(() => {
      stopped = true;
    });
    await election.time.settle();
    expect(stopped).toBe(true);
    expect(election.server.spec(LEASE)).toMatchObject({ holderIdentity: "a" });
  });

  it("releases although the response to its last renewal was lost", async () => {
    const election = new ElectionHarness();
    const a = election.add("a");
    await election.pass(3000);
    a.fault = { kind: "responseLost" };
    await election.pass(2000);
    a.fault = OK;
    void a.elector.stop();
    await election.pass(100);
    expect(election.server.spec(LEASE)).toMatchObject({ holderIdentity: "" });
  });

  it("leaves the lease to another who has taken it since the last renewal", async () => {
    const election = new ElectionHarness();
    const a = election.add("a");
    await election.pass(3000);
    election.server.put(LEASE, {
      metadata: { name: LEASE },
      spec: { holderIdentity: "intruder", leaseDurationSeconds: 15, leaseTransitions: 7 },
    });
    void a.elector.stop();
    await election.pass(1000);
    expect(a.events).toContain("stopped released");
    expect(election.server.spec(LEASE)).toMatchObject({ holderIdentity: "intruder" });
  });

  it.each([
    { leaseDurationMs: 10_000, renewDeadlineMs: 10_000, retryPeriodMs: 2000 },
    { leaseDurationMs: 15_000, renewDeadlineMs: 2000, retryPeriodMs: 2000 },
    { leaseDurationMs: 15_000, renewDeadlineMs: 10_000, retryPeriodMs: 0 },
  ])("rejects times that would allow two leaders: %o", (times) => {
    expect(() => new ElectionHarness().add("a", times)).toThrow(RangeError);
  });
});

describe("leader election under random faults", () => {
  it("never has two leaders, and has one again when faults stop", async () => {
    const fault: fc.Arbitrary<LinkFault> = fc.oneof(
      fc.constant(OK),
      fc.constant<LinkFault>({ kind: "hangs" }),
      fc.constant<LinkFault>({ kind: "refused" }),
      fc.constant<LinkFault>({ kind: "responseLost" }),
      fc.record({
        kind: fc.constant("slow" as const),
        requestMs: fc.integer({ min: 0, max: 12_000 }),
        responseMs: fc.integer({ min: 0, max: 12_000 }),
      }),
    );
    const step = fc.record({
      candidate: fc.integer({ min: 0, max: 2 }),
      fault,
      act: fc.constantFrom("none", "none", "none", "pause", "resume", "step clock", "touch"),
      ms: fc.integer({ min: 100, max: 12_000 }),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 20 }), async (steps) => {
        const election = new ElectionHarness();
        for (const identity of ["a", "b", "c"]) election.add(identity, { skewMs: identity === "b" ? 600_000 : 0 });
        for (const { candidate: index, fault: next, act, ms } of steps) {
          const candidate = election.candidates[index];
          if (candidate === undefined) continue;
          candidate.fault = next;
          if (act === "pause") candidate.ports.pause();
          if (act === "resume") candidate.ports.resume();
          if (act === "step clock") candidate.ports.stepWallClock(-3_600_000);
          if (act === "touch") election.server.touch(LEASE);
          await election.pass(ms, 100);
        }
        for (const candidate of election.candidates) {
          candidate.fault = OK;
          candidate.ports.resume();
        }
        await election.pass(60_000, 100);
        expect(election.candidates.filter(({ elector }) => elector.isLeader())).toHaveLength(1);
        await election.end();
      }),
      { numRuns: 60 },
    );
  });
});
