/** One scene for each rule of design 5 that seeds show rarely: what happens, and which invariant breaks when the rule is left out. */
import type { Rule } from "../../../shared/decide/rules.ts";
import { LOSS_SCENES } from "./loss-scenes.ts";
import { PIN_SCENES } from "./pin-scenes.ts";
import { PLAIN_SCENES } from "./plain-scenes.ts";
import type { Plan, Stage } from "./stage.ts";
import { STREAM_SCENES } from "./stream-scenes.ts";

export interface Scene {
  readonly rule: Rule;
  /** Broken without the rule. */
  readonly invariant: string;
  readonly what: string;
  readonly plan: Plan;
  play(stage: Stage): Promise<void>;
}

export const SCENES: readonly Scene[] = [...PLAIN_SCENES, ...PIN_SCENES, ...LOSS_SCENES, ...STREAM_SCENES];
