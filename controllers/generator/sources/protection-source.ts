/**
 * What the generator knows about a workload or budget that asks for protection (design 7). A plugin turns a raw object of its
 * kind into one `Source`; nothing else in the generator knows the shape of any kind.
 */
import type { IntOrPercent } from "../../../shared/decide/minimum/workload-minimum.ts";
import type { LabelSelector, PodProtectorSpec } from "../../../shared/schema/podprotector.ts";

/** Which API a plugin reads; `resource` is the plural of the path. `kind` is empty as long as only discovery can tell it. */
export interface SourceKind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly resource: string;
}

/** Fields of a protector's spec that some sources set, and that are the operator's where no source does. */
export const SOURCE_FIELDS = ["unhealthyPodPolicy", "protectedOperations", "suspend", "probe"] as const;
type SourceField = (typeof SOURCE_FIELDS)[number];

/** The part of a protector's spec that follows from its source; the rest is the operator's. */
type DerivedSpec = Pick<
  PodProtectorSpec,
  "minAvailable" | "minReadySeconds" | "selector" | "aggregationSelector" | SourceField
>;

/** One protector that a source needs. */
export interface RequiredProtector {
  /** As the plugin would name it; `names.ts` makes it valid and unique. */
  readonly name: string;
  readonly spec: DerivedSpec;
  /** How the numbers came about, for a person. */
  readonly derivation: string;
  /** Fields that the source decides even where `spec` has none: what stands there is taken off. */
  readonly owns?: readonly SourceField[];
}

/** Why a source needs protectors or not; a metric label. */
const PROTECTION_DECISIONS = [
  "Protected",
  /** Deleted while it still asks for replicas: protected all the same (design 12). */
  "DeletingWithReplicas",
  "Deleting",
  "NotSelected",
  /** Another object controls it, and is the one to protect. */
  "Controlled",
  /** Of a kind whose pods nobody can promise. */
  "Ignored",
  /** Not this generator's: what is there stays as it is. */
  "OutOfScope",
] as const;
export type ProtectionDecision = (typeof PROTECTION_DECISIONS)[number];

/** A controlling owner reference, or a reference to a workload by a budget, which has no UID. */
export interface WorkloadRef {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid?: string;
}

/** How many pods a workload asks for, as its scale subresource would say. */
export interface Scale {
  readonly replicas: number;
  readonly selector: LabelSelector | undefined;
  readonly controller: WorkloadRef | undefined;
  /** Labels of the pods that it makes. */
  readonly podLabels: Readonly<Record<string, string>>;
}

/** A disruption budget before it is resolved to a number of pods. */
export interface Budget {
  readonly minAvailable?: IntOrPercent | undefined;
  /** Counts when both are set. */
  readonly maxUnavailable?: IntOrPercent | undefined;
  readonly selector?: LabelSelector | undefined;
  /** Stands for its selector and replicas; counts when a selector is set too. */
  readonly target?: WorkloadRef | undefined;
  /** How many pods there should be, where the budget itself says so. */
  readonly expected?: number | undefined;
  /** Pods that the budget lets go whatever their number. */
  readonly exempt?: LabelSelector | undefined;
  readonly spec: Partial<Pick<PodProtectorSpec, SourceField>>;
  readonly owns: readonly SourceField[];
}

/** What a source's protector depends on beside the source itself; `resolve.ts` finds it out. */
export type Need =
  | { readonly kind: "budget"; readonly budget: Budget }
  /** Replicas and selector of its scale subresource. */
  | { readonly kind: "scale"; readonly maxUnavailable: IntOrPercent }
  /** Its status, which its controller has not written yet; `required` is what follows without it. */
  | { readonly kind: "status"; readonly required: RequiredProtector };

export interface ProtectionSource {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly finalizers: readonly string[];
  /** `metadata.deletionTimestamp` is set. */
  readonly deleting: boolean;
  readonly decision: ProtectionDecision;
  /** Empty unless the decision is to protect, and while `need` is not resolved. */
  readonly protectors: readonly RequiredProtector[];
  readonly need?: Need;
  readonly scale?: Scale;
  /** Why it is ignored, for a person. */
  readonly why?: string;
}

/** One kind of source. `interpret` is pure and throws `SchemaError` for what is no object of its kind. */
export interface SourcePlugin {
  /** Part of queue keys and metric labels, and what the names of its protectors begin with. Without a slash. */
  readonly name: string;
  readonly kind: SourceKind;
  /** The kind may be missing in the cluster; it is looked for until it is there. */
  readonly optional?: boolean;
  /** Read where `kind.version` is not served, the best first. */
  readonly olderVersions?: readonly string[];
  /** Whether this generator looks after the kind's objects in a namespace; all, when it is absent. */
  readonly covers?: (namespace: string) => boolean;
  readonly interpret: (raw: unknown) => ProtectionSource;
}

/** What names one source within the generator. */
export interface SourceIdentity {
  readonly plugin: string;
  readonly namespace: string;
  readonly name: string;
}

/** The key of a source in the queue: `plugin/namespace/name`. */
export function sourceKey({ plugin, namespace, name }: SourceIdentity): string {
  return `${plugin}/${namespace}/${name}`;
}

/** Reverses {@link sourceKey}. Throws for a text that is no such key, which is a bug. */
export function parseSourceKey(key: string): SourceIdentity {
  const [plugin, namespace, name, ...rest] = key.split("/");
  if (plugin === undefined || namespace === undefined || name === undefined || rest.length > 0) {
    throw new Error(`not a key of a source: ${key}`);
  }
  return { plugin, namespace, name };
}

/** `apiVersion` as owner references have it: `apps/v1`, or `v1` for the core group. */
export function apiVersionOf({ group, version }: SourceKind): string {
  return group === "" ? version : `${group}/${version}`;
}

/** The group of an `apiVersion`; empty for the core group. */
export function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf("/");
  return slash < 0 ? "" : apiVersion.slice(0, slash);
}

/** Collection path of the kind over all namespaces, or within one. */
export function collectionPath({ group, version, resource }: SourceKind, namespace?: string): string {
  const root = group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
  return namespace === undefined ? `${root}/${resource}` : `${root}/namespaces/${namespace}/${resource}`;
}
