/** Quint's built-in operators, as far as the specification uses them. Those that take a lambda are in `evaluate.ts`. */
import { compoundOf, elementsOf, entriesOf, fieldOf, itemAt, textOf, type Value, type Values } from "./values.ts";

export type Operator = (args: readonly Value[], values: Values) => Value;

/** Quint's operators on values. */
export const OPERATORS: Readonly<Record<string, Operator>> = {
  eq: ([a, b]) => a === b,
  neq: ([a, b]) => a !== b,
  not: (args) => !truth(args, 0),
  iadd: (args) => int(args, 0) + int(args, 1),
  isub: (args) => int(args, 0) - int(args, 1),
  iuminus: (args) => -int(args, 0),
  igt: (args) => int(args, 0) > int(args, 1),
  igte: (args) => int(args, 0) >= int(args, 1),
  ilt: (args) => int(args, 0) < int(args, 1),
  ilte: (args) => int(args, 0) <= int(args, 1),
  Set: (args, values) => values.set(args),
  Tup: (args, values) => values.tuple(args),
  Map: (args, values) => values.map(args.map(pairOf)),
  Rec: (args, values) => {
    const fields: [string, Value][] = [];
    for (let at = 0; at < args.length; at += 2) fields.push([text(args, at), itemAt(args, at + 1)]);
    fields.sort(([a], [b]) => (a < b ? -1 : 1));
    return values.record(
      fields.map(([name]) => name),
      fields.map(([, value]) => value),
    );
  },
  field: (args) => fieldOf(itemAt(args, 0), text(args, 1)),
  with: (args, values) => {
    const { fields, items } = compoundOf(itemAt(args, 0), "record");
    const at = fields.indexOf(text(args, 1));
    return values.record(fields, items.with(at, itemAt(args, 2)));
  },
  item: (args) => itemAt(compoundOf(itemAt(args, 0), "tuple").items, int(args, 1) - 1),
  in: (args) => isIn(itemAt(args, 0), itemAt(args, 1)),
  union: (args, values) => values.set([...elementsOf(itemAt(args, 0)), ...elementsOf(itemAt(args, 1))]),
  intersect: (args, values) =>
    values.set(elementsOf(itemAt(args, 0)).filter((element) => isIn(element, itemAt(args, 1)))),
  exclude: (args, values) =>
    values.set(elementsOf(itemAt(args, 0)).filter((element) => !isIn(element, itemAt(args, 1)))),
  subseteq: (args) => elementsOf(itemAt(args, 0)).every((element) => isIn(element, itemAt(args, 1))),
  size: (args) => elementsOf(itemAt(args, 0)).length,
  flatten: (args, values) => values.set(elementsOf(itemAt(args, 0)).flatMap(elementsOf)),
  tuples: (args, values) => {
    const [first, second] = [elementsOf(itemAt(args, 0)), elementsOf(itemAt(args, 1))];
    return values.set(first.flatMap((one) => second.map((other) => values.tuple([one, other]))));
  },
  keys: (args, values) => values.set(entriesOf(itemAt(args, 0)).map(([key]) => key)),
  get: (args) => {
    const { items } = compoundOf(itemAt(args, 0), "map");
    const key = itemAt(args, 1);
    for (let at = 0; at < items.length; at += 2) if (items[at] === key) return itemAt(items, at + 1);
    throw new Error(`no key ${textOf(key)}`);
  },
  put: (args, values) => values.map([...entriesOf(itemAt(args, 0)), [itemAt(args, 1), itemAt(args, 2)]]),
};

function isIn(element: Value, set: Value): boolean {
  return elementsOf(set).includes(element);
}

function pairOf(tuple: Value): readonly [Value, Value] {
  const { items } = compoundOf(tuple, "tuple");
  return [itemAt(items, 0), itemAt(items, 1)];
}

function int(args: readonly Value[], at: number): number {
  const value = args[at];
  if (typeof value !== "number") throw new Error(`not an int: argument ${at}`);
  return value;
}

function text(args: readonly Value[], at: number): string {
  const value = args[at];
  if (typeof value !== "string") throw new Error(`not a string: argument ${at}`);
  return value;
}

function truth(args: readonly Value[], at: number): boolean {
  return isTrue(itemAt(args, at));
}

export function isTrue(value: Value): boolean {
  if (typeof value !== "boolean") throw new Error(`not a bool: ${textOf(value)}`);
  return value;
}
