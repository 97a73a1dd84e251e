/**
 * Writes the files that are generated from code: `npm run generate`. With `--check`, writes nothing, and fails when a
 * file differs.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { dump, load } from "js-yaml";
import { GROUP, PLURAL } from "../shared/schema/annotations.ts";
import { podProtectorCrd } from "../shared/schema/crd.ts";
import { apiReference } from "./api-reference.ts";
import { flagReference, metricReference } from "./reference.ts";
import { root } from "./root.ts";

interface GeneratedFile {
  readonly path: string;
  readonly text: string;
}

export function generatedFiles(): readonly GeneratedFile[] {
  const head = "# Made by `npm run generate` from shared/schema/podprotector.ts.\n";
  const crd = dump(podProtectorCrd(), { lineWidth: 120, noRefs: true, skipInvalid: true });
  return [
    { path: `crds/${GROUP}_${PLURAL}.yaml`, text: head + crd },
    { path: "docs/api.md", text: apiReference() },
    { path: "docs/flags.md", text: flagReference() },
    { path: "docs/metrics.md", text: metricReference() },
    { path: "manifests/monitoring/prometheus-rule.yaml", text: prometheusRule() },
  ];
}

/** The alert rules as an object for the Prometheus operator. */
function prometheusRule(): string {
  const rules = load(readFileSync(join(root, "manifests/monitoring/rules.yaml"), "utf8"));
  const labels = { "app.kubernetes.io/name": "podseidon", "app.kubernetes.io/part-of": "podseidon" };
  const metadata = { name: "podseidon", namespace: "podseidon-system", labels };
  const object = { apiVersion: "monitoring.coreos.com/v1", kind: "PrometheusRule", metadata, spec: rules };
  return `# Made by \`npm run generate\` from rules.yaml.\n${dump(object, { lineWidth: -1, noRefs: true })}`;
}

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
