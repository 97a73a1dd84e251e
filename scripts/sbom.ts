/**
 * `npm run sbom`: what of other people's work is in the bundles, as CycloneDX 1.6, in `dist/sbom.cdx.json`. Made from what the bundler
 * put in, not from what is installed; versions, licences and hashes are the lock file's. The same bundles give the same file.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import * as v from "valibot";
import { type BuiltPart, build } from "./build.ts";
import { root } from "./root.ts";

const Package = v.looseObject({
  version: v.string(),
  integrity: v.optional(v.string()),
  license: v.optional(v.string()),
});
const Lock = v.looseObject({ version: v.string(), packages: v.record(v.string(), v.unknown()) });

interface Component {
  readonly type: "library";
  readonly "bom-ref": string;
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly licenses: readonly unknown[];
  readonly hashes: readonly { readonly alg: string; readonly content: string }[];
  /** The parts that it is in. */
  readonly properties: readonly { readonly name: string; readonly value: string }[];
}

const ALGORITHMS: Readonly<Record<string, string>> = {
  sha512: "SHA-512",
  sha384: "SHA-384",
  sha256: "SHA-256",
  sha1: "SHA-1",
};

/** The name in `node_modules/a/node_modules/@scope/b`. */
function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
}

function hashesOf(integrity: string): Component["hashes"] {
  return integrity.split(" ").flatMap((one) => {
    const at = one.indexOf("-");
    const alg = ALGORITHMS[one.slice(0, at)];
    return alg === undefined ? [] : [{ alg, content: Buffer.from(one.slice(at + 1), "base64").toString("hex") }];
  });
}

/** An identifier of SPDX, or an expression of several. */
function licensesOf(license: string): readonly unknown[] {
  return /^[A-Za-z0-9.+-]+$/.test(license) ? [{ license: { id: license } }] : [{ expression: license }];
}

function componentOf(path: string, entry: unknown, parts: readonly string[]): Component {
  const { version, integrity, license } = v.parse(Package, entry);
  const name = nameOf(path);
  const purl = `pkg:npm/${name.replace(/^@/, "%40")}@${version}`;
  return {
    type: "library",
    "bom-ref": purl,
    name,
    version,
    purl,
    licenses: license === undefined ? [] : licensesOf(license),
    hashes: integrity === undefined ? [] : hashesOf(integrity),
    properties: parts.map((value) => ({ name: "podseidon:part", value })),
  };
}

/** The bill of materials of these parts; `lock` is the text of package-lock.json. Throws for a package that is not locked. */
export function billOfMaterials(parts: readonly Pick<BuiltPart, "name" | "packages">[], lock: string): unknown {
  const { version, packages } = v.parse(Lock, JSON.parse(lock));
  const users = new Map<string, string[]>();
  for (const part of parts) {
    for (const path of part.packages) users.set(path, [...(users.get(path) ?? []), part.name]);
  }
  const components = [...users]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([path, names]) => {
      if (packages[path] === undefined) throw new Error(`${path} is in a bundle and not in package-lock.json`);
      return componentOf(path, packages[path], names.sort());
    });
  const reference = `pkg:npm/podseidon@${version}`;
  return {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: {
      component: {
        type: "application",
        "bom-ref": reference,
        name: "podseidon",
        version,
        purl: reference,
        licenses: licensesOf("Apache-2.0"),
      },
    },
    components,
    dependencies: [
      { ref: reference, dependsOn: components.map((component) => component["bom-ref"]) },
      ...components.map((component) => ({ ref: component["bom-ref"] })),
    ],
  };
}

/** Builds all parts into `outdir` and writes their bill beside them; returns its path and how many packages are in it. */
export async function writeBill(outdir = "dist"): Promise<{ readonly path: string; readonly packages: number }> {
  const parts = await build({ outdir });
  const path = join(resolve(root, outdir), "sbom.cdx.json");
  const bill = billOfMaterials(parts, readFileSync(join(root, "package-lock.json"), "utf8"));
  writeFileSync(path, `${JSON.stringify(bill, null, 2)}\n`);
  return { path, packages: new Set(parts.flatMap((part) => part.packages)).size };
}

if (import.meta.main) {
  const { path, packages } = await writeBill();
  console.log(`${path}: ${packages} packages are in the bundles`);
}
