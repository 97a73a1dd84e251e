/**
 * A protection source: a workload or a budget that asks for a protector (docs/design.md#generator). A plugin turns an
 * object of its kind into a `ProtectionSource`; nothing outside of this folder knows the shape of any kind.
 */
import type { DerivedMinimum, IntOrPercent, StatedLimits } from "../../../shared/decide/minimum/workload-minimum.ts";
import { isObjectName } from "../../../shared/kube/client/api-path.ts";
import { MAX_KEY_LENGTH, MAX_LABEL_LENGTH } from "../../../shared/schema/lengths.ts";
import type { Enforcement, LabelSelector, PodProtectorSpec } from "../../../shared/schema/podprotector.ts";

/** A resource of an API. */
export interface SourceKind {
  readonly group: string;
  readonly version: string;
  /** Empty until discovery tells it, for a custom resource. */
  readonly kind: string;
  /** The plural, as in paths. */
  readonly resource: string;
}

/** Fields of a protector's spec that some sources set; where no source does, an operator may. */
export const SOURCE_FIELDS = [
  "unhealthyPodPolicy",
  "unhealthyPodPolicies",
  "protectedOperations",
  "suspend",
  "probe",
  "countExpectedPods",
  "unavailableLabelPrefix",
  "healthCriterion",
] as const;
type SourceField = (typeof SOURCE_FIELDS)[number];

/** The part of a protector's spec that follows from its source. */
type DerivedSpec = Pick<
  PodProtectorSpec,
  "minAvailable" | "minReadySeconds" | "selector" | "ignoredPodSelector" | SourceField
>;

/** A protector that a source requires. */
export interface RequiredProtector {
  /** The protector may get another name, where this one is taken or too long. */
  readonly name: string;
  readonly spec: DerivedSpec;
  /** How `minAvailable` came about, for people. */
  readonly derivation: string;
  /** How many pods there should be, where that was asked and is known. */
  readonly expectedPods?: number;
  /** Fields that the source decides even where `spec` lacks them: the protector must lack them too. */
  readonly owns?: readonly SourceField[];
}

/** Whether a source requires protectors, and why. */
export type ProtectionDecision =
  | "Protected"
  /** It is being deleted while it asks for replicas, and stays protected until it is scaled to zero. */
  | "DeletingWithReplicas"
  | "Deleting"
  | "NotSelected"
  /** It says that it is not to be protected. */
  | "Declined"
  /** Its controller is protected in its place. */
  | "Controlled"
  /** No minimum can be promised for pods of this kind. */
  | "Ignored"
  /** This generator leaves the object and its protectors alone. */
  | "OutOfScope";

/** A controlling owner reference, or the `targetRef` of a budget, which has no UID. */
export interface WorkloadRef {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid?: string;
}

/** How many pods a workload asks for, as its scale subresource says. */
export interface Scale {
  readonly replicas: number;
  readonly selector: LabelSelector | undefined;
  readonly controller: WorkloadRef | undefined;
  /** Labels of its pod template. */
  readonly podLabels: Readonly<Record<string, string>>;
}

/** The limits of a budget in one cluster. */
interface ClusterLimits {
  readonly cluster: string;
  readonly minAvailable?: IntOrPercent | undefined;
  readonly maxUnavailable?: IntOrPercent | undefined;
}

export interface Budget {
  readonly minAvailable?: IntOrPercent | undefined;
  /** Has precedence over `minAvailable`. */
  readonly maxUnavailable?: IntOrPercent | undefined;
  /** What each worker cluster asks for that has this budget, beside the limits above; the strictest counts. */
  readonly ofClusters?: readonly ClusterLimits[] | undefined;
  readonly selector?: LabelSelector | undefined;
  /** A workload whose selector and replicas count; has precedence over `selector`. */
  readonly targetRef?: WorkloadRef | undefined;
  /** How many pods there should be, where the budget itself says so. */
  readonly expectedPods?: number | undefined;
  /** Whose workloads count, where the budget itself says so: those of the core cluster, or of all cells. */
  readonly countedIn?: "core" | "cells" | undefined;
  /** The controllers of pods that are Succeeded or Failed say nothing of how many pods there should be. */
  readonly ignoresFinishedPods?: boolean | undefined;
  /** Pods that the budget does not protect, although it counts them. */
  readonly ignoredPodSelector?: LabelSelector | undefined;
  /** Fields that the protector gets from the budget. */
  readonly spec: Partial<Pick<PodProtectorSpec, SourceField>>;
  readonly owns: readonly SourceField[];
}

/** A part of the pods of one object, with a protector of its own. */
export interface PodGroup {
  /** Distinguishes the protectors of the object, at the end of their names. Empty where all pods are one group. */
  readonly name: string;
  readonly replicas: number;
  readonly selector: LabelSelector;
  readonly minimum: DerivedMinimum;
  /** The floor of running pods. */
  readonly running?: DerivedMinimum | undefined;
}

