/**
 * The true state of one cell's pods at every revision. The judge compares components against it. Availability is
 * computed here from raw objects, without code of the product.
 */
import { COUNTED_CONDITION } from "../../../shared/schema/annotations.ts";
import type { Etcd, EtcdChange, Json } from "../apiserver/etcd.ts";
import { isMirror, metadataOf, record, text } from "../apiserver/objects.ts";
import { conditionOf, gatesOf, isGated } from "../apiserver/pod-conditions.ts";
import { shardOf } from "../apiserver/shards.ts";
import { learnUid } from "./packed-uids.ts";
import type { Position } from "./position.ts";

export interface WantedPods {
  readonly labels: Readonly<Record<string, string>>;
  readonly minReadySeconds: number;
  /** Types of the conditions required beside Ready. */
  readonly conditions?: readonly string[];
  /** Those in phase Running, whether they are Ready or not. */
  readonly isByPhase?: boolean;
  /** Without the pods that are counted before they are Ready, because they wait for the count. */
  readonly areReady?: boolean;
}

/** One version of a pod, as far as the judge needs it. */
interface Version {
  readonly revision: number;
  /** Undefined: deleted at this revision. */
  readonly pod: PodFacts | undefined;
}

interface PodFacts {
  readonly uid: string;
  readonly labels: Json;
  /** Ready, not terminating, not finished, no mirror. */
  readonly ready: boolean;
  /** In phase Running, not terminating, no mirror. */
  readonly runs: boolean;
  /** It has the condition Ready, too: a pod with the counted gate may wait for it. */
  readonly serves: boolean;
  readonly readySinceMs: number;
  /** Types of the conditions that are True, the kubelet's own apart. */
  readonly isTrue: readonly string[];
}

interface Death {
  readonly revision: number;
  /** The pod as it was deleted; undefined when nobody deleted it. */
  readonly deleted: PodFacts | undefined;
}

/** True for a pod that is Ready since `cutoffMs` or before, and neither terminating nor finished. */
export function isTrulyAvailable(pod: Json, wanted: WantedPods, cutoffMs: number): boolean {
  return isAvailable(factsOf(pod), wanted, cutoffMs);
}

/** Reasons that allow a pod whatever the counts say, and whether or not that can be recorded. */
const REGARDLESS = ["Suspended", "Forced", "NothingPromised"];

/** Whether this decision, `PROTECTOR=Reason`, has such a reason. */
export function isRegardless(decision: string): boolean {
  return REGARDLESS.includes(decision.slice(decision.indexOf("=") + 1));
}

/** Whether this decision, `PROTECTOR=Reason`, of a deletion is not recorded: the pod is not Ready as reviewed. */
export function leavesNoRecord(decision: string, pod: Json): boolean {
  return decision.endsWith("=Unavailable") || (isRegardless(decision) && !factsOf(pod).ready);
}

function isAvailable(pod: PodFacts, wanted: WantedPods, cutoffMs: number): boolean {
  const { labels, readySinceMs, isTrue } = pod;
  const isReady = wanted.areReady === true ? pod.serves : pod.ready;
  if (
    !(wanted.isByPhase === true ? pod.runs : isReady) ||
    wanted.conditions?.every((type) => isTrue.includes(type)) === false
  )
    return false;
  if (!hasLabels(labels, wanted.labels)) return false;
  return wanted.minReadySeconds <= 0 || readySinceMs <= cutoffMs;
}

function hasLabels(labels: Json, wanted: WantedPods["labels"]): boolean {
  for (const key in wanted) if (labels[key] !== wanted[key]) return false;
  return true;
}

function hasEnded({ metadata, status }: Json): boolean {
  const { phase } = record(status);
  return record(metadata).deletionTimestamp !== undefined || phase === "Succeeded" || phase === "Failed";
}

/** True for a pod that ended by a request: its status says so. */
function isCollected(pod: Json): boolean {
  const { conditions, reason } = record(pod.status);
  if (!hasEnded(pod)) return false;
  // A deadline is set by a change of the pod.
  if (reason === "DeadlineExceeded") return true;
  return Array.isArray(conditions) && conditions.some((one) => record(one).reason === "DeletionByPodGC");
}

