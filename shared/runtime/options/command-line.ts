import { readFileSync } from "node:fs";
import { mounted } from "../mount-root.ts";
import { endBySignals } from "../system-process.ts";
import { type OptionSet, type OptionsDefinition, type OptionValues, parseOptions } from "./options.ts";

/**
 * Resolves with the option values of this process. If there is a text to print instead (`--help`, problems), prints the
 * text and exits with 0, or with 2 for a wrong configuration. From this call on, a signal ends the process.
 */
export async function commandLine<const O extends OptionSet>(
  definition: OptionsDefinition<O>,
): Promise<OptionValues<O>> {
  endBySignals();
  const parsed = await parseOptions(definition, process.argv.slice(2), process.env, (path) =>
    readFileSync(mounted(path), "utf8"),
  );
  if (parsed.kind === "run") return parsed.values;
  (parsed.code === 0 ? process.stdout : process.stderr).write(parsed.text);
  process.exit(parsed.code);
}
