/**
 * The pod in every part of the project: parsed once at the edge, and trimmed to the fields in use, so that 100,000 pods
 * fit into memory. The parser is written by hand, because a starting aggregator parses every pod of its cell: a few
 * field reads and no intermediate objects. Pods share equal strings, so that the text of a list response can be freed.
 */
import {
  FORCE_DELETE_ANNOTATION,
  HEALTH_CRITERION_ANNOTATION,
  MIRROR_POD_ANNOTATION,
  NO_PROTECT_ANNOTATION,
  PENDING_DISRUPTION_ANNOTATION,
  PRE_ACTIVITY_PREFIX,
  UPDATE_TRIGGER_ANNOTATION,
  UPDATE_TRIGGER_COUNTER_ANNOTATION,
  UPDATE_TRIGGER_LINEAGE_ANNOTATION,
  VOIDED_ANNOTATION,
} from "./annotations.ts";
import { isRecord, recordOrEmpty } from "./check.ts";
import { MAX_KEY_LENGTH, MAX_LABEL_LENGTH, MAX_NAME_LENGTH, requireShort } from "./lengths.ts";
import { describeValue, SchemaError } from "./schema-error.ts";
import { LATEST_MS } from "./time.ts";

type PodPhase = "Pending" | "Running" | "Succeeded" | "Failed" | "Unknown";

/**
 * One pod condition. `sinceMs` is its lastTransitionTime in Unix milliseconds: 0 when absent, and at most LATEST_MS,
 * which never matures.
 */
export interface PodCondition {
  readonly type: string;
  readonly status: boolean;
  readonly sinceMs: number;
}

export interface Pod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation: number;
  readonly labels: Readonly<Record<string, string>>;
  /** The annotations that the project reads (`annotations.ts`), undefined when the pod has none of them. */
  readonly annotations: Readonly<Record<string, string>> | undefined;
  /** `metadata.deletionTimestamp` is set. */
  readonly terminating: boolean;
  readonly phase: PodPhase;
  readonly conditions: readonly PodCondition[];
  /** `spec.readinessGates[].conditionType`, undefined without gates. */
  readonly readinessGates: readonly string[] | undefined;
  /**
   * Ready is False with the reason `ReadinessGatesNotReady`, which only a kubelet sets: the pod only waits for its
   * readiness gates.
   */
  readonly waitsForGates: boolean;
  /** `spec.nodeName` is set. */
  readonly scheduled: boolean;
  /** Annotation `kubernetes.io/config.mirror`: the mirror of a static pod, whose deletion stops no container. */
  readonly mirror: boolean;
}

type Json = Readonly<Record<string, unknown>>;

/** Bound on each table of shared values. A full table is emptied, which only costs memory. */
const MAX_SHARED = 20_000;
/** Characters of all shared labels, so that a few huge sets can't fill the memory. */
const MAX_SHARED_CHARACTERS = 8_000_000;
/** Overhead of a label, in characters. */
const LABEL_CHARACTERS = 64;

const ANNOTATIONS_IN_USE: ReadonlySet<string> = new Set([
  FORCE_DELETE_ANNOTATION,
  HEALTH_CRITERION_ANNOTATION,
  MIRROR_POD_ANNOTATION,
  NO_PROTECT_ANNOTATION,
  PENDING_DISRUPTION_ANNOTATION,
  UPDATE_TRIGGER_ANNOTATION,
  UPDATE_TRIGGER_COUNTER_ANNOTATION,
  UPDATE_TRIGGER_LINEAGE_ANNOTATION,
  VOIDED_ANNOTATION,
]);

/** One denies like all of them. A pod may have 8,000, which each of its protectors would look through. */
const MAX_PRE_ACTIVITIES = 100;

const NO_LABELS: Readonly<Record<string, string>> = Object.freeze({});
const NO_CONDITIONS: readonly PodCondition[] = Object.freeze([]);

const sharedStrings = new Map<string, string>();
const sharedLabels = new Map<string, Readonly<Record<string, string>>>();
let sharedCharacters = 0;

/**
 * Returns the pod that `raw` describes. Throws `SchemaError` with the field's path for anything that no apiserver would
 * send. Accepts every pod that is valid for Kubernetes.
 */
