/**
 * A track is one object of which one field goes through its values, in some order. Which values there are the apiserver
 * says in a dry run: what it refuses, drops or completes to a value that is there already is no state of the object.
 */
import { field as property } from "../../scripts/control-plane/api-client.ts";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";
import { eachAtMost } from "../../shared/runtime/each-at-most.ts";
import { isRecord } from "../../shared/schema/check.ts";
import type { Chance } from "../simulation/scenario/random.ts";
import { type Field, type FieldPath, fieldsRead, isAccepted, valueAt, withValue } from "./fields-read.ts";
import { exampleOf, KINDS, type ObjectKind, storedOf } from "./kinds.ts";
import { valuesOf } from "./values.ts";

const CALLS_AT_ONCE = 16;
/** Of `metadata`: the apiserver sets them, and no client. */
const SET_BY_APISERVER = new Set([
  ...["name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"],
]);

export interface Track {
  /** The name of its objects, and the value of their label `app`. */
  readonly app: string;
  readonly kind: ObjectKind;
  readonly path: FieldPath;
  /** What the field can be; first what it is at the beginning. */
  readonly values: readonly unknown[];
}

/** What there is to test, and what the apiserver lets nobody do. */
export interface Plan {
  /** One for each field that can have more than one value. */
  readonly tracks: readonly Track[];
  readonly values: number;
  /** By `Kind field`: the values that the apiserver refuses. */
  readonly refused: ReadonlyMap<string, readonly unknown[]>;
  /** Fields of which the apiserver stores one value alone. */
  readonly fixed: readonly string[];
}

export interface FieldOfKind extends Field {
  readonly kind: ObjectKind;
}

export function allFields(): FieldOfKind[] {
  return KINDS.flatMap((kind) => fieldsOf(kind).map((one) => ({ kind, ...one })));
}

/** Tries all values of `fields` on an object of each kind, in a namespace of its own. */
export async function makePlan(cluster: Cluster, namespace: string, fields: readonly FieldOfKind[]): Promise<Plan> {
  const kinds = [...new Set(fields.map(({ kind }) => kind))];
  await cluster.admin.call("POST", "/api/v1/namespaces", { metadata: { name: namespace } });
  const probes = new Map<ObjectKind, unknown>();
  await eachAtMost(CALLS_AT_ONCE, kinds, async (kind) => {
    const object = objectOf(kind, `probe-${kinds.indexOf(kind)}`, "web", {});
    probes.set(kind, await cluster.admin.call("POST", pathOf(kind, namespace), object));
  });
  const tracks: Track[] = [];
  const refused = new Map<string, unknown[]>();
  const fixed: string[] = [];
  let tried = 0;
  await eachAtMost(CALLS_AT_ONCE, fields, async (one) => {
    const { kind, path } = one;
    const name = `${kind.name} ${path.join(".")}`;
    const probe = probes.get(kind);
    const first = valueAt(probe, path);
    const states = new Map([[JSON.stringify(first) ?? "", first]]);
    for (const value of valuesOf(one, kind.words)) {
      tried += 1;
      const stored = await dryRun(cluster, kind, changed(kind, probe, path, value), path);
      if (stored === undefined) refused.set(name, [...(refused.get(name) ?? []), value]);
      else if (!states.has(stored)) states.set(stored, value);
    }
    const values = [...states.values()];
    if (values.length > 1) tracks.push({ app: `t${fields.indexOf(one)}`, kind, path, values });
    else fixed.push(name);
  });
  tracks.sort((one, other) => (one.app < other.app ? -1 : 1));
  return { tracks, values: tried, refused, fixed };
}

/** Owners are one field: the apiserver stores no part of one. */
function fieldsOf(kind: ObjectKind): Field[] {
  const fields = fieldsRead(exampleOf(kind), kind.read).map((one): Field => {
    const isOwner = one.path[1] === "ownerReferences";
    return isOwner ? { path: one.path.slice(0, 2), types: ["objects"] } : one;
  });
  const byPath = new Map(fields.map((one) => [one.path.join("\0"), one]));
  const isStatus = ({ path }: Field): boolean => path[0] === "status";
  const isOurs = ({ path }: Field): boolean => !(path[0] === "metadata" && SET_BY_APISERVER.has(path[1] ?? ""));
  return [...byPath.values()].filter((one) => isOurs(one) && !isStatus(one));
}

