/**
 * Finds a protector by the names that people use and that `kubectl get -o name` prints: `deployment-web`,
 * `podprotector.podseidon.kubewharf.io/deployment-web`, `deployment.apps/web`, `deploy/web` or `web`. Pure.
 */
import {
  SOURCE_GROUP_LABEL,
  SOURCE_KIND_LABEL,
  SOURCE_NAME_LABEL,
  SOURCE_RESOURCE_LABEL,
} from "../../shared/schema/annotations.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { CommandError } from "./invocation/errors.ts";
import { didYouMean, isNear } from "./invocation/near-names.ts";

const OWN_KIND = /^(ppr|podprotectors?)(\.podseidon\.kubewharf\.io)?\//;

/** Kubectl's short names of the kinds that it has built in. */
const SHORT_NAMES: Readonly<Record<string, string>> = {
  deploy: "deployment",
  sts: "statefulset",
  ds: "daemonset",
  rs: "replicaset",
  rc: "replicationcontroller",
  pdb: "poddisruptionbudget",
};

/** The protector's name in a word that may begin with the kind, as in kubectl's output. */
export const ownName = (word: string): string => word.replace(OWN_KIND, "");

/**
 * The name of the protector's workload. A label has no room for each name, so that a long one is shortened there and
 * stands in full in the owner reference alone.
 */
export function sourceName({ labels, ownerReferences = [] }: PodProtector["metadata"]): string | undefined {
  const label = labels?.[SOURCE_NAME_LABEL];
  if (label === undefined) return undefined;
  return ownerReferences.find(({ controller }) => controller === true)?.name ?? label;
}

/** `KIND/NAME` or `KIND.GROUP/NAME`, a workload in kubectl's words. */
const WORKLOAD = /^([^./]+)(?:\.([^/]+))?\/(.+)$/;

/** The protectors with this name, or of the workload with this name; empty without one. */
export function findProtectors(word: string, protectors: readonly PodProtector[]): readonly PodProtector[] {
  const own = ownName(word);
  const named = protectors.filter(({ metadata }) => metadata.name === own);
  if (named.length > 0 || own !== word) return named;
  const [, resource, group, name = word] = WORKLOAD.exec(word.toLowerCase()) ?? [];
  const kind = resource === undefined ? undefined : (SHORT_NAMES[resource] ?? resource);
  return protectors.filter(({ metadata }) => {
    const { labels = {} } = metadata;
    const kinds = [labels[SOURCE_KIND_LABEL], labels[SOURCE_RESOURCE_LABEL]].map((one) => one?.toLowerCase());
    if (group !== undefined && group !== labels[SOURCE_GROUP_LABEL]) return false;
    return sourceName(metadata) === name && (kind === undefined || kinds.includes(kind));
  });
}

/**
 * As {@link findProtectors}, but without any, throws a sentence with similar names. The protectors are all of this
 * namespace, or of all namespaces (`undefined`).
 */
export function requireProtectors(
  word: string,
  protectors: readonly PodProtector[],
  namespace: string | undefined,
  { name }: { readonly name: string },
): readonly PodProtector[] {
  const found = findProtectors(word, protectors);
  if (found.length > 0) return found;
  const near = didYouMean(nearNames(word, protectors));
  const where = namespace === undefined ? "any namespace" : `namespace ${namespace}`;
  const advice = near === "" && namespace !== undefined ? "; see -n" : near;
  throw new CommandError(`there is no PodProtector ${ownName(word)} in ${where} of ${name}${advice}`);
}

/** As {@link requireProtectors}, but throws a sentence when there are several. */
export function requireProtector(...searched: Parameters<typeof requireProtectors>): PodProtector {
  const [one, ...others] = requireProtectors(...searched);
  if (one === undefined || others.length > 0) {
    const names = [one, ...others].map((each) => each?.metadata.name).join(", ");
    throw new CommandError(`${searched[0]} has several protectors: name one of ${names}`);
  }
  return one;
}

function nearNames(word: string, protectors: readonly PodProtector[]): readonly string[] {
  const wanted = word.replace(/^[^/]*\//, "");
  const near = protectors.filter(({ metadata }) =>
    [metadata.name, sourceName(metadata) ?? metadata.name].some((one) => isNear(one, wanted)),
  );
  return near.map(({ metadata }) => metadata.name);
}
