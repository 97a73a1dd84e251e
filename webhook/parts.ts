/** What a replica of the webhook is put together from. */
import type { Transport } from "../shared/kube/client/transport.ts";
import type { WatchEvent } from "../shared/kube/stream/watch-event.ts";
import type { Log } from "../shared/observe/log.ts";
import type { Ports } from "../shared/runtime/clock.ts";
import type { AdmissionRecord } from "./handler.ts";
import type { WebhookMetrics } from "./metrics.ts";
import type { AskOwner } from "./probe/owner.ts";

/** A cluster by its name, reached through a transport: the real one, or a simulation's. */
export interface NamedTransport {
  readonly name: string;
  readonly transport: Transport;
}

export interface WebhookParts {
  readonly cores: readonly NamedTransport[];
  /** Cells; `transport` undefined where evictions cannot be read live. */
  readonly cells: readonly { readonly name: string; readonly transport: Transport | undefined }[];
  readonly ports: Ports;
  readonly settleMs: number;
  readonly ownNamespace: string;
  readonly dryRunMode: boolean;
  readonly requireBoundEvictions: boolean;
  /** Follow the register of released protectors in the cores, and read the copies in the cells at the start (design 7). Default false. */
  readonly outlive?: boolean;
  readonly log: Log;
  readonly metrics: WebhookMetrics;
  /** Told of each finished review, beside metrics and log. */
  readonly onReviewed?: (record: AdmissionRecord) => void;
  readonly onWatchEvent?: (core: string, event: WatchEvent) => void;
  /** Asks the owners of workloads (`probe/`); without it protectors with a probe refuse. */
  readonly askOwner?: AskOwner;
  readonly bypassNeedsPermission?: boolean;
  /** Pods that are held back by a pre-activity are marked when somebody wants them gone. */
  readonly markPendingDisruptions?: boolean;
}
