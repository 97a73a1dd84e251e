/**
 * Who owns a field of a webhook configuration, by `metadata.managedFields` (docs/design.md#webhook-configuration). A
 * manager that uses server-side apply declares the fields that it owns, and so do Helm and `kubectl apply`. A write by
 * another client is an alteration, which takes the field from its owner. Pure.
 */
import * as v from "valibot";

/** The project's own field manager. */
export const FIELD_MANAGER = "podseidon-aggregator";

const FieldSet = v.record(v.string(), v.unknown());
type FieldSet = v.InferOutput<typeof FieldSet>;

/** An entry of `metadata.managedFields`. */
export const FieldManager = v.looseObject({
  manager: v.optional(v.string()),
  operation: v.optional(v.string()),
  time: v.optional(v.string()),
  fieldsV1: v.optional(FieldSet),
});
export type FieldManager = v.InferOutput<typeof FieldManager>;

export const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";

/** `kubectl apply` may take back a field with the annotation that it wrote before, which tells nothing then. */
const ownsAnnotation = ({ fieldsV1 }: FieldManager): boolean =>
  Object(Object(fieldsV1?.["f:metadata"])["f:annotations"])[`f:${LAST_APPLIED}`] !== undefined;

/** Helm 3 does not use server-side apply. Flux's helm-controller and Terraform's provider have helm in their names. */
const declares = (one: FieldManager): boolean =>
  one.manager !== FIELD_MANAGER &&
  (one.operation === "Apply" || one.manager?.includes("helm") === true || ownsAnnotation(one));

const isSame = (one: FieldManager, other: FieldManager): boolean =>
  one.manager === other.manager && one.operation === other.operation;

/**
 * Declarers with the fields that they owned when they last wrote: an alteration takes a field, but keeps the owner's
 * time.
 */
export function declarersOf(live: readonly FieldManager[], known: readonly FieldManager[]): FieldManager[] {
  const now = live.filter(declares);
  const unaltered = (one: FieldManager): FieldManager => {
    const before = known.find((other) => isSame(one, other) && other.time === one.time);
    return before === undefined ? one : { ...one, fieldsV1: union([before, one]) };
  };
  return [...now.map(unaltered), ...known.filter((one) => !now.some((other) => isSame(one, other)))];
}

const CLIENT_SIDE_APPLY = "kubectl-client-side-apply";

/**
 * The last writer other than this project, among managers that declare or among those that alter; among all others if
 * there is none.
 */
export function lastWriter(live: readonly FieldManager[], what: "declared" | "altered"): string | undefined {
  const others = live.filter(({ manager }) => manager !== FIELD_MANAGER);
  const isMeant = (one: FieldManager): boolean =>
    (declares(one) || one.manager === CLIENT_SIDE_APPLY) === (what === "declared");
  const meant = others.filter(isMeant);
  const [first, ...rest] = meant.length > 0 ? meant : others;
  // Times have whole seconds. Within the same second, the apiserver lists applied fields first.
  return rest.reduce((last, one) => ((last?.time ?? "") >= (one.time ?? "") ? last : one), first)?.manager;
}

/** Sets of fields as in `fieldsV1`. */
interface Ownership {
  /** Fields that declarers own. */
  readonly owned: FieldSet;
  /** Fields that other clients own through an alteration. A declarer that lost such a field did not give it up. */
  readonly altered: FieldSet;
  /** Fields that appliers owned before they last applied. */
  readonly givenUp: FieldSet;
  /**
   * Fields that declarers owned before they last wrote. Helm does not take back a field that already has the value that
   * Helm wants.
   */
  readonly left: FieldSet;
}

/**
 * `base`, with the fields of `live` that declarers own, and without those that they owned and no longer declare.
 * `known` are the declarers at the time when `base` was made.
 */
export function withOwned(
  live: unknown,
  base: unknown,
  managers: readonly FieldManager[],
  known: readonly FieldManager[],
): unknown {
  const declarers = managers.filter(declares);
  const again = known.filter((one) => declarers.some((other) => isSame(one, other) && one.time !== other.time));
  const applied = again.filter(({ operation }) => operation === "Apply");
  const others = managers.filter((one) => one.manager !== FIELD_MANAGER && !declares(one));
  const sets = { owned: union(declarers), altered: union(others), givenUp: union(applied), left: union(again) };
  return merged(live, base, sets);
}

const union = (managers: readonly FieldManager[]): FieldSet =>
  managers.reduce<FieldSet>((all, { fieldsV1 = {} }) => together(all, fieldsV1), {});

/** A set without members is the whole value. */
const isLeaf = (set: unknown): boolean => Object.keys(Object(set)).length === 0;

/**
 * True for a value, and for an item of a list by name, whose owner owns its existence. An object such as `metadata` has
 * no owner.
 */
const isWhole = (set: unknown): boolean => set !== undefined && (isLeaf(set) || Object.hasOwn(Object(set), "."));

function together(one: FieldSet, other: FieldSet): FieldSet {
  const all: FieldSet = { ...one };
  for (const [key, set] of Object.entries(other)) {
    const had = one[key];
    all[key] = had === undefined ? set : isLeaf(had) || isLeaf(set) ? {} : together(Object(had), Object(set));
  }
  return all;
}

function merged(live: unknown, base: unknown, { owned, altered, givenUp, left }: Ownership): unknown {
  const child = (key: string, now: unknown, before: unknown): unknown => {
    const set = owned[key];
    if (set === undefined) {
      const isGivenUp = isWhole(givenUp[key]) && altered[key] === undefined;
      if (isGivenUp || (isWhole(left[key]) && now === undefined)) return undefined;
    } else if (isLeaf(set) || before === undefined) return now;
    if (before === undefined || isLeaf(set ?? givenUp[key] ?? left[key])) return before;
    const [ownedInside, alteredInside, givenUpInside] = [Object(set), Object(altered[key]), Object(givenUp[key])];
    const inside = { owned: ownedInside, altered: alteredInside, givenUp: givenUpInside, left: Object(left[key]) };
    return merged(now, before, inside);
  };
  if (Array.isArray(base)) {
    const [now, before] = [byName(live), byName(base)];
    const names = [...new Set([...before.keys(), ...now.keys()])];
    const items = names.map((name) => child(`k:${JSON.stringify({ name })}`, now.get(name), before.get(name)));
    return items.filter((item) => item !== undefined);
  }
  const [now, before] = [Object(live), Object(base)];
  const keys = [...new Set([...Object.keys(before), ...Object.keys(now)])];
  const entries = keys.map((key) => [key, child(`f:${key}`, now[key], before[key])] as const);
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
}

/** Webhooks and their conditions are lists by name. */
function byName(list: unknown): ReadonlyMap<unknown, unknown> {
  return new Map((Array.isArray(list) ? list : []).map((item) => [Reflect.get(Object(item), "name"), item]));
}
