/**
 * The worlds of a history that are replayed, each alone: protectors that have pods in common, with these pods, from the
 * first moment at which all of it was counted and nothing was reserved.
 */
import type { History, ObjectVersion } from "../checker/history.ts";
import { at, texts } from "../checker/json.ts";
import { isAvailable, isDead, isSelected, versionsByUid } from "../checker/pods.ts";
import type { StoredState } from "../checker/protector.ts";
import type { ProtectorHistory, StoredStep } from "../checker/protector-history.ts";
import type { Span } from "./stretches.ts";

type Phase = "Absent" | "Unready" | "Ready" | "Terminating";

/** A version that the specification tells from the one before. */
export interface PhaseVersion {
  readonly revision: number;
  readonly atMs: number;
  readonly phase: Phase;
}

export interface ReplayedPod {
  readonly name: string;
  readonly cell: string;
  /** Namespace and name. */
  readonly key: string;
  /** The name of its UID. */
  readonly uid: string;
  readonly labels: ReadonlyMap<string, string>;
  /** As it was at the start. */
  readonly first: Phase;
  /** Since the start. */
  readonly versions: readonly PhaseVersion[];
}

export interface WorldProtector {
  /** Namespace and name. */
  readonly key: string;
  readonly covers: readonly string[];
  readonly minAvailable: number;
  readonly steps: readonly StoredStep[];
}

/** What is there at the start, and everything that was stored since. */
export interface ReplayableWorld {
  readonly pods: readonly ReplayedPod[];
  readonly protectors: readonly WorldProtector[];
  /** A revision of the core. */
  readonly start: number;
  /** Of each cell that has pods, its position at the start. */
  readonly positions: ReadonlyMap<string, number>;
  readonly startMs: number;
}

/** A history has something that the specification has no word for. */
export class NotSpecified extends Error {}

interface RecordedPod extends Pick<ReplayedPod, "cell" | "key" | "uid" | "labels"> {
  readonly versions: readonly ObjectVersion[];
}

/** The fields that the specification knows, and values that change nothing. */
const KNOWN_SPEC: Readonly<Record<string, (value: unknown) => boolean>> = {
  minAvailable: () => true,
  selector: () => true,
  minReadySeconds: (value) => value === 0,
  admissionHistoryConfig: (value) => at(value, "maxConcurrentLag") === undefined,
};

/** The protectors of each world: those that have pods in common, directly or through others. */
export function groupsOf(history: History, protectors: readonly ProtectorHistory[]): readonly ProtectorHistory[][] {
  const groups: { readonly members: ProtectorHistory[]; readonly uids: Set<string> }[] = [];
  for (const protector of protectors) {
    const group = { members: [protector], uids: new Set(podsOf(history, [protector]).map(({ uid }) => uid)) };
    for (const other of groups.filter(({ uids }) => [...uids].some((uid) => group.uids.has(uid)))) {
      groups.splice(groups.indexOf(other), 1);
      group.members.unshift(...other.members);
      for (const uid of other.uids) group.uids.add(uid);
    }
    groups.push(group);
  }
  return groups.map(({ members }) => members);
}

/** Throws {@link NotSpecified}. `history` is of a stretch without a restore. */
export function worldOf(history: History, group: readonly ProtectorHistory[], span: Span): ReplayableWorld {
  for (const { steps } of group) checkSpecs(steps);
  const pods = podsOf(history, group);
  const steps = group.flatMap((protector) => protector.steps).sort((a, b) => a.moment.revision - b.moment.revision);
  for (const { moment, atMs } of steps) {
    if (atMs < span.fromMs || atMs >= span.endMs) continue;
    // A request of before the world may end in it, and nothing of it would be told.
    const isAsked = span.fromMs > Number.NEGATIVE_INFINITY && isUnderWay(history, atMs);
    if (isAsked) continue;
    const positions = positionsAt(moment.revision, group, pods);
    if (positions !== undefined) return startingAt({ start: moment.revision, startMs: atMs, positions }, group, pods);
  }
  throw new NotSpecified("at no moment was everything counted and nothing reserved");
}

function isUnderWay({ reviews }: History, atMs: number): boolean {
  return reviews.some(({ fromMs, toMs }) => fromMs < atMs && toMs >= atMs);
}

function checkSpecs(steps: readonly StoredStep[]): void {
  for (const { after } of steps) {
    if (after === undefined) throw new NotSpecified("a protector was deleted");
    for (const [field, value] of Object.entries(after.spec ?? {}))
      if (KNOWN_SPEC[field]?.(value) !== true) throw new NotSpecified(`spec.${field}`);
    if (JSON.stringify(after.spec) !== JSON.stringify(steps[0]?.after?.spec)) throw new NotSpecified("another spec");
  }
}

