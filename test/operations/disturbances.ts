/** What happens to the components of a world while its objects change. */
import type { Track } from "./tracks.ts";
import type { ObjectWorld } from "./world.ts";

export interface Disturbance {
  readonly name: string;
  /** Runs `change`, which changes objects of `tracks`; nothing is disturbed any more when it resolves. */
  readonly around: (world: ObjectWorld, tracks: readonly Track[], change: () => Promise<void>) => Promise<void>;
}

const isProtectors = (resource: string): boolean => resource === "podprotectors";
const isSources = (resource: string): boolean => resource !== "podprotectors";

export const DISTURBANCES: readonly Disturbance[] = [
  {
    name: "stale-sources",
    async around(world, tracks, change) {
      for (const transport of world.transports) transport.hold(isSources);
      await change();
      // The components act on what they know of the sources and pods.
      await world.poke(tracks);
      await world.settledWhileHeld(isProtectors);
      for (const transport of world.transports) transport.release();
    },
  },
  {
    name: "stale-protectors",
    async around(world, _, change) {
      for (const transport of world.transports) transport.hold(isProtectors);
      await change();
      await world.settledWhileHeld(isSources);
      for (const transport of world.transports) transport.release();
    },
  },
  {
    name: "missed-events",
    async around(world, _, change) {
      for (const transport of world.transports) transport.cut();
      await change();
      for (const transport of world.transports) transport.mend({ expire: true });
    },
  },
  {
    name: "killed",
    async around(world, _, change) {
      await change();
      await world.kill();
      world.start();
    },
  },
  {
    name: "time-travel",
    async around(world, _, change) {
      const lists = await Promise.all(world.transports.map((transport) => transport.snapshot()));
      await change();
      await world.settled();
      await world.kill();
      world.start(lists);
      await world.idleWhileHeld();
      for (const transport of world.transports) transport.release();
    },
  },
];
