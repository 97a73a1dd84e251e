/** Each scene breaks nothing with its rule, and the invariant that it names without the rule. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../../../scripts/root.ts";
import { RULE_NAMES } from "../ablation/rules.ts";
import { SimulationProcess } from "../runner/process.ts";
import { play, SCENES } from "./scenes.ts";

it("there is one scene for each rule", () => {
  expect(SCENES.map(({ rule }) => rule).sort()).toEqual([...RULE_NAMES].sort());
});

it("docs/simulation.md names each rule with its invariant", () => {
  const page = readFileSync(join(root, "docs/simulation.md"), "utf8");
  const rows = [...page.matchAll(/^\| `(\w+)` +\| (\w+) +\|/gm)].map(([, rule, invariant]) => `${rule} ${invariant}`);
  expect(rows.sort()).toEqual(SCENES.map(({ rule, invariant }) => `${rule} ${invariant}`).sort());
});

describe.for(SCENES.map((scene, index) => ({ ...scene, scene, index })))("$rule: $what", ({ scene, index }) => {
  it("breaks nothing", async () => {
    const { violations } = await play(scene);
    expect(violations.map(({ invariant, message }) => `${invariant}: ${message}`)).toEqual([]);
  });

  it(`breaks ${scene.invariant} without the rule`, async () => {
    await using simulation = new SimulationProcess([scene.rule]);
    const { violations } = await simulation.scene(index);
    expect(violations.map(({ invariant }) => invariant)).toContain(scene.invariant);
  });
});
