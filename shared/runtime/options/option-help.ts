/** The texts of `--help` and `--print-config`; loaded only for these. */
import { flagName, variableName } from "./option-sources.ts";
import type { Option } from "./option-types.ts";

type OptionSet = Readonly<Record<string, Option<unknown>>>;

/** Returns a config file with these values. */
export function configText(options: OptionSet, values: Readonly<Record<string, unknown>>): string {
  const shown = Object.entries(options).map(([key, one]) => [key, one.show(values[key])] as const);
  return `${JSON.stringify(Object.fromEntries(shown), undefined, 2)}\n`;
}

const HELP_COLUMNS = 100;
const HELP_INDENT = "      ";

/** The answer to `--help`. */
export function helpText(program: { readonly name: string; readonly summary: string }, options: OptionSet): string {
  const example = Object.keys(options).find((key) => key.includes("B")) ?? Object.keys(options)[0] ?? "";
  return [
    `${program.name}: ${program.summary}`,
    "",
    `Usage: ${program.name} [flags]`,
    "",
    ...Object.entries(options).map(optionHelp),
    "",
    `Each flag is also an environment variable (${flagName(example)} is ${variableName(example)}) and a key of the`,
    `--config file (${example}). A flag overrides the environment, the environment overrides the file.`,
    "",
  ].join("\n");
}

function optionHelp([key, one]: readonly [string, Option<unknown>]): string {
  const value = one.isBoolean ? "" : ` ${one.valueName}`;
  const repeated = one.isRepeated ? " (repeatable)" : "";
  return `  ${flagName(key)}${value}${repeated}\n${wrap(`${one.help}${initialText(one)}`)}`;
}

/** The default, as the end of an option's help. */
export function initialText(one: Option<unknown>): string {
  if (one.isRequired) return " Required.";
  const shown = one.show(one.initial);
  if (shown === undefined || shown === "") return "";
  if (Array.isArray(shown)) return shown.length === 0 ? "" : ` Default: ${shown.join(",")}`;
  if (typeof shown === "object" && shown !== null && Object.keys(shown).length === 0) return "";
  return ` Default: ${typeof shown === "string" ? shown : JSON.stringify(shown)}`;
}

function wrap(sentences: string): string {
  const lines: string[] = [];
  let line = HELP_INDENT;
  for (const word of sentences.split(" ")) {
    if (line.length + word.length > HELP_COLUMNS && line !== HELP_INDENT) {
      lines.push(line.trimEnd());
      line = HELP_INDENT;
    }
    line += `${word} `;
  }
  return [...lines, line.trimEnd()].join("\n");
}
