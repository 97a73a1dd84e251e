/**
 * The protector that a source needs, as upstream would write it (design 12): name, four labels, finalizer, controlling owner
 * reference; and what has to change on one that is there. Pure.
 */

import { isDeepStrictEqual } from "node:util";
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

/** A protector as it is created: what the apiserver adds is not there yet. */
export interface NewProtector {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations: Readonly<Record<string, string>>;
    readonly finalizers: readonly string[];
    readonly ownerReferences: readonly OwnerReference[];
  };
  readonly spec: PodProtectorSpec;
}

/** What is written about a source: its plugin with the kind as it is served. */
type Kinded = Pick<SourcePlugin, "kind">;

function sourceLabels({ kind }: Kinded, name: string): Record<string, string> {
  return {
    [SOURCE_NAME_LABEL]: labelValue(name),
    // As a custom resource's group can be longer than a label, too.
    [SOURCE_GROUP_LABEL]: labelValue(kind.group),
    [SOURCE_KIND_LABEL]: kind.kind,
    [SOURCE_RESOURCE_LABEL]: kind.resource,
  };
}

/** Controlling, but it doesn't block the owner's deletion: the finalizer on the source does that. */
function ownerReference({ kind }: Kinded, source: ProtectionSource): OwnerReference {
  return { apiVersion: apiVersionOf(kind), kind: kind.kind, name: source.name, uid: source.uid, controller: true };
}

/**
 * The protector to create under `name`. `again`: there was one before, whose admission history is lost with it; the mark tells the
 * aggregators not to trust their first counts alone (design 5.4).
 */
export function newProtector(
  plugin: Kinded,
  source: ProtectionSource,
  required: RequiredProtector,
  name: string,
  again = false,
): NewProtector {
  const mark = again ? { [RESTORED_ANNOTATION]: "the protector before this one vanished without a release" } : {};
  return {
    apiVersion: `${GROUP}/${VERSION}`,
    kind: KIND,
    metadata: {
      name,
      namespace: source.namespace,
      labels: sourceLabels(plugin, source.name),
      annotations: { [DERIVATION_ANNOTATION]: required.derivation, ...mark },
      finalizers: [GENERATOR_FINALIZER],
      ownerReferences: [ownerReference(plugin, source)],
    },
    spec: { ...required.spec },
  };
}

/** What a protector itself says that it requires, where its source can't say it. */
export function requiredBy({ metadata, spec }: PodProtector): RequiredProtector {
  return { name: metadata.name, spec, derivation: metadata.annotations?.[DERIVATION_ANNOTATION] ?? "" };
}

/**
 * Whose protector it is, from its controlling owner reference, whose name is whole, or else from its labels; undefined when
 * neither names a kind of `plugins`. A kind that only discovery can name is told by its group and resource.
 */
export function sourceOf(protector: PodProtector, plugins: readonly SourcePlugin[]): SourceIdentity | undefined {
  const { namespace = "", labels = {}, ownerReferences = [] } = protector.metadata;
  const isLabelled = ({ group, kind, resource }: SourceKind): boolean =>
    labels[SOURCE_GROUP_LABEL] === labelValue(group) &&
    (kind === "" ? labels[SOURCE_RESOURCE_LABEL] === resource : labels[SOURCE_KIND_LABEL] === kind);
  const owner = ownerReferences.find(({ controller }) => controller === true);
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

export function hasGeneratorFinalizer(protector: PodProtector): boolean {
  return protector.metadata.finalizers?.includes(GENERATOR_FINALIZER) ?? false;
}

/**
 * The spec that a protector should have: what its source derives, and of what is there only fields that are an operator's to set.
 * A wider count than the source's or fewer protected operations than by default would take protection away.
 */
function repairedSpec(present: PodProtectorSpec, required: RequiredProtector): PodProtectorSpec {
  const { aggregationSelector: _, protectedOperations, ...others } = present;
  const coversDefaults = DEFAULTS.protectedOperations.every((operation) => protectedOperations?.includes(operation));
  const owned: readonly string[] = required.owns ?? [];
  const kept = {
    ...others,
    ...(protectedOperations !== undefined && coversDefaults ? { protectedOperations } : {}),
  };
  return {
    ...Object.fromEntries(Object.entries(kept).filter(([field]) => !owned.includes(field))),
    ...required.spec,
  };
}

function repairedMetadata(
  present: ObjectMeta,
  plugin: Kinded,
  source: ProtectionSource,
  required: RequiredProtector,
): ObjectMeta {
  const owner = ownerReference(plugin, source);
  const owners = present.ownerReferences ?? [];
  const isOwner = (reference: OwnerReference): boolean =>
    reference.uid === owner.uid && reference.controller === true && reference.name === owner.name;
  // There can be one controller only; other owners are none of the generator's business.
  const repairedOwners = owners.some(isOwner) ? owners : [...owners.filter(({ controller }) => !controller), owner];
  const { [RELEASED_ANNOTATION]: _, ...annotations } = present.annotations ?? {};
  const finalizers = present.finalizers ?? [];
  // The apiserver lets nobody add a finalizer to an object that is being deleted.
  const complete = finalizers.includes(GENERATOR_FINALIZER) || isDeleting(present);
  return {
    ...present,
    labels: { ...present.labels, ...sourceLabels(plugin, source.name) },
    annotations: { ...annotations, [DERIVATION_ANNOTATION]: required.derivation },
    finalizers: complete ? finalizers : [...finalizers, GENERATOR_FINALIZER],
    ownerReferences: repairedOwners,
  };
}

/** The object to write in place of `present`; undefined when it is as it should be. */
export function repairedProtector(
  present: PodProtector,
  plugin: Kinded,
  source: ProtectionSource,
  required: RequiredProtector,
): PodProtector | undefined {
  const metadata = repairedMetadata(present.metadata, plugin, source, required);
  const spec = repairedSpec(present.spec, required);
  const same =
    isDeepStrictEqual(spec, present.spec) &&
    isDeepStrictEqual(metadata.labels, present.metadata.labels) &&
    isDeepStrictEqual(metadata.annotations, present.metadata.annotations) &&
    isDeepStrictEqual(metadata.finalizers, present.metadata.finalizers ?? []) &&
    isDeepStrictEqual(metadata.ownerReferences, present.metadata.ownerReferences);
  return same ? undefined : { ...present, metadata, spec };
}
