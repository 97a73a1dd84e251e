/** The body of a process that searches without the rules that its arguments name. */
import { patchSources } from "../../simulation/ablation/patch-sources.ts";
import { isRule } from "../../simulation/ablation/rules.ts";
import type { Bounds } from "../bounds.ts";

// Before any shipping code is loaded.
patchSources(process.argv.slice(2).filter(isRule));

process.once("message", (bounds: Bounds) => {
  void import("./search.ts").then(({ search }) => search(bounds)).then((result) => process.send?.(result));
});
