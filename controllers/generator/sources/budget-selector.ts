import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import { isLabelKey, isLabelValue } from "../../../shared/decide/availability/selector-text.ts";
import type { LabelSelector } from "../../../shared/schema/podprotector.ts";
import { SchemaError } from "../../../shared/schema/schema-error.ts";

/**
 * The selector of a budget. The CRD of its kind may accept a selector that matches no possible pod, and that is invalid
 * in a PodProtector: such a budget is unreadable. Throws `SchemaError`.
 */
export function budgetSelector(
  name: "selector" | "ignoredPodSelector",
  selector: LabelSelector | null | undefined,
): LabelSelector | undefined {
  if (selector === null || selector === undefined) return undefined;
  const problem = problemOf(selector);
  if (problem !== undefined) throw new SchemaError(`spec.${name}`, problem);
  return selector;
}

function problemOf(selector: LabelSelector): string | undefined {
  const { matchLabels = {}, matchExpressions = [] } = selector;
  const [problem] = compileSelector(selector, "fails").problems;
  if (problem !== undefined) return problem;
  const existence = matchExpressions.find(
    ({ operator, values }) => ["Exists", "DoesNotExist"].includes(operator) && (values ?? []).length > 0,
  );
  if (existence !== undefined) return `operator ${existence.operator} of label ${existence.key} has values`;
  const key = [...Object.keys(matchLabels), ...matchExpressions.map((one) => one.key)].find((one) => !isLabelKey(one));
  if (key !== undefined) return `${JSON.stringify(key)} is no label key`;
  const values = [...Object.values(matchLabels), ...matchExpressions.flatMap((one) => one.values ?? [])];
  const value = values.find((one) => !isLabelValue(one));
  return value === undefined ? undefined : `${JSON.stringify(value)} is no label value`;
}
