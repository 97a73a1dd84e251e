import { expect, test } from "vitest";
import { podProtectorCrd } from "../shared/schema/crd.ts";
import { apiReference, documentedNames } from "./api-reference.ts";

test("every label, annotation and finalizer is in the reference with what it is for", () => {
  const rows = apiReference().split("## Labels, annotations and finalizers")[1]?.trim().split("\n").slice(2) ?? [];
  expect(rows).toHaveLength(documentedNames().length);
  expect(rows.filter((row) => !/^\| `\S+` \| \S.* \| \S.{8,} \|$/.test(row))).toEqual([]);
});

test("every field of the CRD is in the reference", () => {
  const page = apiReference();
  const missing: string[] = [];
  JSON.stringify(podProtectorCrd(), (key, value: unknown) => {
    if (key === "properties" && typeof value === "object" && value !== null) {
      for (const name of Object.keys(value)) if (!page.includes(`\`${name}\``)) missing.push(name);
    }
    return value;
  });
  expect(missing.filter((name) => !["apiVersion", "kind", "metadata"].includes(name))).toEqual([]);
});
