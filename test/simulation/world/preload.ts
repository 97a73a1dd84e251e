/**
 * Loads what the components import on demand, before a world begins. A dynamic `import()` takes real time, for which
 * virtual time does not wait, and a seed would not give one history.
 */
import { globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { root } from "../../../scripts/root.ts";

/**
 * Never imported in a simulated world: the start of the process, kubeconfig credentials, and probes over a real
 * network.
 */
const NOT_SIMULATED = [
  "webhook/run.ts",
  "shared/kube/credentials/plugin-credentials.ts",
  "webhook/probe/probe-endpoints.ts",
];
const ON_DEMAND = /\bimport\("(\.[^"]+)"\)/g;

/** Paths of the modules, relative to the root of the project. */
export const LOADED_ON_DEMAND: readonly string[] = globSync(
  "{shared,webhook,controllers/{aggregator,generator}}/**/*.ts",
  { cwd: root },
)
  .filter((file) => !file.endsWith(".test.ts"))
  .flatMap((file) =>
    [...readFileSync(join(root, file), "utf8").matchAll(ON_DEMAND)].map(([, path = ""]) => join(dirname(file), path)),
  )
  .filter((path) => !NOT_SIMULATED.includes(path));

await Promise.all(LOADED_ON_DEMAND.map((path) => import(pathToFileURL(join(root, path)).href)));
