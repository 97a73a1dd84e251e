import { describe, expect, it } from "vitest";
import { anElection, ElectionHarness, LEASE, ledElection, OK } from "../../../test/support/kube/election.ts";
import type { LinkFault } from "../../../test/support/kube/lease-server.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { type Ports, sleep } from "../../runtime/clock.ts";
import { Leadership } from "./leadership.ts";

describe("leader election: losing the lease", () => {
  it.each<{ name: string; fault: LinkFault }>([
    { name: "hang", fault: { kind: "hangs" } },
    { name: "are refused", fault: { kind: "refused" } },
    { name: "are answered 500", fault: { kind: "status", status: 500 } },
    { name: "are throttled", fault: { kind: "status", status: 429, retryAfterSeconds: 60 } },
    { name: "are forbidden", fault: { kind: "status", status: 403 } },
    { name: "are answered too late", fault: { kind: "slow", requestMs: 100, responseMs: 30_000 } },
  ])("stops before another can start when renewals $name", async ({ fault }) => {
    const { election, a } = await ledElection();
    const b = election.add("b");
    await election.pass(3000);
    a.fault = fault;
    expect(await election.pass(10_000)).toEqual(["c0"]);
    expect(a.elector.isLeader()).toBe(false);
    expect(a.signal).toBeUndefined();
    expect(a.events).toContain("stopped expired");
    // An update whose response was lost holds the lease for longer.
    expect(await election.pass(40_000)).toEqual(["c1"]);
    expect(b.elector.isLeader()).toBe(true);
  });

  it("counts its time from the send time of a renewal, not from its response", async () => {
    const election = anElection();
    const a = election.add("a");
    a.fault = { kind: "slow", requestMs: 10, responseMs: 3990 };
    // The read takes 4 s, and so does the creation, which is sent at 4,000.
    await election.pass(7950);
    a.fault = { kind: "hangs" };
    await election.pass(100);
    expect(a.elector.isLeader()).toBe(true);
    await election.pass(5900);
    expect(a.elector.isLeader()).toBe(true);
    await election.pass(100);
    expect(a.elector.isLeader()).toBe(false);
  });

  it("goes on when a short outage ends before the deadline", async () => {
    const { election, a } = await ledElection();
    a.fault = { kind: "refused" };
    await election.pass(7000);
    a.fault = OK;
    await election.pass(30_000);
    expect(a.started).toBe(1);
    expect(a.events.filter((text) => text.startsWith("stopped"))).toEqual([]);
  });

  it.each([4000, 4500])("goes on leading a server that takes %i ms for each call", async (ms) => {
    const election = new ElectionHarness();
    const a = election.add("a");
    await election.pass(3000);
    a.fault = { kind: "slow", requestMs: ms / 2, responseMs: ms / 2 };
    await election.pass(300_000);
    expect(a.started).toBe(1);
    await election.end();
  });

  it("goes on after one call that hangs, on a server that takes two seconds for each call", async () => {
    const election = new ElectionHarness();
    const a = election.add("a");
    await election.pass(3000);
    a.fault = { kind: "hangs" };
    await election.pass(3000);
    a.fault = { kind: "slow", requestMs: 1000, responseMs: 1000 };
    await election.pass(60_000);
    expect(a.started).toBe(1);
    await election.end();
  });

  it("survives lost responses: the next try finds the write", async () => {
    const { election, a } = await ledElection();
    a.fault = { kind: "responseLost" };
    await election.pass(4000);
    a.fault = OK;
    await election.pass(10_000);
    expect(a.started).toBe(1);
  });

  it("finds itself the holder when the response to taking the lease was lost", async () => {
    const election = anElection();
    const a = election.add("a");
    a.fault = { kind: "responseLost" };
    await election.pass(3000);
    expect(a.elector.isLeader()).toBe(false);
    a.fault = OK;
    await election.pass(10_000);
    expect(a.elector.isLeader()).toBe(true);
  });

  it("notices that another took the lease, and leads again later", async () => {
    const { election, a } = await ledElection();
    election.server.put(LEASE, {
      metadata: { name: LEASE },
      spec: { holderIdentity: "intruder", leaseDurationSeconds: 15, leaseTransitions: 7 },
    });
    await election.pass(3000);
    expect(a.elector.isLeader()).toBe(false);
    expect(a.events).toEqual(["observed a", "leading", "observed intruder", "stopped lost"]);
    await election.pass(30_000);
    expect(a.started).toBe(2);
  });

  it("goes on when another client edits the lease, and creates it again after a deletion", async () => {
    const { election, a } = await ledElection();
    election.server.touch(LEASE);
    await election.pass(3000);
    election.server.remove(LEASE);
    await election.pass(3000);
    expect(a.elector.isLeader()).toBe(true);
    expect(a.started).toBe(1);
    expect(election.server.spec(LEASE)).toMatchObject({ holderIdentity: "a" });
  });

  it("does not lead after the process was stopped for long", async () => {
    const { election, a } = await ledElection();
    const b = election.add("b");
    a.ports.pause();
    await election.pass(40_000);
    expect(b.elector.isLeader()).toBe(true);
    expect(a.elector.isLeader()).toBe(false);
    a.ports.resume();
    expect(a.elector.isLeader()).toBe(false);
    await election.pass(30_000);
    expect(a.signal).toBeUndefined();
  });

  it("changes the record with each renewal even when its wall clock stands still", async () => {
    const election = anElection();
    const ports = election.time.process();
    const a = election.add("a", {
      ports: {
        ...ports,
        timers: ports.timers,
        random: ports.random,
        clock: { nowMs: () => 1_000, monotonicMs: () => election.time.elapsedMs },
      },
    });
    const b = election.add("b");
    expect(await election.pass(120_000)).toEqual(["c0"]);
    expect([a.started, b.started]).toEqual([1, 0]);
  });

  it("does not lead again before the work of its last leadership has ended", async () => {
    const election = anElection();
    let working = 0;
    const a = election.add("a", {
      onStartedLeading: () => {
        working += 1;
        expect(working).toBe(1);
      },
      onStoppedLeading: async () => {
        await sleep(election.time, 30_000);
        working -= 1;
      },
    });
    await election.pass(3000);
    a.fault = { kind: "hangs" };
    await election.pass(12_000);
    a.fault = OK;
    await election.pass(20_000);
    expect(a.elector.isLeader()).toBe(false);
    await election.pass(20_000);
    expect(a.elector.isLeader()).toBe(true);
  });

  it("leaves the lease to another while the work of its last leadership ends", async () => {
    const election = new ElectionHarness();
    const a = election.add("a", { onStartedLeading: () => {}, onStoppedLeading: () => sleep(election.time, 60_000) });
    await election.pass(3000);
    const b = election.add("b");
    a.fault = { kind: "hangs" };
    await election.pass(12_000);
    a.fault = OK;
    await election.pass(20_000);
    expect(b.elector.isLeader()).toBe(true);
    await election.end();
  });

  it("asks again soon in an outage, however long the one before was", async () => {
    const election = new ElectionHarness();
    election.add("b");
    await election.pass(3000);
    const a = election.add("a");
    a.fault = { kind: "refused" };
    await election.pass(120_000);
    a.fault = OK;
    await election.pass(30_000);
    a.fault = { kind: "refused" };
    const before = a.events.filter((text) => text.startsWith("failed")).length;
    await election.pass(12_000);
    expect(a.events.filter((text) => text.startsWith("failed")).length - before).toBeGreaterThanOrEqual(3);
    await election.end();
  });

  it("sends few requests in an outage: at most 10 in the first 10 s, and then ever fewer", async () => {
    for (const leader of [true, false]) {
      const election = new ElectionHarness();
      const a = election.add("a");
      if (!leader) a.fault = { kind: "refused" };
      else await election.pass(3000);
      a.fault = { kind: "refused" };
      const countIn = async (ms: number): Promise<number> => {
        const before = election.server.requests.length;
        await election.pass(ms);
        return election.server.requests.length - before;
      };
      expect(await countIn(10_000)).toBeLessThanOrEqual(10);
      await election.pass(60_000);
      expect(await countIn(60_000)).toBeLessThanOrEqual(6);
      await election.end();
    }
  });
});