/**
 * Kubernetes' documentation of readiness gates: Ready is True when the containers are ready and all gates are True. The
 * counted gate promises that a pod for which its kubelet waits is counted already. A kubelet says what it waits for in
 * Ready's reason, and nothing else writes that reason.
 */
function gatedSinceMs(pod: Json): number | undefined {
  const ready = conditionOf(pod, "Ready");
  const isWaiting = ready?.status === "False" && ready.reason === "ReadinessGatesNotReady";
  if (ready?.status !== "True" && !isWaiting) return undefined;
  const others = gatesOf(pod).filter((type) => type !== COUNTED_CONDITION);
  const times = ["ContainersReady", ...others].map((type) => trueSinceMs(pod, type));
  return times.includes(undefined) ? trueSinceMs(pod, "Ready") : Math.max(...times.map((ms) => ms ?? 0));
}

function trueSinceMs(pod: Json, type: string): number | undefined {
  const condition = conditionOf(pod, type);
  if (condition?.status !== "True") return undefined;
  const ms = Date.parse(String(condition.lastTransitionTime));
  // The year 10000, which is never long enough ago.
  return Number.isNaN(ms) ? Number.POSITIVE_INFINITY : ms;
}

function trueOnes(conditions: readonly Json[]): string[] {
  return conditions.filter(({ status }) => status === "True").map(({ type }) => String(type));
}

function factsOf(pod: Json): PodFacts {
  const meta = metadataOf(pod);
  const status = record(pod.status);
  const conditions = Array.isArray(status.conditions) ? status.conditions.map(record) : [];
  const readySinceMs = isGated(pod) ? gatedSinceMs(pod) : trueSinceMs(pod, "Ready");
  const ready = !hasEnded(pod) && !isMirror(pod) && readySinceMs !== undefined;
  return {
    uid: text(meta.uid) ?? "",
    labels: record(meta.labels),
    ready,
    serves: ready && trueSinceMs(pod, "Ready") !== undefined,
    runs: !hasEnded(pod) && !isMirror(pod) && status.phase === "Running",
    readySinceMs: readySinceMs ?? 0,
    isTrue: trueOnes(conditions),
  };
}

const texts = new WeakMap<WantedPods["labels"], string>();

function textOf(labels: WantedPods["labels"]): string {
  const text = texts.get(labels) ?? JSON.stringify(labels);
  texts.set(labels, text);
  return text;
}

export class PodTruth {
  readonly #versions = new Map<string, Version[]>();
  readonly #deaths = new Map<string, Death>();
  readonly #now = new Map<string, PodFacts>();
  /** Results of {@link availableAt}. */
  readonly #availableAt = new Map<string, ReadonlySet<string>>();
  #latest = 0;

