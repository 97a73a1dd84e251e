/**
 * Which fields of an object does a component read, and what may they be? The shipping reader itself says both: it reads
 * an object that records each access, and it is asked which types of values it accepts. So a field that a reader begins
 * to read is tested from then on.
 */
import { isRecord } from "../../shared/schema/check.ts";

/** Names of properties; `0` stands for each entry of a list. */
export type FieldPath = readonly string[];
/** Throws for an object that it can't read. */
export type Reader = (object: unknown) => unknown;

export type FieldType = "number" | "string" | "boolean" | "strings" | "map" | "selector" | "objects";
export interface Field {
  readonly path: FieldPath;
  /** The types of values that the reader accepts there. */
  readonly types: readonly FieldType[];
}

const EXAMPLES: readonly (readonly [FieldType, unknown])[] = [
  ["number", 3],
  ["string", "text"],
  ["boolean", true],
  ["strings", ["text"]],
  ["map", { app: "web" }],
  ["objects", [{}]],
];
const QUANTITY: readonly FieldType[] = ["number", "string"];
/** Deeper fields than the readers have. */
const MAX_DEPTH = 8;

/** The fields that `read` reads of objects like `example`, the deepest ones alone; a selector is one field. */
export function fieldsRead(example: unknown, read: Reader): Field[] {
  const found = new Map<string, FieldPath>();
  let added: FieldPath[] = [...accesses(example, read)];
  for (let depth = 0; depth < MAX_DEPTH && added.length > 0; depth++) {
    for (const path of added) found.set(path.join("\0"), path);
    // A field that the example lacks may have fields of its own.
    const absent = added.filter((path) => valueAt(example, path) === undefined && !takesNumber(example, path, read));
    const deeper = absent.flatMap((path) =>
      [{}, [{}]].flatMap((value) => accesses(withValue(example, path, value), read)),
    );
    added = unique(deeper).filter((path) => !found.has(path.join("\0")));
  }
  // The entries of a list of texts are one field.
  const paths = unique([...found.values()].map((path) => (path.at(-1) === "0" ? path.slice(0, -1) : path)));
  const isSelector = (path: FieldPath): boolean => found.has([...path, "matchExpressions"].join("\0"));
  const isInSelector = (path: FieldPath): boolean =>
    path.some((_, index) => index > 0 && isSelector(path.slice(0, index)));
  return paths
    .filter((path) => !isInSelector(path) && (isSelector(path) || !paths.some((other) => isBelow(other, path))))
    .map((path) => ({ path, types: isSelector(path) ? ["selector"] : typesAt(example, path, read) }));
}

function typesAt(example: unknown, path: FieldPath, read: Reader): readonly FieldType[] {
  const types = EXAMPLES.filter(([, value]) => isAccepted(withValue(example, path, value), read)).map(([type]) => type);
  // What accepts everything has its own arithmetic: a number or a percentage.
  return types.length === EXAMPLES.length ? QUANTITY : types;
}

function takesNumber(example: unknown, path: FieldPath, read: Reader): boolean {
  return isAccepted(withValue(example, path, 3), read);
}

export function isAccepted(object: unknown, read: Reader): boolean {
  try {
    read(object);
    return true;
  } catch {
    return false;
  }
}

function isBelow(path: FieldPath, above: FieldPath): boolean {
  return path.length > above.length && above.every((step, index) => path[index] === step);
}

function unique(paths: readonly FieldPath[]): FieldPath[] {
  return [...new Map(paths.map((path) => [path.join("\0"), path])).values()];
}

/** The paths that `read` looks at, whether or not it accepts the object. */
function accesses(object: unknown, read: Reader): FieldPath[] {
  const paths = new Map<string, FieldPath>();
  isAccepted(
    recorder(object, [], (path) => paths.set(path.join("\0"), path)),
    read,
  );
  return [...paths.values()];
}

function recorder(value: unknown, path: FieldPath, record: (path: FieldPath) => void): unknown {
  if (typeof value !== "object" || value === null) return value;
  return new Proxy(value, {
    get(target, key) {
      const found: unknown = Reflect.get(target, key);
      if (typeof key === "symbol" || typeof found === "function") return found;
      if (Array.isArray(target) && !/^[0-9]+$/.test(key)) return found;
      const step = [...path, Array.isArray(target) ? "0" : key];
      record(step);
      return recorder(found, step, record);
    },
  });
}

/** The value at `path`; undefined where there is none. */
export function valueAt(object: unknown, path: FieldPath): unknown {
  return path.reduce<unknown>(
    (value, step) => (isRecord(value) || Array.isArray(value) ? Reflect.get(value, step) : undefined),
    object,
  );
}

/**
 * `object` with `value` at `path`; undefined removes the field. What lacks on the way to it is as in `example`: the
 * fields beside it may be required.
 */
export function withValue(object: unknown, path: FieldPath, value: unknown, example?: unknown): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return value;
  const outer = object ?? example;
  const below = valueAt(example, [step]);
  if (step === "0") {
    const list = Array.isArray(outer) ? outer : [];
    const inner = withValue(list[0], rest, value, below);
    return inner === undefined ? list.slice(1) : [inner, ...list.slice(1)];
  }
  const { [step]: before, ...others } = isRecord(outer) ? outer : {};
  const inner = withValue(before, rest, value, below);
  return inner === undefined ? others : { ...others, [step]: inner };
}
