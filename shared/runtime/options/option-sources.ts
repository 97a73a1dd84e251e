/**
 * The sources of option values: flags, environment variables and a config file. An option has a name in each source,
 * derived from its key: `securePort`, `--secure-port`, `PODSEIDON_SECURE_PORT`.
 */
import { messageOf } from "../errors.ts";
import type { Option } from "./option-types.ts";

function kebab(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

export function flagName(key: string): string {
  return `--${kebab(key)}`;
}

export function variableName(key: string): string {
  return `PODSEIDON_${kebab(key).replaceAll("-", "_").toUpperCase()}`;
}

/** Texts by option key, in the order of the command line. */
interface GivenFlags {
  readonly values: ReadonlyMap<string, readonly string[]>;
  readonly problems: readonly string[];
}

/**
 * Reads flags by the conventions of Kubernetes components: `--flag value`, `--flag=value`, `--boolean`,
 * `--boolean=false`. A value that begins with `--` needs the form with `=`.
 */
export function readFlags(
  argv: readonly string[],
  options: Readonly<Record<string, Pick<Option<unknown>, "isBoolean">>>,
): GivenFlags {
  const keys = new Map(Object.keys(options).map((key) => [kebab(key), key]));
  const values = new Map<string, string[]>();
  const problems: string[] = [];
  const give = (key: string, value: string): void => {
    values.set(key, [...(values.get(key) ?? []), value]);
  };
  for (let index = 0; index < argv.length; index++) {
    const [, flag, given] = /^--?([A-Za-z][^=]*)(?:=([\s\S]*))?$/.exec(argv[index] ?? "") ?? [];
    if (flag === undefined) {
      problems.push(`unexpected argument ${JSON.stringify(argv[index])}; a boolean is set as --flag=false`);
      continue;
    }
    const key = flag === "h" ? "help" : keys.get(flag);
    const next = argv[index + 1];
    if (key === undefined) {
      const shown = flag.length > MAX_WORD ? `${flag.slice(0, MAX_WORD)}...` : flag;
      problems.push(`--${shown}: there is no such flag${suggestion(flag, [...keys.keys()], "--")}`);
      // The next argument is most likely the value of the unknown flag, so it is skipped without a second problem.
      if (given === undefined && next !== undefined && !next.startsWith("-")) index++;
    } else if (given !== undefined) give(key, given);
    else if (options[key]?.isBoolean) give(key, "true");
    else if (next === undefined || next.startsWith("--")) problems.push(`--${flag}: a value is missing`);
    else {
      give(key, next);
      index++;
    }
  }
  return { values, problems };
}

/** Returns the text of a file; throws when it can't be read. */
export type ReadFile = (path: string) => string | Promise<string>;

/** Values by option key. */
interface GivenFile {
  readonly values: ReadonlyMap<string, unknown>;
  readonly problems: readonly string[];
}

/** Reads a config file, JSON or YAML, whose keys are among `keys`. Never throws. */
export async function readConfig(path: string, readFile: ReadFile, keys: readonly string[]): Promise<GivenFile> {
  const none = new Map<string, unknown>();
  let parsed: unknown;
  try {
    parsed = await parse(await readFile(path));
  } catch (cause) {
    return { values: none, problems: [`--config: ${path} can't be read: ${firstLine(cause)}`] };
  }
  if (parsed === undefined || parsed === null) return { values: none, problems: [] };
  if (typeof parsed !== "object" || Array.isArray(parsed)) {
    return { values: none, problems: [`--config: ${path} is not a map of option names to values`] };
  }
  const entries = Object.entries(parsed).filter(([, value]) => value !== null);
  const problems = entries.flatMap(([key]) => {
    if (keys.includes(key)) return [];
    const shown = JSON.stringify(key.slice(0, MAX_WORD));
    return [`${shown} in ${path}: there is no such option${suggestion(key, keys, "")}`];
  });
  return { values: new Map(entries.filter(([key]) => keys.includes(key))), problems };
}

async function parse(text: string): Promise<unknown> {
  // JSON needs no library; the YAML parser is loaded only for YAML.
  if (text.trimStart().startsWith("{")) return JSON.parse(text);
  if (text.trim() === "") return undefined;
  const { load } = await import("js-yaml");
  return load(text);
}

function firstLine(cause: unknown): string {
  return messageOf(cause).split("\n")[0]?.slice(0, 200) ?? "";
}

const MAX_WORD = 64;

/** Suggests the nearest of the words, if at most a third of its letters differ. */
function suggestion(word: string, words: readonly string[], prefix: string): string {
  if (word.length > MAX_WORD) return "";
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of words) {
    const distance = edits(word, candidate);
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best === undefined ? "" : `; did you mean ${prefix}${best}?`;
}

/** How many characters have to be added, removed or replaced to make one word the other (Levenshtein). */
export function edits(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substituted = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, substituted));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
