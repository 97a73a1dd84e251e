/** All links of the world, and what is wrong with them at present. */
import type { LinkFaults, SimulatedLink } from "../apiserver/link.ts";
import type { Chance } from "./random.ts";

const MEAN_DELAY_MS = 1.5;
/** So slow that calls with a timeout of 3 s are answered after it at times. */
const SLOW_MEAN_DELAY_MS = 900;

interface LinkState {
  requestsLost: boolean;
  responsesLost: boolean;
  /** Nothing listens at the other end. */
  isRefused: boolean;
  /** Messages take so long on average, each its own time: what was sent later arrives earlier, or after its sender gave up. */
  meanDelayMs: number;
  /** Or exactly so long, where a scene wants it. */
  fixedDelayMs?: number;
}

export class Network {
  readonly #chance: Chance;
  readonly #links: { readonly link: SimulatedLink; readonly state: LinkState }[] = [];
  readonly #isRequestLost: () => boolean;
  #made: LinkState | undefined;

  constructor(chance: Chance, isRequestLost: () => boolean) {
    this.#isRequestLost = isRequestLost;
    this.#chance = chance;
  }

  /** The faults of the link that is made next; {@link add} must follow. */
  faultsOf(): LinkFaults {
    const state: LinkState = {
      requestsLost: false,
      responsesLost: false,
      isRefused: false,
      meanDelayMs: MEAN_DELAY_MS,
    };
    this.#made = state;
    return {
      delayMs: () => state.fixedDelayMs ?? this.#chance.exponential(state.meanDelayMs),
      requestsLost: () => state.requestsLost,
      responsesLost: () => state.responsesLost,
      refused: () => state.isRefused,
      oneLost: () => this.#isRequestLost(),
    };
  }

  add(link: SimulatedLink): void {
    if (this.#made !== undefined) this.#links.push({ link, state: this.#made });
    this.#made = undefined;
  }

  /** Cuts one link in one direction or both. */
  partition(): void {
    const { state } = this.#chance.pick(this.#links);
    state.requestsLost = this.#chance.chance(0.6);
    state.responsesLost = !state.requestsLost || this.#chance.chance(0.5);
  }

  /** Makes one link slow until it is healed. */
  slow(): void {
    this.#chance.pick(this.#links).state.meanDelayMs = SLOW_MEAN_DELAY_MS;
  }

  /** What is wrong with the links of one process to one server from here on. */
  set(user: string, server: string, state: Partial<LinkState>): void {
    for (const { link, state: now } of this.#links)
      if (link.user === user && link.server.name === server) Object.assign(now, state);
  }

  /** What is wrong with one link from here on. */
  setOne(meant: SimulatedLink, changes: Partial<LinkState>): void {
    for (const { link, state } of this.#links) if (link === meant) Object.assign(state, changes);
  }

  /** Whether `server` takes connections from here on, but for those of `except`. */
  serves(server: string, isServing: boolean, except: readonly SimulatedLink[] = []): void {
    for (const { link, state } of this.#links)
      if (link.server.name === server && !except.includes(link)) state.isRefused = !isServing;
  }

  /** Every link, or one. */
  heal(meant?: SimulatedLink): void {
    for (const { link, state } of this.#links) {
      if (meant !== undefined && link !== meant) continue;
      state.requestsLost = false;
      state.responsesLost = false;
      state.meanDelayMs = MEAN_DELAY_MS;
      delete state.fixedDelayMs;
    }
  }

  cutStreams(): void {
    this.#chance.pick(this.#links).link.cut();
  }
}