  constructor(etcd: Etcd) {
    etcd.observe((change) => this.#record(change));
  }

  /**
   * The UIDs that were available at exactly `position`, each at the version of its shard. The caller may change the
   * set.
   */
  availableAt({ text, parts, newest }: Position, wanted: WantedPods, cutoffMs: number): Set<string> {
    const { labels, minReadySeconds, conditions, isByPhase = false, areReady = false } = wanted;
    const since = minReadySeconds > 0 ? cutoffMs : "";
    const question = `${text} ${since} ${textOf(labels)} ${conditions?.join() ?? ""} ${isByPhase} ${areReady}`;
    const known = this.#availableAt.get(question);
    if (known !== undefined) return new Set(known);
    const found = new Set<string>();
    for (const versions of this.#versions.values())
      for (const [shard, revision] of parts.entries()) {
        const pod = at(versions, revision);
        if (pod === undefined || !isAvailable(pod, wanted, cutoffMs)) continue;
        if (shardOf(pod.uid, parts.length) === shard) found.add(pod.uid);
      }
    // The last revision may not be complete. Revisions before it no longer change.
    if (newest < this.#latest) this.#availableAt.set(question, new Set(found));
    return found;
  }

  /** The revision at which this UID became terminating, finished or absent; undefined while the pod lives. */
  deadAt(uid: string): number | undefined {
    return this.#deaths.get(uid)?.revision;
  }

  /** True when this pod was deleted while it was available. */
  wasTaken(uid: string, wanted: WantedPods, cutoffMs: number): boolean {
    const deleted = this.#deaths.get(uid)?.deleted;
    return deleted !== undefined && isAvailable(deleted, wanted, cutoffMs);
  }

  /**
   * Why this change, which must be the last one, made its pod unavailable: by itself ("own") or by a deletion
   * ("taken").
   */
  lossAt({ key, revision }: EtcdChange): "own" | "taken" | undefined {
    const versions = this.#versions.get(key) ?? [];
    const before = versions.at(-2)?.pod;
    const after = versions.at(-1);
    if (after?.revision !== revision || before?.serves !== true || after.pod?.serves === true) return undefined;
    return this.#deaths.get(before.uid)?.deleted === undefined ? "own" : "taken";
  }

  /** True when this change, which must be the last one, took a Ready pod out of the pods with these labels. */
  isRelabelledAt({ key, revision }: EtcdChange, labels: WantedPods["labels"]): boolean {
    const [before, after] = (this.#versions.get(key) ?? []).slice(-2);
    if (after?.revision !== revision || before?.pod?.serves !== true || after.pod === undefined) return false;
    return hasLabels(before.pod.labels, labels) && !hasLabels(after.pod.labels, labels);
  }

  /** Returns how many pods are available now. */
  countNow(wanted: WantedPods): number {
    let count = 0;
    for (const pod of this.#now.values()) if (isAvailable(pod, wanted, Number.POSITIVE_INFINITY)) count += 1;
    return count;
  }

  /** True when the pod lives and is available now. */
  isAvailableNow(uid: string, wanted: WantedPods, cutoffMs: number): boolean {
    const pod = this.#now.get(uid);
    return pod !== undefined && isAvailable(pod, wanted, cutoffMs);
  }

  /**
   * etcd was restored: from `revision` on, which no write has, the pods are those of the backup. The versions that
   * components saw before stay on record, because components may still count them.
   */
  restored(revision: number, objects: Iterable<readonly [string, Json]>): void {
    const back = new Map(objects);
    for (const [key, versions] of this.#versions) if (!back.has(key)) versions.push({ revision, pod: undefined });
    const living = new Map<string, PodFacts>();
    for (const [key, value] of back) {
      const pod = factsOf(value);
      living.set(pod.uid, pod);
      const versions = this.#versions.get(key) ?? [];
      versions.push({ revision, pod });
      this.#versions.set(key, versions);
      if (!hasEnded(value)) this.#deaths.delete(pod.uid);
      // The pod lived in the lost history, and had ended in this older one.
      else if (!this.#deaths.has(pod.uid)) this.#deaths.set(pod.uid, { revision, deleted: undefined });
    }
    // A pod that the backup lacks is gone, and nobody deleted it.
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
    learnUid(uid);
    const before = this.#now.get(uid);
    if (after === undefined) this.#now.delete(uid);
    else this.#now.set(uid, after);
    if (this.#deaths.has(uid)) return;
    const phase = record(change.after?.value.status).phase;
    const deleted =
      change.after === undefined ||
      metadataOf(change.after.value).deletionTimestamp !== undefined ||
      isCollected(change.after.value);
    if (deleted) this.#deaths.set(uid, { revision: change.revision, deleted: before });
    else if (phase === "Succeeded" || phase === "Failed")
      this.#deaths.set(uid, { revision: change.revision, deleted: undefined });
  }
}

function at(versions: readonly Version[], revision: number): PodFacts | undefined {
  let low = 0;
  let high = versions.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((versions[middle]?.revision ?? 0) <= revision) low = middle + 1;
    else high = middle;
  }
  return versions[low - 1]?.pod;
}
