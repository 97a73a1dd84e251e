/**
 * The plugin of a custom resource of `--scalable`. Without settings, replicas and selector come from the scale
 * subresource, like for `kubectl scale`, and `budgets/` reads them. With paths, they come from the object itself, for
 * each group of its pods.
 */

import * as v from "valibot";
import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import { parseSelectorText } from "../../../shared/decide/availability/selector-text.ts";
import { type IntOrPercent, podCount, type StatedLimits } from "../../../shared/decide/minimum/workload-minimum.ts";
import { LabelSelector } from "../../../shared/schema/podprotector.ts";
import { decide, intOrPercent, isProtected, type PluginContext, sourceOf } from "./interpret.ts";
import { readySeconds } from "./kruise-rollouts.ts";
import { entriesOf, listsOf, readTemplate, type Template } from "./object-paths.ts";
import type { Need, PodGroup, SourcePlugin } from "./protection-source.ts";
import { type Scalable, type ScalableResource, templatesOf } from "./scalable.ts";
import { parseMetadata, podGroup, statedLimits } from "./workload-kinds.ts";

/** Groups of one object: each has a protector in the core, and any user may write such an object. */
const MAX_GROUPS = 100;

export function scalablePlugin({ resource, groups }: ScalableResource, context: PluginContext): SourcePlugin {
  const [first] = groups;
  const isScaled = first?.replicas[0] === undefined;
  return {
    name: `${resource.resource}.${resource.group}`,
    kind: { ...resource, kind: "" },
    optional: true,
    ...(isScaled ? { needsScale: true } : {}),
    interpret(raw) {
      const { metadata, spec } = parseMetadata(raw);
      const stated = statedLimits(metadata);
      // Most custom resources have `spec.replicas`, which only shows here whether an object that is being deleted still
      // asks for pods.
      const { need, replicas } = isScaled
        ? { need: scaleNeed(raw, first, stated), replicas: numberIn(spec, "replicas") ?? 1 }
        : podGroups(raw, groups, stated);
      const decision = decide(context, metadata, replicas);
      // Same path as in Kubernetes' own kinds, Argo's Rollout and OpenKruise's CloneSet.
      const minReadySeconds = podCount(Math.ceil(readySeconds(metadata, numberIn(spec, "minReadySeconds") ?? 0)));
      const ready = minReadySeconds === 0 ? {} : { minReadySeconds };
      return sourceOf(metadata, decision, isProtected(decision) ? { need: { ...need, ...ready } } : {});
    },
  };
}

function numberIn(spec: unknown, field: string): number | undefined {
  const found = typeof spec === "object" && spec !== null ? Reflect.get(spec, field) : undefined;
  return typeof found === "number" ? found : undefined;
}

type ScalableNeed = Extract<Need, { readonly kind: "scale" | "groups" }>;

function scaleNeed(raw: unknown, scalable: Scalable | undefined, stated: StatedLimits): ScalableNeed {
  if (scalable === undefined) return { kind: "scale", stated };
  const limit = maxUnavailableOf(scalable, raw, undefined);
  const maxUnavailable = limit === undefined ? {} : { maxUnavailable: limit };
  if (scalable.selector.length === 0) return { kind: "scale", stated, ...maxUnavailable };
  const selector = selectorOf(scalable.selector, raw, undefined);
  if (typeof selector === "string") return { kind: "groups", groups: [], problem: selector };
  return { kind: "scale", stated, ...maxUnavailable, selector };
}

interface FoundGroups {
  readonly need: ScalableNeed;
  /** The number of pods that the object asks for; more than 0 where the number is unreadable. */
  readonly replicas: number;
}

/** The readable groups, and why the others are unreadable. */
function podGroups(raw: unknown, scalables: readonly Scalable[], stated: StatedLimits): FoundGroups {
  const found = scalables.flatMap((scalable) => groupsOf(raw, scalable, stated));
  const problems = found.filter((group) => typeof group === "string");
  const readable = found.filter((group) => typeof group !== "string");
  const byName = Map.groupBy(readable, ({ name }) => name);
  const groups: PodGroup[] = [];
  for (const [name, [group, ...others]] of byName) {
    // It is unknown which of them a protector of this name was made for.
    if (others.length > 0) problems.push(`several groups of its pods are named ${name}`);
    else if (group !== undefined && groups.length < MAX_GROUPS) groups.push(group);
  }
  if (found.length > MAX_GROUPS) problems.push(`it has more than ${MAX_GROUPS} groups of pods`);
  const replicas = readable.reduce((sum, group) => sum + group.replicas, 0);
  const [problem] = problems;
  const more = problems.length > 1 ? `, and ${problems.length - 1} more such reasons` : "";
  return {
    need: { kind: "groups", groups, problem: problem && `${problem}${more}` },
    replicas: problem === undefined ? replicas : Math.max(1, replicas),
  };
}

