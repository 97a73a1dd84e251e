/** The command line of a script: `node:util` parses it, and a text is its help. */

import { type ParseArgsConfig, parseArgs } from "node:util";
import { messageOf } from "../shared/runtime/errors.ts";

type OptionsConfig = NonNullable<ParseArgsConfig["options"]>;
type Values<O extends OptionsConfig> = ReturnType<typeof parseArgs<{ args: string[]; options: O }>>["values"];

/** Returns the values of the flags, or an exit code after it has printed the help or the problem with a flag. */
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
    return misused(messageOf(error), help);
  }
}

/** Prints the problem with the command line, and the help; returns the exit code. */
export function misused(message: string, help: string): number {
  process.stderr.write(`${message}\n\n${help}`);
  return 2;
}
