/** Plays one accident after the other, until faults end. */
import { sleep } from "../../../shared/runtime/clock.ts";
import type { Chance } from "../scenario/random.ts";
import type { World } from "../world/world.ts";
import type { Accident } from "./accident.ts";
import { AccidentStage, FaultsEnded } from "./accident-stage.ts";
import { LOSS_ACCIDENTS } from "./lost-history.ts";
import { PIN_ACCIDENTS } from "./pins.ts";
import { STREAM_ACCIDENTS } from "./streams.ts";

const ALL: readonly Accident[] = [...PIN_ACCIDENTS, ...LOSS_ACCIDENTS, ...STREAM_ACCIDENTS];
/**
 * Accidents of one world. With more of them, those that hold a cell or stop a replica would keep the others from
 * happening.
 */
const KINDS = 3;

export class Accidents {
  readonly #world: World;
  readonly #chance: Chance;
  #now: AccidentStage | undefined;

  constructor(world: World, chance: Chance) {
    this.#world = world;
    this.#chance = chance;
    // Undoes what the present accident has changed.
    world.onEnd(() => this.#now?.end());
  }

  async run(): Promise<void> {
    const { scenario, time } = this.#world;
    const { accidentsEveryMs, isSteady } = scenario.features;
    const possible = ALL.filter((one) => (one.isSteady || !isSteady) && one.isPossible?.(scenario) !== false);
    const drawn = Array.from({ length: KINDS }, () => this.#chance.pick(possible));
    for (;;) {
      await sleep(time, this.#chance.exponential(accidentsEveryMs));
      if (!this.#world.faultsActive) return;
      const accident = this.#chance.pick(drawn);
      await this.#happen(accident);
    }
  }

  async #happen(accident: Accident): Promise<void> {
    const { coverage } = this.#world;
    const acts = new AccidentStage(this.#world, this.#chance.fork());
    this.#now = acts;
    try {
      await acts.untilCounted();
      coverage.fault("accidents");
      coverage.rule(accident.name);
      this.#world.note(`accident: ${accident.name}`);
      await accident.happen(acts);
    } catch (error) {
      if (!(error instanceof FaultsEnded)) this.#world.violation("check", `${accident.name}: ${String(error)}`);
    }
    acts.end();
    this.#world.note("the accident has ended");
  }
}
