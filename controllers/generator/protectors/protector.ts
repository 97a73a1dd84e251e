/**
 * The protector of a source, in the form of upstream's generator: name, four labels, finalizer and controlling owner
 * reference. Also the repair of an altered protector. Pure.
 */

import { isDeepStrictEqual } from "node:util";
import { isObjectName } from "../../../shared/kube/client/api-path.ts";
import { isMadeByCell, RESTORED } from "../../../shared/recovery/restore-protector.ts";
import {
  DERIVATION_ANNOTATION,
  GENERATOR_FINALIZER,
  GROUP,
  KIND,
  RELEASED_ANNOTATION,
  RESTORED_ANNOTATION,
  SOURCE_GROUP_LABEL,
  SOURCE_KIND_LABEL,
  SOURCE_NAME_LABEL,
  SOURCE_RESOURCE_LABEL,
  VERSION,
} from "../../../shared/schema/annotations.ts";
import {
  DEFAULTS,
  isDeleting,
  type ObjectMeta,
  type PodProtector,
  type PodProtectorSpec,
} from "../../../shared/schema/podprotector.ts";
import {
  apiVersionOf,
  groupOf,
  type ProtectionSource,
  type RequiredProtector,
  type SourceIdentity,
  type SourceKind,
  type SourcePlugin,
} from "../sources/protection-source.ts";
import { labelValue } from "./names.ts";

type OwnerReference = NonNullable<ObjectMeta["ownerReferences"]>[number];

/** A protector without the fields that the apiserver adds. */
export type NewProtector = ReturnType<typeof newProtector>;

/** The names of objects and groups may be longer than a label value. */
function sourceLabels({ group, kind, resource }: SourceKind, name: string): Record<string, string> {
  return {
    [SOURCE_NAME_LABEL]: labelValue(name),
    [SOURCE_GROUP_LABEL]: labelValue(group),
    [SOURCE_KIND_LABEL]: kind,
    [SOURCE_RESOURCE_LABEL]: resource,
  };
}

/** Does not set `blockOwnerDeletion`: the finalizer blocks the deletion of the source. */
function ownerReference(kind: SourceKind, { name, uid }: ProtectionSource): OwnerReference {
  return { apiVersion: apiVersionOf(kind), kind: kind.kind, name, uid, controller: true };
}

/** Longest derivation: it repeats texts of its source, which may be as long as all annotations of an object. */
const MAX_DERIVATION = 4096;

/** Well-formed: kube-apiserver replaces half of a surrogate pair, which would be repaired for ever. */
function derivationOf({ derivation }: RequiredProtector): string {
  return derivation.slice(0, MAX_DERIVATION).toWellFormed();
}

/**
 * The protector to create under `name`. With `again`, an earlier protector existed, whose reservations are lost; a mark
 * makes the aggregators put their cells on hold.
 */
export function newProtector(
  kind: SourceKind,
  source: ProtectionSource,
  required: RequiredProtector,
  name: string,
  restored?: string,
) {
  const mark = restored === undefined ? {} : { [RESTORED_ANNOTATION]: restored };
  return {
    apiVersion: `${GROUP}/${VERSION}`,
    kind: KIND,
    metadata: {
      name,
      namespace: source.namespace,
      labels: sourceLabels(kind, source.name),
      annotations: { [DERIVATION_ANNOTATION]: derivationOf(required), ...mark },
      finalizers: [GENERATOR_FINALIZER],
      ownerReferences: [ownerReference(kind, source)],
    },
    spec: { ...required.spec, ...enforcementOf(source) } satisfies PodProtectorSpec,
  };
}

/**
 * A protector as its own requirement, where the source's requirement is unknown. Leaves out the enforcement, which the
 * source always states.
 */
export function requiredBy({ metadata, spec: { enforcement: _, ...spec } }: PodProtector): RequiredProtector {
  return { name: metadata.name, spec, derivation: metadata.annotations?.[DERIVATION_ANNOTATION] ?? "" };
}

export function hasControllingOwner({ metadata }: PodProtector): boolean {
  return metadata.ownerReferences?.some(({ controller }) => controller === true) ?? false;
}

/**
 * The source of a protector, by its controlling owner reference, which has the full name, or else by its labels.
 * Undefined for a kind without a plugin. A kind whose name only discovery knows is matched by group and resource.
 */
export function sourceOf(protector: PodProtector, plugins: readonly SourcePlugin[]): SourceIdentity | undefined {
  const { namespace = "", labels = {}, ownerReferences = [] } = protector.metadata;
  const isLabelled = ({ group, kind, resource }: SourceKind): boolean =>
    labels[SOURCE_GROUP_LABEL] === labelValue(group) &&
    (kind === "" ? labels[SOURCE_RESOURCE_LABEL] === resource : labels[SOURCE_KIND_LABEL] === kind);
  // The apiserver accepts any text as the name of an owner. An invalid object name can't be part of a key.
  const owner = ownerReferences.find(({ controller, name }) => controller === true && isObjectName(name));
  if (owner !== undefined) {
    const found = plugins.find(
      ({ kind }) =>
        groupOf(owner.apiVersion) === kind.group && (kind.kind === "" ? isLabelled(kind) : owner.kind === kind.kind),
    );
    if (found !== undefined) return { plugin: found.name, namespace, name: owner.name };
  }
  const found = plugins.find(({ kind }) => isLabelled(kind));
  const name = labels[SOURCE_NAME_LABEL];
  return found === undefined || name === undefined ? undefined : { plugin: found.name, namespace, name };
}

