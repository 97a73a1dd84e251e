/**
 * Pods that say what nobody expects: a time that RFC 3339 does not have, a status that can't be read, labels of another
 * application. Each is mended after a while.
 */
import { RESIZE_CONDITIONS } from "../actors/container-restarts.ts";
import type { Json } from "../apiserver/etcd.ts";
import { metadataOf, record, text } from "../apiserver/objects.ts";
import type { Chance } from "../scenario/random.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { SimulatedCell } from "../world/cell.ts";
import type { World } from "../world/world.ts";

const ODD_MEAN_MS = 8_000;
const RELABELLED_MEAN_MS = 15_000;
/** How kube-apiserver stores 9999-12-31T23:59:59-14:00. */
const YEAR_10000 = "10000-01-01T13:59:59Z";
/** The label by which pods are selected, while it has another value. */
const OTHER_APP = "quarantine";

/** A pod's status gets a time that can't be read, or can't be read at all. */
export function makeOdd(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  const { etcd } = cell.server;
  const pods = etcd.range(`pods/${NAMESPACE}/`).filter(({ value }) => Array.isArray(record(value.status).conditions));
  if (pods.length === 0) return;
  const { key, value, revision } = chance.pick(pods);
  if (metadataOf(value).deletionTimestamp !== undefined) return;
  const status = record(value.status);
  const isTime = chance.chance(0.5);
  const kept = Array.isArray(status.conditions) ? status.conditions.map(record) : [];
  const conditions = isTime ? kept.map((one) => ({ ...one, lastTransitionTime: YEAR_10000 })) : {};
  world.coverage.rule(isTime ? "a pod's times are out of range" : "a pod can't be read");
  etcd.put(key, { ...value, status: { ...status, conditions, kept } }, revision);
  world.time.timers.after(chance.exponential(ODD_MEAN_MS), () => mend(cell, key));
}

/** The conditions come back that nobody has written since, but for those that a kubelet has taken away since. */
function mend({ server: { etcd }, restarts }: SimulatedCell, key: string): void {
  const stored = etcd.get(key);
  if (stored === undefined) return;
  const { kept, ...status } = record(stored.value.status);
  if (!Array.isArray(kept)) return;
  const written = Array.isArray(status.conditions) ? status.conditions.map(record) : [];
  const isOdd = ({ lastTransitionTime }: Json): boolean => lastTransitionTime === YEAR_10000;
  const since = written.filter((one) => !isOdd(one));
  const uid = text(metadataOf(stored.value).uid) ?? "";
  const isOver = (type: string): boolean =>
    RESIZE_CONDITIONS.includes(type) && restarts?.hasResizeCondition(uid, type) !== true;
  const others = kept
    .map(record)
    .filter(({ type }) => !since.some((one) => one.type === type) && !isOver(String(type)));
  etcd.put(key, { ...stored.value, status: { ...status, conditions: [...others, ...since] } }, stored.revision);
}

/** A pod gets the labels of another application for a while. */
export function relabel(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`);
  if (pods.length === 0) return;
  const { key, value } = chance.pick(pods);
  const uid = text(metadataOf(value).uid) ?? "";
  world.coverage.rule("a pod is relabelled out of its protectors");
  if ([...cell.admission.committable()].some((one) => one.uid === uid))
    world.coverage.rule("a pod is relabelled while its disruption can commit");
  label(cell, key, OTHER_APP);
  world.time.timers.after(chance.exponential(RELABELLED_MEAN_MS), () => comeBack(world, cell, key));
}

/**
 * An eviction that was decided while no protector covered its pod can still be allowed and committed, and the restart
 * of a change in place can still come (docs/limits.md). A hold does not help: it may have begun before.
 */
function comeBack(world: World, cell: SimulatedCell, key: string): void {
  const stored = cell.server.etcd.get(key);
  if (stored === undefined || record(metadataOf(stored.value).labels).app !== OTHER_APP) return;
  const own = text(metadataOf(stored.value).uid) ?? "";
  const { admission, restarts } = cell;
  const mayGo = [...admission.committable(), ...admission.evictionsOf(own)].some(({ uid }) => uid === own);
  const isRestarting = restarts?.isInProgress(own) === true;
  const { exemptions, scenario } = world;
  for (const { name } of scenario.protectors)
    if (mayGo || (isRestarting && exemptions.isUnasked(name, own))) exemptions.notPromised(name, own);
  label(cell, key, "web");
}

function label({ server: { etcd } }: SimulatedCell, key: string, app: string): void {
  const stored = etcd.get(key);
  if (stored === undefined) return;
  const metadata = metadataOf(stored.value);
  etcd.put(
    key,
    { ...stored.value, metadata: { ...metadata, labels: { ...record(metadata.labels), app } } },
    stored.revision,
  );
}

/** Mends all pods, also those that a restored etcd has brought back. */
export function endOddPods(world: World): void {
  const { oddPodEveryMs, relabelEveryMs } = world.scenario.features;
  if (oddPodEveryMs + relabelEveryMs === 0) return;
  for (const cell of world.cells.values())
    for (const { key } of cell.server.etcd.range(`pods/${NAMESPACE}/`)) {
      mend(cell, key);
      comeBack(world, cell, key);
    }
}
