import { nearest } from "./nearest.ts";
import { kebab } from "./option-names.ts";
import type { Option } from "./option-types.ts";

/** What a command line said: texts by option key, in order, and what could not be understood. */
export interface GivenFlags {
  readonly values: ReadonlyMap<string, readonly string[]>;
  readonly problems: readonly string[];
}

type FlagShape = Pick<Option<unknown>, "isBoolean">;

/**
 * Reads flags by the conventions of Kubernetes components: `--flag value`, `--flag=value`, `--boolean`, `--boolean=false`.
 * A value that begins with `--` needs the form with `=`.
 */
export function readFlags(argv: readonly string[], options: Readonly<Record<string, FlagShape>>): GivenFlags {
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
      problems.push(unknownFlag(flag, [...keys.keys()]));
      // What follows an unknown flag is most likely its value: no second problem for the same mistake.
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

function unknownFlag(flag: string, flags: readonly string[]): string {
  const meant = nearest(flag, flags);
  const shown = flag.length > 64 ? `${flag.slice(0, 64)}...` : flag;
  return `--${shown}: there is no such flag${meant === undefined ? "" : `; did you mean --${meant}?`}`;
}
