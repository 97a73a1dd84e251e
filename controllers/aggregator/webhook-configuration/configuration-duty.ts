/** What an aggregator's leader does for the registration of its cell, wired. */
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import type { WatchEvent } from "../../../shared/kube/stream/watch-event.ts";
import type { Log } from "../../../shared/observe/log.ts";
import type { Metrics } from "../../../shared/observe/metrics.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { type AggregatorFlags, OWN_CLUSTER } from "../options.ts";
import { CaInjector } from "./ca-injector.ts";
import { caInjectorMetrics, caInjectorObserver } from "./ca-injector-observer.ts";

export interface ConfigurationDutyParts {
  readonly options: AggregatorFlags;
  readonly ports: Ports;
  readonly metrics: Metrics;
  readonly log: Log;
  /** To the cell. */
  readonly transport: Transport;
  readonly cores: readonly { readonly name: string; readonly client: ApiClient }[];
  readonly mayWrite: () => boolean;
  /** The observer of a watch of this name. */
  readonly observeWatch: (name: string) => (event: WatchEvent) => void;
}

/** The work of one term of leadership: `caBundle` is kept (`--ca-cluster`). Resolves soon after the signal aborts. */
export function keepConfiguration(parts: ConfigurationDutyParts): (signal: AbortSignal) => Promise<void> {
  const { options, ports, transport, metrics, log, mayWrite } = parts;
  if (options.caCluster === "") return async () => {};
  const cell = new ApiClient(transport);
  const publisher =
    options.caCluster === OWN_CLUSTER ? cell : parts.cores.find(({ name }) => name === options.caCluster)?.client;
  if (publisher === undefined) throw new Error(`there is no core ${options.caCluster}`);
  const onEvent = caInjectorObserver(metrics, log);
  const watched = {
    validatingwebhookconfigurations: parts.observeWatch("validatingwebhookconfigurations"),
    mutatingwebhookconfigurations: parts.observeWatch("mutatingwebhookconfigurations"),
  };
  let keeper: CaInjector | undefined;
  caInjectorMetrics(metrics, () => keeper?.isTrusting);
  return async (signal) => {
    keeper = new CaInjector({
      cell: options.cellId,
      cellTransport: transport,
      cellApi: cell,
      publisher,
      namespace: options.systemNamespace,
      registration: options.registration,
      ports,
      intervalMs: options.caInterval,
      timeoutMs: options.coreTimeout,
      mayWrite,
      onEvent,
      onWatchEvent: (kind, event) => watched[kind](event),
    });
    await keeper.run(signal);
    keeper = undefined;
  };
}
