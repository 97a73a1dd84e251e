import { registerHooks } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { root } from "../../../scripts/root.ts";
import { RULES, type Rule, type SourceEdit } from "./rules.ts";

/** Returns `source` after `edits`. Throws when an edit does not fit, because the code has changed. */
export function edited(source: string, edits: readonly SourceEdit[]): string {
  let text = source;
  for (const { file, find, replace } of edits) {
    if (text.split(find).length !== 2) throw new Error(`${file} does not have this text exactly once: ${find}`);
    text = text.replace(find, () => replace);
  }
  return text;
}

/**
 * From now on this process loads the shipping code without `rules`. Modules that are loaded already stay as they are.
 */
export function patchSources(rules: readonly Rule[]): void {
  const byUrl = new Map<string, SourceEdit[]>();
  for (const rule of rules) {
    for (const edit of RULES[rule].edits) {
      const { href } = pathToFileURL(join(root, edit.file));
      byUrl.set(href, [...(byUrl.get(href) ?? []), edit]);
    }
  }
  registerHooks({
    load(url, context, nextLoad) {
      const loaded = nextLoad(url, context);
      const edits = byUrl.get(url);
      if (edits === undefined) return loaded;
      return { ...loaded, source: edited(String(loaded.source), edits) };
    },
  });
}
