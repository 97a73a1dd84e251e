/**
 * The kinds of option values. Each is a valibot schema from a flag or variable (text), or from a config file (JSON), to
 * the value that the program uses. The message of an issue states the expected value.
 */
import * as v from "valibot";
import type { BindAddress } from "../health-server.ts";

/** `option`, `optionalOption` and `requiredOption` make an option of a kind. */
interface OptionKind<T> {
  readonly schema: v.GenericSchema<unknown, T>;
  /** The placeholder of the value in `--help`, for example `NAME=KUBECONFIG`. */
  readonly valueName: string;
  /** `--flag` alone means true. */
  readonly isBoolean?: boolean;
  /** `--flag` may be given several times; its values are collected. */
  readonly isRepeated?: boolean;
  /** Returns the value in its form for a config file. */
  show?(value: T): unknown;
}

/** One option of a component: how it is read and shown, and its default. */
export interface Option<T> extends Required<OptionKind<T>> {
  readonly help: string;
  readonly isRequired: boolean;
  readonly initial: T;
}

function schemaOf<T>(expected: string, read: (raw: unknown) => T | undefined): v.GenericSchema<unknown, T> {
  return v.pipe(
    v.unknown(),
    v.rawTransform<unknown, T>(({ dataset, addIssue, NEVER }) => {
      const value = read(dataset.value);
      if (value !== undefined) return value;
      addIssue({ message: `expected ${expected}` });
      return NEVER;
    }),
  );
}

function build<T>(kind: OptionKind<T>, help: string, initial: T, isRequired: boolean): Option<T> {
  const flags = { isBoolean: false, isRepeated: false };
  return { show: (value) => value, ...flags, ...kind, help, initial, isRequired };
}

/** An option with a default. */
export function option<T>(kind: OptionKind<T>, initial: T, help: string): Option<T> {
  return build(kind, help, initial, false);
}

/** An option without a default: undefined when no source sets it. */
export function optionalOption<T>(kind: OptionKind<T>, help: string): Option<T | undefined> {
  return build<T | undefined>(
    { ...kind, show: (value) => (value === undefined ? undefined : (kind.show?.(value) ?? value)) },
    help,
    undefined,
    false,
  );
}

/** An option without which the component does not start. `empty` only provides the type. */
export function requiredOption<T>(kind: OptionKind<T>, empty: T, help: string): Option<T> {
  return build(kind, help, empty, true);
}

export function text(valueName = "TEXT"): OptionKind<string> {
  return { valueName, schema: schemaOf("text", (raw) => (typeof raw === "string" ? raw : undefined)) };
}

/** Text that fits a pattern; `expected` completes "expected ...". */
export function matching(pattern: RegExp, expected: string, valueName: string): OptionKind<string> {
  return {
    valueName,
    schema: schemaOf(expected, (raw) => (typeof raw === "string" && pattern.test(raw) ? raw : undefined)),
  };
}

export function boolean(): OptionKind<boolean> {
  const words: Readonly<Record<string, boolean>> = { true: true, false: false, "1": true, "0": false };
  return {
    valueName: "BOOLEAN",
    isBoolean: true,
    schema: schemaOf("true or false", (raw) =>
      typeof raw === "boolean" ? raw : typeof raw === "string" && Object.hasOwn(words, raw) ? words[raw] : undefined,
    ),
  };
}

/** An integer between two bounds, both included. */
export function integer(min: number, max: number): OptionKind<number> {
  return {
    valueName: "NUMBER",
    schema: schemaOf(`a whole number from ${min} to ${max}`, (raw) => {
      const value = typeof raw === "string" && /^-?\d+$/.test(raw) ? Number(raw) : raw;
      return typeof value === "number" && Number.isInteger(value) && value >= min && value <= max ? value : undefined;
    }),
  };
}

export function port(): OptionKind<number> {
  return { ...integer(0, 65_535), valueName: "PORT" };
}

export function choice<const T extends string>(words: readonly T[]): OptionKind<T> {
  return {
    valueName: words.join("|"),
    schema: schemaOf(`one of ${words.join(", ")}`, (raw) => words.find((word) => word === raw)),
  };
}

const UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

function readDurationMs(raw: unknown): number | undefined {
  if (raw === "0" || raw === 0) return 0;
  if (typeof raw !== "string" || !/^(\d+(\.\d+)?(ms|s|m|h))+$/.test(raw)) return undefined;
  let totalMs = 0;
  for (const [, amount, unit] of raw.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)) {
    totalMs += Number(amount) * (UNITS_MS[unit ?? ""] ?? Number.NaN);
  }
  return Number.isFinite(totalMs) ? Math.round(totalMs) : undefined;
}

/** Returns milliseconds in the form of Kubernetes components: `1m30s`. */
function showDuration(valueMs: number): string {
  if (valueMs === 0) return "0";
  let restMs = valueMs;
  let shown = "";
  for (const unit of ["h", "m", "s", "ms"]) {
    const sizeMs = UNITS_MS[unit] ?? 1;
    const amount = Math.floor(restMs / sizeMs);
    restMs -= amount * sizeMs;
    if (amount > 0) shown += `${amount}${unit}`;
  }
  return shown;
}

