/**
 * What is true of the pods of one cell at every revision, kept apart from every component's view: the simulation's checks
 * compare against this. The predicate is written anew here, on raw objects, so that it can't share a mistake with the product.
 */
import type { Etcd, EtcdChange, Json } from "../apiserver/etcd.ts";
import { metadataOf, record, text } from "../apiserver/objects.ts";
import { isGated } from "../apiserver/pod-conditions.ts";
import { shardOf } from "../apiserver/shards.ts";
import type { Position } from "./position.ts";

export interface Wanted {
  readonly labels: Readonly<Record<string, string>>;
  readonly minReadySeconds: number;
  /** Beside Ready. */
  readonly conditions?: readonly string[];
}

/** What the checks ask of one version of a pod, worked out once. */
interface Version {
  readonly revision: number;
  /** Undefined: deleted at this revision. */
  readonly pod: Facts | undefined;
}

interface Facts {
  readonly uid: string;
  readonly labels: Json;
  /** Ready, not terminating, not finished. */
  readonly ready: boolean;
  readonly readySinceMs: number;
  /** Types of its conditions that are True, beside the kubelet's own. */
  readonly isTrue: readonly string[];
}

interface Death {
  readonly revision: number;
  /** The pod as it was deleted; undefined when it ended by itself. */
  readonly deleted: Facts | undefined;
}

/** Ready, not terminating, not finished, and ready since `cutoffMs` or before. */
export function isTrulyAvailable(pod: Json, wanted: Wanted, cutoffMs: number): boolean {
  return isAvailable(factsOf(pod), wanted, cutoffMs);
}

function isAvailable({ labels, ready, readySinceMs, isTrue }: Facts, wanted: Wanted, cutoffMs: number): boolean {
  if (!ready || wanted.conditions?.every((type) => isTrue.includes(type)) === false) return false;
  for (const key in wanted.labels) if (labels[key] !== wanted.labels[key]) return false;
  return wanted.minReadySeconds <= 0 || readySinceMs <= cutoffMs;
}

function hasEnded({ metadata, status }: Json): boolean {
  const { phase } = record(status);
  return record(metadata).deletionTimestamp !== undefined || phase === "Succeeded" || phase === "Failed";
}

const KUBELETS = ["Ready", "ContainersReady"];
const NONE: readonly string[] = [];

function trueOnes(conditions: readonly Json[]): string[] {
  return conditions.filter(({ status }) => status === "True").map(({ type }) => String(type));
}

function factsOf(pod: Json): Facts {
  const meta = metadataOf(pod);
  const status = record(pod.status);
  const conditions = Array.isArray(status.conditions) ? status.conditions.map(record) : [];
  // One that waits for being counted has to be counted before it is Ready.
  const ready = isGated(pod) ? "ContainersReady" : "Ready";
  const condition = conditions.find(({ type }) => type === ready);
  return {
    uid: text(meta.uid) ?? "",
    labels: record(meta.labels),
    ready: !hasEnded(pod) && condition?.status === "True",
    readySinceMs: Date.parse(String(condition?.lastTransitionTime)),
    isTrue: conditions.length > KUBELETS.length ? trueOnes(conditions) : NONE,
  };
}

const texts = new WeakMap<Wanted["labels"], string>();

function textOf(labels: Wanted["labels"]): string {
  const text = texts.get(labels) ?? JSON.stringify(labels);
  texts.set(labels, text);
  return text;
}

export class PodTruth {
  readonly #versions = new Map<string, Version[]>();
  readonly #deaths = new Map<string, Death>();
  readonly #now = new Map<string, Facts>();
  /** Answers of {@link availableAt}. */
  readonly #availableAt = new Map<string, ReadonlySet<string>>();
  #latest = 0;

