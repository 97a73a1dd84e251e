/**
 * What is true of the pods of one cell at every revision, kept apart from every component's view: the simulation's checks
 * compare against this. The predicate is written anew here, on raw objects, so that it can't share a mistake with the product.
 */
import type { Change, Etcd, Json } from "./apiserver/etcd.ts";
import { metadataOf, record, text } from "./apiserver/objects.ts";

export interface Wanted {
  readonly labels: Readonly<Record<string, string>>;
  readonly minReadySeconds: number;
}

interface Version {
  readonly revision: number;
  /** Undefined: deleted at this revision. */
  readonly pod: Json | undefined;
}

/** Ready, not terminating, not finished, and ready since `cutoffMs` or before. */
export function isTrulyAvailable(pod: Json, wanted: Wanted, cutoffMs: number): boolean {
  const labels = record(metadataOf(pod).labels);
  if (!Object.entries(wanted.labels).every(([key, value]) => labels[key] === value)) return false;
  if (metadataOf(pod).deletionTimestamp !== undefined) return false;
  const status = record(pod.status);
  if (status.phase === "Succeeded" || status.phase === "Failed") return false;
  const conditions = Array.isArray(status.conditions) ? status.conditions.map(record) : [];
  const ready = conditions.find((condition) => condition.type === "Ready");
  if (ready?.status !== "True") return false;
  return wanted.minReadySeconds <= 0 || Date.parse(String(ready.lastTransitionTime)) <= cutoffMs;
}

export class PodTruth {
  readonly #versions = new Map<string, Version[]>();
  readonly #deadAt = new Map<string, number>();

  constructor(etcd: Etcd) {
    etcd.observe((change) => this.#record(change));
  }

  /** Names the UIDs that were available at exactly `revision`. */
  availableAt(revision: number, wanted: Wanted, cutoffMs: number): Set<string> {
    const found = new Set<string>();
    for (const versions of this.#versions.values()) {
      const pod = at(versions, revision);
      if (pod !== undefined && isTrulyAvailable(pod, wanted, cutoffMs)) found.add(text(metadataOf(pod).uid) ?? "");
    }
    return found;
  }

  /** The revision at which this UID became terminating, finished or absent; undefined while it lives. */
  deadAt(uid: string): number | undefined {
    return this.#deadAt.get(uid);
  }

  /** etcd was restored to `revision`: what came later did not happen. */
  rewind(revision: number): void {
    for (const [key, versions] of this.#versions) {
      const kept = versions.filter((version) => version.revision <= revision);
      if (kept.length === 0) this.#versions.delete(key);
      else this.#versions.set(key, kept);
    }
    for (const [uid, dead] of this.#deadAt) if (dead > revision) this.#deadAt.delete(uid);
  }

  #record(change: Change): void {
    if (!change.key.startsWith("pods/")) return;
    const versions = this.#versions.get(change.key) ?? [];
    versions.push({ revision: change.revision, pod: change.after?.value });
    this.#versions.set(change.key, versions);
    const pod = change.after?.value ?? change.before?.value;
    const uid = text(metadataOf(pod ?? {}).uid);
    if (uid === undefined || this.#deadAt.has(uid)) return;
    const phase = record(change.after?.value.status).phase;
    const ended = change.after === undefined || metadataOf(change.after.value).deletionTimestamp !== undefined;
    if (ended || phase === "Succeeded" || phase === "Failed") this.#deadAt.set(uid, change.revision);
  }
}

function at(versions: readonly Version[], revision: number): Json | undefined {
  let low = 0;
  let high = versions.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((versions[middle]?.revision ?? 0) <= revision) low = middle + 1;
    else high = middle;
  }
  return versions[low - 1]?.pod;
}
