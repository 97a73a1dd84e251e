/**
 * The plugins of a generator, one for each watched kind, and which objects ask for protection. Read
 * `protection-source.ts` first (the result of a plugin), then `workload-kinds.ts` and `budget-kinds.ts`.
 */

import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import { parseSelectorText } from "../../../shared/decide/availability/selector-text.ts";
import { messageOf } from "../../../shared/runtime/errors.ts";
import {
  ADOPTED,
  ENFORCEMENT_ANNOTATION,
  PROTECT_ANNOTATION,
  PROTECT_LABEL,
} from "../../../shared/schema/annotations.ts";
import type { ObjectMeta } from "../../../shared/schema/podprotector.ts";
import { BUDGET_KINDS, budgetPlugin } from "./budget-kinds.ts";
import { decide, isProtected, type PluginContext, sourceOf } from "./interpret.ts";
import { invalidAnnotation } from "./invalid-annotations.ts";
import { statedEnforcement } from "./namespace-enforcement.ts";
import { type ProtectionSource, pluginName, type SourcePlugin } from "./protection-source.ts";
import { readScalables } from "./scalable.ts";
import { scalablePlugin } from "./scalable-plugin.ts";
import { IGNORED_KINDS, ignoredPlugin, parseMetadata, WORKLOAD_KINDS, workloadPlugin } from "./workload-kinds.ts";

export interface PluginOptions {
  readonly protectSelector: string;
  /** Empty or absent for all namespaces. */
  readonly namespaces?: readonly string[];
  readonly excludedNamespaces?: readonly string[];
  readonly protectNonZero: boolean;
  /** Names of {@link KINDS}; all when absent. */
  readonly kinds?: readonly string[];
  /** Custom resources, in the form that `scalable.ts` reads. */
  readonly scalable?: readonly string[];
}

/** The kinds that `--kinds` may name. */
export const KINDS: readonly string[] = [
  ...WORKLOAD_KINDS.map(({ kind }) => pluginName(kind)),
  ...IGNORED_KINDS.map(pluginName),
  ...BUDGET_KINDS.map(({ kind }) => pluginName(kind)),
].sort();

/** Throws for an unreadable selector or resource. The options are checked before. */
export function plugins(options: PluginOptions): readonly SourcePlugin[] {
  const { protectNonZero, kinds = KINDS, scalable = [] } = options;
  const covers = coveredNamespaces(options);
  const context: PluginContext = { select: selection(options, covers), protectNonZero };
  const readOnly: PluginContext = { select: () => "OutOfScope", protectNonZero };
  const isWanted = ({ name }: SourcePlugin): boolean => kinds.includes(name);
  const others = [
    ...IGNORED_KINDS.map((kind) => ignoredPlugin(kind, context)),
    ...BUDGET_KINDS.map((row) => budgetPlugin(row, context)),
  ].filter(isWanted);
  const hasBudgets = BUDGET_KINDS.some(({ kind }) => kinds.includes(pluginName(kind)));
  const workloads = WORKLOAD_KINDS.flatMap((row) => {
    if (kinds.includes(pluginName(row.kind))) return [{ ...workloadPlugin(row, context), covers }];
    // Budgets count the replicas of workloads, protected or not.
    return hasBudgets ? [{ ...workloadPlugin(row, readOnly), covers: () => false }] : [];
  });
  const { resources, problems } = readScalables(scalable);
  if (problems.length > 0) throw new Error(`not resources: ${problems.join("; ")}`);
  const custom = resources.map((resource) => scalablePlugin(resource, context));
  const all = [...workloads, ...[...others, ...custom].map((plugin) => ({ ...plugin, covers }))];
  return all.map((plugin) => withUnreadable(enforcing(plugin), context));
}