export function hasGeneratorFinalizer({ metadata }: PodProtector): boolean {
  return metadata.finalizers?.includes(GENERATOR_FINALIZER) ?? false;
}

/**
 * True for a protector that a cell has made for a source that never had one, so that it restores nothing: a worker
 * cluster that is taken over makes it before the generator does. A source is held before its first protector.
 */
export function isUnproven(protector: PodProtector, { finalizers }: ProtectionSource, namesSource = true): boolean {
  return isMadeByCell(protector) && !(namesSource && finalizers.includes(GENERATOR_FINALIZER));
}

/**
 * Without the fields that say which pods count, and when: they can take every pod out of the promise. A suspension
 * stays, because no cell may create a suspended protector.
 */
export function withoutCountingFields(spec: PodProtectorSpec): PodProtectorSpec {
  const { healthCriterion: _, availabilityConditions: __, unavailableLabelPrefix: ___, ...rest } = spec;
  const { allowedHealthCriteria: ____, admissionHistoryConfig: _____, ...others } = rest;
  return others;
}

/** Enforce is the default of the field. */
function enforcementOf({ enforcement }: ProtectionSource): Pick<PodProtectorSpec, "enforcement"> {
  return enforcement === undefined || enforcement === "Enforce" ? {} : { enforcement };
}

/**
 * The fields that the source derives, and the operator's other fields unchanged. Three fields of the operator would
 * reduce the protection, and are dropped: an `aggregationSelector` that counts more pods, ignored pods, and fewer
 * protected operations than the default.
 */
export function repairedSpec(
  present: PodProtectorSpec,
  source: ProtectionSource,
  required: RequiredProtector,
): PodProtectorSpec {
  const { aggregationSelector: _, ignoredPodSelector: __, enforcement: ___, protectedOperations, ...others } = present;
  const coversDefaults = DEFAULTS.protectedOperations.every((operation) => protectedOperations?.includes(operation));
  const owned: readonly string[] = required.owns ?? [];
  const { probe } = required.spec;
  // A budget only has the endpoint of the probe. Its CA and timeout can only be set in the protector.
  const { caBundle, timeoutMillis } = present.probe ?? {};
  const tuned = {
    ...(caBundle === undefined ? {} : { caBundle }),
    ...(timeoutMillis === undefined ? {} : { timeoutMillis }),
  };
  const kept = {
    ...others,
    ...(protectedOperations !== undefined && coversDefaults ? { protectedOperations } : {}),
  };
  return {
    ...Object.fromEntries(Object.entries(kept).filter(([field]) => !owned.includes(field))),
    ...required.spec,
    ...enforcementOf(source),
    ...(probe === undefined ? {} : { probe: { ...tuned, ...probe } }),
  };
}

function repairedMetadata(
  present: ObjectMeta,
  kind: SourceKind,
  source: ProtectionSource,
  required: RequiredProtector,
): ObjectMeta {
  const owner = ownerReference(kind, source);
  const owners = present.ownerReferences ?? [];
  const isOwner = ({ uid, controller, name }: OwnerReference): boolean =>
    uid === owner.uid && controller === true && name === owner.name;
  // Kubernetes allows one controlling owner. Other owners stay. In a deletion that orphans, the garbage collector
  // removes the owner, unless it has not heard of the protector yet: with it, the protector would be collected later.
  const isKept = source.deleting || owners.some(isOwner);
  const others = owners.filter(({ uid, controller }) => (source.deleting ? uid !== source.uid : !controller));
  const repairedOwners = source.leavesPods === true ? others : isKept ? owners : [...others, owner];
  const { [RELEASED_ANNOTATION]: _, ...annotations } = present.annotations ?? {};
  // From now on, the generator answers for the spec.
  const mark = isMadeByCell({ metadata: present }) ? { [RESTORED_ANNOTATION]: RESTORED } : {};
  const finalizers = present.finalizers ?? [];
  // The apiserver accepts no new finalizer on an object that is being deleted.
  const lacksFinalizer = !finalizers.includes(GENERATOR_FINALIZER) && !isDeleting(present);
  return {
    ...present,
    labels: { ...present.labels, ...sourceLabels(kind, source.name) },
    annotations: { ...annotations, ...mark, [DERIVATION_ANNOTATION]: derivationOf(required) },
    // The apiserver drops an empty list, which would then be repaired for ever.
    ...(repairedOwners.length === 0 && present.ownerReferences === undefined
      ? {}
      : { ownerReferences: repairedOwners }),
    ...(lacksFinalizer ? { finalizers: [...finalizers, GENERATOR_FINALIZER] } : {}),
  };
}

/** The protector to write instead of `present`; undefined when nothing has to change. */
export function repairedProtector(
  present: PodProtector,
  kind: SourceKind,
  source: ProtectionSource,
  required: RequiredProtector,
  namesSource = true,
): PodProtector | undefined {
  const metadata = repairedMetadata(present.metadata, kind, source, required);
  const believed = isUnproven(present, source, namesSource) ? withoutCountingFields(present.spec) : present.spec;
  const spec = repairedSpec(believed, source, required);
  const isSame = isDeepStrictEqual([metadata, spec], [present.metadata, present.spec]);
  return isSame ? undefined : { ...present, metadata, spec };
}
