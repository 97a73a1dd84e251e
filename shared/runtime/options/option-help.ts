import { flagName, variableName } from "./option-names.ts";
import type { Option } from "./option-types.ts";

const COLUMNS = 100;
const INDENT = "      ";

function wrap(text: string): string {
  const lines: string[] = [];
  let line = INDENT;
  for (const word of text.split(" ")) {
    if (line.length + word.length > COLUMNS && line !== INDENT) {
      lines.push(line.trimEnd());
      line = INDENT;
    }
    line += `${word} `;
  }
  return [...lines, line.trimEnd()].join("\n");
}

function initialText(option: Option<unknown>): string {
  if (option.isRequired) return " Required.";
  const shown = option.show(option.initial);
  if (shown === undefined || shown === "" || option.isSecret) return "";
  if (Array.isArray(shown)) return shown.length === 0 ? "" : ` Default: ${shown.join(",")}`;
  if (typeof shown === "object" && shown !== null && Object.keys(shown).length === 0) return "";
  return ` Default: ${typeof shown === "string" ? shown : JSON.stringify(shown)}`;
}

function optionText([key, option]: readonly [string, Option<unknown>]): string {
  const value = option.isBoolean ? "" : ` ${option.valueName}`;
  const repeated = option.isRepeated ? " (repeatable)" : "";
  return `  ${flagName(key)}${value}${repeated}\n${wrap(`${option.help}${initialText(option)}`)}`;
}

/** The answer to `--help`. */
export function helpText(
  program: { readonly name: string; readonly summary: string },
  options: Readonly<Record<string, Option<unknown>>>,
): string {
  const example = Object.keys(options).find((key) => key.includes("B")) ?? Object.keys(options)[0] ?? "";
  return [
    `${program.name}: ${program.summary}`,
    "",
    `Usage: ${program.name} [flags]`,
    "",
    ...Object.entries(options).map(optionText),
    "",
    `Each flag is also an environment variable (${flagName(example)} is ${variableName(example)}) and a key of the`,
    `--config file (${example}). A flag overrides the environment, the environment overrides the file.`,
    "",
  ].join("\n");
}
