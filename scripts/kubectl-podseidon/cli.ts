/**
 * The command line: finds the command, reads its flags, prints its help. Commands share the folder `invocation`:
 * `command.ts` has their flags and clusters, `output.ts` tables and ages. Then read one file for each command
 * (`status`, `why`, `drain`, `changes`, `doctor`); `disruption-dry-run.ts` asks the webhook and `view.ts` reads a
 * protector.
 */
import { parseArgs } from "node:util";
import { messageOf } from "../../shared/runtime/errors.ts";
import { version } from "../../shared/runtime/version.ts";
import { release, resume, suspend } from "./changes.ts";
import { candidates, completion } from "./completion.ts";
import { dashboard } from "./dashboard/dashboard.ts";
import { doctor } from "./doctor/doctor.ts";
import { drainCheck } from "./drain.ts";
import { explain } from "./explain/explain.ts";
import { gates } from "./gates.ts";
import { type Command, Context, type FlagValues, GLOBAL_FLAGS, type Surroundings } from "./invocation/command.ts";
import { CommandError, EXIT, type ExitCode } from "./invocation/errors.ts";
import type { Flag } from "./invocation/flag.ts";
import { FOREIGN_FLAGS, foreignFlagAdvice } from "./invocation/kubectl-flags.ts";
import { didYouMean, isNear } from "./invocation/near-names.ts";
import { inLine } from "./invocation/output.ts";
import { plainTerminal } from "./invocation/progress.ts";
import { join } from "./join/join.ts";
import { leave } from "./join/leave.ts";
import { removeCellCommand } from "./remove-cell.ts";
import { status } from "./status.ts";
import { why } from "./why.ts";

export const COMMANDS: readonly Command[] = [
  status,
  why,
  gates,
  explain,
  drainCheck,
  dashboard,
  doctor,
  suspend,
  resume,
  join,
  leave,
  removeCellCommand,
  release,
  completion,
];

/** Kubectl's protocol for completion by plugins: candidates, then a directive; 4 is "no file names". */
const NO_FILES = ":4\n";
const COMPLETE = "__complete";

/** Runs one command line; `args` is without interpreter and script. */
export async function runCommandLine(args: readonly string[], given: Surroundings): Promise<ExitCode> {
  const terminal = plainTerminal(given.terminal);
  const surroundings = { ...given, terminal };
  if (args[0] === COMPLETE) return await complete(args.slice(1), surroundings);
  const [first, second] = wordsOf(args);
  const name = first === "help" ? second : first;
  const command = COMMANDS.find((one) => one.name === name);
  if (command === undefined) return general(name, args, surroundings);
  if (first === "help") {
    terminal.out(commandHelp(command));
    return EXIT.yes;
  }
  let context: Context | undefined;
  try {
    const { values, positionals } = parse(args, command);
    if (values.help === true) {
      terminal.out(commandHelp(command));
      return EXIT.yes;
    }
    const rest = positionals.slice(1);
    refuseWrong(command, values, rest);
    const invocation = new Context(values, surroundings);
    context = invocation;
    return await invocation.progress.during(command.doing, () => command.run(invocation, rest));
  } catch (error) {
    terminal.err(`error: ${inLine(messageOf(error))}\n`);
    return EXIT.unknown;
  } finally {
    await context?.close();
  }
}

/** Refuses what no command takes. A command refuses what is wrong for it before it asks a cluster. */
function refuseWrong(
  { name, usage, arity: [least, most], completes }: Command,
  values: FlagValues,
  args: readonly string[],
): void {
  const isEmpty = args.includes("");
  if (args.length < least || args.length > most || isEmpty) {
    const why = isEmpty ? "; an argument is empty: is a variable of the shell not set?" : "";
    throw new CommandError(`usage: kubectl podseidon ${name} ${usage}${why}`);
  }
  if (values.output !== undefined && !["json", "yaml", "wide"].includes(String(values.output)))
    throw new CommandError("--output must be json, yaml or wide");
  if (values["all-namespaces"] === true && most === 1 && (completes === "protectors" || completes === "pods"))
    throw new CommandError(`${name} is about one object: name its namespace by -n, in place of -A`);
  for (const flag of ["namespace", "system-namespace"])
    if (/[^a-z\d-]/.test(String(values[flag] ?? "")))
      throw new CommandError(
        `--${flag} ${values[flag]}: a namespace's name has lower-case letters, digits and "-" alone`,
      );
}

