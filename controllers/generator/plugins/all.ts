/** Every kind of source that the generator reads. One line and one file for each. */
import { compileSelector } from "../../../shared/decide/selector.ts";
import { parseSelectorText } from "../selector-text.ts";
import type { SourcePlugin } from "../source.ts";
import { deploymentPlugin } from "./deployment.ts";

export interface PluginOptions {
  readonly protectSelector: string;
  readonly protectNonZero: boolean;
}

/** Throws for a selector that can't be read; the options are checked before. */
export function plugins({ protectSelector, protectNonZero }: PluginOptions): readonly SourcePlugin[] {
  const selector = parseSelectorText(protectSelector);
  if (selector === undefined) throw new Error(`not a label selector: ${protectSelector}`);
  const { matches: selects } = compileSelector(selector, "matches");
  return [deploymentPlugin({ selects, protectNonZero })];
}
