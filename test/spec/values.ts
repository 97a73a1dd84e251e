/**
 * Values of the specification. Equal compound values are one object, so that comparing two states is comparing two
 * references, and a state costs only what differs from the states before it.
 */
export type Value = number | boolean | string | Compound;

type Kind = "set" | "map" | "record" | "tuple";

export interface Compound {
  readonly kind: Kind;
  readonly id: number;
  /** A set in order; a map as key, value, key, value, in the order of its keys; a record by its fields. */
  readonly items: readonly Value[];
  /** Of a record, in order. */
  readonly fields: readonly string[];
}

const NO_FIELDS: readonly string[] = [];

export class Values {
  readonly #known = new Map<number, Compound[]>();
  #size = 0;

  set(values: readonly Value[]): Compound {
    return this.#intern("set", distinct(values));
  }

  tuple(items: readonly Value[]): Compound {
    return this.#intern("tuple", items);
  }

  record(fields: readonly string[], items: readonly Value[]): Compound {
    return this.#intern("record", items, fields);
  }

  /** A later entry of the same key replaces an earlier one. */
  map(entries: readonly (readonly [Value, Value])[]): Compound {
    const byKey = new Map(entries);
    const keys = [...byKey.keys()].sort(compare);
    return this.#intern(
      "map",
      keys.flatMap((key) => [key, byKey.get(key) ?? false]),
    );
  }

  /** The record with another value of a field. */
  with(record: Value, name: string, value: Value): Compound {
    const { items, fields } = compoundOf(record, "record");
    return this.#intern("record", items.with(fields.indexOf(name), value), fields);
  }

  /** The map with another value of a key. */
  put(map: Value, key: Value, value: Value): Compound {
    return this.map([...entriesOf(map), [key, value]]);
  }

  #intern(kind: Kind, items: readonly Value[], fields = NO_FIELDS): Compound {
    let hash = HASH_OF[kind] + fields.length;
    for (const item of items) hash = (Math.imul(hash, 31) + hashOf(item)) | 0;
    const same = this.#known.get(hash);
    const known = same?.find((other) => isSame(other, kind, items, fields));
    if (known !== undefined) return known;
    const value: Compound = { kind, id: this.#size++, items, fields };
    if (same === undefined) this.#known.set(hash, [value]);
    else same.push(value);
    return value;
  }
}

const HASH_OF: Readonly<Record<Kind, number>> = { set: 101, map: 211, record: 307, tuple: 401 };
const hashOfText = new Map<string, number>();

function hashOf(value: Value): number {
  if (typeof value === "object") return Math.imul(value.id + 1, 0x9e3779b1);
  if (typeof value === "string") {
    const hash = hashOfText.get(value) ?? 7 + 13 * hashOfText.size;
    hashOfText.set(value, hash);
    return hash;
  }
  return typeof value === "number" ? value : value ? -3 : -5;
}

function isSame(a: Compound, kind: Kind, items: readonly Value[], fields: readonly string[]): boolean {
  if (a.kind !== kind || a.items.length !== items.length) return false;
  for (let at = 0; at < items.length; at++) if (a.items[at] !== items[at]) return false;
  return a.fields === fields || a.fields.every((field, at) => field === fields[at]);
}

/** An order of values of one type, which is the same in one process only. */
function compare(a: Value, b: Value): number {
  if (typeof a === "object" && typeof b === "object") return a.id - b.id;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a) < String(b) ? -1 : String(a) === String(b) ? 0 : 1;
}

function distinct(values: readonly Value[]): readonly Value[] {
  return values.length < 2 ? values : [...new Set(values)].sort(compare);
}

export function elementsOf(value: Value): readonly Value[] {
  return compoundOf(value, "set").items;
}

export function entriesOf(value: Value): readonly (readonly [Value, Value])[] {
  const { items } = compoundOf(value, "map");
  const entries: (readonly [Value, Value])[] = [];
  for (let at = 0; at < items.length; at += 2) entries.push([itemAt(items, at), itemAt(items, at + 1)]);
  return entries;
}

export function fieldOf(value: Value, name: string): Value {
  const { items, fields } = compoundOf(value, "record");
  return itemAt(items, fields.indexOf(name));
}

export function valueAt(map: Value, key: Value): Value | undefined {
  return entriesOf(map).find(([of]) => of === key)?.[1];
}

export function compoundOf(value: Value, kind: Kind): Compound {
  if (typeof value === "object" && value.kind === kind) return value;
  throw new Error(`not a ${kind}: ${textOf(value)}`);
}

export function itemAt(items: readonly Value[], index: number): Value {
  const item = items[index];
  if (item === undefined) throw new Error(`no item ${index} of ${items.length}`);
  return item;
}

/** As Quint writes it. */
export function textOf(value: Value): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value !== "object") return String(value);
  if (value.kind === "map")
    return `Map(${entriesOf(value)
      .map(([key, of]) => `${textOf(key)} -> ${textOf(of)}`)
      .join(", ")})`;
  const items = value.items.map(textOf);
  if (value.kind === "set") return `Set(${items.join(", ")})`;
  if (value.kind === "tuple") return `(${items.join(", ")})`;
  return `{ ${value.fields.map((field, at) => `${field}: ${items[at]}`).join(", ")} }`;
}
