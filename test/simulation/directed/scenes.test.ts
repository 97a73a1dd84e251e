/** Each scene is sound, and breaks the invariant that it names when its rule is left out. */
import { describe, expect, it } from "vitest";
import { RULES } from "../../../shared/decide/rules.ts";
import { without } from "../runner/ablate.ts";
import { SCENES, type Scene } from "./scenes.ts";
import { Stage } from "./stage.ts";

async function play({ plan, play: act }: Scene): Promise<readonly string[]> {
  const stage = await Stage.open(plan);
  await act(stage);
  await stage.rest();
  return stage.violations.map(({ invariant, message }) => `${invariant}: ${message}`);
}

it("there is one for each rule", () => {
  expect(SCENES.map(({ rule }) => rule).sort()).toEqual([...RULES].sort());
});

describe.for(SCENES)("$rule: $what", (scene) => {
  it("breaks nothing", async () => {
    expect(await play(scene)).toEqual([]);
  });

  it(`breaks ${scene.invariant} without the rule`, async () => {
    const broken = await without([scene.rule], () => play(scene));
    expect(broken.map((violation) => violation.split(":")[0])).toContain(scene.invariant);
  });
});
