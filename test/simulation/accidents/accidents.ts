/** One accident after the other, until faults stop. */
import { sleep } from "../../../shared/runtime/clock.ts";
import type { Chance } from "../world/random.ts";
import type { World } from "../world/world.ts";
import type { Accident } from "./accident.ts";
import { Acts, Over } from "./acts.ts";
import { LOSS_ACCIDENTS } from "./lost-history.ts";
import { PIN_ACCIDENTS } from "./pins.ts";
import { STREAM_ACCIDENTS } from "./streams.ts";

const ALL: readonly Accident[] = [...PIN_ACCIDENTS, ...LOSS_ACCIDENTS, ...STREAM_ACCIDENTS];
/** So many in one world: what holds a cell or stops a replica would else keep the others from happening. */
const KINDS = 3;

export class Accidents {
  readonly #world: World;
  readonly #chance: Chance;
  #now: Acts | undefined;

  constructor(world: World, chance: Chance) {
    this.#world = world;
    this.#chance = chance;
    // What lasts of the present one is taken back.
    world.whenCalm(() => this.#now?.end());
  }

  async run(): Promise<void> {
    const { scenario, time } = this.#world;
    const { accidentEveryMs, isSteady } = scenario.features;
    const possible = ALL.filter((one) => (one.isSteady || !isSteady) && one.isPossible?.(scenario) !== false);
    const drawn = Array.from({ length: KINDS }, () => this.#chance.pick(possible));
    for (;;) {
      await sleep(time, this.#chance.exponential(accidentEveryMs));
      if (!this.#world.faultsActive) return;
      const accident = this.#chance.pick(drawn);
      await this.#happen(accident);
    }
  }

  async #happen(accident: Accident): Promise<void> {
    const { coverage } = this.#world;
    const acts = new Acts(this.#world, this.#chance.fork());
    this.#now = acts;
    try {
      await acts.untilCounted();
      coverage.fault("accidents");
      coverage.rule(accident.name);
      this.#world.note(`accident: ${accident.name}`);
      await accident.happen(acts);
    } catch (error) {
      if (!(error instanceof Over)) this.#world.violation("check", `${accident.name}: ${String(error)}`);
    }
    acts.end();
    this.#world.note("the accident is over");
  }
}
