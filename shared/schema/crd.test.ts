import { readFileSync } from "node:fs";
import { join } from "node:path";
import { load } from "js-yaml";
import { describe, expect, test } from "vitest";
import { isRecord } from "./check.ts";
import { podProtectorCrd } from "./crd.ts";

/** The fields of a structural schema as `path -> what they are`; lists are `path[]`, maps are `path{}`. */
function fieldsOf(node: unknown, path = "", found = new Map<string, unknown>()): Map<string, unknown> {
  const at = (key: string): unknown => (isRecord(node) ? node[key] : undefined);
  const required = at("required");
  found.set(path, {
    type: at("type"),
    format: at("format"),
    minimum: at("minimum"),
    required: Array.isArray(required) ? required.toSorted() : undefined,
  });
  const properties = at("properties");
  if (isRecord(properties))
    for (const key of Object.keys(properties)) fieldsOf(properties[key], `${path}.${key}`, found);
  if (at("items") !== undefined) fieldsOf(at("items"), `${path}[]`, found);
  if (at("additionalProperties") !== undefined) fieldsOf(at("additionalProperties"), `${path}{}`, found);
  return found;
}

function walk(value: unknown, visit: (object: Readonly<Record<string, unknown>>) => void): void {
  if (isRecord(value)) visit(value);
  if (typeof value === "object" && value !== null) for (const inner of Object.values(value)) walk(inner, visit);
}

function schemaOf(crd: unknown): unknown {
  let found: unknown;
  walk(crd, (object) => {
    found ??= object.openAPIV3Schema;
  });
  return found;
}

const upstream: unknown = load(
  readFileSync(join(import.meta.dirname, "../../test/conformance/upstream/podprotectors.crd.yaml"), "utf8"),
);
const own: unknown = JSON.parse(JSON.stringify(podProtectorCrd()));

describe("the CRD", () => {
  const ours = fieldsOf(schemaOf(own));
  test.each([...fieldsOf(schemaOf(upstream))])("has upstream's %s with the same type and bounds", (path, field) => {
    expect(ours.get(path)).toEqual(field);
  });

  test("has the names, scope and subresources of upstream", () => {
    const shape = (crd: unknown): unknown => {
      if (!isRecord(crd) || !isRecord(crd.spec) || !Array.isArray(crd.spec.versions)) throw new Error("is no CRD");
      const { group, names, scope, versions } = crd.spec;
      return {
        metadata: crd.metadata,
        group,
        names,
        scope,
        versions: versions.map(({ name, subresources }) => ({ name, subresources })),
      };
    };
    const { metadata: _, ...wanted } = Object(shape(upstream));
    expect(shape(own)).toMatchObject(wanted);
  });

  test("sets no defaults that would change upstream's objects", () => {
    const found: unknown[] = [];
    walk(schemaOf(own), (object) => "default" in object && found.push(object.default));
    expect(found).toEqual([0]);
    expect(Object(podProtectorCrd()).spec.names.categories).toEqual(["podseidon"]);
  });

  test("admits no number that is another one when a reader writes it back", () => {
    const found: string[] = [];
    const { summary: _, ...status } = Object(Object(schemaOf(own)).properties.status).properties;
    walk(status, ({ format, minimum, maximum, description }) => {
      const isExact = Number.isSafeInteger(minimum) && Number.isSafeInteger(maximum);
      if (format === "int64" && !isExact) found.push(String(description));
    });
    // What each writer computes again is left out: the summary.
    expect(found).toEqual([]);
  });

  test("explains every field", () => {
    const silent: string[] = [];
    walk(schemaOf(own), ({ properties }) => {
      if (!isRecord(properties)) return;
      for (const [key, field] of Object.entries(properties)) {
        if (key !== "metadata" && isRecord(field) && typeof field.type === "string" && field.description === undefined)
          silent.push(key);
      }
    });
    expect(silent).toEqual([]);
  });
});
