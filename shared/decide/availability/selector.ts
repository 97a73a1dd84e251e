/**
 * `metav1.LabelSelector` as a predicate (design 4). A selector that can't be read in full is enforced as far as
 * possible.
 */
import type { LabelSelector } from "../../schema/podprotector.ts";

export type Labels = Readonly<Record<string, string>>;

export interface CompiledSelector {
  readonly matches: (labels: Labels) => boolean;
  /** What could not be read, in words for the user; empty when all was. */
  readonly problems: readonly string[];
}

/**
 * What a requirement that can't be read means. A selector of pods to protect takes it as fulfilled, so that the
 * protector covers more, not fewer; a selector of pods to count takes it as not fulfilled, so that no pod is counted
 * that should not be.
 */
export type Unreadable = "matches" | "fails";

type Requirement = (labels: Labels) => boolean;

export function compileSelector(selector: LabelSelector, unreadable: Unreadable): CompiledSelector {
  const requirements: Requirement[] = [];
  const problems: string[] = [];
  for (const [key, value] of Object.entries(selector.matchLabels ?? {})) {
    requirements.push((labels) => labelOf(labels, key) === value);
  }
  for (const expression of selector.matchExpressions ?? []) {
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

/** The requirement, or what is wrong with it. */
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

/** Own properties only: a label may be named like a member of Object.prototype. */
function labelOf(labels: Labels, key: string): string | undefined {
  return Object.hasOwn(labels, key) ? labels[key] : undefined;
}
