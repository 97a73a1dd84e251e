/**
 * An object from outside does not fit its schema. `path` is the field, such as `spec.selector.matchExpressions[0].key`,
 * or empty for the object itself. The message quotes at most a few characters of the input.
 */
export class SchemaError extends Error {
  override readonly name = "SchemaError";
  readonly tag = "schema";
  readonly path: string;
  constructor(path: string, problem: string, options?: ErrorOptions) {
    super(path === "" ? problem : `${path}: ${problem}`, options);
    this.path = path;
  }
}

/** Longest excerpt of the input in a message. */
const MAX_EXCERPT = 40;

/** Describes a value for a message: its type, and a short value itself. */
export function describeValue(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return "an object";
  if (typeof value === "number" || typeof value === "boolean") return `${value}`;
  if (typeof value !== "string") return `a ${typeof value}`;
  return JSON.stringify(value.length > MAX_EXCERPT ? `${value.slice(0, MAX_EXCERPT)}...` : value);
}

/** Appends one step to a field path. */
export function joinPath(parent: string, step: string | number): string {
  if (typeof step === "number") return `${parent}[${step}]`;
  const key = step.length > MAX_EXCERPT * 2 ? `${step.slice(0, MAX_EXCERPT * 2)}...` : step;
  if (!/^[A-Za-z_$][\w$]*$/.test(key)) return `${parent}[${JSON.stringify(key)}]`;
  return parent === "" ? key : `${parent}.${key}`;
}
