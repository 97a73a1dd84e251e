import { expect, test } from "vitest";
import { podProtectorCrd } from "../shared/schema/crd.ts";
import { apiReference, documentedNames, MEANINGS } from "./api-reference.ts";

test("every label, annotation and finalizer has its meaning in the reference, and no other", () => {
  expect(Object.keys(MEANINGS).sort(), "add a line to MEANINGS in scripts/api-reference.ts").toEqual(
    [...documentedNames()].sort(),
  );
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
