/** All links of the world, and what is wrong with them at present. */
import type { Link, LinkFaults } from "../apiserver/link.ts";
import type { Chance } from "../random.ts";

const MEAN_DELAY_MS = 1.5;

interface LinkState {
  requestsLost: boolean;
  responsesLost: boolean;
}

export class Network {
  readonly #chance: Chance;
  readonly #links: { readonly link: Link; readonly state: LinkState }[] = [];
  readonly #isRequestLost: () => boolean;
  #made: LinkState | undefined;

  constructor(chance: Chance, isRequestLost: () => boolean) {
    this.#isRequestLost = isRequestLost;
    this.#chance = chance;
  }

  /** The faults of the link that is made next; {@link add} must follow. */
  faultsOf(): LinkFaults {
    const state: LinkState = { requestsLost: false, responsesLost: false };
    this.#made = state;
    return {
      delayMs: () => this.#chance.exponential(MEAN_DELAY_MS),
      requestsLost: () => state.requestsLost,
      responsesLost: () => state.responsesLost,
      refused: () => false,
      oneLost: () => this.#isRequestLost(),
    };
  }

  add(link: Link): void {
    if (this.#made !== undefined) this.#links.push({ link, state: this.#made });
    this.#made = undefined;
  }

  /** Cuts one link in one direction or both. */
  partition(): void {
    const { state } = this.#chance.pick(this.#links);
    state.requestsLost = this.#chance.chance(0.6);
    state.responsesLost = !state.requestsLost || this.#chance.chance(0.5);
  }

  heal(): void {
    for (const { state } of this.#links) {
      state.requestsLost = false;
      state.responsesLost = false;
    }
  }

  cutStreams(): void {
    this.#chance.pick(this.#links).link.cut();
  }
}
