/** The values that a field is set to: valid ones, those at the bounds of its type, wrong ones, and none. */
import type { Field, FieldType } from "./fields-read.ts";

const INT32_MAX = 2_147_483_647;

const selectorOf = (operator: string, values?: readonly string[], key = "app"): object => ({
  matchExpressions: [{ key, operator, ...(values === undefined ? {} : { values }) }],
});

const VALUES: Readonly<Record<FieldType, readonly unknown[]>> = {
  number: [0, 1, 3, INT32_MAX, INT32_MAX + 1, -1, 1.5],
  string: ["", "text"],
  boolean: [true, false],
  strings: [[], ["text"]],
  map: [{}, { app: "web" }],
  objects: [[]],
  selector: [
    {},
    { matchLabels: {} },
    { matchLabels: { app: "other" } },
    { matchLabels: { app: "web" }, ...selectorOf("DoesNotExist", undefined, "legacy") },
    selectorOf("In", ["web", "other"]),
    selectorOf("NotIn", ["other"]),
    selectorOf("Exists"),
    selectorOf("In", []),
    selectorOf("Near", ["web"]),
    selectorOf("Exists", undefined, "not a key"),
  ],
};
/** Where a number or text is accepted: `intstr`, and the annotations that stand for one. */
const QUANTITIES = ["0%", "1%", "50%", "100%", "101%", "2", "-1", "1.5%"];
/** Words that mean something in some field; `values` of a kind add those of its fields. */
const WRONG: Readonly<Record<string, unknown>> = { number: 7, string: "text", object: { a: { b: 1 } } };

export interface Words {
  /** By the last name of the path. */
  readonly [field: string]: readonly unknown[];
}

/** The values of `field`, each once; undefined means that it is absent. */
export function valuesOf({ path, types }: Field, words: Words): unknown[] {
  const name = path.at(-1) ?? "";
  const isQuantity = types.includes("number") && types.includes("string");
  const wrong = Object.entries(WRONG).filter(([type]) => !types.some((one) => one === type));
  const values = [
    undefined,
    ...types.flatMap((type) => VALUES[type]),
    ...(isQuantity ? QUANTITIES : []),
    ...(words[name] ?? []),
    ...wrong.map(([, value]) => value),
  ];
  const texts = new Map(values.map((value) => [JSON.stringify(value), value]));
  return [...texts.values()];
}
