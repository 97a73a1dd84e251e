/** What a generator is given: its cluster, its plugins, and who listens. */

import type { Transport } from "../../shared/kube/client/transport.ts";
import type { LeaderEvent } from "../../shared/kube/election/leader-election.ts";
import type { WatchEvent } from "../../shared/kube/stream/watch-event.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import type { QueueEvent } from "../../shared/runtime/work-queue.ts";
import type { GeneratorEvent } from "./protectors/events.ts";
import type { SourcePlugin } from "./sources/protection-source.ts";

export interface ElectionSettings {
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
  readonly election: ElectionSettings | undefined;
  readonly concurrency: number;
  /** Where the register of releases is; `podseidon-system` by default. */
  readonly registerNamespace?: string;
  readonly observer: GeneratorObserver;
}
