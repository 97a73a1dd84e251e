import { nearest } from "./nearest.ts";

/** Returns the text of a file; throws when it can't be read. */
export type ReadFile = (path: string) => string | Promise<string>;

/** What a config file said, by option key, and what could not be understood. */
export interface GivenFile {
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
  const problems = entries.filter(([key]) => !keys.includes(key)).map(([key]) => unknownKey(key, path, keys));
  return { values: new Map(entries.filter(([key]) => keys.includes(key))), problems };
}

async function parse(text: string): Promise<unknown> {
  // JSON needs no parser of its own; the YAML one is loaded only for YAML.
  if (text.trimStart().startsWith("{")) return JSON.parse(text);
  if (text.trim() === "") return undefined;
  const { load } = await import("js-yaml");
  return load(text);
}

function unknownKey(key: string, path: string, keys: readonly string[]): string {
  const meant = nearest(key, keys);
  const shown = JSON.stringify(key.slice(0, 64));
  return `${shown} in ${path}: there is no such option${meant === undefined ? "" : `; did you mean ${meant}?`}`;
}

function firstLine(cause: unknown): string {
  return (cause instanceof Error ? cause.message : String(cause)).split("\n")[0]?.slice(0, 200) ?? "";
}
