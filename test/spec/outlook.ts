/** What a history says later: so that a replay follows nothing that can't come to it. */
import { type Drop, dropsOfLivePods } from "./drops.ts";
import type { ReplayedHistory } from "./replay-events.ts";

interface Prospect {
  /** The place of the write of each protector. */
  readonly writes: Map<string, number>;
  outcome: string | undefined;
  deniers: readonly string[] | undefined;
}

export class Outlook {
  readonly #prospects = new Map<string, Prospect>();
  /** Of each aggregator, by place. */
  readonly #positions = new Map<string, { readonly place: number; readonly position: number }[]>();

  readonly #started = new Set<string>();
  readonly #drops: readonly Drop[];

  constructor({ world, events }: ReplayedHistory) {
    this.#drops = dropsOfLivePods(
      world,
      events.map(({ event }) => event),
    );
    for (const [place, { event }] of events.entries()) {
      if (event.event === "reserve") this.#of(event.nonce).writes.set(event.protector, place);
      if (event.event === "allow" || event.event === "deny") this.#of(event.nonce).outcome = event.event;
      if (event.event === "deny") this.#of(event.nonce).deniers = event.protectors;
      if (event.event === "start") this.#started.add(event.aggregator);
      if (event.event !== "account") continue;
      const [name, ...others] = event.aggregator;
      if (name === undefined || others.length > 0 || event.position === undefined) continue;
      const known = this.#positions.get(name) ?? [];
      this.#positions.set(name, known);
      known.push({ place, position: event.position });
    }
  }

  /** False for an aggregator that is there from the beginning. */
  starts(aggregator: string): boolean {
    return this.#started.has(aggregator);
  }

  /** The position of the next count of this aggregator: it has seen nothing later before. */
  nextPosition(aggregator: string, place: number): number {
    const next = this.#positions.get(aggregator)?.find((one) => one.place >= place);
    return next?.position ?? Number.POSITIVE_INFINITY;
  }

  /** Whether this aggregator drops, at a later place, one of the nonces although its pod is alive: a GET shows it. */
  needsGet(aggregator: string, protector: string, nonces: readonly string[], place: number): boolean {
    return this.#dropsOf(aggregator, place).some(
      (drop) => drop.protector === protector && nonces.some((nonce) => drop.nonces.includes(nonce)),
    );
  }

  /** The same of a LIST: not before there is such a nonce. */
  needsList(aggregator: string, place: number): boolean {
    return this.#dropsOf(aggregator, place).some(({ reservedAt }) => reservedAt <= place);
  }

  #dropsOf(aggregator: string, place: number): readonly Drop[] {
    return this.#drops.filter((drop) => drop.place >= place && drop.aggregators.includes(aggregator));
  }

  /** What this protector may decide from here on without a line of its own. */
  unrecorded(nonce: string, protector: string, place: number): readonly ("allowed" | "denied")[] {
    const { writes, outcome, deniers } = this.#of(nonce);
    if (writes.has(protector) || outcome === undefined) return [];
    if (outcome === "allow") return ["allowed"];
    const areWritten = [...writes.values()].every((written) => written <= place);
    return areWritten && deniers?.includes(protector) !== false ? ["denied"] : ["allowed"];
  }

  /** Whether this protector may be the one that denies a request that others record. */
  mayDenyRecorded(nonce: string, protector: string): boolean {
    const { writes, outcome, deniers } = this.#of(nonce);
    const isDenier = !writes.has(protector) && deniers?.includes(protector) !== false;
    return outcome === "deny" && writes.size > 0 && isDenier;
  }

  #of(nonce: string): Prospect {
    const known = this.#prospects.get(nonce) ?? { writes: new Map(), outcome: undefined, deniers: undefined };
    this.#prospects.set(nonce, known);
    return known;
  }
}
