/**
 * A protection source: a workload or a budget that asks for a protector (docs/design.md#generator). A plugin turns an
 * object of its kind into a `ProtectionSource`; nothing outside of this folder knows the shape of any kind.
 */
import type { BudgetLimits } from "../../../shared/decide/minimum/budget-minimum.ts";
import type { DerivedMinimum, IntOrPercent, StatedLimits } from "../../../shared/decide/minimum/workload-minimum.ts";
import { isObjectName } from "../../../shared/kube/client/api-path.ts";
import { MAX_KEY_LENGTH, MAX_LABEL_LENGTH } from "../../../shared/schema/lengths.ts";
import type { Enforcement, LabelSelector, PodProtectorSpec } from "../../../shared/schema/podprotector.ts";

/** A resource of an API. */
export interface SourceKind {
  readonly group: string;
  readonly version: string;
  /** For a custom resource, empty until discovery has found the kind. */
  readonly kind: string;
  /** The plural, as in paths. */
  readonly resource: string;
}

/** Fields of a protector's spec that some sources set; where the source does not, an operator may. */
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
  /** The protector gets another name where this one is taken or too long. */
  readonly name: string;
  readonly spec: DerivedSpec;
  /** How `minAvailable` was derived, for people. */
  readonly derivation: string;
  /** Why no pod is promised though the source asks for some, for people. */
  readonly none?: string | undefined;
  /** The number of pods that there should be, where it was needed and is known. */
  readonly expectedPods?: number;
  /** Fields that the source decides even where `spec` lacks them: the protector must then lack them, too. */
  readonly owns?: readonly SourceField[];
}

/** Whether a source requires protectors, and why. */
export type ProtectionDecision =
  | "Protected"
  /** The source is being deleted while it asks for replicas. It stays protected until it is scaled to zero. */
  | "DeletingWithReplicas"
  | "Deleting"
  | "NotSelected"
  /** The source declines protection. */
  | "Declined"
  /** The source's controller is protected instead. */
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

/** The number of pods that a workload asks for, as in its scale subresource. */
export interface Scale {
  readonly replicas: number;
  readonly selector: LabelSelector | undefined;
  readonly controller: WorkloadRef | undefined;
  /** Labels of the pod template. */
  readonly podLabels: Readonly<Record<string, string>>;
}

export interface Budget extends BudgetLimits {
  readonly selector?: LabelSelector | undefined;
  /** A workload whose selector and replicas count; has precedence over `selector`. */
  readonly targetRef?: WorkloadRef | undefined;
  /** The number of pods that there should be, where the budget itself states it. */
  readonly expectedPods?: number | undefined;
  /** Where the budget itself states whose workloads count: those of the core cluster, or of all cells. */
  readonly countedIn?: "core" | "cells" | undefined;
  /** Ignores the controllers of pods that are Succeeded or Failed when the expected pods are counted. */
  readonly ignoresFinishedPods?: boolean | undefined;
  /** Pods that the budget does not protect, although it counts them. */
  readonly ignoredPodSelector?: LabelSelector | undefined;
  /** Fields that the protector gets from the budget. */
  readonly spec: Partial<Pick<PodProtectorSpec, SourceField>>;
  readonly owns: readonly SourceField[];
}

/** A part of the pods of one object, with its own protector. */
export interface PodGroup {
  /** Distinguishes the protectors of the object, at the end of their names. Empty where all pods are one group. */
  readonly name: string;
  readonly replicas: number;
  readonly selector: LabelSelector;
  readonly minimum: DerivedMinimum;
  readonly none?: string | undefined;
  /** The floor of running pods. */
  readonly running?: DerivedMinimum | undefined;
}

/** The other objects that the required protector depends on. */
export type Need =
  /** The workloads of the budget's pods. */
  | { readonly kind: "budget"; readonly budget: Budget }
  /** The object's scale subresource. `selector` and `maxUnavailable` come from the object, where it has them. */
  | {
      readonly kind: "scale";
      readonly stated: StatedLimits;
      readonly selector?: LabelSelector;
      readonly maxUnavailable?: IntOrPercent;
      readonly minReadySeconds?: number;
    }
  /** The name of the kind, from discovery. `problem` is why other groups can't be read. */
  | {
      readonly kind: "groups";
      readonly groups: readonly PodGroup[];
      readonly problem: string | undefined;
      readonly minReadySeconds?: number;
    }
  /** The object itself is unreadable, and keeps its present protectors. */
  | { readonly kind: "unreadable"; readonly why: string }
  /** A status that the object's controller has not written yet. `required` are the protectors without it. */
  | { readonly kind: "status"; readonly required: readonly RequiredProtector[] };

export interface ProtectionSource {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly finalizers: readonly string[];
  /** `metadata.deletionTimestamp` is set. */
  readonly deleting: boolean;
  /** It is being deleted, and its dependents are not (`propagationPolicy: Orphan`). Only its watch knows for long. */
  readonly leavesPods?: boolean;
  readonly decision: ProtectionDecision;
  /**
   * `spec.enforcement` of the source's protectors. Only the source decides it, so a change in a protector is reverted.
   * The plugin sets it where the object states one; the reconciler fills in the default of the namespace or the
   * generator.
   */
  readonly enforcement?: Enforcement;
  /** Empty where `decision` does not protect, and where `need` is set. */
  readonly protectors: readonly RequiredProtector[];
  readonly need?: Need;
  /** Used by budgets over the workload's pods. */
  readonly scale?: Scale;
  /** For a kind whose status the generator writes: the generation, and the stored status, if any. */
  readonly budgetStatus?: { readonly generation: number; readonly stored: unknown };
  /** Why the source is ignored, or what it asks for and does not get, for people. */
  readonly why?: string;
}

/** A kind that the generator watches. */
export interface SourcePlugin {
  /** Must not contain a slash. Part of queue keys, metric labels and the names of protectors. */
  readonly name: string;
  readonly kind: SourceKind;
  /** The kind may be missing from the cluster, and may be installed at any time. */
  readonly optional?: boolean;
  /** The scale subresource of its objects is needed: without one, the kind counts as not installed. */
  readonly needsScale?: boolean;
  /** Versions to read where `kind.version` is not served, in the order of preference. */
  readonly olderVersions?: readonly string[];
  /** Whether this generator covers a namespace. Default: all. */
  readonly covers?: (namespace: string) => boolean;
  /** Pure. Throws `SchemaError` for an object of another kind. */
  readonly interpret: (raw: unknown) => ProtectionSource;
  /**
   * Reads an object that `interpret` rejects: it exists, and its metadata shows whether it asks for protection.
   * `lastOf` returns the last readable version by `namespace/name`. Never throws.
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

/** Whether `ref` can name an object: a user who creates a pod can write any text to its owner references. */
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
