/**
 * The configuration of a component: a flag overrides the environment, the environment overrides the config file, and
 * the config file overrides the definition's default. A definition is data, and reading it affects only its arguments.
 * All problems are reported together. Related files: `option-types.ts` (kinds of values), `option-sources.ts`,
 * `option-help.ts` (`--help`), `common-options.ts` (options that components share), `controller-options.ts` (those of
 * controllers).
 */
import * as v from "valibot";
import { describeValue } from "../../schema/schema-error.ts";
import { flagName, type ReadFile, readConfig, readFlags, variableName } from "./option-sources.ts";
import { boolean, type Option, option, text } from "./option-types.ts";

/** Options by key: the flag's name in camelCase, which is also the key in a config file. */
export type OptionSet = Readonly<Record<string, Option<unknown>>>;

export type OptionValues<O> = { readonly [K in keyof O]: O[K] extends Option<infer T> ? T : never };

export interface OptionsDefinition<O extends OptionSet> {
  /** Name of the program, such as `podseidon-webhook`. */
  readonly name: string;
  readonly version: string;
  /** One sentence for `--help`. */
  readonly summary: string;
  readonly options: O;
  /**
   * Checks options against each other. Gets the options that are valid by themselves; returns a sentence for each
   * problem.
   */
  readonly check?: (values: Partial<OptionValues<O>>) => readonly string[];
}

export type ParsedOptions<O> =
  | { readonly kind: "run"; readonly values: OptionValues<O> }
  /** Print `text` (to stderr when `code` is not 0) and exit. Code 2 is a wrong configuration. */
  | { readonly kind: "exit"; readonly code: 0 | 2; readonly text: string };

/** Returns the definition; ties its parts together for the compiler. */
export function defineOptions<const O extends OptionSet>(definition: OptionsDefinition<O>): OptionsDefinition<O> {
  return definition;
}

/** Options of every component, which are handled here and are not part of the values. */
const GENERAL = {
  config: option(text("FILE"), "", "File with options, YAML or JSON."),
  printConfig: option(boolean(), false, "Print the configuration as it would be used, and exit."),
  version: option(boolean(), false, "Print the version and exit."),
  help: option(boolean(), false, "Print this help and exit."),
} satisfies OptionSet;

/** A value from one source, and the source, for messages. */
interface Given {
  readonly raw: unknown;
  readonly where: string;
}

/**
 * Resolves with the values of a component's options, or with the text to print before exiting. `argv` is without
 * interpreter and script. Never rejects; `readFile` is called for `--config` only.
 */
export async function parseOptions<const O extends OptionSet>(
  definition: OptionsDefinition<O>,
  argv: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
  readFile: ReadFile,
): Promise<ParsedOptions<O>> {
  const all: OptionSet = { ...definition.options, ...GENERAL };
  const flags = readFlags(argv, all);
  const asked = (key: keyof typeof GENERAL): boolean => flags.values.get(key)?.at(-1) === "true";
  const texts = () => import("./option-help.ts");
  if (asked("help")) return { kind: "exit", code: 0, text: (await texts()).helpText(definition, all) };
  if (asked("version")) return { kind: "exit", code: 0, text: `${definition.name} v${definition.version}\n` };

  const path = flags.values.get("config")?.at(-1) ?? environment[variableName("config")] ?? "";
  const keys = Object.keys(definition.options);
  const file =
    path === "" ? { values: new Map<string, unknown>(), problems: [] } : await readConfig(path, readFile, keys);
  const given = (key: string, one: Option<unknown>): Given | undefined => {
    const texts = flags.values.get(key);
    if (texts !== undefined) return { raw: one.isRepeated ? texts : texts.at(-1), where: flagName(key) };
    // An empty variable counts as unset, because manifests use empty values for this.
    const variable = environment[variableName(key)];
    if (variable !== undefined && variable !== "") return { raw: variable, where: variableName(key) };
    return file.values.has(key) ? { raw: file.values.get(key), where: `${key} in ${path}` } : undefined;
  };

  const problems = [...flags.problems, ...file.problems];
  const values: Record<string, unknown> = {};
  for (const [key, one] of Object.entries(definition.options)) read(key, one, given(key, one), values, problems);
  if (isPart(definition, values)) problems.push(...(definition.check?.(values) ?? []));
  if (problems.length > 0 || !isWhole(definition, values)) {
    return { kind: "exit", code: 2, text: problemText(definition.name, problems) };
  }
  if (asked("printConfig"))
    return { kind: "exit", code: 0, text: (await texts()).configText(definition.options, values) };
  return { kind: "run", values };
}

/** Puts an option's value into `values`, or a sentence into `problems`. */
function read(
  key: string,
  one: Option<unknown>,
  given: Given | undefined,
  values: Record<string, unknown>,
  problems: string[],
): void {
  if (given === undefined) {
    if (one.isRequired) problems.push(`${flagName(key)}: is required`);
    else values[key] = one.initial;
    return;
  }
  const result = v.safeParse(one.schema, given.raw);
  if (result.success) {
    values[key] = result.output;
    return;
  }
  const got = Array.isArray(given.raw) ? given.raw.join(",") : given.raw;
  problems.push(`${given.where}: ${result.issues[0].message}, got ${describeValue(got)}`);
}

/** Tells the compiler that each value comes from its option's schema. */
function isPart<O extends OptionSet>(
  { options }: OptionsDefinition<O>,
  values: Readonly<Record<string, unknown>>,
): values is Partial<OptionValues<O>> & Readonly<Record<string, unknown>> {
  return Object.keys(values).every((key) => Object.hasOwn(options, key));
}

function isWhole<O extends OptionSet>(
  { options }: OptionsDefinition<O>,
  values: Readonly<Record<string, unknown>>,
): values is OptionValues<O> & Readonly<Record<string, unknown>> {
  return Object.keys(options).every((key) => Object.hasOwn(values, key));
}

function problemText(name: string, problems: readonly string[]): string {
  const head = problems.length === 1 ? "a problem" : `${problems.length} problems`;
  const lines = problems.map((problem) => `  ${problem}`);
  return `${name}: ${head} with the configuration\n${lines.join("\n")}\nSee ${name} --help\n`;
}
