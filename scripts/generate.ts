/**
 * Writes the files that are made from code: `npm run generate`. With `--check` it writes nothing and fails when a file differs.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { dump } from "js-yaml";
import { GROUP, PLURAL } from "../shared/schema/annotations.ts";
import { podProtectorCrd } from "../shared/schema/crd.ts";
import { root } from "./root.ts";

interface GeneratedFile {
  readonly path: string;
  readonly text: string;
}

/** Every generated file and what should be in it. */
export function generatedFiles(): readonly GeneratedFile[] {
  const head = "# Made by `npm run generate` from shared/schema/podprotector.ts.\n";
  const crd = dump(podProtectorCrd(), { lineWidth: 120, noRefs: true, skipInvalid: true });
  return [{ path: `crds/${GROUP}_${PLURAL}.yaml`, text: head + crd }];
}

/** Returns the paths of the files that are not as they should be. */
export function outdatedFiles(): readonly string[] {
  return generatedFiles()
    .filter(({ path, text }) => textOf(join(root, path)) !== text)
    .map(({ path }) => path);
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

if (import.meta.main) {
  const outdated = outdatedFiles();
  if (!process.argv.includes("--check")) {
    for (const { path, text } of generatedFiles()) writeFileSync(join(root, path), text);
    console.log(outdated.length === 0 ? "nothing has changed" : `written: ${outdated.join(", ")}`);
  } else if (outdated.length > 0) {
    console.error(`not up to date: ${outdated.join(", ")}; run npm run generate`);
    process.exitCode = 1;
  } else console.log("generated files are up to date");
}
