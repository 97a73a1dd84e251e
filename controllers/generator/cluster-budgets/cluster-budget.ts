/**
 * XPodDisruptionBudgets of worker clusters, and the budgets in the core cluster that represent them
 * (docs/design.md#budgets-of-worker-clusters).
 */
import * as v from "valibot";
import { INT32_MAX, type IntOrPercent } from "../../../shared/decide/minimum/workload-minimum.ts";
import { CLUSTER_BUDGETS_ANNOTATION, PROTECT_ANNOTATION, PROTECT_LABEL } from "../../../shared/schema/annotations.ts";
import { checker } from "../../../shared/schema/check.ts";
import { MAX_NAME_LENGTH, requireShort } from "../../../shared/schema/lengths.ts";
import { isDeleting, LabelSelector, ObjectMeta } from "../../../shared/schema/podprotector.ts";
import { budgetSelector } from "../sources/budget-selector.ts";
import { intOrPercent } from "../sources/interpret.ts";
import { endpointProblem } from "../sources/probe-endpoint.ts";
import { type ClusterPart, readClusterParts } from "./cluster-parts.ts";

interface Identity extends Pick<ObjectMeta, "name" | "uid" | "resourceVersion"> {
  readonly namespace: string;
}

/** A budget of a worker cluster. */
export interface ClusterBudget extends Identity {
  /** Undefined for a budget that declines protection, or is being deleted. */
  readonly selector: LabelSelector | undefined;
  readonly part: ClusterPart;
  /** The budget exists, but its spec is unreadable, so its previous limits stay in force. */
  readonly isUnreadable?: true;
}

/** A budget of the core that this generator made from those of worker clusters. */
export interface MergedBudget extends Identity {
  readonly deleting: boolean;
  /** The name that the budgets have in their clusters. */
  readonly of: string;
  readonly selector: LabelSelector;
  readonly parts: Readonly<Record<string, ClusterPart>>;
  /** The stored labels and annotations, to determine whether a write is needed. */
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly spec: Readonly<Record<string, unknown>>;
}

const parseBudget = checker(
  v.looseObject({
    metadata: ObjectMeta,
    spec: v.optional(
      v.looseObject({
        minAvailable: v.optional(v.unknown()),
        maxUnavailable: v.optional(v.unknown()),
        selector: v.nullish(LabelSelector),
        suspend: v.nullish(v.boolean()),
        probe: v.nullish(v.looseObject({ endpoint: v.optional(v.string()), enabled: v.nullish(v.boolean()) })),
      }),
    ),
  }),
);

/** Longer than any number or percentage. */
const MAX_LIMIT = 32;
/** All budgets of a cluster that is taken over may have such a selector. */
const MAX_SELECTOR_CHARACTERS = 8 * 1024;

/**
 * Throws for a selector that a budget can't have. One object stores the limits of all clusters, and an apiserver
 * rejects the object as a whole. So no part may be too long, or invalid for a protector.
 */
export function clusterBudgetOf(raw: unknown): ClusterBudget {
  const { metadata, spec = {} } = parseBudget(raw);
  const { endpoint = "", enabled } = spec.probe ?? {};
  const identity = identityOf(metadata);
  requireShort(JSON.stringify(spec.selector), "spec.selector", MAX_SELECTOR_CHARACTERS);
  return {
    ...identity,
    // As in x-pdb, an absent selector selects all pods.
    selector: asks(metadata) ? budgetSelector("selector", spec.selector ?? {}) : undefined,
    part: {
      minAvailable: limitOf(spec.minAvailable),
      maxUnavailable: limitOf(spec.maxUnavailable),
      ...(spec.suspend === true ? { suspend: true } : {}),
      ...(endpoint !== "" && enabled !== false && endpointProblem(endpoint) === undefined ? { endpoint } : {}),
    },
  };
}

function asks(metadata: ObjectMeta): boolean {
  const { labels = {}, annotations = {} } = metadata;
  return !isDeleting(metadata) && (annotations[PROTECT_ANNOTATION] ?? labels[PROTECT_LABEL]) !== "false";
}

const parseMetadata = checker(v.looseObject({ metadata: ObjectMeta }));

/**
 * An unreadable budget still exists, and its last readable version still counts. `lastOf` returns the last version by
 * `namespace/name`. Undefined for an object without metadata.
 */
export function unreadableBudget(
  raw: unknown,
  lastOf: (key: string) => ClusterBudget | undefined,
): ClusterBudget | undefined {
  try {
    const { metadata } = parseMetadata(raw);
    const found = { ...identityOf(metadata), selector: undefined, part: {} };
    if (!asks(metadata)) return found;
    const last = lastOf(`${found.namespace}/${found.name}`);
    return last?.uid === found.uid ? last : { ...found, isUnreadable: true };
  } catch {
    return undefined;
  }
}

function limitOf(stated: unknown): IntOrPercent | undefined {
  const limit = intOrPercent(stated);
  const fits =
    typeof limit === "number"
      ? Number.isInteger(limit) && Math.abs(limit) <= INT32_MAX
      : (limit ?? "").length <= MAX_LIMIT;
  return fits ? limit : "unreadable";
}

/** Throws for a budget whose clusters can't be read. */
export function mergedBudgetOf(raw: unknown): MergedBudget {
  const { metadata, spec = {} } = parseBudget(raw);
  const { labels = {}, annotations = {} } = metadata;
  const { name: of, clusters: parts } = readClusterParts(annotations[CLUSTER_BUDGETS_ANNOTATION] ?? "");
  const deleting = isDeleting(metadata);
  return { ...identityOf(metadata), deleting, of, selector: spec.selector ?? {}, parts, labels, annotations, spec };
}

/** Somebody has altered a merged budget so that its clusters can't be read: they are as before, and to be written. */
export function alteredBudget(
  raw: unknown,
  lastOf: (key: string) => MergedBudget | undefined,
): MergedBudget | undefined {
  try {
    const { metadata } = parseMetadata(raw);
    const { annotations = {} } = metadata;
    const found = identityOf(metadata);
    const last = lastOf(`${found.namespace}/${found.name}`);
    return last?.uid === found.uid ? { ...last, ...found, deleting: isDeleting(metadata), annotations } : undefined;
  } catch {
    return undefined;
  }
}

/** Throws for texts that no apiserver stores. */
function identityOf({ namespace = "", name, uid, resourceVersion }: ObjectMeta): Identity {
  const identity = { namespace, name, uid, resourceVersion };
  for (const [key, text] of Object.entries(identity)) requireShort(text, `metadata.${key}`, MAX_NAME_LENGTH);
  return identity;
}

/** Equal for selectors with the same requirements in another order. */
export function selectorKey({ matchLabels = {}, matchExpressions = [] }: LabelSelector): string {
  const labels = Object.entries(matchLabels).sort(([one], [other]) => (one < other ? -1 : 1));
  const expressions = matchExpressions
    .map(({ key, operator, values }) => JSON.stringify([key, operator, [...(values ?? [])].sort()]))
    .sort();
  return JSON.stringify([labels, expressions]);
}
