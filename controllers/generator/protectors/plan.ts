/**
 * What the generator has to do about one source, from what is there now (design 7). Pure: facts in, steps out, in the order in
 * which they are safe: a source is held before its protector exists, and let go only after its protectors were released.
 */

import { restoredObject } from "../../../shared/recovery/restore-protector.ts";
import {
  GENERATOR_FINALIZER,
  RELEASED_ANNOTATION,
  REMOVE_CELL_ONCE_ANNOTATION,
} from "../../../shared/schema/annotations.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { isDeleting } from "../../../shared/schema/podprotector.ts";
import {
  type ProtectionSource,
  type RequiredProtector,
  type SourceIdentity,
  type SourcePlugin,
  sourceKey,
} from "../sources/protection-source.ts";
import { alternativeName, protectorName } from "./names.ts";
import { hasGeneratorFinalizer, type NewProtector, newProtector, repairedProtector, sourceOf } from "./protector.ts";
import { isNotedAsVanished } from "./source-condition.ts";

/** Why a protector may go; nothing else is a reason (design 7). */
export type ReleaseReason = "SourceDeleted" | "NotRequired" | "ReleasedByOperator";

export type ReconcileStep =
  /** Put the finalizer on the source, so that its deletion waits for the release. */
  | { readonly kind: "holdSource"; readonly source: ProtectionSource }
  | { readonly kind: "create"; readonly object: NewProtector }
  /** One that vanished without a release comes back with its history. */
  | { readonly kind: "restore"; readonly object: object; readonly copy: PodProtector }
  /** One that somebody has deleted, and that is still asked for, is made anew with its history. */
  | { readonly kind: "replace"; readonly protector: PodProtector; readonly object: object }
  | { readonly kind: "update"; readonly object: PodProtector }
  /** Annotation `remove-cell-once`: drop these cells from the status, then the annotation. */
  | { readonly kind: "removeCells"; readonly protector: PodProtector; readonly cells: readonly string[] }
  | { readonly kind: "release"; readonly protector: PodProtector; readonly reason: ReleaseReason }
  | { readonly kind: "letSourceGo"; readonly source: ProtectionSource }
  /** The source vanished without a release: the protector stays in force. */
  | { readonly kind: "reportOrphan"; readonly protector: PodProtector }
  /** The protector's condition says whether its source has vanished, when that has changed. */
  | { readonly kind: "noteSource"; readonly protector: PodProtector; readonly vanished: boolean };

export interface ReconcileInput {
  /** With the kind as it is served. */
  readonly plugin: Pick<SourcePlugin, "kind">;
  readonly plugins: readonly SourcePlugin[];
  readonly identity: SourceIdentity;
  readonly source: ProtectionSource | undefined;
  /** The protectors that name this source. */
  readonly protectors: readonly PodProtector[];
  /** Any protector of the namespace by name. */
  readonly named: (name: string) => PodProtector | undefined;
  /** Those that named this source and vanished without a release. */
  readonly lost?: readonly PodProtector[];
}

export function plan(facts: ReconcileInput): ReconcileStep[] {
  const { source } = facts;
  if (source === undefined) return [...facts.protectors.flatMap(withoutSource), ...lostOrphans(facts)];
  if (source.decision === "OutOfScope") return [];
  const kept = new Set<string>();
  const steps: ReconcileStep[] = [];
  for (const required of source.protectors) {
    const { name, present } = placeFor(facts, required);
    kept.add(name);
    if (present !== undefined) steps.push(...repair(present, facts.plugin, source, required));
    // A source that is already on its way and was never held has nothing left to protect.
    else if (!source.deleting || isHeld(source)) {
      // The finalizer is there before the first protector is: a source that has it had one.
      const copy = facts.lost?.find(({ metadata }) => metadata.name === name);
      const object = newProtector(facts.plugin, source, required, name, isHeld(source) || copy !== undefined);
      if (copy === undefined) steps.push({ kind: "create", object });
      else steps.push({ kind: "restore", object: completed(object, copy), copy });
    }
  }
  const reason: ReleaseReason = source.deleting ? "SourceDeleted" : "NotRequired";
  for (const protector of facts.protectors) {
    if (!kept.has(protector.metadata.name)) steps.push({ kind: "release", protector, reason });
  }
  if (source.protectors.length > 0)
    return isHeld(source) || source.deleting ? steps : [{ kind: "holdSource", source }, ...steps];
  return isHeld(source) ? [...steps, { kind: "letSourceGo", source }] : steps;
}