/** What the required protector depends on, beside the object itself. */
export type Need =
  /** The workloads of the budget's pods. */
  | { readonly kind: "budget"; readonly budget: Budget }
  /** The object's scale subresource. The selector and the limit are those of the object, where they are known. */
  | {
      readonly kind: "scale";
      readonly stated: StatedLimits;
      readonly selector?: LabelSelector;
      readonly maxUnavailable?: IntOrPercent;
      readonly minReadySeconds?: number;
    }
  /** The name of the kind, which discovery tells. `problem`: why further groups can't be read. */
  | {
      readonly kind: "groups";
      readonly groups: readonly PodGroup[];
      readonly problem: string | undefined;
      readonly minReadySeconds?: number;
    }
  /** The object itself can't be read. It keeps the protectors that it has. */
  | { readonly kind: "unreadable"; readonly why: string }
  /** A status that the object's controller has not written yet. `required`: what follows without it. */
  | { readonly kind: "status"; readonly required: readonly RequiredProtector[] };

export interface ProtectionSource {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly finalizers: readonly string[];
  /** `metadata.deletionTimestamp` is set. */
  readonly deleting: boolean;
  readonly decision: ProtectionDecision;
  /**
   * `spec.enforcement` of its protectors, which follows the source alone: what is written into one is put back. As the
   * object states it; while it is reconciled, that of its namespace or the generator where it states none.
   */
  readonly enforcement?: Enforcement;
  /** Empty where `decision` is not to protect, and where `need` is set. */
  readonly protectors: readonly RequiredProtector[];
  readonly need?: Need;
  /** For budgets over the workload's pods. */
  readonly scale?: Scale;
  /** Of a kind whose status the generator writes: the generation, and the status as it is stored, if there is one. */
  readonly budgetStatus?: { readonly generation: number; readonly stored: unknown };
  /** Why the source is ignored, for people. */
  readonly why?: string;
}

/** A kind that the generator watches. */
export interface SourcePlugin {
  /** Without a slash: part of queue keys and metric labels, and of the names of protectors. */
  readonly name: string;
  readonly kind: SourceKind;
  /** The kind may be missing from the cluster, and may be installed at any time. */
  readonly optional?: boolean;
  /** Its objects are read by their scale subresource: without that the kind counts as not installed. */
  readonly needsScale?: boolean;
  /** Versions to read where `kind.version` is not served, the best first. */
  readonly olderVersions?: readonly string[];
  /** Whether this generator covers a namespace. Default: all. */
  readonly covers?: (namespace: string) => boolean;
  /** Pure. Throws `SchemaError` for an object of another kind. */
  readonly interpret: (raw: unknown) => ProtectionSource;
  /**
   * What is certain of an object that `interpret` rejects: it is there, and its metadata says whether it asks for
   * protection. `lastOf` has the objects by `namespace/name` as they could be read. Never throws.
   */
  readonly unreadable?: (
    raw: unknown,
    lastOf: (key: string) => ProtectionSource | undefined,
  ) => ProtectionSource | undefined;
}

/** A kind whose plural is regular. */
export function sourceKind(group: string, version: string, kind: string): SourceKind {
  return { group, version, kind, resource: `${kind.toLowerCase()}s` };
}

/** The name of the plugin of a kind that is not a custom resource of `--scalable`. */
export function pluginName({ kind }: SourceKind): string {
  return kind.toLowerCase();
}

export interface SourceIdentity {
  readonly plugin: string;
  readonly namespace: string;
  readonly name: string;
}

/** The key of a source in the work queue: `plugin/namespace/name`. */
export function sourceKey({ plugin, namespace, name }: SourceIdentity): string {
  return `${plugin}/${namespace}/${name}`;
}

/** Reverses {@link sourceKey}. Throws for any other text, which is a bug. */
export function parseSourceKey(key: string): SourceIdentity {
  const [plugin, namespace, name, ...rest] = key.split("/");
  if (plugin === undefined || namespace === undefined || name === undefined || rest.length > 0) {
    throw new Error(`not a key of a source: ${key}`);
  }
  return { plugin, namespace, name };
}

/** `apiVersion` as in owner references: `apps/v1`, or `v1` for the core group. */
export function apiVersionOf({ group, version }: SourceKind): string {
  return group === "" ? version : `${group}/${version}`;
}

/** The group of an `apiVersion`; empty for the core group. */
export function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf("/");
  return slash < 0 ? "" : apiVersion.slice(0, slash);
}

const API_VERSION = /^([a-z0-9][-a-z0-9.]*\/)?[a-z0-9][-a-z0-9]*$/;
const KIND = /^[A-Za-z][-A-Za-z0-9]*$/;

/** Whether `ref` can name an object: whoever creates a pod writes into its owner references what they like. */
export function isObjectRef({ apiVersion, kind, name }: WorkloadRef): boolean {
  const isShort = apiVersion.length <= MAX_KEY_LENGTH && kind.length <= MAX_LABEL_LENGTH;
  return isShort && API_VERSION.test(apiVersion) && KIND.test(kind) && isObjectName(name);
}

/** The path at which discovery serves a group and version. */
export function groupVersionPath({ group, version }: Pick<SourceKind, "group" | "version">): string {
  return group === "" ? `/api/${version}` : `/apis/${group}/${version}`;
}

/** The path of a collection over all namespaces, or in one. */
export function collectionPath(kind: SourceKind, namespace?: string): string {
  const within = namespace === undefined ? "" : `/namespaces/${namespace}`;
  return `${groupVersionPath(kind)}${within}/${kind.resource}`;
}
