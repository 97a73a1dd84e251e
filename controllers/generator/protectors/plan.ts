/**
 * What the generator does about one source (docs/design.md#generator): turns facts into steps, in an order in which a
 * crash after any step does no harm. Pure; `steps.ts` carries the steps out.
 */
import { isMarkedReleased } from "../../../shared/recovery/lost-protector.ts";
import { PERHAPS_RESTORED, RESTORED, restoredObject } from "../../../shared/recovery/restore-protector.ts";
import { GENERATOR_FINALIZER, REMOVE_CELL_ONCE_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { isDeleting, type PodProtector } from "../../../shared/schema/podprotector.ts";
import {
  type ProtectionSource,
  type RequiredProtector,
  type SourceIdentity,
  type SourceKind,
  type SourcePlugin,
  sourceKey,
} from "../sources/protection-source.ts";
import { alternativeName, protectorName } from "./names.ts";
import {
  hasGeneratorFinalizer,
  isUnproven,
  type NewProtector,
  newProtector,
  repairedProtector,
  repairedSpec,
  sourceOf,
  withoutCountingFields,
} from "./protector.ts";
import { type SourceState, sourceStateOf } from "./source-condition.ts";

/** The only reasons for which a protector ends. */
export type ReleaseReason = "SourceDeleted" | "NotRequired" | "ReleasedByOperator";

/** Every kind of step, with what it needs. */
interface StepArguments {
  /** The deletion of the source waits for the release of its protectors. */
  readonly addSourceFinalizer: { readonly source: ProtectionSource };
  readonly create: { readonly object: NewProtector };
  /** Creates a lost protector again, with its reservations. */
  readonly restore: { readonly object: object; readonly lost: PodProtector };
  /** Creates a protector again that a client has deleted without a release. */
  readonly replace: { readonly protector: PodProtector; readonly object: object };
  readonly update: { readonly protector: PodProtector; readonly object: PodProtector };
  readonly removeCells: { readonly protector: PodProtector; readonly cells: readonly string[] };
  readonly release: { readonly protector: PodProtector; readonly reason: ReleaseReason; readonly isLost?: boolean };
  readonly removeSourceFinalizer: { readonly source: ProtectionSource };
  /** Makes a source that came back without asking for protection ask for it. */
  readonly adopt: { readonly source: ProtectionSource; readonly protector: PodProtector };
  readonly reportSource: { readonly protector: PodProtector; readonly state: Exclude<SourceState, "present"> };
  /** Writes the conditions `SourceVanished` and `SourceDeleting`. */
  readonly setSourceState: { readonly protector: PodProtector; readonly state: SourceState };
}
export type StepKind = keyof StepArguments;
export type ReconcileStep<K extends StepKind = StepKind> = { [P in K]: { readonly kind: P } & StepArguments[P] }[K];

export interface SourceFacts {
  /** The kind, in the version that is served. */
  readonly kind: SourceKind;
  readonly plugins: readonly SourcePlugin[];
  readonly identity: SourceIdentity;
  readonly source: ProtectionSource | undefined;
  /** The protectors that name this source. */
  readonly protectors: readonly PodProtector[];
  /** Any protector of the namespace by name. */
  readonly named: (name: string) => PodProtector | undefined;
  /** A released protector that others keep has this name. */
  readonly isTaken?: (name: string) => boolean;
  /** The lost protectors that named this source. */
  readonly lost: readonly PodProtector[];
  /** True for a repair that somebody undoes and that is to wait: the other steps go on without it. */
  readonly waits?: (step: ReconcileStep) => boolean;
}

/** Steps that may be repeated without end where somebody undoes them. */
const REPAIRS: ReadonlySet<StepKind> = new Set(["update", "setSourceState", "addSourceFinalizer", "adopt"]);

export function isRepair({ kind }: ReconcileStep): boolean {
  return REPAIRS.has(kind);
}

/** The steps in order. A source gets the finalizer before its first protector, and loses it after the last release. */
export function plan(facts: SourceFacts): ReconcileStep[] {
  const { source, protectors } = facts;
  if (source === undefined) {
    const rules = protectors.flatMap((protector) => first(WITHOUT_SOURCE, protector, facts));
    return [...rules, ...restoreWithoutSource(facts)];
  }
  if (source.decision === "OutOfScope") return [];
  const orphan = orphanOf(facts, source);
  if (orphan !== undefined) return ready(facts, [{ kind: "adopt", source, protector: orphan }]);
  const places = source.protectors.map((required) => placeOf(facts, required));
  const unproven = places.filter(({ present }) => present !== undefined && isUnproven(present, source));
  // Once the source is held, its protectors count as proven.
  if (unproven.length > 0) return unproven.flatMap((place) => createOrRepair(facts, source, place));
  return [
    ...ready(facts, addFinalizer(source)),
    ...places.flatMap((place) => createOrRepair(facts, source, place)),
    ...releaseOthers(facts, source, places),
    ...removeFinalizer(source, places),
  ];
}

type Rule = (protector: PodProtector) => ReconcileStep[];

/** Rules for the protectors of a vanished source, which stay in force unless an operator releases them. */
const WITHOUT_SOURCE: readonly Rule[] = [
  releaseMarked,
  (protector) => replaceDeleted(protector, false),
  removeNamedCells,
  (protector) => noteSource(protector, "vanished"),
];

/** Rules for a protector that its source requires. */
function repairRules(
  { kind, protectors }: SourceFacts,
  source: ProtectionSource,
  required: RequiredProtector,
): readonly Rule[] {
  return [
    (protector) => {
      const object = repairedProtector(protector, kind, source, required, protectors.includes(protector));
      return object === undefined ? [] : [{ kind: "update", protector, object }];
    },
    (protector) => replaceDeleted(protector, true),
    removeNamedCells,
    (protector) => {
      const waits = source.decision === "DeletingWithReplicas" && !leavesItsPods(source, protector);
      return noteSource(protector, waits ? "deleting" : "present");
    },
  ];
}

/** The steps of the first rule that has any. Each write needs the version that was read, so the other rules wait. */
function first(rules: readonly Rule[], protector: PodProtector, facts: SourceFacts): ReconcileStep[] {
  for (const rule of rules) {
    const steps = ready(facts, rule(protector));
    if (steps.length > 0) return steps;
  }
  return [];
}

/** The steps, or none while one of them waits. */
function ready({ waits }: SourceFacts, steps: ReconcileStep[]): ReconcileStep[] {
  return waits !== undefined && steps.some(waits) ? [] : steps;
}

function isHeld(source: ProtectionSource): boolean {
  return source.finalizers.includes(GENERATOR_FINALIZER);
}

/** The apiserver accepts no new finalizer on an object that is being deleted. */
function addFinalizer(source: ProtectionSource): ReconcileStep[] {
  const isNeeded = source.protectors.length > 0 && !isHeld(source) && !source.deleting;
  return isNeeded ? [{ kind: "addSourceFinalizer", source }] : [];
}

/** Each protector of a source that leaves its pods stays in force without it, as that of a source that vanished. */
function removeFinalizer(source: ProtectionSource, places: readonly Place[]): ReconcileStep[] {
  const isOver = places.every(({ present }) => present !== undefined && leavesItsPods(source, present));
  return isOver && isHeld(source) ? [{ kind: "removeSourceFinalizer", source }] : [];
}

/**
 * True where a workload is deleted and its pods are not, as operators do who create it again with another spec. The
 * garbage collector takes the owner from all dependents: an owner that is gone shows it where no watch did.
 */
function leavesItsPods({ decision, leavesPods, uid }: ProtectionSource, { metadata }: PodProtector): boolean {
  if (decision !== "DeletingWithReplicas") return false;
  return leavesPods === true || !metadata.ownerReferences?.some((owner) => owner.uid === uid);
}

/** The name of a required protector, and the protector that has it. */
interface Place {
  readonly required: RequiredProtector;
  readonly name: string;
  readonly present: PodProtector | undefined;
}

/** A required protector gets another name where another source or a user has taken its own. */
function placeOf(facts: SourceFacts, required: RequiredProtector): Place {
  const name = protectorName(required.name);
  const own = new Map(facts.protectors.map((protector) => [protector.metadata.name, protector]));
  const alternative = alternativeName(name, sourceKey(facts.identity));
  if (!own.has(name) && own.has(alternative)) return { required, name: alternative, present: own.get(alternative) };
  const present = own.get(name) ?? facts.named(name);
  const isFree = present === undefined ? facts.isTaken?.(name) !== true : own.has(name) || isStripped(present, facts);
  if (isFree) return { required, name, present };
  return { required, name: alternative, present: facts.named(alternative) };
}

/** True for a protector of the generator without labels and owner, which its source adopts again by name. */
function isStripped(protector: PodProtector, { plugins }: SourceFacts): boolean {
  return hasGeneratorFinalizer(protector) && sourceOf(protector, plugins) === undefined;
}

function createOrRepair(facts: SourceFacts, source: ProtectionSource, place: Place): ReconcileStep[] {
  const { required, name, present } = place;
  if (present !== undefined) return first(repairRules(facts, source, required), present, facts);
  // A source without the finalizer that is being deleted was never protected.
  if (source.deleting && !isHeld(source)) return [];
  const lost = facts.lost.find(({ metadata }) => metadata.name === name);
  const object = newProtector(
    facts.kind,
    source,
    required,
    name,
    lost === undefined ? markOf(facts, source) : RESTORED,
  );
  if (lost === undefined) return [{ kind: "create", object }];
  return [{ kind: "restore", object: withOperatorFields(object, lost, source, required), lost }];
}

/** A source with the finalizer has had a protector, because the finalizer comes first. */
function markOf({ protectors }: SourceFacts, source: ProtectionSource): string | undefined {
  if (!isHeld(source)) return undefined;
  return protectors.length > 0 ? PERHAPS_RESTORED : RESTORED;
}

/** Labels, annotations and fields that an operator has set on the lost protector. */
function withOperatorFields(
  object: NewProtector,
  lost: PodProtector,
  source: ProtectionSource,
  required: RequiredProtector,
): NewProtector {
  const { labels, annotations } = object.metadata;
  const metadata = {
    ...object.metadata,
    labels: { ...lost.metadata.labels, ...labels },
    annotations: { ...lost.metadata.annotations, ...annotations },
  };
  const believed = isUnproven(lost, source) ? withoutCountingFields(lost.spec) : lost.spec;
  return { ...object, metadata, spec: repairedSpec(believed, source, required) };
}

/** Also the lost ones: nobody could release them once their source is gone. */
function releaseOthers(
  { protectors, lost }: SourceFacts,
  source: ProtectionSource,
  places: readonly Place[],
): ReconcileStep[] {
  const reason: ReleaseReason = source.deleting ? "SourceDeleted" : "NotRequired";
  return [...protectors, ...lost]
    .filter(({ metadata }) => !places.some(({ name }) => name === metadata.name))
    .map((protector) => ({ kind: "release", protector, reason, ...(lost.includes(protector) && { isLost: true }) }));
}

/** Without owner references: the garbage collector would delete a protector whose owner does not exist. */
function restoreWithoutSource({ protectors, lost }: SourceFacts): ReconcileStep[] {
  const present = new Set(protectors.map(({ metadata }) => metadata.name));
  return lost
    .filter(({ metadata }) => !present.has(metadata.name))
    .map((protector) => ({ kind: "restore", object: restoredObject(protector, false), lost: protector }));
}

function releaseMarked(protector: PodProtector): ReconcileStep[] {
  return isMarkedReleased(protector) ? [{ kind: "release", protector, reason: "ReleasedByOperator" }] : [];
}

/** Only its finalizer keeps a protector that is being deleted in force. */
function replaceDeleted(protector: PodProtector, withOwners: boolean): ReconcileStep[] {
  if (!isDeleting(protector.metadata) || !hasGeneratorFinalizer(protector)) return [];
  return [{ kind: "replace", protector, object: restoredObject(protector, withOwners) }];
}

/** The cells that an operator names in `remove-cell-once`. */
function removeNamedCells(protector: PodProtector): ReconcileStep[] {
  const cells = protector.metadata.annotations?.[REMOVE_CELL_ONCE_ANNOTATION];
  if (cells === undefined) return [];
  return [{ kind: "removeCells", protector, cells: cells.split(",").map((cell) => cell.trim()) }];
}

/** Reports each state once. */
function noteSource(protector: PodProtector, state: SourceState): ReconcileStep[] {
  if (sourceStateOf(protector) === state) return [];
  const set: ReconcileStep = { kind: "setSourceState", protector, state };
  return state === "present" ? [set] : [{ kind: "reportSource", protector, state }, set];
}

/**
 * A protector whose source vanished and came back without asking for protection: the manifest may never have had the
 * label. The controlling owner's UID identifies the source that the protector was made for.
 */
function orphanOf({ protectors, lost }: SourceFacts, source: ProtectionSource): PodProtector | undefined {
  if (source.decision !== "NotSelected" || source.deleting) return undefined;
  return [...protectors, ...lost].find(
    (protector) =>
      hasGeneratorFinalizer(protector) &&
      !isMarkedReleased(protector) &&
      !protector.metadata.ownerReferences?.some(({ uid }) => uid === source.uid),
  );
}
