import { describe, expect, test } from "vitest";
import { podProtectorCrd } from "../../../shared/schema/crd.ts";
import { crdFinding, type Finding } from "./findings.ts";

function line({ level, check, found }: Finding): string {
  return `${level} ${check}: ${found}`;
}

describe("the CRD", () => {
  test("of this version is in order", () => {
    expect(crdFinding(JSON.parse(JSON.stringify(podProtectorCrd()))).level).toBe("ok");
  });
  test("that is missing is a problem", () => {
    expect(line(crdFinding(undefined))).toBe("problem crd: PodProtector is not installed");
  });
  test("that is being deleted is a problem, although it keeps every field", () => {
    const { metadata, ...crd } = JSON.parse(JSON.stringify(podProtectorCrd()));
    const deleted = { ...crd, metadata: { ...metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } };
    expect(line(crdFinding(deleted))).toMatch(/^problem crd: is being deleted: /);
  });
  test.each(["served", "subresources"])("without %s is a problem, although it keeps every field", (field) => {
    const crd = JSON.parse(JSON.stringify(podProtectorCrd()));
    crd.spec.versions[0][field] = field === "served" ? false : undefined;
    expect(line(crdFinding(crd))).toMatch(/^problem crd: does not serve v1alpha1 with its status: /);
  });
  test("that drops fields is a problem that names one", () => {
    const text = JSON.stringify(podProtectorCrd()).replaceAll('"nonce"', '"other"').replaceAll('"hold"', '"else"');
    expect(line(crdFinding(JSON.parse(text)))).toMatch(/^problem crd: drops 2 fields of this version \(\.status\./);
  });
});
