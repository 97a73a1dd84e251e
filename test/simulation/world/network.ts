/** All links of the world, and their faults at present. */
import type { LinkFaults, SimulatedLink } from "../apiserver/link.ts";
import type { Chance } from "../scenario/random.ts";

const MEAN_DELAY_MS = 1.5;
/** Some calls with a timeout of 3 s are answered after their timeout. */
const SLOW_MEAN_DELAY_MS = 900;

interface LinkState {
  requestsLost: boolean;
  responsesLost: boolean;
  /** Nothing listens at the other end. */
  isRefused: boolean;
  /**
   * Mean of an exponential delay of each message: a later message may arrive earlier, or after its sender has given up.
   */
  meanDelayMs: number;
  /** A fixed delay instead of the mean, set by a scene. */
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

  /** Returns the faults of the next link; {@link add} must follow. */
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

  /** Changes the faults of all links from a user's processes to a server. */
  setLinks(user: string, server: string, state: Partial<LinkState>): void {
    for (const { link, state: now } of this.#links)
      if (link.user === user && link.server.name === server) Object.assign(now, state);
  }

  /** Changes the faults of one link. */
  setLink(meant: SimulatedLink, changes: Partial<LinkState>): void {
    for (const { link, state } of this.#links) if (link === meant) Object.assign(state, changes);
  }

  /**
   * From here on `server` accepts connections or refuses them; the links of `except` stay as they are. What a machine
   * that stops has sent and no client has received is lost.
   */
  setServing(server: string, isServing: boolean, except: readonly SimulatedLink[] = []): void {
    for (const { link, state } of this.#links) {
      if (link.server.name !== server || except.includes(link)) continue;
      state.isRefused = !isServing;
      if (!isServing) link.cut();
    }
  }

  /** Heals every link, or only `meant`. */
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
