/**
 * The merged budgets that the core needs for the budgets of one name in all worker clusters. Pure.
 *
 * A cluster can only add: its budget can't make the promise of another cluster's budget smaller
 * (docs/decisions/0015-budgets-of-worker-clusters.md).
 */
import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import {
  CLUSTER_BUDGETS_ANNOTATION,
  CLUSTER_BUDGETS_LABEL,
  PROTECT_ANNOTATION,
  SUSPEND_CELLS_ANNOTATION,
} from "../../../shared/schema/annotations.ts";
import { MAX_NAME_LENGTH } from "../../../shared/schema/lengths.ts";
import type { LabelSelector } from "../../../shared/schema/podprotector.ts";
import { type ClusterBudget, type MergedBudget, selectorKey } from "./cluster-budget.ts";
import type { ClusterPart } from "./cluster-parts.ts";

export interface MergeInput {
  readonly namespace: string;
  /** Name of the budgets in their clusters. */
  readonly name: string;
  /** In the order of the flags. */
  readonly clusters: readonly {
    readonly name: string;
    /** All budgets of the cluster are known. Until then, the previous limits stay in force. */
    readonly isListed: boolean;
    readonly budget: ClusterBudget | undefined;
  }[];
  readonly stored: readonly MergedBudget[];
  /** Milliseconds since the cluster stopped asking for this selector, beginning with the first call. */
  readonly goneForMs: (cluster: string, selector: string) => number;
  /** Milliseconds for which the limits still count after that. */
  readonly keepMs: number;
}

/** The metadata and spec of a merged budget; null removes a field. */
export interface WantedBudget {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string | null>>;
  readonly spec: Readonly<Record<string, unknown>>;
}

export interface MergePlan {
  /** Budgets to create, each under the first of its names that is free, and the clusters that ask for it. */
  readonly creates: readonly {
    readonly names: readonly string[];
    readonly wanted: WantedBudget;
    readonly clusters: readonly string[];
  }[];
  readonly updates: readonly { readonly stored: MergedBudget; readonly wanted: WantedBudget }[];
  readonly deletes: readonly MergedBudget[];
  /** Milliseconds until the plan changes without an event. */
  readonly againMs: number | undefined;
}

/** Budgets with the same selector. */
interface Group {
  readonly selector: LabelSelector;
  /** In the order of the flags, which an object does not keep for names that are numbers. */
  readonly parts: Map<string, ClusterPart>;
}

export function planMerge(input: MergeInput): MergePlan {
  const { groups, againMs } = groupsOf(input);
  const present = new Map<string, MergedBudget>();
  const deletes: MergedBudget[] = [];
  // The generator ignores a merged budget that is being deleted, even while the finalizers of others keep the object.
  for (const stored of input.stored.filter(({ deleting }) => !deleting)) {
    const key = selectorKey(stored.selector);
    if (groups.has(key) && !present.has(key)) present.set(key, stored);
    else deletes.push(stored);
  }
  const creates: MergePlan["creates"][number][] = [];
  const updates: MergePlan["updates"][number][] = [];
  for (const [key, group] of groups) {
    const wanted = wantedOf(input.name, group);
    const stored = present.get(key);
    const names = [input.name, otherName(input.name, key)];
    if (stored === undefined) creates.push({ names, wanted, clusters: [...group.parts.keys()] });
    else if (!isAsWanted(stored, wanted)) updates.push({ stored, wanted });
  }
  return { creates, updates, deletes, againMs };
}

/** The limits that the clusters ask for now, and those that they asked for a short time ago. */
function groupsOf({ clusters, stored, goneForMs, keepMs }: MergeInput) {
  const groups = new Map<string, Group>();
  let againMs: number | undefined;
  const add = (cluster: string, selector: LabelSelector, part: ClusterPart): void => {
    const key = selectorKey(selector);
    const group = groups.get(key) ?? { selector, parts: new Map<string, ClusterPart>() };
    group.parts.set(cluster, part);
    groups.set(key, group);
  };
  for (const { name, isListed, budget } of clusters) {
    if (budget?.selector !== undefined) add(name, budget.selector, budget.part);
    const asked = budget?.selector === undefined ? undefined : selectorKey(budget.selector);
    for (const { selector, parts } of stored) {
      const part = parts[name];
      const key = selectorKey(selector);
      if (part === undefined || key === asked) continue;
      if (isListed) {
        const leftMs = keepMs - goneForMs(name, key);
        if (leftMs <= 0) continue;
        againMs = Math.min(againMs ?? leftMs, leftMs);
      }
      add(name, selector, part);
    }
  }
  return { groups, againMs };
}

/**
 * The spec shows the limits of the first cluster, for people. The annotation has the limits of all clusters, and the
 * strictest one counts. A suspension applies to the clusters that ask for it. The probe is that of the first cluster
 * with one, so that a later cluster can't replace it.
 */
function wantedOf(of: string, { selector, parts }: Group): WantedBudget {
  const all = [...parts];
  const [, first = {}] = all[0] ?? [];
  const suspended = all.flatMap(([cluster, { suspend }]) => (suspend === true ? [cluster] : []));
  const endpoint = all.map(([, part]) => part.endpoint).find((one) => one !== undefined);
  return {
    labels: { [CLUSTER_BUDGETS_LABEL]: "true" },
    annotations: {
      [PROTECT_ANNOTATION]: "true",
      [CLUSTER_BUDGETS_ANNOTATION]: JSON.stringify({ name: of, clusters: Object.fromEntries(parts) }),
      [SUSPEND_CELLS_ANNOTATION]: suspended.length === 0 ? null : suspended.join(","),
    },
    spec: {
      minAvailable: first.minAvailable ?? null,
      maxUnavailable: first.maxUnavailable ?? null,
      suspend: suspended.length > 0 ? true : null,
      probe: endpoint === undefined ? null : { endpoint, enabled: true },
      selector,
    },
  };
}

function isAsWanted({ labels, annotations, spec }: MergedBudget, wanted: WantedBudget): boolean {
  const has = (have: Readonly<Record<string, unknown>>, want: Readonly<Record<string, unknown>>): boolean =>
    Object.entries(want).every(([key, value]) =>
      value === null ? have[key] === undefined || have[key] === null : isDeepStrictEqual(have[key], value),
    );
  return has(labels, wanted.labels) && has(annotations, wanted.annotations) && has(spec, wanted.spec);
}

/** An alternative to `name` within the length of a name. */
function otherName(name: string, key: string): string {
  const end = hash("sha256", key, "hex").slice(0, 8);
  return `${name.slice(0, MAX_NAME_LENGTH - end.length - 1).replace(/[^a-z0-9]+$/, "")}-${end}`;
}
