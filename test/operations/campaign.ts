/** Takes all tracks through the same values in a calm world and in disturbed ones, and compares after each step. */
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { eachAtMost } from "../../shared/runtime/each-at-most.ts";
import type { Chance } from "../simulation/scenario/random.ts";
import type { Disturbance } from "./disturbances.ts";
import { differences, text } from "./end-state.ts";
import { isRead, type Track, type Walk } from "./tracks.ts";
import type { ObjectWorld } from "./world.ts";

const CALLS_AT_ONCE = 12;
/** What a component does later by itself: it looks again after 30 s at objects that it does not watch. */
const EQUAL_WITHIN_MS = 240_000;
const POLL_MS = 500;
/** Steps. */
const TOLD_EVERY = 10;
/** How often a field has another value for a moment before the value that it stays at. */
const VIA = 0.5;

export interface DisturbedWorld {
  readonly world: ObjectWorld;
  readonly disturbance: Disturbance;
}

export interface Outcome {
  readonly transitions: number;
  /** Of the disturbed worlds from the calm one. */
  readonly differences: readonly string[];
}

type Transitions = ReadonlyMap<Track, readonly unknown[]>;

/** Creates the worlds with all tracks, each with its components. */
export async function createWorlds(worlds: readonly ObjectWorld[], tracks: readonly Track[]): Promise<void> {
  await Promise.all(
    worlds.map(async (world) => {
      await world.create(tracks);
      world.start();
      await world.settled();
    }),
  );
}

/** A track that differs once is left alone from then on. */
export async function walkAll(
  calm: ObjectWorld,
  disturbed: readonly DisturbedWorld[],
  walks: ReadonlyMap<Track, Walk>,
  chance: Chance,
  print: (line: string) => void,
): Promise<Outcome> {
  const found: string[] = [];
  const wrong = new Set<Track>();
  let transitions = 0;
  const steps = Math.max(...[...walks.values()].map((walk) => walk.length - 1));
  for (let step = 0; step < steps; step++) {
    const now = transitionsAt(walks, step, chance);
    for (const track of wrong) now.delete(track);
    transitions += now.size;
    await Promise.all([
      play(calm, now),
      ...disturbed.map(({ world, disturbance }) => disturbance.around(world, [...now.keys()], () => play(world, now))),
    ]);
    await calm.settled();
    if ((step + 1) % TOLD_EVERY === 0)
      print(`${step + 1} of ${steps} steps, ${transitions} transitions, ${found.length} differ`);
    await Promise.all(
      disturbed.map(async ({ world, disturbance }) => {
        for (const [track, differing] of await whereDifferent(calm, world, now)) {
          wrong.add(track);
          const values = (now.get(track) ?? []).map(text).join(", then ");
          const what = `${disturbance.name}: ${track.kind.name} ${track.path.join(".")} to ${values}`;
          found.push([what, ...differing].join("\n    "));
          print(`differs: ${found.at(-1)}`);
        }
      }),
    );
  }
  return { transitions, differences: found };
}

async function play(world: ObjectWorld, transitions: Transitions): Promise<void> {
  await eachAtMost(CALLS_AT_ONCE, [...transitions], async ([track, values]) => {
    for (const value of values) await world.change(track, value);
  });
}

/** What each track is set to in this step, one value after the other. */
function transitionsAt(walks: ReadonlyMap<Track, Walk>, step: number, chance: Chance): Map<Track, readonly unknown[]> {
  const found = new Map<Track, readonly unknown[]>();
  for (const [track, walk] of walks) {
    const to = walk[step + 1];
    if (to === undefined) continue;
    const { values } = track;
    const via = chance.chance(VIA) && isRead(track, values[to]) ? [values[chance.between(0, values.length - 1)]] : [];
    found.set(track, [...via, values[to]]);
  }
  return found;
}

/** The tracks that stay different once everything that was stored is read and done. */
async function whereDifferent(
  calm: ObjectWorld,
  world: ObjectWorld,
  transitions: Transitions,
): Promise<Map<Track, string[]>> {
  const startedMs = performance.now();
  for (;;) {
    await world.settled();
    const [expected, state] = await Promise.all([calm.state(), world.state()]);
    const found = [...transitions.keys()].map((track): [Track, string[]] => [
      track,
      differences(expected.get(track.app), state.get(track.app)),
    ]);
    const different = new Map(found.filter(([, differing]) => differing.length > 0));
    if (different.size === 0 || performance.now() - startedMs > EQUAL_WITHIN_MS) return different;
    await delay(POLL_MS);
  }
}