export function parsePod(raw: unknown): Pod {
  if (!isRecord(raw)) throw expected("", "a pod object", raw);
  const metadata = raw.metadata;
  if (!isRecord(metadata)) throw expected("metadata", "an object", metadata);
  const spec = objectOrNone(raw.spec, "spec");
  const status = objectOrNone(raw.status, "status");
  const annotations = objectOrNone(metadata.annotations, "metadata.annotations");
  return {
    namespace: share(text(metadata.namespace, "metadata.namespace", MAX_LABEL_LENGTH)),
    name: text(metadata.name, "metadata.name"),
    uid: text(metadata.uid, "metadata.uid"),
    resourceVersion: text(metadata.resourceVersion, "metadata.resourceVersion"),
    generation: generation(metadata.generation),
    labels: labels(metadata),
    annotations: annotationsInUse(annotations),
    terminating: textOrNone(metadata.deletionTimestamp, "metadata.deletionTimestamp") !== undefined,
    phase: phase(status?.phase),
    conditions: conditions(status?.conditions),
    readinessGates: readinessGates(spec?.readinessGates),
    waitsForGates: waitsForGates(status?.conditions),
    scheduled: (textOrNone(spec?.nodeName, "spec.nodeName") ?? "") !== "",
    mirror: annotations?.[MIRROR_POD_ANNOTATION] !== undefined,
  };
}

/**
 * As {@link parsePod}, but a partly unreadable pod is present and not Ready: it neither counts nor needs quota to be
 * disrupted. Throws `SchemaError` only where the pod has no name, namespace, UID or version.
 */
export function parseAnyPod(raw: unknown): Pod {
  try {
    return parsePod(raw);
  } catch (error) {
    const pod = stubOfPod(raw);
    if (pod === undefined) throw error;
    return pod;
  }
}

/** The readable facts of a pod that {@link parsePod} rejects; undefined where the pod can't be identified. */
export function stubOfPod(raw: unknown): Pod | undefined {
  const { metadata, status } = recordOrEmpty(raw);
  const { namespace, name, uid, resourceVersion, labels: rawLabels, ...meta } = recordOrEmpty(metadata);
  if (!(isText(namespace) && isText(name) && isText(uid) && isText(resourceVersion))) return undefined;
  // An object with labels that no apiserver stores is not a pod.
  if (!Object.entries(stringsOf(rawLabels)).every(([key, value]) => isLabel(key, value))) return undefined;
  const annotations = stringsOf(meta.annotations);
  const stated = recordOrEmpty(status).phase;
  return {
    ...{ namespace, name, uid, resourceVersion },
    generation: isGeneration(meta.generation) ? meta.generation : 0,
    labels: stringsOf(rawLabels),
    annotations: annotationsInUse(annotations),
    terminating: meta.deletionTimestamp !== undefined && meta.deletionTimestamp !== null,
    phase: isText(stated) && isPhase(stated) ? stated : "Unknown",
    conditions: NO_CONDITIONS,
    readinessGates: undefined,
    waitsForGates: false,
    scheduled: true,
    mirror: annotations[MIRROR_POD_ANNOTATION] !== undefined,
  };
}

function stringsOf(value: unknown): Readonly<Record<string, string>> {
  const entries = Object.entries(recordOrEmpty(value));
  return Object.fromEntries(entries.filter((entry): entry is [string, string] => typeof entry[1] === "string"));
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "" && value.length <= MAX_NAME_LENGTH;
}

function isKey(key: string): boolean {
  return key.length <= MAX_KEY_LENGTH;
}

function isLabel(key: string, value: string): boolean {
  return isKey(key) && value.length <= MAX_LABEL_LENGTH;
}

function expected(path: string, what: string, value: unknown): SchemaError {
  return new SchemaError(path, `expected ${what}, got ${describeValue(value)}`);
}

function objectOrNone(value: unknown, path: string): Json | undefined {
  if (value === undefined || value === null) return undefined;
  if (!isRecord(value)) throw expected(path, "an object", value);
  return value;
}

function arrayOrNone(value: unknown, path: string): readonly unknown[] {
  if (value === undefined || value === null) return NO_CONDITIONS;
  if (!Array.isArray(value)) throw expected(path, "an array", value);
  return value;
}

function text(value: unknown, path: string, maxLength = MAX_NAME_LENGTH): string {
  if (typeof value !== "string" || value === "") throw expected(path, "a non-empty string", value);
  requireShort(value, path, maxLength);
  return value;
}

function textOrNone(value: unknown, path: string): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== "string") throw expected(path, "a string", value);
  return value;
}

function generation(value: unknown): number {
  if (value === undefined || value === null) return 0;
  if (!isGeneration(value)) throw expected("metadata.generation", "a number of changes", value);
  return value;
}

