import { expect, test } from "vitest";
import { billOfMaterials } from "./sbom.ts";

const lock = JSON.stringify({
  version: "0.1.0",
  packages: {
    "": {},
    "node_modules/a": { version: "1.0.0", license: "MIT", integrity: `sha512-${Buffer.from("x").toString("base64")}` },
    "node_modules/a/node_modules/@s/b": { version: "2.0.0", license: "(MIT OR Apache-2.0)" },
    "node_modules/only-installed": { version: "3.0.0" },
  },
});

test("lists what is in the bundles, with the lock file's versions, licences and hashes, and where it is used", () => {
  const parts = [
    { name: "webhook", packages: ["node_modules/a"] },
    { name: "aggregator", packages: ["node_modules/a", "node_modules/a/node_modules/@s/b"] },
  ] as const;
  expect(billOfMaterials(parts, lock)).toMatchObject({
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    components: [
      {
        purl: "pkg:npm/a@1.0.0",
        licenses: [{ license: { id: "MIT" } }],
        hashes: [{ alg: "SHA-512", content: "78" }],
        properties: [{ value: "aggregator" }, { value: "webhook" }],
      },
      { name: "@s/b", purl: "pkg:npm/%40s/b@2.0.0", licenses: [{ expression: "(MIT OR Apache-2.0)" }] },
    ],
    dependencies: [{ dependsOn: ["pkg:npm/a@1.0.0", "pkg:npm/%40s/b@2.0.0"] }, {}, {}],
  });
});

test("a package that is not locked is told", () => {
  expect(() => billOfMaterials([{ name: "webhook", packages: ["node_modules/ghost"] }], lock)).toThrow(/ghost/);
});
