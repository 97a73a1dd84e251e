import { Reflector, type ReflectorOptions } from "../../../shared/kube/informer/reflector.ts";
import { type ConfigurationResource, type LiveConfiguration, parseLiveConfiguration } from "./desired-configuration.ts";

const GROUP_PATH = "/apis/admissionregistration.k8s.io/v1";

/** Path of the webhook configurations of one kind, or of one of them. */
export function configurationPath(resource: ConfigurationResource, name?: string): string {
  return `${GROUP_PATH}/${resource}${name === undefined ? "" : `/${encodeURIComponent(name)}`}`;
}

export interface ConfigurationWatchOptions
  extends Pick<
    ReflectorOptions<LiveConfiguration>,
    "transport" | "ports" | "serverTimeoutSeconds" | "unparsable" | "onEvent"
  > {
  readonly changed: () => void;
}

/** Watches one webhook configuration by its name, which is also its key. */
export function watchConfiguration(
  resource: ConfigurationResource,
  name: string,
  { changed, ...options }: ConfigurationWatchOptions,
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
