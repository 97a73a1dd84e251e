/**
 * Compiles a valibot schema into a check of a value in place. Valibot's own `parse` copies its input. For a protector
 * with a long admission history, the copy costs milliseconds at each watch event of each webhook replica. The compiled
 * check costs some tens of microseconds, and returns the same object, including unknown fields.
 */
import type * as v from "valibot";
import { describeValue, joinPath, SchemaError } from "./schema-error.ts";
import { type SchemaNode, unpipe } from "./schema-node.ts";

/** The problem and its path, whose steps are innermost first. */
interface Failure {
  readonly problem: string;
  readonly steps: (string | number)[];
}

type Check = (value: unknown) => Failure | undefined;

function failure(expected: string, value: unknown): Failure {
  return { problem: `expected ${expected}, got ${describeValue(value)}`, steps: [] };
}

function inside(found: Failure, step: string | number): Failure {
  found.steps.push(step);
  return found;
}

/** A JSON object. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The JSON object; an empty one for any other value. */
export function recordOrEmpty(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}

/** The value at this path of fields and indexes; undefined where one of them is absent. */
export function valueAt(value: unknown, ...path: readonly (string | number)[]): unknown {
  return path.reduce<unknown>((found, name) => Reflect.get(Object(found), name), value);
}

function checkObject(entries: Readonly<Record<string, SchemaNode>>): Check {
  const fields = Object.entries(entries).map(([key, node]) => ({
    key,
    required: node.type !== "optional" && node.type !== "nullish",
    check: compile(node),
  }));
  return (value) => {
    if (!isRecord(value)) return failure("an object", value);
    for (const { key, required, check } of fields) {
      const field = value[key];
      if (field === undefined) {
        if (required) return { problem: "is required", steps: [key] };
        continue;
      }
      const found = check(field);
      if (found !== undefined) return inside(found, key);
    }
    return undefined;
  };
}

function checkArray(item: SchemaNode): Check {
  const check = compile(item);
  return (value) => {
    if (!Array.isArray(value)) return failure("an array", value);
    for (let index = 0; index < value.length; index++) {
      const found = check(value[index]);
      if (found !== undefined) return inside(found, index);
    }
    return undefined;
  };
}

function checkRecord(item: SchemaNode): Check {
  const check = compile(item);
  return (value) => {
    if (!isRecord(value)) return failure("an object", value);
    for (const key in value) {
      const found = check(value[key]);
      if (found !== undefined) return inside(found, key);
    }
    return undefined;
  };
}

function checkNumber(actions: readonly SchemaNode[]): Check {
  const bound = (type: string, otherwise: number): number => {
    const requirement = actions.find((action) => action.type === type)?.requirement;
    return typeof requirement === "number" ? requirement : otherwise;
  };
  const integer = actions.some((action) => action.type === "integer");
  const min = bound("min_value", Number.NEGATIVE_INFINITY);
  const max = bound("max_value", Number.POSITIVE_INFINITY);
  const atLeast = min > Number.NEGATIVE_INFINITY ? ` of at least ${min}` : "";
  const atMost = max < Number.POSITIVE_INFINITY ? ` and at most ${max}` : "";
  const expected = `${integer ? "an integer" : "a number"}${atLeast}${atMost}`;
  return (value) => {
    const good =
      typeof value === "number" && value >= min && value <= max && (integer ? Number.isInteger(value) : true);
    return good ? undefined : failure(expected, value);
  };
}

const CHECKED_ACTIONS = ["integer", "min_value", "max_value"];

function compile(node: SchemaNode): Check {
  const { base, actions } = unpipe(node);
  for (const { type } of actions) {
    // An ignored constraint would wrongly count as checked.
    if (!CHECKED_ACTIONS.includes(type)) throw new Error(`schema action ${type} is not known to the compiler`);
  }
  switch (base.type) {
    case "string":
      return (value) => (typeof value === "string" ? undefined : failure("a string", value));
    case "boolean":
      return (value) => (typeof value === "boolean" ? undefined : failure("a boolean", value));
    case "number":
      return checkNumber(actions);
    case "unknown":
      return () => undefined;
    case "picklist": {
      const options: readonly unknown[] = base.options ?? [];
      const expected = `one of ${options.join(", ")}`;
      return (value) => (options.includes(value) ? undefined : failure(expected, value));
    }
    case "optional":
      return compile(wrapped(base));
    case "nullable":
    case "nullish": {
      const check = compile(wrapped(base));
      return (value) => (value === null ? undefined : check(value));
    }
    case "array":
      if (base.item === undefined) break;
      return checkArray(base.item);
    case "record":
      if (base.value === undefined) break;
      return checkRecord(base.value);
    case "loose_object":
      if (base.entries === undefined) break;
      return checkObject(base.entries);
  }
  throw new Error(`schema type ${base.type} is not known to the compiler`);
}

function wrapped(node: SchemaNode): SchemaNode {
  if (node.wrapped === undefined) throw new Error(`schema type ${node.type} wraps nothing`);
  return node.wrapped;
}

/**
 * Returns a function that returns its argument, typed, when it fits `schema`, and throws {@link SchemaError} at the
 * first field that does not. Nothing is copied, dropped or defaulted. `checker` itself throws for a schema that it does
 * not understand.
 */
export function checker<S extends v.GenericSchema>(schema: S): (raw: unknown) => v.InferOutput<S> {
  const check = compile(schema);
  const fits = (raw: unknown): raw is v.InferOutput<S> => check(raw) === undefined;
  return (raw) => {
    if (fits(raw)) return raw;
    const found = check(raw);
    const path = (found?.steps ?? []).reduceRight<string>((parent, step) => joinPath(parent, step), "");
    throw new SchemaError(path, found?.problem ?? "is malformed");
  };
}
