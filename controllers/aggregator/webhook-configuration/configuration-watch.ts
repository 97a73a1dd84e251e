import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent } from "../../../shared/kube/informer/reflector-options.ts";
import { type Ports, sleep } from "../../../shared/runtime/clock.ts";
import {
  type ConfigurationResource,
  KINDS,
  type LiveConfiguration,
  parseLiveConfiguration,
} from "./desired-configuration.ts";

const GROUP_PATH = "/apis/admissionregistration.k8s.io/v1";

/** Options of the CA injector, the webhook configuration keeper and the refresher. */
export interface ConfigurationOptions {
  readonly watches: ConfigurationWatches;
  /** To the cell. */
  readonly api: Pick<ApiClient, "get" | "create" | "update" | "patch">;
  readonly ports: Ports;
  /** `metadata.name` of both webhook configurations. */
  readonly name: string;
  /** Namespace of the project's ConfigMaps. */
  readonly namespace: string;
  readonly timeoutMs: number;
  /** Asked before each write. */
  readonly mayWrite: () => boolean;
}

/** Path of the webhook configurations of one kind, or of one of them. */
export function configurationPath(resource: ConfigurationResource, name?: string): string {
  return `${GROUP_PATH}/${resource}${name === undefined ? "" : `/${encodeURIComponent(name)}`}`;
}

interface WatchesOptions {
  readonly transport: Transport;
  readonly ports: Ports;
  readonly onEvent: (resource: ConfigurationResource, event: ReflectorEvent) => void;
}

export interface OpenWatch {
  readonly watch: Reflector<LiveConfiguration>;
  /** Resolves when its requests have ended, if no other part uses the watch. */
  close(): Promise<void>;
}

const STREAM_SECONDS = [30, 60] as const;

/**
 * The watches of single webhook configurations, each by its name, which is also its key. The parts of the process that
 * work on the same one share its watch.
 */
export class ConfigurationWatches {
  readonly #options: WatchesOptions;
  readonly #open = new Map<string, { readonly watch: Reflector<LiveConfiguration>; users: number }>();

  constructor(options: WatchesOptions) {
    this.#options = options;
  }

  /** `changed` is called at each change until `close`. */
  open(resource: ConfigurationResource, name: string, changed: () => void): OpenWatch {
    const path = configurationPath(resource, name);
    const shared = this.#open.get(path) ?? { watch: this.#started(resource, name), users: 0 };
    this.#open.set(path, shared);
    shared.users++;
    const unsubscribe = shared.watch.subscribe({ changed });
    const close = async (): Promise<void> => {
      unsubscribe();
      if (--shared.users > 0) return;
      this.#open.delete(path);
      await shared.watch.stop();
    };
    return { watch: shared.watch, close };
  }

  #started(resource: ConfigurationResource, name: string): Reflector<LiveConfiguration> {
    const { transport, ports, onEvent } = this.#options;
    const watch = new Reflector<LiveConfiguration>({
      ...{ transport, ports, serverTimeoutSeconds: STREAM_SECONDS, unparsable: "keepLast" },
      name: resource,
      path: configurationPath(resource),
      kind: KINDS[resource],
      query: { fieldSelector: `metadata.name=${name}` },
      parse: parseLiveConfiguration,
      uidOf: ({ metadata }) => metadata.uid,
      versionOf: ({ metadata }) => metadata.resourceVersion,
      onEvent: (event) => onEvent(resource, event),
    });
    watch.start();
    return watch;
  }
}

/**
 * Longest time that a webhook configuration without `caBundle` waits for the counts: until it has one, no deletion of a
 * pod passes, protected or not.
 */
const COUNT_WITHIN_MS = 60_000;

/** Calls `then` once `counted` resolves, or when the wait takes too long, unless the term has ended by then. */
export async function whenCounted(
  counted: Promise<void>,
  ports: Ports,
  signal: AbortSignal,
  then: () => void,
): Promise<void> {
  await Promise.race([counted, sleep(ports, COUNT_WITHIN_MS, signal)]);
  if (!signal.aborted) then();
}
