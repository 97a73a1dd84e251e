/** Candidates for one lease in virtual time, each with its own clock, randomness and link. */
import { expect, onTestFinished } from "vitest";
import {
  LeaderElector,
  type LeaderElectorOptions,
  type LeaderEvent,
} from "../../../shared/kube/election/leader-election.ts";
import { type ProcessPorts, VirtualTime } from "../runtime/virtual-ports.ts";
import { LeaseServer, type LinkFault } from "./lease-server.ts";

export const LEASE = "podseidon-generator";
export const OK: LinkFault = { kind: "none" };

export interface Candidate {
  readonly elector: LeaderElector;
  readonly ports: ProcessPorts;
  readonly events: string[];
  /** The fault of this candidate's link; tests set it. */
  fault: LinkFault;
  /** The signal of the present leadership. */
  signal: AbortSignal | undefined;
  started: number;
}

export class ElectionHarness {
  readonly time = new VirtualTime();
  readonly server = new LeaseServer(this.time);
  readonly candidates: Candidate[] = [];

  add(identity: string, options: Partial<LeaderElectorOptions> & { skewMs?: number } = {}): Candidate {
    const { skewMs = 0, ...more } = options;
    const ports = this.time.process({ skewMs, seed: this.candidates.length + 1 });
    const events: string[] = [];
    const elector = new LeaderElector({
      transport: this.server.connect(identity, () => candidate.fault),
      ports,
      namespace: "podseidon",
      name: LEASE,
      identity,
      onStartedLeading: (signal) => {
        expect(candidate.signal).toBeUndefined();
        candidate.signal = signal;
        candidate.started += 1;
      },
      onStoppedLeading: () => {
        expect(candidate.signal?.aborted).toBe(true);
        candidate.signal = undefined;
      },
      onEvent: (event) => events.push(textOf(event)),
      ...more,
    });
    const candidate: Candidate = { elector, ports, events, fault: OK, signal: undefined, started: 0 };
    this.candidates.push(candidate);
    elector.start();
    return candidate;
  }

  /**
   * Lets time pass in small steps, at each of which at most one candidate may lead. Resolves with the leaders in order.
   */
  async pass(ms: number, stepMs = 50): Promise<string[]> {
    const leaders: string[] = [];
    for (let passedMs = 0; passedMs < ms; passedMs += stepMs) {
      await this.time.advance(stepMs);
      const leading = this.candidates.flatMap(({ elector }, index) => (elector.isLeader() ? [`c${index}`] : []));
      expect(leading.length).toBeLessThanOrEqual(1);
      const [leader] = leading;
      if (leader !== undefined && leaders.at(-1) !== leader) leaders.push(leader);
    }
    return leaders;
  }

  async end(): Promise<void> {
    const stopped = Promise.all(this.candidates.map(({ elector }) => elector.stop()));
    await this.time.advance(60_000);
    await stopped;
  }
}

/** Ends with the test. */
export function anElection(): ElectionHarness {
  const election = new ElectionHarness();
  onTestFinished(() => election.end());
  return election;
}

/** An election that `a` has led for some seconds. Ends with the test. */
export async function ledElection(): Promise<{ readonly election: ElectionHarness; readonly a: Candidate }> {
  const election = anElection();
  const a = election.add("a");
  await election.pass(3000);
  return { election, a };
}

function textOf(event: LeaderEvent): string {
  switch (event.kind) {
    case "stopped":
      return `stopped ${event.reason}`;
    case "observed":
      return `observed ${event.holder}`;
    case "failed":
      return `failed ${event.during}`;
    default:
      return event.kind;
  }
}
