/** What people do to protectors and pods while everything runs: edits, force-deletes, drains. */
import { FORCE_ANNOTATION, isMirror, metadataOf, text } from "../apiserver/objects.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE, PROTECTORS } from "../scenario/scenario.ts";
import type { World } from "../world/world.ts";
import { disrupt } from "./clients.ts";

export function editSpec(world: World, chance: Chance): void {
  const total = world.scenario.cells * world.scenario.podsPerCell;
  const minAvailable = Math.max(1, Math.floor(total * (0.4 + 0.55 * chance.fraction())));
  const minReadySeconds = chance.chance(0.3) ? chance.pick([0, 5, 20]) : undefined;
  const spec = { minAvailable, ...(minReadySeconds === undefined ? {} : { minReadySeconds }) };
  patchProtector(world, chance.pick(world.scenario.protectors).name, { spec });
}

/** The selector changes to cover other pods. */
export function editSelector(world: World, chance: Chance): void {
  const { name, labels, minAvailable } = chance.pick(world.scenario.protectors);
  const isNarrow = chance.chance(0.5);
  world.exemptions.uncertain(name);
  exemptInFlight(world, name);
  // A merge patch takes a label out of the selector by null.
  const matchLabels = { ...labels, tier: isNarrow ? "a" : null };
  patchProtector(world, name, {
    spec: { selector: { matchLabels }, minAvailable: isNarrow ? Math.ceil(minAvailable / 3) : minAvailable },
  });
}

/** Another client writes the object, so that compare-and-swaps fail. */
export function annotateProtector(world: World, chance: Chance): void {
  const { name } = chance.pick(world.scenario.protectors);
  patchProtector(world, name, { metadata: { annotations: { touched: String(world.time.elapsedMs) } } });
}

/** A pod gets the force-delete annotation, and is deleted. */
export function forceDelete(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  // Kubernetes rejects an update that takes the annotation of a mirror away.
  const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`).filter(({ value }) => !isMirror(value));
  if (pods.length === 0) return;
  const { key, value, revision } = chance.pick(pods);
  world.exemptions.force(text(metadataOf(value).uid) ?? "");
  const annotations = { [FORCE_ANNOTATION]: "asked for" };
  cell.server.etcd.put(key, { ...value, metadata: { ...metadataOf(value), annotations } }, revision);
  void disrupt(world, chance, cell, key);
}

/** A drain of all pods in every cell at once. */
export function burst(world: World, chance: Chance): void {
  for (const cell of world.cells.values())
    for (const { key } of cell.server.etcd.range(`pods/${NAMESPACE}/`)) void disrupt(world, chance, cell, key);
}

/** Exempts requests in flight that were admitted before the protector covered their pods (S1). */
export function exemptInFlight(world: World, name: string): void {
  for (const { name: cell, admission, restarts } of world.cells.values()) {
    for (const { uid } of admission.committable()) world.exemptions.add(name, cell, uid);
    for (const uid of restarts?.inProgress() ?? []) world.exemptions.notPromised(name, uid);
  }
}

export function patchProtector(world: World, name: string, body: Readonly<Record<string, unknown>>): void {
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
