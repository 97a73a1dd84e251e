/** What a generator is given: its cluster, its plugins, and who listens. */
import type { LeaderEvent } from "../../shared/kube/leader-election.ts";
import type { Transport } from "../../shared/kube/transport.ts";
import type { WatchEvent } from "../../shared/kube/watch-event.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import type { QueueEvent } from "../../shared/runtime/queue.ts";
import type { GeneratorEvent } from "./events.ts";
import type { SourcePlugin } from "./source.ts";

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
