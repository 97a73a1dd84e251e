/** One scene for each rule of the protocol: what happens, and which invariant breaks when the rule is left out. */
import type { Rule } from "../ablation/rules.ts";
import type { Violation } from "../world/world.ts";
import { LOSS_SCENES } from "./loss-scenes.ts";
import { PIN_SCENES } from "./pin-scenes.ts";
import { PLAIN_SCENES } from "./plain-scenes.ts";
import { type ScenePlan, SceneStage } from "./stage.ts";
import { STREAM_SCENES } from "./stream-scenes.ts";

export interface RuleScene {
  readonly rule: Rule;
  /** Broken when the rule is left out. */
  readonly invariant: string;
  readonly what: string;
  readonly plan: ScenePlan;
  /** With the first two pods. */
  play(stage: SceneStage, pod: string, other: string): Promise<void>;
}

/** What a scene broke, and its trace. */
export interface Played {
  readonly violations: readonly Violation[];
  readonly trace: readonly string[];
}

/** Plays a scene to its end, and the quiet that follows. */
export async function play({ plan, play: act }: RuleScene, trace = false): Promise<Played> {
  const stage = await SceneStage.open(plan, trace);
  await act(stage, stage.pod(0), stage.pod(1));
  await stage.end();
  return { violations: stage.violations, trace: stage.world.trace };
}

export const SCENES: readonly RuleScene[] = [...PLAIN_SCENES, ...PIN_SCENES, ...LOSS_SCENES, ...STREAM_SCENES];