/** What its operator had put on the protector that vanished is on the one that takes its place. */
function completed(object: NewProtector, copy: PodProtector): NewProtector {
  const { labels, annotations } = object.metadata;
  const metadata = {
    ...object.metadata,
    labels: { ...copy.metadata.labels, ...labels },
    annotations: { ...copy.metadata.annotations, ...annotations },
  };
  return { ...object, metadata, spec: { ...copy.spec, ...object.spec } };
}

function isHeld(source: ProtectionSource): boolean {
  return source.finalizers.includes(GENERATOR_FINALIZER);
}

function withoutSource(protector: PodProtector): ReconcileStep[] {
  if (protector.metadata.annotations?.[RELEASED_ANNOTATION] !== undefined) {
    return [{ kind: "release", protector, reason: "ReleasedByOperator" }];
  }
  if (isTornAway(protector)) return [replacement(protector, restoredObject(protector, false))];
  const removal = cellRemoval(protector);
  if (removal.length > 0) return removal;
  if (isNotedAsVanished(protector)) return [];
  return [
    { kind: "reportOrphan", protector },
    { kind: "noteSource", protector, vanished: true },
  ];
}

/** A source and its protector both vanished: the protector comes back, without an owner that would take it away again. */
function lostOrphans({ protectors, lost = [] }: ReconcileInput): ReconcileStep[] {
  const present = new Set(protectors.map(({ metadata }) => metadata.name));
  return lost
    .filter(({ metadata }) => !present.has(metadata.name))
    .map((copy) => ({ kind: "restore", object: restoredObject(copy, false), copy }));
}

/** Somebody has deleted it; it is in force by its finalizer alone. */
function isTornAway(protector: PodProtector): boolean {
  return isDeleting(protector.metadata) && hasGeneratorFinalizer(protector);
}

function replacement(protector: PodProtector, object: object): ReconcileStep {
  return { kind: "replace", protector, object };
}

/** Cells that an operator wants forgotten, once. */
function cellRemoval(protector: PodProtector): ReconcileStep[] {
  const cells = protector.metadata.annotations?.[REMOVE_CELL_ONCE_ANNOTATION];
  if (cells === undefined) return [];
  return [{ kind: "removeCells", protector, cells: cells.split(",").map((cell) => cell.trim()) }];
}

/** Under which name a required protector lives, and what is there: a name that belongs to someone else is left to them. */
function placeFor(
  facts: ReconcileInput,
  required: RequiredProtector,
): { name: string; present: PodProtector | undefined } {
  const name = protectorName(required.name);
  const own = new Map(facts.protectors.map((protector) => [protector.metadata.name, protector]));
  const spare = alternativeName(name, sourceKey(facts.identity));
  if (!own.has(name) && own.has(spare)) return { name: spare, present: own.get(spare) };
  const present = own.get(name) ?? facts.named(name);
  if (present === undefined || own.has(name) || isLost(present, facts)) return { name, present };
  return { name: spare, present: facts.named(spare) };
}

/** A protector of the generator's whose labels and owner were both taken off: it is adopted again by its name. */
function isLost(protector: PodProtector, facts: ReconcileInput): boolean {
  return hasGeneratorFinalizer(protector) && sourceOf(protector, facts.plugins) === undefined;
}

function repair(
  present: PodProtector,
  plugin: ReconcileInput["plugin"],
  source: ProtectionSource,
  required: RequiredProtector,
): ReconcileStep[] {
  const repaired = repairedProtector(present, plugin, source, required);
  // Each step works on the version that was seen; the next comes when the one before shows in the watch.
  if (repaired !== undefined) return [{ kind: "update", object: repaired }];
  if (isTornAway(present)) return [replacement(present, restoredObject(present, true))];
  const removal = cellRemoval(present);
  if (removal.length > 0) return removal;
  return isNotedAsVanished(present) ? [{ kind: "noteSource", protector: present, vanished: false }] : [];
}
