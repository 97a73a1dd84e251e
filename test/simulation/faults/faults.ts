/**
 * All faults of a world: each kind happens at random times around the mean that the scenario draws, until faults end.
 */

import { Accidents } from "../accidents/accidents.ts";
import { annotateProtector, burst, editSelector, editSpec, forceDelete } from "../actors/operators.ts";
import { deleteByController } from "../actors/workload-backoff.ts";
import { OWNER_MODES } from "../actors/workload-owner.ts";
import { isMirror, metadataOf } from "../apiserver/objects.ts";
import type { Chance } from "../scenario/random.ts";
import { type FaultKind, NAMESPACE } from "../scenario/scenario.ts";
import type { World } from "../world/world.ts";
import { killNode } from "./dead-nodes.ts";
import { habitActions } from "./habits.ts";
import { recreateSomeProtector, removeSomeEntry, restoreSomeCell, restoreSomeCore } from "./lost-history.ts";
import { endMirrors, mirror } from "./mirror-pods.ts";
import { makeOdd, relabel } from "./odd-pods.ts";
import { loseCondition, loseGate, startPreActivity } from "./pod-states.ts";
import { suspend, terminate } from "./protector-states.ts";
import { faultShard } from "./shard-faults.ts";
import { fillProtectors } from "./too-large.ts";

const RESTART_MEAN_MS = 3_000;
const PARTITION_MEAN_MS = 8_000;
const OVERLAP_MEAN_MS = 10_000;
const FLAP_MEAN_MS = 4_000;
const NODE_OUTAGE_RATE = 0.1;
const NODE_OUTAGE_MEAN_MS = 15_000;
const PODS_OF_NODE = 10;
const PAUSE_MEAN_MS = 6_000;
const SLOW_MEAN_MS = 10_000;

export function startFaults(world: World): void {
  const chance = world.chance.fork();
  const { faults, features } = world.scenario;
  const actions: readonly [FaultKind, number, () => void][] = [
    ["flap", faults.flapEveryMs, () => flap(world, chance)],
    ["podFailure", faults.podFailureEveryMs, () => fail(world, chance)],
    ["annotate", faults.annotateEveryMs, () => annotate(world, chance)],
    ["crashWebhook", faults.crashWebhookEveryMs, () => crashWebhook(world, chance)],
    ["crashAggregator", faults.crashAggregatorEveryMs, () => crashAggregator(world, chance)],
    ["twoLeaders", faults.twoLeadersEveryMs, () => twoLeaders(world, chance)],
    ["partition", faults.partitionEveryMs, () => partition(world, chance)],
    ["cutStreams", faults.cutStreamsEveryMs, () => world.network.cutStreams()],
    ["compact", faults.compactEveryMs, () => compact(world, chance)],
    ["editSpec", faults.editSpecEveryMs, () => editSpec(world, chance)],
    ["clockStep", faults.clockStepEveryMs, () => stepClock(world, chance)],
    ["editSelector", faults.editSelectorEveryMs, () => editSelector(world, chance)],
    ["conflictingWriter", faults.conflictingWriterEveryMs, () => annotateProtector(world, chance)],
    ["forceDelete", faults.forceDeleteEveryMs, () => forceDelete(world, chance)],
    ["burst", faults.burstEveryMs, () => burst(world, chance)],
    ["restoreCore", faults.restoreCoreEveryMs, () => restoreSomeCore(world, chance)],
    ["pause", faults.pauseEveryMs, () => pause(world, chance)],
    ["slowLink", faults.slowLinkEveryMs, () => slowLink(world, chance)],
    ["removeCell", faults.removeCellEveryMs, () => void removeSomeEntry(world, chance)],
    ["restoreCell", faults.restoreCellEveryMs, () => restoreSomeCell(world, chance)],
    ["recreateProtector", faults.recreateProtectorEveryMs, () => recreateSomeProtector(world, chance)],
    ["suspend", features.suspendEveryMs, () => suspend(world, chance)],
    ["probe", features.probeEveryMs, () => world.owner?.setMode(chance.pick(OWNER_MODES))],
    ["preActivity", features.preActivityEveryMs, () => startPreActivity(world, chance)],
    ["condition", features.conditionEveryMs, () => loseCondition(world, chance)],
    ["countedGate", features.countedGateEveryMs, () => loseGate(world, chance)],
    ["generator", features.generatorEveryMs, () => world.source?.playEvent()],
    ["backups", features.backupsEveryMs, () => world.backups?.playEvent()],
    ["terminate", features.terminateEveryMs, () => terminate(world, chance)],
    ["deadNode", features.deadNodeEveryMs, () => killNode(world, chance)],
    ["oddPod", features.oddPodEveryMs, () => makeOdd(world, chance)],
    ["relabel", features.relabelEveryMs, () => relabel(world, chance)],
    ["tooLarge", features.cluster.tooLargeEveryMs, () => fillProtectors(world, chance)],
    ["backoff", features.cluster.backoffEveryMs, () => void deleteByController(world, chance)],
    ["mirror", features.cluster.mirrorEveryMs, () => void mirror(world, chance)],
    ["shards", features.shardsEveryMs, () => faultShard(world, chance)],
    ...habitActions(world, chance),
  ];
  if (features.cluster.mirrorEveryMs > 0) world.onEnd(() => endMirrors(world));
  if (features.accidentsEveryMs > 0) void new Accidents(world, chance.fork()).run();
  for (const [kind, everyMs, action] of actions) if (everyMs > 0) repeat(world, chance.fork(), kind, everyMs, action);
}