/** A duration in the form of Kubernetes components (`75s`, `1m30s`, `100ms`, `0`); the value is in milliseconds. */
export function duration(bounds: { readonly minMs?: number; readonly maxMs?: number } = {}): OptionKind<number> {
  const { minMs = 0, maxMs = Number.POSITIVE_INFINITY } = bounds;
  const least = minMs > 0 ? ` of at least ${showDuration(minMs)}` : "";
  const most =
    maxMs < Number.POSITIVE_INFINITY ? `${least === "" ? " of" : " and"} at most ${showDuration(maxMs)}` : "";
  return {
    valueName: "DURATION",
    show: showDuration,
    schema: schemaOf(`a duration such as 75s, 1m30s or 100ms${least}${most}`, (raw) => {
      const valueMs = readDurationMs(raw);
      return valueMs !== undefined && valueMs >= minMs && valueMs <= maxMs ? valueMs : undefined;
    }),
  };
}

/** `:8081`, `127.0.0.1:8081`, `[::1]:8081`; `0` is off, with the value null. */
export function bindAddress(): OptionKind<BindAddress | null> {
  const show = ({ host, port }: BindAddress): string =>
    host === undefined ? `:${port}` : host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
  return {
    valueName: "ADDRESS",
    show: (value) => (value === null ? "0" : show(value)),
    schema: schemaOf("an address such as :8081 or 127.0.0.1:8081, or 0 for none", (raw) => {
      if (raw === "0" || raw === 0) return null;
      const parts = typeof raw === "string" ? /^(?:\[([^\]]+)\]|([^:[\]\s]*)):(\d{1,5})$/.exec(raw) : null;
      if (parts === null || Number(parts[3]) > 65_535) return undefined;
      return { host: parts[1] ?? (parts[2] || undefined), port: Number(parts[3]) };
    }),
  };
}

/**
 * Returns the texts of a list: repeated flags, comma-separated text, or an array. Nobody means the space behind a
 * comma, or an empty text, which would be the name of nothing.
 */
function readList(raw: unknown, separator: RegExp | string = ","): readonly string[] | undefined {
  const items: readonly unknown[] = Array.isArray(raw) ? raw : [raw];
  if (!items.every((item) => typeof item === "string")) return undefined;
  return items.flatMap((item) => item.split(separator)).flatMap((item) => item.trim() || []);
}

/** A list: `--flag a --flag b`, `--flag a,b`, or an array. `separator` is for values that contain commas. */
export function list(valueName = "TEXT", separator?: RegExp): OptionKind<readonly string[]> {
  return { valueName, isRepeated: true, schema: schemaOf("a list", (raw) => readList(raw, separator)) };
}

const NETWORK = /^(\d+\.){3}\d+\/(\d|[12]\d|3[0-2])$|^[\da-f]*(:[\da-f.]*){2,}(\/(\d{1,2}|1[01]\d|12[0-8]))?$/i;
const HOST_PATTERN = /^(\*\.)?[a-z\d_.-]+$/i;

/** A list of names, names that begin with `*.`, addresses and networks. */
export function hosts(): OptionKind<readonly string[]> {
  const read = (raw: unknown): readonly string[] | undefined => {
    const found = readList(raw);
    return found?.every((one) => HOST_PATTERN.test(one) || NETWORK.test(one)) ? found : undefined;
  };
  const expected = "names, *. and the end of a name, addresses or networks such as 10.0.0.0/8";
  return { valueName: "HOST", isRepeated: true, schema: schemaOf(expected, read) };
}

/** One `NAME=PATH`. An empty path means in-cluster credentials; the path is undefined without `=`. */
export interface NamedPath {
  readonly name: string;
  readonly path: string | undefined;
}

const NAME = /^(?!\.{1,2}$)[^/%=,\s]{1,253}$/;

function readNamed(raw: unknown, bare: boolean): readonly NamedPath[] | undefined {
  // In a file, the value may also be a map from names to paths, with null for a bare name.
  const items =
    typeof raw === "object" && raw !== null && !Array.isArray(raw)
      ? Object.entries(raw).map(([name, path]) => (path === null ? name : `${name}=${path}`))
      : readList(raw);
  const named = items?.map((item): NamedPath => {
    const at = item.indexOf("=");
    return at < 0 ? { name: item, path: undefined } : { name: item.slice(0, at), path: item.slice(at + 1) };
  });
  if (named === undefined || named.length === 0) return undefined;
  const good = named.every(({ name, path }) => NAME.test(name) && (bare || path !== undefined));
  return good && new Set(named.map(({ name }) => name)).size === named.length ? named : undefined;
}

/** Repeated `NAME=PATH` with different names; with `bare`, `NAME` alone is valid too. */
export function namedPaths(valueName: string, bare = false): OptionKind<readonly NamedPath[]> {
  const form = bare ? `${valueName} or a name alone` : valueName;
  return {
    valueName,
    isRepeated: true,
    show: (paths) => Object.fromEntries(paths.map(({ name, path }) => [name, path ?? null])),
    schema: schemaOf(`${form}, each name once, a valid path segment`, (raw) => readNamed(raw, bare)),
  };
}
