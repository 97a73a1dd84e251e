/**
 * Each field that a component reads goes from one value to another, while the component reads old objects, travels back
 * in time, misses events or is killed. In the end the objects are as in a world where nothing of that happened.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { createHttpsTransport } from "../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { loadClusterAccess } from "../../shared/kube/credentials/kubeconfig.ts";
import { systemPorts as ports } from "../../shared/runtime/system-ports.ts";
import { Chance } from "../simulation/scenario/random.ts";
import { installCrd, installGenerator } from "../support/generator/generator-harness.ts";
import { createWorlds, walkAll } from "./campaign.ts";
import { DISTURBANCES } from "./disturbances.ts";
import { text } from "./end-state.ts";
import { allFields, makePlan, type Plan, randomWalk, wholeWalks } from "./tracks.ts";
import { ObjectWorld } from "./world.ts";

const isFull = process.env.PODSEIDON_TEST_SIZE === "full";
const SEED = 7;
/** Of the sample. */
const FIELDS = 24;
const STEPS = 3;
/** Of one object at full size: most of a step is waiting, so that many objects at once take no longer than a few. */
const STEPS_OF_PIECE = 24;

let cluster: Cluster;
let transport: Transport;

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
  await installGenerator(cluster);
  await installCrd(cluster, "podunavailablebudgets.policy.kruise.io");
  await installCrd(cluster, "xpoddisruptionbudgets.x-pdb.form3.tech");
  transport = createHttpsTransport(await loadClusterAccess(cluster.kubeconfig), { ports, userAgent: "test" });
});

afterAll(async () => {
  transport?.close();
  await cluster?.stop();
});

const print = (line: string): void => void process.stdout.write(`${line}\n`);

function sample<T>(all: readonly T[], count: number, chance: Chance): T[] {
  const rest = [...all];
  const pick = (): T[] => rest.splice(chance.between(0, rest.length - 1), 1);
  return Array.from({ length: count }, pick).flat();
}

function printPlan({ tracks, values, refused, fixed }: Plan, fields: number): void {
  const states = tracks.reduce((sum, track) => sum + track.values.length, 0);
  const rejections = [...refused.values()].reduce((sum, all) => sum + all.length, 0);
  print(`${fields} fields, ${values} values: the apiserver refuses ${rejections}, and stores ${states} different ones`);
  if (!isFull) return;
  for (const [name, all] of refused) print(`  refuses ${name}: ${all.map(text).join(", ")}`);
  for (const name of fixed) print(`  stores one value of ${name}`);
}

/** Some tracks wait for what a component looks at again after 30 s. */
const timeout = isFull ? 6 * 3_600_000 : 1_200_000;

test("whatever a component reads late, again or never, the end state is that of a calm world", {
  timeout,
}, async () => {
  const chance = new Chance(SEED);
  const fields = isFull ? allFields() : sample(allFields(), FIELDS, chance);
  const plan = await makePlan(cluster, "plan", fields);
  printPlan(plan, fields.length);
  const walks = new Map(
    plan.tracks.flatMap((track) => {
      if (isFull) return [...wholeWalks(track, STEPS_OF_PIECE)];
      return [[track, randomWalk(track, STEPS, chance)] as const];
    }),
  );
  const calm = new ObjectWorld(cluster, transport, "calm");
  const disturbed = DISTURBANCES.map((disturbance) => ({
    disturbance,
    world: new ObjectWorld(cluster, transport, `under-${disturbance.name}`),
  }));
  const worlds = [calm, ...disturbed.map(({ world }) => world)];
  print(`${walks.size} tracks, ${[...walks.values()].reduce((sum, { length }) => sum + length - 1, 0)} transitions`);
  await createWorlds(worlds, [...walks.keys()]);
  const { transitions, differences } = await walkAll(calm, disturbed, walks, chance, print);
  print(`${transitions} transitions, each under ${disturbed.length} disturbances: ${differences.length} differ`);
  expect(differences).toEqual([]);
  // A new generator finds nothing to do.
  const writes = await Promise.all(worlds.map((world) => writesOfRestart(world)));
  expect(writes.flat()).toEqual([]);
  expect(worlds.flatMap(({ name, problems }) => problems.map((problem) => `${name}: ${problem}`))).toEqual([]);
});

async function writesOfRestart(world: ObjectWorld): Promise<readonly string[]> {
  await world.kill();
  world.start();
  await world.settled();
  const { writes } = world;
  await world.kill();
  return writes;
}
