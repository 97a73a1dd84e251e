/** What is loaded on demand in the middle of a run would make the run depend on the machine. */
import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { expect, it } from "vitest";
import { root } from "../../../scripts/root.ts";

/** Never asked for in a simulated world: the process's start, files that it reads, owners that are asked over a real network. */
const NOT_SIMULATED = ["webhook/run.ts", "webhook/probe/probes.ts", "shared/kube/plugin-credentials.ts"];

it("what the components load on demand is loaded before a world begins", () => {
  const preload = readFileSync(join(root, "test/simulation/world/preload.ts"), "utf8");
  const loaded = [...preload.matchAll(/^import "\.\.\/\.\.\/\.\.\/(.+)";$/gm)].map(([, path]) => path);
  const files = globSync("{shared,webhook,controllers/aggregator}/**/*.ts", { cwd: root });
  const onDemand = files
    .filter((file) => !file.endsWith(".test.ts"))
    .flatMap((file) =>
      [...readFileSync(join(root, file), "utf8").matchAll(/\bimport\("(\.[^"]+)"\)/g)].map(([, path]) =>
        normalize(join(dirname(file), path ?? "")),
      ),
    );
  expect(onDemand).toContain("webhook/bypass.ts");
  expect(onDemand.filter((path) => !NOT_SIMULATED.includes(path) && !loaded.includes(path))).toEqual([]);
});
