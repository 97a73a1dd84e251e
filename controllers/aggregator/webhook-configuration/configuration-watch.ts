import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorOptions } from "../../../shared/kube/informer/reflector-options.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { type ConfigurationResource, type LiveConfiguration, parseLiveConfiguration } from "./desired-configuration.ts";

const GROUP_PATH = "/apis/admissionregistration.k8s.io/v1";

/** Options of both the CA injector and the webhook configuration keeper. */
export interface ConfigurationOptions {
  /** Transport to the cell. */
  readonly transport: Transport;
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

type WatchOptions = Pick<
  ReflectorOptions<LiveConfiguration>,
  "transport" | "ports" | "serverTimeoutSeconds" | "unparsable" | "onEvent"
>;

/** Watches one webhook configuration by its name, which is also its key. */
export function watchConfiguration(
  resource: ConfigurationResource,
  name: string,
  options: WatchOptions,
  changed: () => void,
): Reflector<LiveConfiguration> {
  const watch = new Reflector<LiveConfiguration>({
    ...options,
    name: resource,
    path: configurationPath(resource),
    query: { fieldSelector: `metadata.name=${name}` },
    parse: parseLiveConfiguration,
    keyOf: ({ metadata }) => metadata.name,
    uidOf: ({ metadata }) => metadata.uid,
    versionOf: ({ metadata }) => metadata.resourceVersion,
  });
  watch.subscribe({ changed });
  return watch;
}
