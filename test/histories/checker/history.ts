/**
 * A recorded history: one JSON object on each line, in the order in which the recorder saw it.
 *
 * - `head`: the core, the cluster of each cell, and the settle period.
 * - `version`: one version of an object as etcd stored it; without `object` it was deleted. `history` counts the times
 *   that the cluster's etcd was replaced by a copy: revisions of different histories do not compare.
 * - `replaced`: the etcd of a cluster begins a new history, which has the versions of the one before up to `inherits`.
 * - `review`: an AdmissionReview and its answer. `from` is a revision of the core that was stored when the request
 *   came, `to` one that was stored after the answer; no `to` where there was no answer.
 * - `known`: every replica of the webhook knows all protectors that are stored.
 * - `fault`: begins or ends.
 * - `end`: everything before it is complete.
 */
import { at, integer, text, texts } from "./json.ts";

/** A moment of the core. */
export interface Moment {
  readonly history: number;
  readonly revision: number;
}

export interface ObjectVersion {
  readonly revision: number;
  /** When the recorder saw it, some time after it was stored. */
  readonly atMs: number;
  readonly key: string;
  /** Undefined: deleted. */
  readonly object: unknown;
}

export interface RecordedReview {
  readonly cell: string;
  readonly id: string;
  /** `DELETE`, or `EVICT` for the creation of an eviction. */
  readonly operation: string;
  /** Namespace and name of the pod. */
  readonly key: string;
  readonly podUid: string;
  /** The reviewed pod; undefined for an eviction. */
  readonly pod: unknown;
  readonly isDryRun: boolean;
  readonly from: Moment;
  readonly fromMs: number;
  readonly to: Moment | undefined;
  readonly toMs: number;
  readonly answer: "allowed" | "denied" | "failed" | "none";
  /** What the webhook tells the audit log: the protectors that denied, each with its reason. */
  readonly reasons: ReadonlyMap<string, string>;
}

interface FaultSpan {
  readonly what: string;
  readonly fromMs: number;
  readonly toMs: number;
}

/** The versions of one kind of object in one history of a cluster, by revision. */
interface Timeline {
  readonly history: number;
  readonly versions: readonly ObjectVersion[];
  /** Versions up to here were stored in an earlier history. */
  readonly inherits: number;
  readonly startMs: number;
}

export interface History {
  readonly core: string;
  /** Cell id to cluster name. */
  readonly cells: ReadonlyMap<string, string>;
  readonly settleMs: number;
  readonly reviews: readonly RecordedReview[];
  readonly knownMs: readonly number[];
  readonly faults: readonly FaultSpan[];
  readonly endMs: number;
  /** Of the core. */
  readonly protectors: readonly Timeline[];
  /** By cluster. */
  readonly pods: ReadonlyMap<string, readonly Timeline[]>;
}

interface OpenTimeline {
  history: number;
  versions: ObjectVersion[];
  inherits: number;
  startMs: number;
}

class Reader {
  core = "";
  cells = new Map<string, string>();
  settleMs = 0;
  endMs = Number.NaN;
  readonly knownMs: number[] = [];
  readonly reviews: RecordedReview[] = [];
  readonly faults: { what: string; fromMs: number; toMs: number }[] = [];
  /** By cluster and kind. */
  readonly timelines = new Map<string, OpenTimeline[]>();

  read(line: unknown): void {
    switch (text(line, "kind")) {
      case "head":
        this.core = text(line, "core");
        this.cells = new Map(texts(line, "cells"));
        this.settleMs = integer(line, "settleMs");
        break;
      case "version":
        this.#version(line);
        break;
      case "replaced":
        this.#replaced(line);
        break;
      case "review":
        this.reviews.push(reviewIn(line));
        break;
      case "known":
        this.knownMs.push(integer(line, "atMs"));
        break;
      case "fault":
        this.#fault(line);
        break;
      case "end":
        this.endMs = integer(line, "atMs");
        break;
      default:
        throw new Error(`a line of the history can't be read: ${JSON.stringify(line)}`);
    }
  }

  timelinesOf(cluster: string, kind: string): OpenTimeline[] {
    const name = `${cluster} ${kind}`;
    const known = this.timelines.get(name) ?? [{ history: 0, versions: [], inherits: 0, startMs: 0 }];
    this.timelines.set(name, known);
    return known;
  }