function isSelectedBy(state: StoredState | undefined, labels: ReadonlyMap<string, string>): boolean {
  return state !== undefined && isSelected(at(state.spec, "selector"), labels);
}

/** The pods that one of the protectors selects. */
function podsOf(history: History, group: readonly ProtectorHistory[]): readonly RecordedPod[] {
  const found: RecordedPod[] = [];
  for (const [cell, cluster] of history.cells) {
    for (const [uid, versions] of versionsByUid(history.pods.get(cluster)?.[0]?.versions ?? [])) {
      const [{ key, object }] = versions as [ObjectVersion];
      const labels = texts(object, "metadata", "labels");
      const isCovered = ({ key: protector, steps }: ProtectorHistory): boolean =>
        protector.split("/")[0] === key.split("/")[0] && isSelectedBy(steps[0]?.after, labels);
      if (group.some(isCovered)) found.push({ cell, key, uid, labels, versions });
    }
  }
  return found;
}

/** The position of each cell, where all protectors have counted the same pods there and reserved none. */
function positionsAt(
  revision: number,
  group: readonly ProtectorHistory[],
  pods: readonly RecordedPod[],
): ReadonlyMap<string, number> | undefined {
  const positions = new Map<string, number>();
  const states = group.map(({ steps }) => steps.findLast(({ moment }) => moment.revision <= revision)?.after);
  for (const cell of new Set(pods.map((pod) => pod.cell))) {
    const entries = states.map((state) => state?.cells.get(cell));
    const position = Math.max(...entries.map((entry) => entry?.position ?? Number.NaN));
    if (Number.isNaN(position)) return undefined;
    const own = pods.filter((pod) => pod.cell === cell);
    for (const [index, entry] of entries.entries()) {
      const isCounted = ({ labels, versions }: RecordedPod): boolean =>
        isSelectedBy(states[index], labels) && phaseAt(versions, position) === "Ready";
      const isPlain = entry?.isCounted === true && !entry.isOnHold && entry.reservations.size === 0;
      if (!isPlain || entry.available !== own.filter(isCounted).length) return undefined;
    }
    positions.set(cell, position);
  }
  return positions;
}

function phaseOf(object: unknown): Phase {
  if (object === undefined) return "Absent";
  if (isDead(object)) return "Terminating";
  return isAvailable(object, {}, "") ? "Ready" : "Unready";
}

function phaseAt(versions: readonly ObjectVersion[], revision: number): Phase {
  return phaseOf(versions.findLast((version) => version.revision <= revision)?.object);
}

function startingAt(
  from: Pick<ReplayableWorld, "start" | "startMs" | "positions">,
  group: readonly ProtectorHistory[],
  recorded: readonly RecordedPod[],
): ReplayableWorld {
  const { start, positions } = from;
  const names = new Set<string>();
  const pods = recorded.flatMap(({ versions, ...pod }) => {
    const position = positions.get(pod.cell) ?? 0;
    const first = phaseAt(versions, position);
    const later = toldVersions(
      first,
      versions.filter(({ revision }) => revision > position),
    );
    // Everybody may delete a pod that ends.
    if (first === "Terminating" || (first === "Absent" && later.length === 0)) return [];
    const name = unusedName(names, `${pod.cell}/${pod.key.split("/")[1]}`);
    return [{ ...pod, name, first, versions: later }];
  });
  const protectors = group.map(({ key, steps }) => {
    const later = steps.filter(({ moment }) => moment.revision > start);
    const state = steps[0]?.after;
    const covers = pods.filter(({ labels }) => isSelectedBy(state, labels)).map(({ name }) => name);
    return { key, covers, minAvailable: state?.minAvailable ?? 0, steps: later };
  });
  if (pods.length === 0) throw new NotSpecified("it has no pods");
  const cells = new Set(pods.map(({ cell }) => cell));
  return { pods, protectors, ...from, positions: new Map([...positions].filter(([cell]) => cells.has(cell))) };
}

/**
 * A pod begins with its first Ready version: before that it counts nowhere, and its deletion needs nobody. While a pod
 * is not Ready, or ends, its versions are one.
 */
function toldVersions(first: Phase, versions: readonly ObjectVersion[]): readonly PhaseVersion[] {
  const told: PhaseVersion[] = [];
  let last = first;
  for (const { revision, atMs, object } of versions) {
    const phase = phaseOf(object);
    const isTold = last === "Absent" ? phase === "Ready" : phase !== last || phase === "Ready";
    if (!isTold) continue;
    told.push({ revision, atMs, phase });
    last = phase;
  }
  return told;
}

/** A pod that is created again under its name is another one. */
function unusedName(names: Set<string>, wanted: string): string {
  let name = wanted;
  for (let number = 2; names.has(name); number++) name = `${wanted}#${number}`;
  names.add(name);
  return name;
}
