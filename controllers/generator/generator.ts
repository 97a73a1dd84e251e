/**
 * The generator of one core cluster: a candidate for the lease, and one {@link GeneratorTerm} of work each time that it leads. Takes its
 * ports, so that a simulation can run it.
 */
import { LeaderElector } from "../../shared/kube/election/leader-election.ts";
import { GENERATOR_LEASE } from "../../shared/schema/annotations.ts";
import { GeneratorTerm } from "./generator-term.ts";
import type { GeneratorSetup } from "./setup.ts";

export class Generator {
  readonly #setup: GeneratorSetup;
  readonly #elector: LeaderElector | undefined;
  readonly #stopping = new AbortController();
  #term: GeneratorTerm | undefined;
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
      this.#term = new GeneratorTerm(this.#setup, mayWrite);
      await this.#term.run(signal);
      this.#term = undefined;
    });
  }
}
