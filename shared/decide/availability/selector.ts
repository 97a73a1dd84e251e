/**
 * `metav1.LabelSelector` as a predicate. The readable part of a selector is enforced even when another part is
 * unreadable.
 */
import type { LabelSelector } from "../../schema/podprotector.ts";

export type Labels = Readonly<Record<string, string>>;

export interface CompiledSelector {
  readonly matches: (labels: Labels) => boolean;
  /** The unreadable parts, as text for the user; empty for a readable selector. */
  readonly problems: readonly string[];
}

/**
 * How an unreadable requirement counts. In a selector of protected pods, it matches, so that the protector covers more
 * pods. In a selector of counted pods, it fails, so that no pod is counted by mistake.
 */
export type Unreadable = "matches" | "fails";

/** Bounds of a selector and its cost: the CRD rejects larger ones. */
const MAX_REQUIREMENTS = 64;
const MAX_VALUES = 256;

interface ReadablePart {
  readonly selector: LabelSelector;
  readonly problems: string[];
}

/** The requirements within the bounds; the others count as unreadable. */
export function readablePart(selector: LabelSelector): ReadablePart {
  const { matchLabels = {}, matchExpressions = [] } = selector;
  const keys = Object.keys(matchLabels);
  const within = matchExpressions
    .slice(0, MAX_REQUIREMENTS)
    .filter(({ values }) => (values ?? []).length <= MAX_VALUES);
  const problems: string[] = [];
  if (keys.length > MAX_REQUIREMENTS) problems.push(`matchLabels has more than ${MAX_REQUIREMENTS} labels`);
  if (matchExpressions.length > MAX_REQUIREMENTS)
    problems.push(`matchExpressions has more than ${MAX_REQUIREMENTS} requirements`);
  if (within.length < Math.min(matchExpressions.length, MAX_REQUIREMENTS))
    problems.push(`matchExpressions has a requirement with more than ${MAX_VALUES} values`);
  if (problems.length === 0) return { selector, problems };
  const labels = keys.slice(0, MAX_REQUIREMENTS).map((key) => [key, matchLabels[key] ?? ""] as const);
  return { selector: { matchLabels: Object.fromEntries(labels), matchExpressions: within }, problems };
}

type Requirement = (labels: Labels) => boolean;

export function compileSelector(selector: LabelSelector, unreadable: Unreadable): CompiledSelector {
  const requirements: Requirement[] = [];
  const { selector: readable, problems } = readablePart(selector);
  if (problems.length > 0 && unreadable === "fails") requirements.push(() => false);
  for (const [key, value] of Object.entries(readable.matchLabels ?? {})) {
    requirements.push((labels) => labelOf(labels, key) === value);
  }
  for (const expression of readable.matchExpressions ?? []) {
    const { key, operator } = expression;
    const requirement = compileExpression(key, operator, expression.values ?? []);
    if (typeof requirement !== "string") requirements.push(requirement);
    else {
      problems.push(requirement);
      if (unreadable === "fails") requirements.push(() => false);
    }
  }
  return { matches: (labels) => requirements.every((requirement) => requirement(labels)), problems };
}

/**
 * Returns the predicate for pods that a protector selects but does not protect; undefined where it protects all of
 * them.
 */
export function ignoredBy(selector: LabelSelector | undefined): ((labels: Labels) => boolean) | undefined {
  const { matchLabels = {}, matchExpressions = [] } = selector ?? {};
  const isEmpty = matchExpressions.length === 0 && Object.keys(matchLabels).length === 0;
  return isEmpty ? undefined : compileSelector({ matchLabels, matchExpressions }, "fails").matches;
}

/** The requirement, or the problem with it. */
function compileExpression(key: string, operator: string, values: readonly string[]): Requirement | string {
  const set = new Set(values);
  switch (operator) {
    case "In":
      if (set.size === 0) return `operator In of label ${key} has no values`;
      return (labels) => set.has(labelOf(labels, key) ?? "") && labelOf(labels, key) !== undefined;
    case "NotIn":
      if (set.size === 0) return `operator NotIn of label ${key} has no values`;
      return (labels) => labelOf(labels, key) === undefined || !set.has(labelOf(labels, key) ?? "");
    case "Exists":
      return (labels) => labelOf(labels, key) !== undefined;
    case "DoesNotExist":
      return (labels) => labelOf(labels, key) === undefined;
    default:
      return `operator ${operator} of label ${key} is unknown`;
  }
}

/** Own properties only: a label may have the name of a member of Object.prototype. */
function labelOf(labels: Labels, key: string): string | undefined {
  return Object.hasOwn(labels, key) ? labels[key] : undefined;
}
