/** When a pod counts (docs/design.md#state), and how many did at a revision of their cluster. */
import { createHash } from "node:crypto";
import type { ObjectVersion } from "./history.ts";
import { at, integer, list, text, texts } from "./json.ts";

const GATE = "podseidon.kubewharf.io/counted";
const MIRROR = "kubernetes.io/config.mirror";

/** How a UID is named here: packed records have these 64 bits of its hash alone. */
export function nameOfUid(uid: string): string {
  return createHash("sha256").update(uid).digest("hex").slice(0, 16);
}

function conditionOf(pod: unknown, type: string): unknown {
  return list(pod, "status", "conditions").find((one) => at(one, "type") === type);
}

export function isReady(pod: unknown): boolean {
  return at(conditionOf(pod, "Ready"), "status") === "True";
}

/** Will never run again. */
export function isDead(pod: unknown): boolean {
  return (
    pod === undefined ||
    at(pod, "metadata", "deletionTimestamp") !== undefined ||
    ["Succeeded", "Failed"].includes(text(pod, "status", "phase"))
  );
}

/** The gate makes a pod count that is not Ready, which is not judged here. */
export function hasCountedGate(pod: unknown): boolean {
  return list(pod, "spec", "readinessGates").some((gate) => at(gate, "conditionType") === GATE);
}

/** Available, as the protector counts, at a time when transitions up to `cutoff` are mature. */
export function isAvailable(pod: unknown, spec: unknown, cutoff: string): boolean {
  if (isDead(pod) || text(pod, "status", "phase") === "Pending") return false;
  if (at(pod, "metadata", "annotations", MIRROR) !== undefined || !isReady(pod)) return false;
  const more = list(spec, "availabilityConditions");
  if (more.some((type) => at(conditionOf(pod, String(type)), "status") !== "True")) return false;
  const prefix = text(spec, "unavailableLabelPrefix");
  if (prefix !== "" && [...texts(pod, "metadata", "labels").keys()].some((label) => label.startsWith(prefix)))
    return false;
  if (integer(spec, "minReadySeconds") <= 0) return true;
  const since = Date.parse(text(conditionOf(pod, "Ready"), "lastTransitionTime"));
  return since <= Date.parse(cutoff);
}

export function isSelected(selector: unknown, labels: ReadonlyMap<string, string>): boolean {
  for (const [name, value] of texts(selector, "matchLabels")) if (labels.get(name) !== value) return false;
  return list(selector, "matchExpressions").every((requirement) => {
    const value = labels.get(text(requirement, "key"));
    const isOneOf = value !== undefined && list(requirement, "values").includes(value);
    switch (text(requirement, "operator")) {
      case "In":
        return isOneOf;
      case "NotIn":
        return !isOneOf;
      case "Exists":
        return value !== undefined;
      default:
        return value === undefined;
    }
  });
}

/** The pods of a cluster, walked from revision to revision. */
export class PodWalk {
  readonly #versions: readonly ObjectVersion[];
  readonly #now = new Map<string, unknown>();
  #next = 0;

  constructor(versions: readonly ObjectVersion[]) {
    this.#versions = versions;
  }

  /** The pods as they were at this revision, which is not before the last one. */
  at(revision: number): ReadonlyMap<string, unknown> {
    for (;;) {
      const version = this.#versions[this.#next];
      if (version === undefined || version.revision > revision) return this.#now;
      this.#next++;
      if (version.object === undefined) this.#now.delete(version.key);
      else this.#now.set(version.key, version.object);
    }
  }
}

/** The versions of one pod, under any name that it could have: a UID has one. */
export function versionsByUid(versions: readonly ObjectVersion[]): ReadonlyMap<string, readonly ObjectVersion[]> {
  const found = new Map<string, ObjectVersion[]>();
  const uidOf = new Map<string, string>();
  for (const version of versions) {
    const uid =
      version.object === undefined ? uidOf.get(version.key) : nameOfUid(text(version.object, "metadata", "uid"));
    if (uid === undefined) continue;
    uidOf.set(version.key, uid);
    const known = found.get(uid);
    if (known === undefined) found.set(uid, [version]);
    else known.push(version);
  }
  return found;
}