/** The same plugin with the stated enforcement in its sources, and with what is misspelt in what they ask for. */
function enforcing(plugin: SourcePlugin): SourcePlugin {
  return {
    ...plugin,
    interpret(raw) {
      const { metadata } = parseMetadata(raw);
      const source = withEnforcement(plugin.interpret(raw), metadata);
      if (source.decision === "NotSelected" && isMisspelt(metadata)) return { ...source, why: WHY_MISSPELT };
      if (source.why !== undefined || !isProtected(source.decision)) return source;
      const why = invalidAnnotation(metadata, source.need?.kind === "budget");
      return why === undefined ? source : { ...source, why };
    },
  };
}

const WHY_MISSPELT = `it is not protected: its label or annotation ${PROTECT_LABEL} is neither "true" nor "false"`;

/** With another `--protect-selector`, the label "true" may select nothing. */
function isMisspelt({ labels, annotations }: ObjectMeta): boolean {
  return [labels?.[PROTECT_LABEL], annotations?.[PROTECT_ANNOTATION]].some((word) => (word ?? "true") !== "true");
}

function withEnforcement(source: ProtectionSource, { annotations }: ObjectMeta): ProtectionSource {
  const enforcement = statedEnforcement(annotations, ENFORCEMENT_ANNOTATION);
  return enforcement === undefined ? source : { ...source, enforcement };
}

/**
 * The same plugin with a rule for unreadable objects: the last readable version of an object still counts; without one,
 * its protectors stay unchanged. For a kind that only budgets count, the last readable version always stays.
 */
function withUnreadable(plugin: SourcePlugin, context: PluginContext): SourcePlugin {
  // It is not known whether an unreadable workload that is being deleted asks for replicas.
  const replicas = BUDGET_KINDS.some(({ kind }) => kind.kind === plugin.kind.kind) ? 0 : 1;
  return {
    ...plugin,
    unreadable(raw, lastOf) {
      try {
        const { metadata } = parseMetadata(raw);
        if (plugin.covers?.(metadata.namespace ?? "") === false) return undefined;
        const now = withEnforcement(sourceOf(metadata, decide(context, metadata, replicas)), metadata);
        if (!isProtected(now.decision)) return now;
        const last = lastOf(`${now.namespace}/${now.name}`);
        if (last?.uid === now.uid && isProtected(last.decision)) {
          const { enforcement: _, ...known } = last;
          return { ...known, ...now, protectors: last.protectors };
        }
        return { ...now, need: { kind: "unreadable", why: whyUnreadable(plugin, raw) } };
      } catch {
        return undefined;
      }
    },
  };
}

function whyUnreadable({ interpret }: SourcePlugin, raw: unknown): string {
  let why = "";
  try {
    interpret(raw);
  } catch (error) {
    why = `: ${messageOf(error)}`;
  }
  return `it can't be read${why}`;
}

export function coveredNamespaces({
  namespaces = [],
  excludedNamespaces = [],
}: Pick<PluginOptions, "namespaces" | "excludedNamespaces">): (namespace: string) => boolean {
  const only = new Set(namespaces);
  const excluded = new Set(excludedNamespaces);
  // A protector is in the namespace of its source, so a cluster-scoped object can have none.
  return (namespace) => namespace !== "" && !excluded.has(namespace) && (only.size === 0 || only.has(namespace));
}

/**
 * Selects objects by namespace and by label. The annotation overrides the labels, of which `protect=false` overrides
 * the selector.
 */
function selection(
  { protectSelector }: PluginOptions,
  covers: (namespace: string) => boolean,
): PluginContext["select"] {
  const selector = parseSelectorText(protectSelector);
  if (selector === undefined) throw new Error(`not a label selector: ${protectSelector}`);
  const { matches } = compileSelector(selector, "matches");
  return ({ namespace = "", labels = {}, annotations = {} }) => {
    if (!covers(namespace)) return "OutOfScope";
    const stated = annotations[PROTECT_ANNOTATION];
    if (stated !== "true" && (stated === "false" || labels[PROTECT_LABEL] === "false")) return "Declined";
    return stated === "true" || stated === ADOPTED || matches(labels) ? "Selected" : "NotSelected";
  };
}
