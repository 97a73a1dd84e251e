/** Reads parsed JSON of unknown shape. */

export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let found = value;
  for (const step of path) {
    if (typeof found !== "object" || found === null) return undefined;
    found = Reflect.get(found, step);
  }
  return found;
}

export function text(value: unknown, ...path: readonly (string | number)[]): string {
  const found = at(value, ...path);
  return typeof found === "string" ? found : "";
}

/** 0 where there is no number. */
export function integer(value: unknown, ...path: readonly (string | number)[]): number {
  const found = at(value, ...path);
  return typeof found === "number" ? found : 0;
}

export function list(value: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const found = at(value, ...path);
  return Array.isArray(found) ? found : [];
}

/** The members of an object whose values are texts. */
export function texts(value: unknown, ...path: readonly (string | number)[]): ReadonlyMap<string, string> {
  const found = at(value, ...path);
  const pairs = typeof found === "object" && found !== null ? Object.entries(found) : [];
  return new Map(pairs.filter((pair): pair is [string, string] => typeof pair[1] === "string"));
}
