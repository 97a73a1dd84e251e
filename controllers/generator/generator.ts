/**
 * The generator of one core cluster: a candidate for the lease, and one {@link Term} of work each time that it leads. Takes its
 * ports, so that a simulation can run it.
 */
import { LeaderElector, type LeaderEvent } from "../../shared/kube/leader-election.ts";
import type { Transport } from "../../shared/kube/transport.ts";
import type { WatchEvent } from "../../shared/kube/watch-event.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import type { QueueEvent } from "../../shared/runtime/queue.ts";
import { GENERATOR_LEASE } from "../../shared/schema/annotations.ts";
import type { GeneratorEvent } from "./events.ts";
import type { SourcePlugin } from "./source.ts";
import { Term } from "./term.ts";

export interface Election {
  readonly namespace: string;
  /** Unique among the candidates. */
  readonly identity: string;
  readonly leaseDurationMs: number;
  readonly renewDeadlineMs: number;
  readonly retryPeriodMs: number;
}

export interface GeneratorObserver {
  readonly generator: (event: GeneratorEvent) => void;
  readonly watch: (source: string, event: WatchEvent) => void;
  readonly queue: (event: QueueEvent) => void;
  readonly leader: (event: LeaderEvent) => void;
}

export interface GeneratorSetup {
  readonly transport: Transport;
  readonly ports: Ports;
  readonly plugins: readonly SourcePlugin[];
  /** Undefined: it leads from the start. */
  readonly election: Election | undefined;
  readonly concurrency: number;
  /** Where the register of releases is; `podseidon-system` by default. */
  readonly registerNamespace?: string;
  readonly observer: GeneratorObserver;
}

export class Generator {
  readonly #setup: GeneratorSetup;
  readonly #elector: LeaderElector | undefined;
  readonly #stopping = new AbortController();
  #term: Term | undefined;
  #work: Promise<void> = Promise.resolve();

  constructor(setup: GeneratorSetup) {
    this.#setup = setup;
    const { election, transport, ports, observer } = setup;
    if (election === undefined) return;
    this.#elector = new LeaderElector({
      ...election,
      transport,
      ports,
      name: GENERATOR_LEASE,
      onStartedLeading: (signal) => this.#lead(signal),
      onStoppedLeading: () => this.#work,
      onEvent: observer.leader,
    });
  }

  start(): void {
    if (this.#elector === undefined) this.#lead(this.#stopping.signal);
    else this.#elector.start();
  }

  /** Gives up the lease once the work under way has ended. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#elector?.stop();
    await this.#work;
  }

  /** What keeps it from being ready; undefined when nothing does. A replica that stands by is. */
  problem(): string | undefined {
    return this.#term?.problem();
  }

  get leading(): boolean {
    return this.#term !== undefined;
  }

  /** Keys of sources that are named by a protector and are not there: their protectors stay in force. */
  orphans(): string[] {
    return this.#term?.orphans() ?? [];
  }

  #lead(signal: AbortSignal): void {
    const before = this.#work;
    this.#work = before.then(async () => {
      const mayWrite = (): boolean => !signal.aborted && (this.#elector?.isLeader() ?? true);
      this.#term = new Term(this.#setup, mayWrite);
      await this.#term.run(signal);
      this.#term = undefined;
    });
  }
}