/** `parseArgs` ignores the parts that are for people. */
type Flags = Readonly<Record<string, Flag>>;

/** Like kubectl, which reads `-o=json` as `-o json`. */
const separated = (args: readonly string[]): string[] => args.map((word) => word.replace(/^(-[a-zA-Z])=/, "$1"));

/**
 * The words that are neither flags nor values of flags. The first one is the command: after another word, the name of a
 * command may be the name of an object.
 */
function wordsOf(args: readonly string[]): readonly string[] {
  const options: Flags = Object.assign({}, FOREIGN_FLAGS, GLOBAL_FLAGS, ...COMMANDS.map(({ flags }) => flags));
  return parseArgs({ args: separated(args), options, strict: false, allowPositionals: true }).positionals;
}

function parse(args: readonly string[], command: Command): { values: FlagValues; positionals: readonly string[] } {
  const options: Flags = { ...GLOBAL_FLAGS, ...command.flags };
  try {
    const { values, positionals } = parseArgs({ args: separated(args), options, allowPositionals: true });
    const plain = Object.entries(values).map(([name, value]) => [
      name,
      Array.isArray(value) ? value.map(String) : value,
    ]);
    return { values: Object.fromEntries(plain), positionals };
  } catch (error) {
    const [what = ""] = messageOf(error).split(/\.\s/);
    throw new CommandError(`${what}${foreignFlagAdvice(what)}; see kubectl podseidon ${command.name} --help`);
  }
}

function general(name: string | undefined, args: readonly string[], { terminal }: Surroundings): ExitCode {
  const [first] = args;
  if (first === undefined || (name === undefined && ["help", "--help", "-h"].includes(first))) {
    terminal.out(generalHelp());
    return EXIT.yes;
  }
  if (name === "version" || first === "--version") {
    terminal.out(`kubectl-podseidon v${version}\n`);
    return EXIT.yes;
  }
  const wanted = name ?? first;
  const near = didYouMean(COMMANDS.map((one) => one.name).filter((one) => isNear(one, wanted)));
  terminal.err(`error: there is no command ${wanted}${near}; see kubectl podseidon --help\n`);
  return EXIT.unknown;
}

async function complete(words: readonly string[], surroundings: Surroundings): Promise<ExitCode> {
  let context: Context | undefined;
  const contextOf = (before: readonly string[]): Context | undefined => {
    try {
      const command = COMMANDS.find(({ name }) => before.includes(name)) ?? status;
      context ??= new Context(parse(before, command).values, surroundings);
      return context;
    } catch {
      return undefined;
    }
  };
  for (const one of await candidates(COMMANDS, words, contextOf)) surroundings.terminal.out(`${one}\n`);
  surroundings.terminal.out(NO_FILES);
  await context?.close();
  return EXIT.yes;
}

function flagText([name, { short, value, help }]: readonly [string, Flag]): string {
  const names = `${short === undefined ? "    " : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`;
  return `  ${names.padEnd(30)} ${help}\n`;
}

function flagsText(flags: Flags): string {
  return Object.entries(flags).map(flagText).join("");
}

function generalHelp(): string {
  const commands = COMMANDS.map(({ name, usage, summary }) => `  ${`${name} ${usage}`.padEnd(34)} ${summary}\n`);
  return `kubectl podseidon: what protects which pods, why a deletion is denied, and what to do about it.

Usage: kubectl podseidon COMMAND [flags]

Commands:
${commands.join("")}
Flags of every command:
${flagsText(GLOBAL_FLAGS)}
kubectl podseidon version prints the version.
Without --yes, a command that loosens protection is only a dry run.
Exit code 0: yes, or done. 1: no, or a problem was found. 2: not known.
`;
}

function commandHelp(command: Command): string {
  const own = Object.keys(command.flags).length === 0 ? "" : `Flags:\n${flagsText(command.flags)}\n`;
  return `${command.summary}

Usage: kubectl podseidon ${command.name} ${command.usage} [flags]

${command.description}

${own}Flags of every command:
${flagsText(GLOBAL_FLAGS)}`;
}
