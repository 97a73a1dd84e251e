/** Each scene is sound, and breaks the invariant that it names when its rule is left out. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../../../scripts/root.ts";
import { RULES } from "../../../shared/decide/rules.ts";
import { without } from "../runner/ablate.ts";
import { play, SCENES } from "./scenes.ts";

it("there is one for each rule", () => {
  expect(SCENES.map(({ rule }) => rule).sort()).toEqual([...RULES].sort());
});

it("the documentation names each rule with the invariant that it holds up", () => {
  const page = readFileSync(join(root, "docs/simulation.md"), "utf8");
  const rows = [...page.matchAll(/^\| `(\w+)` +\| (\w+) +\|/gm)].map(([, rule, invariant]) => `${rule} ${invariant}`);
  expect(rows.sort()).toEqual(SCENES.map(({ rule, invariant }) => `${rule} ${invariant}`).sort());
});

describe.for(SCENES)("$rule: $what", (scene) => {
  it("breaks nothing", async () => {
    const { violations } = await play(scene);
    expect(violations.map(({ invariant, message }) => `${invariant}: ${message}`)).toEqual([]);
  });

  it(`breaks ${scene.invariant} without the rule`, async () => {
    const { violations } = await without([scene.rule], () => play(scene));
    expect(violations.map(({ invariant }) => invariant)).toContain(scene.invariant);
  });
});
