/** One protector over all histories of its core: which version was stored when, and which admissions each one adds. */
import type { History, Moment } from "./history.ts";
import { type StoredState, stateOf } from "./protector.ts";

/** A stored version, or a deletion. */
export interface StoredStep {
  readonly moment: Moment;
  readonly atMs: number;
  readonly before: StoredState | undefined;
  readonly after: StoredState | undefined;
}

/** An admission that a version records and none before it did. */
export interface StoredAdmission {
  readonly step: StoredStep;
  readonly cell: string;
  /** The name of the pod's UID. */
  readonly uid: string;
  readonly operation: string;
}

export class ProtectorHistory {
  readonly key: string;
  readonly steps: readonly StoredStep[];
  readonly admissions: readonly StoredAdmission[];
  /** By history of the core. */
  readonly #startMs: ReadonlyMap<number, number>;

  constructor(key: string, steps: readonly StoredStep[], startMs: ReadonlyMap<number, number>) {
    this.key = key;
    this.steps = steps;
    this.admissions = admissionsIn(steps);
    this.#startMs = startMs;
  }

  /**
   * The states that were stored at some time between the two moments, undefined where there was none: the one of the
   * first moment, and all after it up to the last.
   */
  between(from: Moment, to: Moment): readonly (StoredState | undefined)[] {
    const before = this.steps.findLast(
      ({ moment }) => moment.history === from.history && moment.revision <= from.revision,
    );
    const within = this.steps.filter(({ moment }) => isWithin(moment, from, to)).map(({ after }) => after);
    return [before?.after, ...within];
  }

  /** As {@link between}, from so many milliseconds earlier. */
  since(fromMs: number, from: Moment, to: Moment): readonly (StoredState | undefined)[] {
    const earlier = this.steps.findLast(({ atMs, moment }) => atMs <= fromMs && moment.history <= from.history);
    const start = earlier?.moment ?? { history: this.#firstHistory(), revision: 0 };
    return this.between(start, to);
  }

  #firstHistory(): number {
    return Math.min(...this.#startMs.keys());
  }
}

/** Whether the version was stored after `from` and not after `to`. */
export function isWithin(moment: Moment, from: Moment, to: Moment): boolean {
  if (moment.history < from.history || moment.history > to.history) return false;
  if (moment.history === from.history && moment.revision <= from.revision) return false;
  return moment.history < to.history || moment.revision <= to.revision;
}

export function protectorsOf(history: History): readonly ProtectorHistory[] {
  const steps = new Map<string, StoredStep[]>();
  for (const timeline of history.protectors) {
    const now = new Map<string, StoredState>();
    const first = timeline.versions.findIndex(({ revision }) => revision > timeline.inherits);
    const inherited = first < 0 ? timeline.versions : timeline.versions.slice(0, first);
    for (const version of inherited) set(now, version.key, stateOf(version));
    if (timeline.history > 0) beginAgain(timeline, now, steps);
    for (const version of timeline.versions.slice(inherited.length)) {
      const { key, revision, atMs } = version;
      const [before, after] = [now.get(key), stateOf(version)];
      set(now, key, after);
      const known = steps.get(key) ?? [];
      steps.set(key, known);
      known.push({ moment: { history: timeline.history, revision }, atMs, before, after });
    }
  }
  const startMs = new Map(history.protectors.map((timeline) => [timeline.history, timeline.startMs]));
  return [...steps].map(([key, of]) => new ProtectorHistory(key, of, startMs));
}

/** What a restored core has is there from the beginning of its new history, and adds no admission. */
function beginAgain(
  { history, inherits, startMs }: History["protectors"][number],
  now: ReadonlyMap<string, StoredState>,
  steps: ReadonlyMap<string, StoredStep[]>,
): void {
  for (const [key, known] of steps) {
    const state = now.get(key);
    known.push({ moment: { history, revision: inherits }, atMs: startMs, before: state, after: state });
  }
}

function set<T>(map: Map<string, T>, key: string, value: T | undefined): void {
  if (value === undefined) map.delete(key);
  else map.set(key, value);
}

function admissionsIn(steps: readonly StoredStep[]): readonly StoredAdmission[] {
  const seen = new Set<string>();
  const found: StoredAdmission[] = [];
  for (const step of steps) {
    for (const [cell, { reservations }] of step.after?.cells ?? []) {
      for (const [uid, { records }] of reservations) {
        for (const [operation, { nonces }] of records) {
          for (const nonce of nonces) {
            const name = `${cell} ${uid} ${operation} ${nonce}`;
            if (seen.has(name)) continue;
            seen.add(name);
            found.push({ step, cell, uid, operation });
          }
        }
      }
    }
  }
  return found;
}
