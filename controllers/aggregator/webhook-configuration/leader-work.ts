/**
 * What the aggregator's leader does for the webhook configuration of its cell, wired. `desired-configuration.ts` is the
 * pure part: what the configuration should be, and what differs. `ca-injector.ts` and `configuration-keeper.ts` read
 * and write.
 */
import { readFile } from "node:fs/promises";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import type { WatchEvent } from "../../../shared/kube/stream/watch-event.ts";
import { EventRecorder } from "../../../shared/observe/event-recorder.ts";
import { gaugeOf } from "../../../shared/observe/gauge.ts";
import type { Log } from "../../../shared/observe/log.ts";
import type { Metrics } from "../../../shared/observe/metrics.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { CaInjector } from "./ca-injector.ts";
import { ConfigurationKeeper } from "./configuration-keeper.ts";
import { ConfigurationRecord } from "./configuration-record.ts";
import {
  type ConfigurationResource,
  type DeclaredConfiguration,
  forCell,
  KINDS,
  parseDeclaredConfiguration,
} from "./desired-configuration.ts";
import { observeCaInjector, observeKeeper } from "./observe.ts";

const LAST_EVENTS_MS = 2_000;

export interface ConfigurationWorkOptions {
  readonly cellID: string;
  /** `metadata.name` of the webhook configurations. */
  readonly name: string;
  readonly ports: Ports;
  readonly metrics: Metrics;
  readonly log: Log;
  /** To the cell. */
  readonly transport: Transport;
  /** Of the project's ConfigMaps. */
  readonly namespace: string;
  readonly timeoutMs: number;
  /** Asked before each write. */
  readonly mayWrite: () => boolean;
}

export interface ConfigurationWork {
  /** One term of leadership; resolves soon after its signal aborts. */
  readonly lead: (signal: AbortSignal) => Promise<void>;
  readonly stop?: () => Promise<void>;
}

export interface InjectionOptions extends ConfigurationWorkOptions {
  /** The cluster where the webhook's certificates are made. */
  readonly publisher: ApiClient;
  readonly intervalMs: number;
  readonly onWatchEvent: (resource: ConfigurationResource, event: WatchEvent) => void;
}

/** Injects `caBundle` while this process leads. */
export function caInjection(options: InjectionOptions): ConfigurationWork {
  const { metrics, log, transport } = options;
  const onEvent = observeCaInjector(metrics, log);
  let injector: CaInjector | undefined;
  gaugeOf(
    metrics,
    "registration_ca_current",
    "1 when the cell's registration is there and trusts the published authorities, 0 when not; absent on a standby.",
    () => injector?.isTrusting,
  );
  return {
    async lead(signal) {
      injector = new CaInjector({ ...options, api: new ApiClient(transport), onEvent });
      await injector.run(signal);
      injector = undefined;
    },
  };
}

export interface KeepingOptions extends ConfigurationWorkOptions {
  /** Of Kubernetes Events. */
  readonly component: string;
  /** By kind, from a file; empty: what was last applied. */
  readonly declared: ReadonlyMap<string, DeclaredConfiguration>;
}

/** Restores the webhook configuration while this process leads. */
export function configurationKeeping(options: KeepingOptions): ConfigurationWork {
  const { metrics, log, transport, component, ports } = options;
  const events = new EventRecorder({ transport, ports, component });
  const onEvent = observeKeeper({ ...options, events });
  const api = new ApiClient(transport);
  let keeper: ConfigurationKeeper | undefined;
  gaugeOf(
    metrics,
    "registration_kept",
    "1 when the registrations of the cell are as they should be, 0 when not; absent on a standby.",
    () => keeper?.isKept,
  );
  return {
    async lead(signal) {
      const onFailed = (message: string): void => log.warn({ error: message }, "The record of the registration failed");
      const record = new ConfigurationRecord({ ...options, api, onFailed });
      keeper = new ConfigurationKeeper({ ...options, api, record, onEvent });
      await keeper.run(signal);
      keeper = undefined;
    },
    stop: () => events.stop(LAST_EVENTS_MS),
  };
}

/**
 * The webhook configurations of a YAML file by kind; throws when the file can't be used. Objects of other kinds are
 * ignored.
 */
export async function readDeclared(file: string, cellID: string): Promise<ReadonlyMap<string, DeclaredConfiguration>> {
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
