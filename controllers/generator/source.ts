/**
 * What the generator knows about a workload or budget that asks for protection (design 7). A plugin turns a raw object of its
 * kind into one `Source`; nothing else in the generator knows the shape of any kind.
 */
import type { PodProtectorSpec } from "../../shared/schema/podprotector.ts";

/** Which API a plugin reads; `resource` is the plural of the path. */
export interface SourceKind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly resource: string;
}

/** The part of a protector's spec that follows from its source; the rest is the operator's. */
export type DerivedSpec = Pick<PodProtectorSpec, "minAvailable" | "minReadySeconds" | "selector">;

/** One protector that a source needs. */
export interface RequiredProtector {
  /** As the plugin would name it; `names.ts` makes it valid and unique. */
  readonly name: string;
  readonly spec: DerivedSpec;
  /** How the numbers came about, for a person. */
  readonly derivation: string;
}

/** Why a source needs protectors or not; a metric label. */
export type Decision = "Protected" | "DeletingWithReplicas" | "Deleting" | "NotSelected";

export interface Source {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly finalizers: readonly string[];
  /** `metadata.deletionTimestamp` is set. */
  readonly deleting: boolean;
  readonly decision: Decision;
  /** Empty unless the decision is to protect. */
  readonly protectors: readonly RequiredProtector[];
}

/** One kind of source. `interpret` is pure and throws `SchemaError` for what is no object of its kind. */
export interface SourcePlugin {
  /** Part of queue keys and metric labels, and what the names of its protectors begin with. */
  readonly name: string;
  readonly kind: SourceKind;
  readonly interpret: (raw: unknown) => Source;
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

/** Collection path of the kind over all namespaces, or within one. */
export function collectionPath({ group, version, resource }: SourceKind, namespace?: string): string {
  const root = group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
  return namespace === undefined ? `${root}/${resource}` : `${root}/namespaces/${namespace}/${resource}`;
}