/** A text instead of a group is the reason why this group, or all of them, are unreadable. */
function groupsOf(raw: unknown, scalable: Scalable, stated: StatedLimits): (PodGroup | string)[] {
  const templates = templatesOf(scalable);
  const isList = templates.some((template) => listsOf(template).length > 0);
  if (!isList) return [groupOf(raw, undefined, scalable, stated)];
  const entries = entriesOf(raw, templates);
  if (entries === undefined) return [`it has no list for ${scalable.replicas[0]?.text}`];
  return entries.map((entry) => groupOf(raw, entry, scalable, stated));
}

function groupOf(raw: unknown, entry: unknown, scalable: Scalable, stated: StatedLimits): PodGroup | string {
  const { name: named, replicas: factors } = scalable;
  const name = named === undefined ? "" : suffixOf(readTemplate(named, raw, entry));
  if (name === undefined) return `a group of its pods has no name at ${named?.text}`;
  const what = name === "" ? "" : ` of its group ${name}`;
  let replicas = 1;
  for (const counted of factors) {
    const value = readTemplate(counted, raw, entry);
    const factor = typeof value === "string" && /^\d{1,9}$/.test(value) ? Number(value) : value;
    if (typeof factor !== "number" || !Number.isInteger(factor) || factor < 0) {
      return `the replicas${what} at ${counted.text} are no number of pods`;
    }
    replicas *= factor;
  }
  const selector = selectorOf(scalable.selector, raw, entry);
  if (typeof selector === "string") return name === "" ? selector : `its group ${name}: ${selector}`;
  return podGroup(name, replicas, selector, stated, maxUnavailableOf(scalable, raw, entry));
}

/** A suffix that is valid in the name of a Kubernetes object. */
function suffixOf(value: unknown): string | undefined {
  if (typeof value !== "string" && typeof value !== "number") return undefined;
  const name = String(value)
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
  return name === "" ? undefined : name;
}

function maxUnavailableOf({ maxUnavailable }: Scalable, raw: unknown, entry: unknown): IntOrPercent | undefined {
  const value = maxUnavailable === undefined ? undefined : intOrPercent(readTemplate(maxUnavailable, raw, entry));
  return typeof value === "string" && /^\d+$/.test(value) ? Number(value) : value;
}

const Selector = v.strictObject(LabelSelector.entries);
const Labels = v.record(v.string(), v.string());

/** The requirements of all templates together, or why they are unusable. */
function selectorOf(templates: readonly Template[], raw: unknown, entry: unknown): LabelSelector | string {
  const found: LabelSelector[] = [];
  for (const template of templates) {
    const part = readSelector(readTemplate(template, raw, entry));
    if (part === undefined) return `there is no label selector at ${template.text}`;
    found.push(part);
  }
  const labels = found.flatMap((part) => Object.entries(part.matchLabels ?? {}));
  const matchLabels = Object.fromEntries(labels);
  if (labels.some(([key, value]) => matchLabels[key] !== value)) return "its label selectors exclude each other";
  const matchExpressions = found.flatMap((part) => part.matchExpressions ?? []);
  const selector: LabelSelector = {
    ...(Object.keys(matchLabels).length === 0 ? {} : { matchLabels }),
    ...(matchExpressions.length === 0 ? {} : { matchExpressions }),
  };
  const [problem] = compileSelector(selector, "fails").problems;
  if (problem !== undefined) return `its label selector can't be read: ${problem}`;
  // An empty selector would protect and count the pods of other workloads.
  return Object.keys(selector).length === 0 ? "its label selector selects all pods" : selector;
}

/** Accepts a LabelSelector, a plain map of labels, or the text of a selector. */
function readSelector(value: unknown): LabelSelector | undefined {
  if (typeof value === "string") return parseSelectorText(value);
  const selector = v.safeParse(Selector, value);
  if (selector.success) return selector.output;
  const labels = v.safeParse(Labels, value);
  return labels.success ? { matchLabels: labels.output } : undefined;
}
