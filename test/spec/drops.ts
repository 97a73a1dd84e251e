/** The counts of a history that drop a record although its pod is alive: without a LIST or a GET none can. */
import type { AccountEvent, ReplayedEvent, ReplayedWorld } from "./replay-events.ts";

export interface Drop {
  /** In the history. */
  readonly place: number;
  readonly protector: string;
  /** One of them has written it. */
  readonly aggregators: readonly string[];
  /** Of pods that are alive at the position of the count. */
  readonly nonces: readonly string[];
  /** The place of the first of their reservations. */
  readonly reservedAt: number;
}

interface HeldNonce {
  readonly nonce: string;
  readonly protector: string;
  readonly place: number;
}

export function dropsOfLivePods(world: ReplayedWorld, events: readonly ReplayedEvent[]): readonly Drop[] {
  const reader = new DropReader(world);
  return events.flatMap((event, place) => reader.read(event, place));
}

class DropReader {
  readonly #world: ReplayedWorld;
  /** By nonce. */
  readonly #pods = new Map<string, string>();
  /** What happened to the pods of each cell. */
  readonly #versions = new Map<string, { readonly pod: string; readonly to: string }[]>();
  #held: readonly HeldNonce[] = [];

  constructor(world: ReplayedWorld) {
    this.#world = world;
  }

  read(event: ReplayedEvent, place: number): readonly Drop[] {
    if (event.event === "ask") this.#pods.set(event.nonce, event.pod);
    else if (event.event === "change") this.#addVersion(event.pod, event.to);
    else if (event.event === "commit") this.#addVersion(event.pod ?? this.#podOf(event.nonce), event.to);
    else if (event.event === "reserve") this.#held = [...this.#held, { ...event, place }];
    else if (event.event === "rollBack") this.#forget([event]);
    return event.event === "account" ? this.#dropsAt(event, place) : [];
  }

  #dropsAt({ aggregator: aggregators, protector, nonces: left, position }: AccountEvent, place: number): Drop[] {
    const cell = this.#world.aggregators[aggregators[0] ?? ""] ?? "";
    const isDropped = (one: HeldNonce): boolean =>
      one.protector === protector && this.#cellOf(one.nonce) === cell && !left.includes(one.nonce);
    const dropped = this.#held.filter(isDropped);
    this.#forget(dropped);
    const alive = dropped.filter(({ nonce }) => this.#isAlive(cell, this.#podOf(nonce), position));
    if (alive.length === 0) return [];
    const reservedAt = Math.min(...alive.map((one) => one.place));
    return [{ place, protector, aggregators, nonces: alive.map(({ nonce }) => nonce), reservedAt }];
  }

  #forget(nonces: readonly Pick<HeldNonce, "nonce" | "protector">[]): void {
    this.#held = this.#held.filter(
      (held) => !nonces.some((one) => one.nonce === held.nonce && one.protector === held.protector),
    );
  }

  #addVersion(pod: string, to: string): void {
    const cell = this.#world.pods[pod] ?? "";
    this.#versions.set(cell, [...(this.#versions.get(cell) ?? []), { pod, to }]);
  }

  /** Where the count has no position nothing shows that it is not. */
  #isAlive(cell: string, pod: string, position: number | undefined): boolean {
    const known = this.#versions.get(cell)?.slice(0, position ?? 0) ?? [];
    const last = known.findLast((version) => version.pod === pod)?.to;
    return last !== "Absent" && last !== "Terminating";
  }

  #podOf(nonce: string | undefined): string {
    return this.#pods.get(nonce ?? "") ?? "";
  }

  #cellOf(nonce: string): string | undefined {
    return this.#world.pods[this.#podOf(nonce)];
  }
}
