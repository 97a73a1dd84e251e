/** A selector less the pods of another one, as far as one label selector can say that. */
import type { LabelSelector } from "../../../shared/schema/podprotector.ts";

type Requirement = NonNullable<LabelSelector["matchExpressions"]>[number];

const OPPOSITE: Readonly<Record<string, string>> = {
  In: "NotIn",
  NotIn: "In",
  Exists: "DoesNotExist",
  DoesNotExist: "Exists",
};

/**
 * `selector` without the pods that `exempt` selects; itself when there is no `exempt`, or when that has more than one requirement,
 * which can't be turned round within one selector: more is protected then than was asked for, and `note` says so.
 */
export function without(
  selector: LabelSelector,
  exempt: LabelSelector | undefined,
): { readonly selector: LabelSelector; readonly note: string } {
  if (exempt === undefined) return { selector, note: "" };
  const requirements: Requirement[] = [
    ...Object.entries(exempt.matchLabels ?? {}).map(([key, value]) => ({ key, operator: "In", values: [value] })),
    ...(exempt.matchExpressions ?? []),
  ];
  const [only, ...others] = requirements;
  const operator = only === undefined ? undefined : OPPOSITE[only.operator];
  if (only === undefined || operator === undefined || others.length > 0) {
    return { selector, note: "; the exempted pods are protected too: only one requirement can be taken out" };
  }
  const opposite: Requirement = { ...only, operator };
  return { selector: { ...selector, matchExpressions: [...(selector.matchExpressions ?? []), opposite] }, note: "" };
}
