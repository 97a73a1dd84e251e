/** The command line of a script: `node:util` reads it, a text is its help. */
import { type ParseArgsConfig, parseArgs } from "node:util";

type OptionsConfig = NonNullable<ParseArgsConfig["options"]>;
type Values<O extends OptionsConfig> = ReturnType<typeof parseArgs<{ args: string[]; options: O }>>["values"];

/**
 * Returns the values of the flags; an exit code when there is nothing to do, because help was asked for or the flags
 * are wrong.
 */
export function readOptions<const O extends OptionsConfig>(
  args: readonly string[],
  help: string,
  options: O,
): Values<O> | number {
  if (args.includes("--help") || args.includes("-h")) {
    process.stdout.write(help);
    return 0;
  }
  try {
    return parseArgs({ args: [...args], options }).values;
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n\n${help}`);
    return 2;
  }
}