function repeat(world: World, chance: Chance, kind: FaultKind, everyMs: number, action: () => void): void {
  world.time.timers.after(chance.exponential(everyMs), () => {
    if (!world.faultsActive) return;
    world.coverage.fault(kind);
    world.note(`fault: ${kind}`);
    action();
    repeat(world, chance, kind, everyMs, action);
  });
}

function somePod(world: World, chance: Chance): { readonly cell: string; readonly key: string } | undefined {
  const cell = chance.pick([...world.cells.values()]);
  // Nobody but its kubelet writes a mirror.
  const pods = cell.server.etcd.range(`pods/${NAMESPACE}/`).filter(({ value }) => !isMirror(value));
  return pods.length === 0 ? undefined : { cell: cell.name, key: chance.pick(pods).key };
}

/** One pod becomes unready for a while, or several pods of one node do. */
function flap(world: World, chance: Chance): void {
  const isNode = chance.chance(NODE_OUTAGE_RATE);
  for (let left = isNode ? chance.between(3, PODS_OF_NODE) : 1; left > 0; left -= 1) {
    const pod = somePod(world, chance);
    const kubelet = pod && world.cells.get(pod.cell)?.kubelet;
    if (pod === undefined || kubelet?.setReady(pod.key, false) !== true) continue;
    const meanMs = isNode ? NODE_OUTAGE_MEAN_MS : FLAP_MEAN_MS;
    world.time.timers.after(chance.exponential(meanMs), () => kubelet.setReady(pod.key, true));
  }
}

function fail(world: World, chance: Chance): void {
  const pod = somePod(world, chance);
  if (pod !== undefined) world.cells.get(pod.cell)?.kubelet.fail(pod.key);
}

/** A pod changes, so that an admission request in flight is reviewed again. */
function annotate(world: World, chance: Chance): void {
  const pod = somePod(world, chance);
  const etcd = pod && world.cells.get(pod.cell)?.server.etcd;
  const stored = pod && etcd?.get(pod.key);
  if (etcd === undefined || stored === undefined) return;
  const annotations = { touched: String(world.time.elapsedMs) };
  etcd.put(stored.key, { ...stored.value, metadata: { ...metadataOf(stored.value), annotations } }, stored.revision);
}

function crashWebhook(world: World, chance: Chance): void {
  if (world.replicas.length === 0) return;
  const victim = chance.pick(world.replicas);
  victim.kill();
  world.replicas = world.replicas.filter((replica) => replica !== victim);
  world.time.timers.after(chance.exponential(RESTART_MEAN_MS), () => world.replicas.push(world.startReplica()));
}

function crashAggregator(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  for (const node of cell.aggregators) node.kill();
  cell.aggregators = [];
  world.time.timers.after(chance.exponential(RESTART_MEAN_MS), () =>
    cell.aggregators.push(world.startAggregator(cell)),
  );
}

/** A new leader starts while the old one does not know yet that it lost its lease. */
function twoLeaders(world: World, chance: Chance): void {
  const cell = chance.pick([...world.cells.values()]);
  const old = cell.aggregators;
  cell.aggregators = [world.startAggregator(cell)];
  cell.oldLeaders += old.length;
  world.time.timers.after(chance.exponential(OVERLAP_MEAN_MS), () => {
    for (const node of old) node.kill();
    cell.oldLeaders -= old.length;
  });
}

function partition(world: World, chance: Chance): void {
  world.network.partition();
  world.time.timers.after(chance.exponential(PARTITION_MEAN_MS), () => world.network.heal());
}

function compact(world: World, chance: Chance): void {
  const servers = [...world.cores.values(), ...[...world.cells.values()].map(({ server }) => server)];
  const server = chance.pick(servers);
  server.compact(server.etcd.revision);
}

/** A process stops for a while without knowing it, as by SIGSTOP, a starved machine or a long garbage collection. */
function pause(world: World, chance: Chance): void {
  const process = world.someProcess(chance);
  process.pause();
  world.time.timers.after(chance.exponential(PAUSE_MEAN_MS), () => process.resume());
}

function slowLink(world: World, chance: Chance): void {
  world.network.slow();
  world.time.timers.after(chance.exponential(SLOW_MEAN_MS), () => world.network.heal());
}

function stepClock(world: World, chance: Chance): void {
  world.someProcess(chance).stepWallClock(chance.between(-60_000, 60_000));
}