describe("a term of leadership", () => {
  function leadershipOn(ports: Pick<Ports, "clock" | "timers">, stopped: () => void | Promise<void> = () => {}) {
    const told: string[] = [];
    const leadership = new Leadership(ports, {
      started: () => void told.push("started"),
      stopped: (reason) => {
        told.push(reason);
        return stopped();
      },
    });
    return { told, leadership };
  }

  it("ends once, and none begins before its work has ended", async () => {
    let finish: () => void = () => {};
    const work = new Promise<void>((ended) => {
      finish = ended;
    });
    const { told, leadership } = leadershipOn(new VirtualTime(), () => work);
    leadership.extend(1000);
    leadership.end("lost");
    leadership.end("released");
    // The response to a renewal that was sent before may still come.
    leadership.extend(2000);
    expect(leadership.begun).toBe(false);
    finish();
    await leadership.ended;
    leadership.extend(2000);
    expect(told).toEqual(["started", "lost", "started"]);
  });

  it("does not begin by a renewal whose time has passed", () => {
    const { told, leadership } = leadershipOn(new VirtualTime());
    leadership.extend(0);
    leadership.extend(-1);
    expect([told, leadership.begun]).toEqual([[], false]);
  });

  it("is not ended by the timer of the one before", async () => {
    const time = new VirtualTime();
    const { told, leadership } = leadershipOn(time);
    leadership.extend(1000);
    leadership.end("lost");
    await leadership.ended;
    leadership.extend(5000);
    await time.advance(2000);
    expect(told).toEqual(["started", "lost", "started"]);
    await time.advance(5000);
    expect(told).toEqual(["started", "lost", "started", "expired"]);
  });

  it("that expired while the process was stopped ends before the next, though its timer has not run", async () => {
    let nowMs = 0;
    const clock = { nowMs: () => nowMs, monotonicMs: () => nowMs };
    const { told, leadership } = leadershipOn({ clock, timers: { after: () => ({ cancel: () => {} }) } });
    leadership.extend(1000);
    nowMs = 1000;
    leadership.extend(3000);
    expect([told, leadership.begun]).toEqual([["started", "expired"], false]);
    await leadership.ended;
    leadership.extend(3000);
    expect(told).toEqual(["started", "expired", "started"]);
  });
});
