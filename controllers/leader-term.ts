import { hostname } from "node:os";
import type { Transport } from "../shared/kube/client/transport.ts";
import { LeaderElector } from "../shared/kube/election/leader-election.ts";
import type { LeaderObserver } from "../shared/observe/process-observer.ts";
import { systemPorts } from "../shared/runtime/system-ports.ts";

const DEFAULT_NAMESPACE = "podseidon-system";

/** The options of a leader election (`common-options.ts`), and where the lease is. */
export interface LeaderTermOptions {
  readonly leaderElect: boolean;
  readonly leaderElectNamespace: string | undefined;
  readonly leaseDuration: number;
  readonly renewDeadline: number;
  readonly retryPeriod: number;
  /** To the cluster that holds the lease. */
  readonly transport: Transport;
  /** The namespace that the process itself runs in, where that is known. */
  readonly clusterNamespace: string | undefined;
  readonly lease: string;
  readonly observer: LeaderObserver;
}

/** Has a controller's work done while its lease is held, or all the time where there is no election. */
export class LeaderTerm {
  readonly #work: (signal: AbortSignal) => Promise<void>;
  readonly #alone = new AbortController();
  readonly #elector: LeaderElector | undefined;
  #working: Promise<void> = Promise.resolve();

  /** `work` begins with each leadership and ends soon after its signal aborts. */
  constructor(options: LeaderTermOptions, work: (signal: AbortSignal) => Promise<void>) {
    this.#work = work;
    if (!options.leaderElect) return;
    const { lease, observer } = options;
    this.#elector = new LeaderElector({
      transport: options.transport,
      ports: systemPorts,
      namespace: options.leaderElectNamespace ?? options.clusterNamespace ?? DEFAULT_NAMESPACE,
      name: lease,
      identity: `${hostname()}_${systemPorts.random.token()}`,
      leaseDurationMs: options.leaseDuration,
      renewDeadlineMs: options.renewDeadline,
      retryPeriodMs: options.retryPeriod,
      onStartedLeading: (signal) => this.#begin(signal),
      onStoppedLeading: () => this.#working,
      onEvent: observer.observe(lease),
    });
    observer.track(lease, this.#elector);
  }

  /** No other process can hold the lease now. To be asked before each write. */
  get isLeader(): boolean {
    return this.#elector === undefined ? !this.#alone.signal.aborted : this.#elector.isLeader();
  }

  start(): void {
    if (this.#elector === undefined) this.#begin(this.#alone.signal);
    else this.#elector.start();
  }

  /** Ends the work, then releases the lease. */
  async stop(): Promise<void> {
    this.#alone.abort();
    await this.#elector?.stop();
    await this.#working;
  }

  #begin(signal: AbortSignal): void {
    // Two terms of one process must not overlap.
    this.#working = this.#working.then(() => this.#work(signal));
  }
}