export function pathOf({ apiVersion, resource }: ObjectKind, namespace: string, name?: string): string {
  const root = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const collection = `${root}/namespaces/${namespace}/${resource}`;
  return name === undefined ? collection : `${collection}/${name}`;
}

/** The object of a kind with the name and label `app`. */
export function objectOf(kind: ObjectKind, name: string, app: string, labels: object): object {
  const { apiVersion } = kind;
  return { apiVersion, kind: kind.kind, metadata: { name, labels, annotations: { app } }, ...kind.base(app) };
}

/** The field as the apiserver would store it, as text; undefined when it refuses the object. */
async function dryRun(
  cluster: Cluster,
  kind: ObjectKind,
  object: unknown,
  path: FieldPath,
): Promise<string | undefined> {
  const at = pathOf(kind, String(property(object, "metadata", "namespace")), nameOf(object));
  const answer = await cluster.admin.request("PUT", `${at}?dryRun=All`, object);
  if (answer.status >= 500) throw new Error(`PUT ${at} answered ${answer.status}: ${answer.text}`);
  return answer.status >= 400 ? undefined : (JSON.stringify(valueAt(answer.body, path)) ?? "");
}

/** `object` with `value` at `path`, and without what is not accepted beside it. */
export function changed(kind: ObjectKind, object: unknown, path: FieldPath, value: unknown): unknown {
  const text = path.join(".");
  const others = (kind.exclusive ?? []).filter(([one]) => one.join(".") === text).map(([, other]) => other);
  const example = exampleOf(kind);
  // The labels and annotations of the example are not the object's.
  const beside = isRecord(example) ? { spec: example.spec } : {};
  const at = value === undefined ? outermostAbsent(kind.base(""), path) : path;
  return others.reduce((all: unknown, other) => withValue(all, other, undefined), withValue(object, at, value, beside));
}

/** What has to go with the field: without `suspend.enabled`, which is required there, there is no `suspend`. */
function outermostAbsent(base: object, path: FieldPath): FieldPath {
  const isAbsent = (_: string, index: number): boolean => valueAt(base, path.slice(0, index + 1)) === undefined;
  const depth = path[0] === "spec" ? path.findIndex(isAbsent) : -1;
  return depth < 0 ? path : path.slice(0, depth + 1);
}

/**
 * Whether the track with `value` has the same end state whatever it had before. An object that can't be read keeps the
 * protector that it has (docs/design.md#generator).
 */
export function isRead({ kind, path }: Track, value: unknown): boolean {
  const isFollowed = isAccepted(changed(kind, storedOf(kind), path, value), kind.follow ?? kind.read);
  return isFollowed && isAccepted(changed(kind, exampleOf(kind), path, value), kind.read);
}

/** The position in the walk of each track, as indexes of its values. */
export type Walk = readonly number[];

/** Each transition from one value to another once. */
function wholeWalk({ values }: Track): Walk {
  const open = values.map((_, from) => values.map((__, to) => to).filter((to) => to !== from));
  const stack = [0];
  const walk: number[] = [];
  for (let at = stack.at(-1); at !== undefined; at = stack.at(-1)) {
    const next = open[at]?.pop();
    if (next === undefined) walk.push(stack.pop() ?? 0);
    else stack.push(next);
  }
  return walk.reverse();
}

/**
 * As {@link wholeWalk}, in pieces of at most `steps` transitions, each on an object of its own. A piece begins with the
 * transition from the first value to where it continues the walk.
 */
export function wholeWalks(track: Track, steps: number): Map<Track, Walk> {
  const walk = wholeWalk(track);
  const pieces = new Map<Track, Walk>();
  for (let from = 0; from < walk.length - 1; from += steps) {
    const piece = walk.slice(from, from + steps + 1);
    const app = `${track.app}p${pieces.size}`;
    pieces.set({ ...track, app }, piece[0] === 0 ? piece : [0, ...piece]);
  }
  return pieces;
}

/** `steps` transitions that a seed chooses. */
export function randomWalk({ values }: Track, steps: number, chance: Chance): Walk {
  const walk = [0];
  for (let step = 0; step < steps; step++) {
    const next = chance.between(0, values.length - 2);
    walk.push(next >= (walk.at(-1) ?? 0) ? next + 1 : next);
  }
  return walk;
}

export function nameOf(object: unknown): string {
  return String(property(object, "metadata", "name"));
}
