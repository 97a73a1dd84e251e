/** What people do to protectors and pods while everything runs: edits, force, drains. */
import { metadataOf, text } from "../apiserver/objects.ts";
import type { Chance } from "../world/random.ts";
import { NAMESPACE, PROTECTORS, type World } from "../world/world.ts";
import { FORCE_ANNOTATION } from "./admission-requests.ts";
import { disrupt } from "./clients.ts";

export function editSpec(world: World, chance: Chance): void {
  const total = world.scenario.cells * world.scenario.podsPerCell;
  const minAvailable = Math.max(1, Math.floor(total * (0.4 + 0.55 * chance.fraction())));
  const minReadySeconds = chance.chance(0.3) ? chance.pick([0, 5, 20]) : undefined;
  const spec = { minAvailable, ...(minReadySeconds === undefined ? {} : { minReadySeconds }) };
  patch(world, chance.pick(world.scenario.protectors).name, { spec });
}

/** The selector comes to cover other pods. */
export function editSelector(world: World, chance: Chance): void {
  const { name, labels, minAvailable } = chance.pick(world.scenario.protectors);
  const isNarrow = chance.chance(0.5);
  world.exemptions.uncertain(name);
  exemptUnderWay(world, name);
  // A merge patch takes a label out of the selector by null.
  const matchLabels = { ...labels, tier: isNarrow ? "a" : null };
  patch(world, name, {
    spec: { selector: { matchLabels }, minAvailable: isNarrow ? Math.ceil(minAvailable / 3) : minAvailable },
  });
}

/** Somebody else writes the object, so that compare-and-swaps fail. */
export function touchProtector(world: World, chance: Chance): void {
  const { name } = chance.pick(world.scenario.protectors);
  patch(world, name, { metadata: { annotations: { touched: String(world.time.elapsedMs) } } });
}

/** A pod is marked to go whatever the count, and goes. */
export function forceDelete(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`);
  if (pods.length === 0) return;
  const { key, value, revision } = chance.pick(pods);
  world.exemptions.force(text(metadataOf(value).uid) ?? "");
  const annotations = { [FORCE_ANNOTATION]: "asked for" };
  cell.server.etcd.put(key, { ...value, metadata: { ...metadataOf(value), annotations } }, revision);
  void disrupt(world, chance, cell, key);
}

/** A drain of everything, in every cell at once. */
export function burst(world: World, chance: Chance): void {
  for (const cell of world.cells.values())
    for (const { key } of cell.server.etcd.range(`pods/${NAMESPACE}/`)) void disrupt(world, chance, cell, key);
}

/** What was admitted before the protector covered it (design 5.9, S1). */
export function exemptUnderWay(world: World, name: string): void {
  for (const { name: cell, reviews, restarts } of world.cells.values()) {
    for (const { uid } of reviews.committable()) world.exemptions.add(name, cell, uid);
    for (const uid of restarts?.underWay() ?? []) world.exemptions.unpromised(name, uid);
  }
}

export function patch(world: World, name: string, body: Readonly<Record<string, unknown>>): void {
  void world.coreOf(name).handle({
    ...{
      method: "PATCH",
      path: `${PROTECTORS}/${name}`,
      contentType: "application/merge-patch+json",
      user: "operator",
    },
    body,
  });
}