  #version(line: unknown): void {
    const history = integer(line, "history");
    const timeline = this.timelinesOf(text(line, "cluster"), text(line, "resource")).find(
      (one) => one.history === history,
    );
    if (timeline === undefined) throw new Error(`a version of history ${history}, which has not begun`);
    const revision = integer(line, "revision");
    // A new history is told from its beginning, as far as it was not compacted.
    if (revision <= timeline.inherits) return;
    const last = timeline.versions.at(-1);
    if (last !== undefined && last.revision > revision) throw new Error(`revision ${revision} after ${last.revision}`);
    const { atMs, key } = { atMs: integer(line, "atMs"), key: text(line, "key") };
    timeline.versions.push({ revision, atMs, key, object: at(line, "object") });
  }

  #replaced(line: unknown): void {
    const timelines = this.timelinesOf(text(line, "cluster"), text(line, "resource"));
    const [history, inherits, startMs] = [integer(line, "history"), integer(line, "inherits"), integer(line, "atMs")];
    const versions = (timelines.at(-1)?.versions ?? []).filter(({ revision }) => revision <= inherits);
    timelines.push({ history, versions, inherits, startMs });
  }

  #fault(line: unknown): void {
    const [what, atMs] = [text(line, "what"), integer(line, "atMs")];
    if (text(line, "phase") === "begin") this.faults.push({ what, fromMs: atMs, toMs: Number.POSITIVE_INFINITY });
    const open = this.faults.findLast((fault) => fault.what === what && fault.toMs === Number.POSITIVE_INFINITY);
    if (text(line, "phase") === "end" && open !== undefined) open.toMs = atMs;
  }
}

/** Throws when a line can't be read, or the end is missing. */
export function readHistory(lines: Iterable<string>): History {
  const reader = new Reader();
  for (const line of lines) if (line !== "") reader.read(JSON.parse(line));
  if (Number.isNaN(reader.endMs)) throw new Error("the history has no end");
  const { core, cells, settleMs, reviews, knownMs, faults, endMs } = reader;
  const clusters = [...new Set(cells.values())];
  return {
    core,
    cells,
    settleMs,
    reviews,
    knownMs,
    faults,
    endMs,
    protectors: inheriting(reader.timelinesOf(core, "podprotectors")),
    pods: new Map(clusters.map((cluster) => [cluster, inheriting(reader.timelinesOf(cluster, "pods"))])),
  };
}

/** A restored etcd that has compacted nothing tells again what is in its backup: those versions are inherited, too. */
function inheriting(timelines: readonly Timeline[]): readonly Timeline[] {
  return timelines.map((timeline, index) => {
    const told = new Map(timelines[index - 1]?.versions.map((version) => [version.revision, version]));
    const toldBefore = (version: ObjectVersion): ObjectVersion | undefined => {
      const earlier = told.get(version.revision);
      return earlier !== undefined && textOf(earlier) === textOf(version) ? earlier : undefined;
    };
    const lastShared = timeline.versions.findLast((version) => toldBefore(version) !== undefined);
    return {
      ...timeline,
      inherits: Math.max(timeline.inherits, lastShared?.revision ?? 0),
      versions: timeline.versions.map((version) => toldBefore(version) ?? version),
    };
  });
}

function textOf({ key, object }: ObjectVersion): string {
  return `${key} ${JSON.stringify(object)}`;
}

function reviewIn(line: unknown): RecordedReview {
  const answer = at(line, "answer");
  const to = at(line, "to");
  const isAnswered = integer(answer, "status") === 200;
  const allowed = at(answer, "allowed") === true ? "allowed" : "denied";
  return {
    cell: text(line, "cell"),
    id: text(line, "id"),
    operation: text(line, "operation"),
    key: `${text(line, "namespace")}/${text(line, "name")}`,
    podUid: text(line, "podUid"),
    pod: at(line, "pod"),
    isDryRun: at(line, "dryRun") === true,
    from: { history: integer(line, "from", "history"), revision: integer(line, "from", "revision") },
    fromMs: integer(line, "fromMs"),
    to: to === undefined ? undefined : { history: integer(to, "history"), revision: integer(to, "revision") },
    toMs: integer(line, "toMs"),
    answer: answer === undefined ? "none" : isAnswered ? allowed : "failed",
    reasons: reasonsIn(text(answer, "decision")),
  };
}

/** `CORE/NAMESPACE/NAME=REASON`, separated by commas. */
function reasonsIn(decision: string): ReadonlyMap<string, string> {
  const reasons = new Map<string, string>();
  for (const one of decision.split(",")) {
    const [, key, reason] = /^[^/]+\/([^/]+\/[^=]+)=(\w+)$/.exec(one) ?? [];
    if (key !== undefined && reason !== undefined) reasons.set(key, reason);
  }
  return reasons;
}
