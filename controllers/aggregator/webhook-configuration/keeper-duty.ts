/** The keeper of the cell's registration as part of an aggregator's leader. */
import { readFile } from "node:fs/promises";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { EventRecorder } from "../../../shared/observe/event-recorder.ts";
import type { Log } from "../../../shared/observe/log.ts";
import type { Metrics } from "../../../shared/observe/metrics.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import type { AggregatorFlags } from "../options.ts";
import { ConfigurationKeeper, KINDS } from "./configuration-keeper.ts";
import { ConfigurationRecord } from "./configuration-record.ts";
import { type DeclaredConfiguration, forCell, parseDeclaredConfiguration } from "./desired-configuration.ts";
import { keeperMetrics, keeperObserver } from "./keeper-observer.ts";

const COMPONENT = "podseidon-aggregator";
const LAST_EVENTS_MS = 2_000;

export interface KeeperParts {
  readonly options: AggregatorFlags;
  /** `metadata.name` of the registrations. */
  readonly name: string;
  readonly ports: Ports;
  readonly metrics: Metrics;
  readonly log: Log;
  /** To the cell. */
  readonly transport: Transport;
  readonly mayWrite: () => boolean;
}

export interface KeeperWork {
  /** One term of leadership; resolves soon after the signal aborts. */
  readonly run: (signal: AbortSignal) => Promise<void>;
  readonly stop: () => Promise<void>;
}

/** Rejects when the file that says what is to be there can't be used. */
export async function configurationKeeper(parts: KeeperParts): Promise<KeeperWork> {
  const { options, name, ports, metrics, log, transport, mayWrite } = parts;
  if (!options.keepRegistration) return { run: async () => {}, stop: async () => {} };
  const declared = await declaredIn(options.registrationFile, options.cellId);
  const events = new EventRecorder({ transport, ports, component: COMPONENT });
  const onEvent = keeperObserver({ metrics, log, events, name });
  const api = new ApiClient(transport);
  const { systemNamespace: namespace, coreTimeout: timeoutMs } = options;
  let keeper: ConfigurationKeeper | undefined;
  keeperMetrics(metrics, () => keeper?.isKept);
  return {
    run: async (signal) => {
      const onFailed = (message: string): void => log.warn({ error: message }, "The record of the registration failed");
      const record = new ConfigurationRecord({ api, namespace, timeoutMs, onFailed });
      keeper = new ConfigurationKeeper({ transport, api, ports, name, declared, record, timeoutMs, mayWrite, onEvent });
      await keeper.run(signal);
      keeper = undefined;
    },
    stop: () => events.stop(LAST_EVENTS_MS),
  };
}

/** The registrations of a YAML file by kind; other objects in it are none of this keeper's. */
async function declaredIn(file: string, cellID: string): Promise<ReadonlyMap<string, DeclaredConfiguration>> {
  const declared = new Map<string, DeclaredConfiguration>();
  if (file === "") return declared;
  const { loadAll } = await import("js-yaml");
  const kinds: readonly string[] = Object.values(KINDS);
  for (const document of loadAll(await readFile(file, "utf8"))) {
    const kind: unknown = typeof document === "object" && document !== null ? Reflect.get(document, "kind") : undefined;
    if (typeof kind !== "string" || !kinds.includes(kind)) continue;
    declared.set(kind, forCell(parseDeclaredConfiguration(document), cellID));
  }
  return declared;
}
