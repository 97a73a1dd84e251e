/**
 * What the components load on demand, loaded before a world begins: then an `import()` of it takes no time of the machine's, which virtual
 * time would not wait for, and one seed stays one history.
 */
import { globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { root } from "../../../scripts/root.ts";

/** Never asked for in a simulated world: the process's start, credentials of a kubeconfig, owners that are asked over a real network. */
const NOT_SIMULATED = [
  "webhook/run.ts",
  "shared/kube/credentials/plugin-credentials.ts",
  "webhook/probe/probe-endpoints.ts",
];
const ON_DEMAND = /\bimport\("(\.[^"]+)"\)/g;

/** Paths of the modules, below the root of the project. */
export const LOADED_ON_DEMAND: readonly string[] = globSync("{shared,webhook,controllers/aggregator}/**/*.ts", {
  cwd: root,
})
  .filter((file) => !file.endsWith(".test.ts"))
  .flatMap((file) =>
    [...readFileSync(join(root, file), "utf8").matchAll(ON_DEMAND)].map(([, path = ""]) => join(dirname(file), path)),
  )
  .filter((path) => !NOT_SIMULATED.includes(path));

await Promise.all(LOADED_ON_DEMAND.map((path) => import(pathToFileURL(join(root, path)).href)));
