/** Which objects ask for protection (design 7, 12): by kind, namespace, label, and an annotation that overrides the label. */
import { compileSelector } from "../../../shared/decide/availability/selector.ts";
import { PROTECT_ANNOTATION } from "../../../shared/schema/annotations.ts";
import type { ObjectMeta } from "../../../shared/schema/podprotector.ts";
import { parseSelectorText } from "./selector-text.ts";

/** `OutOfScope`: another generator's, or nobody's; what protects it is left as it is. */
export type Choice = "Selected" | "NotSelected" | "OutOfScope";

export interface SelectionOptions {
  readonly protectSelector: string;
  /** Empty or absent: all. */
  readonly namespaces?: readonly string[];
  readonly excludedNamespaces?: readonly string[];
}

/** Whether a namespace is looked after. */
export function scope(
  options: Pick<SelectionOptions, "namespaces" | "excludedNamespaces">,
): (namespace: string) => boolean {
  const only = new Set(options.namespaces ?? []);
  const excluded = new Set(options.excludedNamespaces ?? []);
  return (namespace) => !excluded.has(namespace) && (only.size === 0 || only.has(namespace));
}

/** Throws for a selector that can't be read; the options are checked before. */
export function selection(options: SelectionOptions): (metadata: ObjectMeta) => Choice {
  const selector = parseSelectorText(options.protectSelector);
  if (selector === undefined) throw new Error(`not a label selector: ${options.protectSelector}`);
  const { matches } = compileSelector(selector, "matches");
  const covers = scope(options);
  return ({ namespace = "", labels = {}, annotations = {} }) => {
    if (!covers(namespace)) return "OutOfScope";
    const stated = annotations[PROTECT_ANNOTATION];
    if (stated === "true" || stated === "false") return stated === "true" ? "Selected" : "NotSelected";
    return matches(labels) ? "Selected" : "NotSelected";
  };
}
