/** docs/api.md: every field of PodProtector from the CRD's schema, and every label and annotation. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import * as names from "../shared/schema/annotations.ts";
import { valueAt } from "../shared/schema/check.ts";
import { podProtectorCrd } from "../shared/schema/crd.ts";
import { root } from "./root.ts";

const Schema = v.looseObject({
  type: v.optional(v.string()),
  format: v.optional(v.string()),
  description: v.optional(v.string()),
  enum: v.optional(v.array(v.string())),
  minimum: v.optional(v.number()),
  required: v.optional(v.array(v.string()), []),
  properties: v.optional(v.record(v.string(), v.unknown())),
  items: v.optional(v.unknown()),
  additionalProperties: v.optional(v.unknown()),
});
type Schema = v.InferOutput<typeof Schema>;

function read(raw: unknown): Schema {
  return v.parse(Schema, raw);
}

/** The object in a field, or in its list; undefined for a plain value. */
function objectOf(schema: Schema): Schema | undefined {
  const inner = schema.items === undefined ? schema : read(schema.items);
  return inner.properties === undefined ? undefined : inner;
}

function typeText(schema: Schema): string {
  if (schema.items !== undefined) return `list of ${typeText(read(schema.items))}`;
  if (schema.properties !== undefined) return "object";
  if (schema.additionalProperties !== undefined) return "map of string";
  if (schema.enum !== undefined) return schema.enum.map((one) => `\`${one}\``).join(", ");
  const least = schema.minimum === undefined ? "" : `, at least ${schema.minimum}`;
  return `${schema.format ?? schema.type ?? "any"}${least}`;
}

/** A table for an object, followed by the tables of the objects in it. */
function section(path: string, schema: Schema): string {
  const fields = Object.entries(schema.properties ?? {}).map(([name, raw]) => [name, read(raw)] as const);
  const rows = fields.map(([name, field]) => {
    const needed = schema.required.includes(name) ? " (required)" : "";
    return `| \`${name}\` | ${typeText(field)}${needed} | ${escaped(field.description ?? "")} |\n`;
  });
  const inner = fields.flatMap(([name, field]) => {
    const object = objectOf(field);
    return object === undefined ? [] : [section(`${path}.${name}${field.items === undefined ? "" : "[]"}`, object)];
  });
  const text = schema.description === undefined ? "" : `${schema.description}\n\n`;
  const head = "| field | type | meaning |\n| --- | --- | --- |\n";
  return `## \`${path}\`\n\n${text}${head}${rows.join("")}\n${inner.join("")}`;
}

function escaped(text: string): string {
  return text.replaceAll("|", "\\|").replaceAll("\n", " ");
}

/** The constants of annotations.ts for users: names with a group, except those of the project's own pods. */
export function documentedNames(): readonly string[] {
  return Object.entries(names)
    .filter(([key, value]) => value.includes("/") && !["MIRROR_POD_ANNOTATION", "PART_OF_LABEL"].includes(key))
    .map(([key]) => key);
}

/** The objects on which the name is used, and its meaning: the parts of its comment around the first colon. */
function commentOf(source: string, key: string): readonly [where: string, meaning: string] {
  const comment = new RegExp(`/\\*\\*((?:(?!\\*/)[^])*)\\*/\\nexport const ${key}\\b`).exec(source)?.[1] ?? "";
  const [, where = "", meaning = ""] = /^(.*?): (.*)$/.exec(comment.replaceAll(/(?:\s*\n \*)?\s+/g, " ").trim()) ?? [];
  return [where, meaning];
}

function namesTable(): string {
  const values = new Map<string, unknown>(Object.entries(names));
  const source = readFileSync(join(root, "shared/schema/annotations.ts"), "utf8");
  const rows = documentedNames().map((key) => {
    const [where, meaning] = commentOf(source, key);
    return `| \`${String(values.get(key))}\` | ${where} | ${escaped(meaning)} |\n`;
  });
  return `## Labels, annotations and finalizers\n\n| name | on | meaning |\n| --- | --- | --- |\n${rows.join("")}`;
}

export function apiReference(): string {
  const schema = read(valueAt(podProtectorCrd(), "spec", "versions", 0, "schema", "openAPIV3Schema"));
  const part = (name: string): string => section(name, read(schema.properties?.[name]));
  const kind = `\`PodProtector\`, \`${names.GROUP}/${names.VERSION}\``;
  return `<!-- Made by \`npm run generate\` from shared/schema. -->

# API reference

${kind}, short name \`ppr\`, namespaced.
An object of upstream podseidon is valid here. All fields that this project adds are optional.

${part("spec")}${part("status")}${namesTable()}`;
}
