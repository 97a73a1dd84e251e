/** Expressions of the specification that are made here: the constants of a world. */
import type { Expression } from "./syntax.ts";

export function text(value: string): Expression {
  return { kind: "str", id: 0, value };
}

export function integer(value: number): Expression {
  return { kind: "int", id: 0, value };
}

export function literal(value: string | number | boolean): Expression {
  if (typeof value === "boolean") return { kind: "bool", id: 0, value };
  return typeof value === "string" ? text(value) : integer(value);
}

export function setOf(values: readonly string[]): Expression {
  return applied("Set", values.map(text));
}

export function mapOf(entries: readonly (readonly [string, Expression])[]): Expression {
  return applied(
    "Map",
    entries.map(([key, value]) => applied("Tup", [text(key), value])),
  );
}

export function recordOf(fields: readonly (readonly [string, Expression])[]): Expression {
  return applied(
    "Rec",
    fields.flatMap(([name, value]) => [text(name), value]),
  );
}

export function applied(opcode: string, args: readonly Expression[]): Expression {
  return { kind: "app", id: 0, opcode, args };
}