/** Accepts only generations that the CRD accepts in a record. */
function isGeneration(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

const PHASES: ReadonlySet<string> = new Set<PodPhase>(["Running", "Pending", "Succeeded", "Failed", "Unknown"]);

function isPhase(value: string): value is PodPhase {
  return PHASES.has(value);
}

/** An absent or new phase counts as Unknown: then the conditions decide, which protects more pods. */
function phase(value: unknown): PodPhase {
  const name = textOrNone(value, "status.phase");
  return name !== undefined && isPhase(name) ? name : "Unknown";
}

function share(value: string): string {
  const known = sharedStrings.get(value);
  if (known !== undefined) return known;
  if (sharedStrings.size >= MAX_SHARED) sharedStrings.clear();
  sharedStrings.set(value, value);
  return value;
}

/** Pods of one owner mostly have the same labels: the last labels seen for a `generateName` are tried first. */
function labels(metadata: Json): Readonly<Record<string, string>> {
  const value = objectOrNone(metadata.labels, "metadata.labels");
  if (value === undefined) return NO_LABELS;
  const generateName = metadata.generateName;
  const known = typeof generateName === "string" ? sharedLabels.get(generateName) : undefined;
  if (known !== undefined && sameStrings(known, value)) return known;
  const own: Record<string, string> = {};
  for (const key in value) {
    const label = value[key];
    if (typeof label !== "string") throw expected("metadata.labels", "string values", label);
    if (!isLabel(key, label)) throw expected("metadata.labels", "keys and values as long as labels may be", label);
    own[key] = share(label);
  }
  if (typeof generateName === "string" && generateName.length <= MAX_NAME_LENGTH) shareLabels(generateName, own);
  return own;
}

function shareLabels(generateName: string, own: Readonly<Record<string, string>>): void {
  let characters = generateName.length;
  for (const key in own) characters += key.length + (own[key]?.length ?? 0) + LABEL_CHARACTERS;
  if (characters > MAX_SHARED_CHARACTERS / 100) return;
  sharedCharacters += characters;
  if (sharedLabels.size >= MAX_SHARED || sharedCharacters > MAX_SHARED_CHARACTERS) {
    sharedLabels.clear();
    sharedCharacters = characters;
  }
  sharedLabels.set(generateName, own);
}

function sameStrings(known: Readonly<Record<string, string>>, value: Json): boolean {
  let left = 0;
  for (const key in value) {
    if (known[key] !== value[key]) return false;
    left++;
  }
  for (const _ in known) left--;
  return left === 0;
}

function annotationsInUse(value: Json | undefined): Readonly<Record<string, string>> | undefined {
  if (value === undefined) return undefined;
  let kept: Record<string, string> | undefined;
  let left = MAX_PRE_ACTIVITIES;
  for (const key in value) {
    if (!ANNOTATIONS_IN_USE.has(key) && !(key.startsWith(PRE_ACTIVITY_PREFIX) && isKey(key) && left-- > 0)) continue;
    const annotation = value[key];
    if (typeof annotation !== "string") throw expected("metadata.annotations", "string values", annotation);
    kept ??= {};
    kept[key] = annotation;
  }
  return kept;
}

function conditions(value: unknown): readonly PodCondition[] {
  const list = arrayOrNone(value, "status.conditions");
  if (list.length === 0) return NO_CONDITIONS;
  // `push` would allocate spare room in each of 100,000 pods.
  return list.map(condition);
}

function condition(item: unknown, index: number): PodCondition {
  if (!isRecord(item)) throw expected(`status.conditions[${index}]`, "an object", item);
  const type = item.type;
  if (typeof type !== "string") throw expected(`status.conditions[${index}].type`, "a string", type);
  // Builds the path only for an error, because every pod has some conditions.
  if (type.length > MAX_KEY_LENGTH) requireShort(type, `status.conditions[${index}].type`, MAX_KEY_LENGTH);
  return { type: share(type), status: item.status === "True", sinceMs: instant(item.lastTransitionTime) };
}

/** To be called after {@link conditions}, which checks the list. */
function waitsForGates(list: unknown): boolean {
  const isWaiting = (item: unknown): boolean =>
    isRecord(item) && item.type === "Ready" && item.status === "False" && item.reason === "ReadinessGatesNotReady";
  return Array.isArray(list) && list.some(isWaiting);
}

let lastTime = { text: "", ms: 0 };

/**
 * The conditions of a pod mostly change together, so the last parsed time is cached. An unreadable time counts as the
 * latest: kube-apiserver stores 9999-12-31T23:59:59-14:00 in UTC as year 10000, which is invalid in RFC 3339. One such
 * time must not make the pod unreadable.
 */
function instant(value: unknown): number {
  if (value === undefined || value === null) return 0;
  if (value === lastTime.text) return lastTime.ms;
  if (typeof value !== "string") return LATEST_MS;
  const parsed = Date.parse(value);
  const ms = Number.isNaN(parsed) ? LATEST_MS : Math.min(Math.max(parsed, 0), LATEST_MS);
  lastTime = { text: value, ms };
  return ms;
}

function readinessGates(value: unknown): readonly string[] | undefined {
  const list = arrayOrNone(value, "spec.readinessGates");
  if (list.length === 0) return undefined;
  return list.map((gate, index) => {
    const path = `spec.readinessGates[${index}]`;
    if (!isRecord(gate)) throw expected(path, "an object", gate);
    return share(text(gate.conditionType, `${path}.conditionType`, MAX_KEY_LENGTH));
  });
}
