import { type PluginOptions, plugins } from "../../../controllers/generator/sources/plugins.ts";
import type { SourcePlugin } from "../../../controllers/generator/sources/protection-source.ts";

/** The plugin with this name, of a generator that protects every object unless `options` say otherwise. */
export function pluginNamed(name: string, options: Partial<PluginOptions> = {}): SourcePlugin {
  const all = plugins({ protectSelector: "", protectNonZero: true, ...options });
  const found = all.find((plugin) => plugin.name === name);
  if (found === undefined) throw new Error(`there is no plugin ${name}`);
  return found;
}
