/**
 * Takes the switches of the simulation out of what is bundled: each `isLeftOut("RULE")` becomes `false` before the code is compiled,
 * so that neither the switches nor the names of the rules are in a bundle (`shared/decide/rules.ts`).
 */
import { readFile } from "node:fs/promises";
import type { Plugin } from "esbuild";

const SWITCH = /\bisLeftOut\("\w+"\)/g;

/** `source` without switches. Throws when one is written in a form that would be left behind. */
export function withoutSwitches(source: string, path: string): string {
  const text = source.replaceAll(SWITCH, "false");
  if (/\bisLeftOut\(/.test(text.replaceAll("function isLeftOut(", "")))
    throw new Error(`${path} asks for a rule in another form than isLeftOut("RULE")`);
  return text;
}

export const ablationFree: Plugin = {
  name: "ablation-free",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/](shared[\\/](decide|kube)|webhook|controllers)[\\/].*\.ts$/ }, async ({ path }) => ({
      contents: withoutSwitches(await readFile(path, "utf8"), path),
      loader: "ts",
    }));
  },
};