  constructor(etcd: Etcd) {
    etcd.observe((change) => this.#record(change));
  }

  /** Names the UIDs that were available at exactly `position`, each at the version of its shard; the set is the caller's to change. */
  availableAt({ text, parts, newest }: Position, wanted: Wanted, cutoffMs: number): Set<string> {
    const { labels, minReadySeconds, conditions } = wanted;
    const question = `${text} ${minReadySeconds > 0 ? cutoffMs : ""} ${textOf(labels)} ${conditions?.join() ?? ""}`;
    const known = this.#availableAt.get(question);
    if (known !== undefined) return new Set(known);
    const found = new Set<string>();
    for (const versions of this.#versions.values())
      for (const [shard, revision] of parts.entries()) {
        const pod = at(versions, revision);
        if (pod === undefined || !isAvailable(pod, wanted, cutoffMs)) continue;
        if (shardOf(pod.uid, parts.length) === shard) found.add(pod.uid);
      }
    // The last revision may still be under way; those before it are history.
    if (newest < this.#latest) this.#availableAt.set(question, new Set(found));
    return found;
  }

  /** The revision at which this UID became terminating, finished or absent; undefined while it lives. */
  deadAt(uid: string): number | undefined {
    return this.#deaths.get(uid)?.revision;
  }

  /** Somebody deleted this pod while it was available: its loss was not its own. */
  wasTaken(uid: string, wanted: Wanted, cutoffMs: number): boolean {
    const deleted = this.#deaths.get(uid)?.deleted;
    return deleted !== undefined && isAvailable(deleted, wanted, cutoffMs);
  }

  /** Whether this change, which must be the last one, made a pod unavailable: by itself, or because somebody deleted it. */
  lossAt({ key, revision }: EtcdChange): "own" | "taken" | undefined {
    const versions = this.#versions.get(key) ?? [];
    const before = versions.at(-2)?.pod;
    const after = versions.at(-1);
    if (after?.revision !== revision || before?.ready !== true || after.pod?.ready === true) return undefined;
    return this.#deaths.get(before.uid)?.deleted === undefined ? "own" : "taken";
  }

  /** How many pods are available now. */
  countNow(wanted: Wanted): number {
    let count = 0;
    for (const pod of this.#now.values()) if (isAvailable(pod, wanted, Number.POSITIVE_INFINITY)) count += 1;
    return count;
  }

  /** The pod lives and is available now. */
  isAvailableNow(uid: string, wanted: Wanted, cutoffMs: number): boolean {
    const pod = this.#now.get(uid);
    return pod !== undefined && isAvailable(pod, wanted, cutoffMs);
  }

  /**
   * etcd was restored: from `revision` on, which was never given before, there is what the backup holds. What components were told of the
   * versions in between stays on record, for counts that they still make of it.
   */
  restored(revision: number, objects: Iterable<readonly [string, Json]>): void {
    const back = new Map(objects);
    for (const [key, versions] of this.#versions) if (!back.has(key)) versions.push({ revision, pod: undefined });
    const living = new Map<string, Facts>();
    for (const [key, value] of back) {
      const pod = factsOf(value);
      living.set(pod.uid, pod);
      const versions = this.#versions.get(key) ?? [];
      versions.push({ revision, pod });
      this.#versions.set(key, versions);
      if (!hasEnded(value)) this.#deaths.delete(pod.uid);
      // It lived in the history that is over now, and not in this one, which is older.
      else if (!this.#deaths.has(pod.uid)) this.#deaths.set(pod.uid, { revision, deleted: undefined });
    }
    // A pod that the backup does not know is gone, and nobody deleted it.
    for (const uid of this.#now.keys())
      if (!living.has(uid) && !this.#deaths.has(uid)) this.#deaths.set(uid, { revision, deleted: undefined });
    this.#now.clear();
    for (const [uid, pod] of living) this.#now.set(uid, pod);
    this.#latest = revision;
    this.#availableAt.clear();
  }

  #record(change: EtcdChange): void {
    if (!change.key.startsWith("pods/")) return;
    this.#latest = change.revision;
    const versions = this.#versions.get(change.key) ?? [];
    const after = change.after === undefined ? undefined : factsOf(change.after.value);
    versions.push({ revision: change.revision, pod: after });
    this.#versions.set(change.key, versions);
    const uid = after?.uid ?? text(metadataOf(change.before?.value ?? {}).uid);
    if (uid === undefined) return;
    const before = this.#now.get(uid);
    if (after === undefined) this.#now.delete(uid);
    else this.#now.set(uid, after);
    if (this.#deaths.has(uid)) return;
    const phase = record(change.after?.value.status).phase;
    const deleted = change.after === undefined || metadataOf(change.after.value).deletionTimestamp !== undefined;
    if (deleted) this.#deaths.set(uid, { revision: change.revision, deleted: before });
    else if (phase === "Succeeded" || phase === "Failed")
      this.#deaths.set(uid, { revision: change.revision, deleted: undefined });
  }
}

function at(versions: readonly Version[], revision: number): Facts | undefined {
  let low = 0;
  let high = versions.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((versions[middle]?.revision ?? 0) <= revision) low = middle + 1;
    else high = middle;
  }
  return versions[low - 1]?.pod;
}
