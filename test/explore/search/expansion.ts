/** One thread's part of a search: makes the states that follow from others, and keeps those that are new. */

import type { Bounds } from "../bounds.ts";
import { CountDecisions } from "../protocol/aggregator.ts";
import { Specs } from "../protocol/stored.ts";
import { AdmissionDecisions } from "../protocol/webhook.ts";
import { canonicalText, parseText } from "../world/canonical.ts";
import { Continuation } from "../world/continuation.ts";
import { firstWorld } from "../world/first-world.ts";
import type { BrokenInvariant } from "../world/invariants.ts";
import { Steps } from "../world/steps.ts";
import type { SmallWorld } from "../world/world.ts";
import { type Piece, PieceWriter, readPiece } from "./frontier.ts";
import { hashText, type TextHash, Visited, type VisitedMemory } from "./visited.ts";

export interface ExpansionTask {
  readonly pieces: readonly Piece[];
  /** Unix milliseconds at which the search ends. */
  readonly endMs: number;
}

export interface Expanded {
  /** The new states. */
  readonly pieces: readonly Piece[];
  readonly steps: number;
  /** The end came first. */
  readonly isCut: boolean;
  readonly broken: Broken | undefined;
}

/** A state from which a step breaks an invariant, or that breaks one in its fair end. */
export interface Broken {
  readonly state: number;
  readonly violation: BrokenInvariant;
}

/** How often the clock is read. */
const STATES_BETWEEN = 512;

export class Expansion {
  readonly #bounds: Bounds;
  readonly #visited: Visited;
  readonly #steps: Steps;
  readonly #continuation: Continuation;
  readonly #hash: TextHash = { low: 0, high: 0 };

  constructor(bounds: Bounds, memory: VisitedMemory) {
    const specs = new Specs(bounds);
    const admissions = new AdmissionDecisions(specs);
    const counts = new CountDecisions(specs);
    this.#bounds = bounds;
    this.#visited = new Visited(memory);
    this.#steps = new Steps(admissions, counts, bounds);
    this.#continuation = new Continuation(admissions, counts, bounds.minAvailable);
  }

  /** The first state. */
  begin(): readonly Piece[] {
    const next = new PieceWriter();
    this.#keep(canonicalText(firstWorld(this.#bounds)), 0, next);
    return next.pieces();
  }

  expand({ pieces, endMs }: ExpansionTask): Expanded {
    const { cells, pods, later } = this.#bounds;
    const next = new PieceWriter();
    let steps = 0;
    let done = 0;
    let broken: Broken | undefined;
    for (const piece of pieces)
      for (const [text, state] of readPiece(piece)) {
        const world = parseText(text, cells, pods + later);
        this.#steps.after(world, (after, _, violation) => {
          steps++;
          if (violation !== undefined) broken ??= { state, violation };
          if (broken === undefined) this.#keep(canonicalText(after), state, next);
        });
        const late = broken === undefined ? this.#continuation.violation(world) : undefined;
        if (late !== undefined) broken = { state, violation: late };
        if (broken !== undefined) return { pieces: [], steps, isCut: false, broken };
        const isOver = ++done % STATES_BETWEEN === 0 && (Date.now() >= endMs || this.#visited.isFull);
        if (isOver) return { pieces: [], steps, isCut: true, broken: undefined };
      }
    return { pieces: next.pieces(), steps, isCut: false, broken: undefined };
  }

  #keep(text: string, from: number, next: PieceWriter): void {
    const state = this.#visited.add(hashText(text, this.#hash), from);
    if (state !== undefined) next.push(text, state);
  }

  /** Goes the way again, and says what happens. Pods keep their numbers here, which canonical texts do not tell. */
  tell({ state, violation }: Broken): readonly string[] {
    const story: string[] = [];
    let world = firstWorld(this.#bounds);
    for (const wanted of this.#visited.pathTo(state).slice(1)) world = this.#follow(world, wanted, story);
    let last: string | undefined;
    this.#steps.after(world, (_, tell, broken) => {
      if (broken === violation) last ??= tell();
    });
    return [...story, last ?? "Faults and requests end, and everything catches up"];
  }

  #follow(world: SmallWorld, wanted: TextHash, story: string[]): SmallWorld {
    let found: SmallWorld | undefined;
    this.#steps.after(world, (after, tell) => {
      if (found !== undefined) return;
      const { low, high } = hashText(canonicalText(structuredClone(after)), this.#hash);
      if (low !== wanted.low || high !== wanted.high) return;
      found = after;
      story.push(tell());
    });
    if (found === undefined) throw new Error("a step of the way can't be repeated");
    return found;
  }
}
