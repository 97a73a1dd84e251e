/**
 * One run of a seed: first faults and disruptions, then quiet, in which everything that was promised for later has to
 * come true (L1 to L3, docs/design.md#invariants).
 */

import { estimate } from "../../../shared/decide/state/estimate.ts";
import { parseProtector } from "../../../shared/decide/state/protector-state.ts";
import { parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { disrupt, startClients } from "../actors/clients.ts";
import { startInPlaceClients } from "../actors/in-place-clients.ts";
import { startNodeDeletions } from "../actors/node-deletions.ts";
import { asObject, metadataOf } from "../apiserver/objects.ts";
import { RESOURCES } from "../apiserver/resources.ts";
import { startFaults } from "../faults/faults.ts";
import { endHabits, startHabits } from "../faults/habits.ts";
import { endOddPods } from "../faults/odd-pods.ts";
import { endPreActivities } from "../faults/pod-states.ts";
import type { CoverageCounts } from "../judge/coverage.ts";
import { checkBounds } from "../judge/liveness.ts";
import { type FaultKind, NAMESPACE, type WorldSize } from "../scenario/scenario.ts";
import { isTrulyAvailable } from "../truth/pod-truth.ts";
import { Position } from "../truth/position.ts";
import { wantedOf } from "../truth/stored-protectors.ts";
import type { SimulatedCell } from "./cell.ts";
import { cacheParsedJson } from "./parse-cache.ts";
import { type Violation, World } from "./world.ts";

export interface RunResult {
  readonly seed: number;
  readonly violations: readonly Violation[];
  readonly coverage: CoverageCounts;
  readonly trace: readonly string[];
}

export interface RunOptions {
  readonly without?: ReadonlySet<FaultKind>;
  /** Features that the world has, whatever the seed draws. */
  readonly always?: ReadonlySet<FaultKind>;
  /** Fractions of what the seed draws; default 1. */
  readonly size?: WorldSize;
  readonly trace?: boolean;
  /** Values parsed from the network are frozen: an attempt to change one throws. */
  readonly isFrozen?: boolean;
}

/** Added to the settle period: the longest lag, a reconcile and the interval of bookmarks. */
const QUIET_MARGIN_MS = 90_000;
const ANY = { labels: {}, minReadySeconds: 0 };
/** The longest minReadySeconds and a reconcile. */
const MATURING_MS = 30_000;
const MOST_MATURING_ROUNDS = 5;
const FRESH_REQUEST_MS = 30_000;
/** Where nothing tells that a change is done (docs/design.md#in-place-changes). */
const UNCONFIRMED_SETTLE_PERIODS = 5;
const WARM_UP_MS = 20_000;

/** Runs one seed. The same seed gives the same result on any machine. */
export async function runSeed(seed: number, options: RunOptions = {}): Promise<RunResult> {
  const end = cacheParsedJson(options.isFrozen);
  try {
    return await run(seed, options);
  } finally {
    end();
  }
}

async function run(seed: number, options: RunOptions): Promise<RunResult> {
  const world = new World(seed, options);
  await world.time.advance(WARM_UP_MS);
  startClients(world);
  startFaults(world);
  startInPlaceClients(world);
  startNodeDeletions(world);
  startHabits(world);
  const stopAtMs = world.scenario.durationMs;
  while (world.time.elapsedMs < stopAtMs && world.violations.length === 0)
    await world.time.advance(Math.min(5_000, stopAtMs - world.time.elapsedMs));
  if (world.violations.length === 0) await quiet(world);
  return { seed, violations: world.violations, coverage: world.coverage.counts(), trace: world.trace };
}

/** Ends the faults, and checks L1, L2 and L3 after the quiet. */
export async function quiet(world: World): Promise<void> {
  world.endFaults();
  endPreActivities(world);
  endOddPods(world);
  endHabits(world);
  const { settleMs, requestTimeoutMs, features } = world.scenario;
  const unconfirmedMs = features.habits.has("resolvedImages") ? UNCONFIRMED_SETTLE_PERIODS * settleMs : 0;
  await world.time.advance(requestTimeoutMs + settleMs + QUIET_MARGIN_MS + unconfirmedMs);
  world.countedGates?.check();
  world.source?.check();
  await world.backups?.check();
  for (const cell of world.cells.values())
    for (const { key, value } of cell.server.etcd.range("pods/"))
      if (!isTrulyAvailable(value, ANY, Number.POSITIVE_INFINITY)) cell.kubelet.setReady(key, true);
  await untilMature(world);
  const resource = RESOURCES.find(({ plural }) => plural === "podprotectors");
  let spare = Number.POSITIVE_INFINITY;
  const protectors = [...world.cores.values()].flatMap(({ etcd }) => etcd.range("podprotectors/"));
  for (const stored of protectors) {
    if (resource === undefined) return;
    const protector = parsePodProtector(asObject(resource, stored));
    const state = parseProtector(protector);
    let truth = 0;
    for (const [name, cell] of world.cells) {
      const ledger = state.cells.get(name)?.ledger;
      if ((ledger?.size ?? 0) > 0)
        world.violation("L1", `${protector.metadata.name}: ${ledger?.size} reservations remain in ${name}`);
      const now = new Position(String(cell.server.etcd.revision));
      truth += cell.pods.availableAt(now, wantedOf(protector), world.time.clock.nowMs()).size;
    }
    const { estimated } = estimate(state);
    if (estimated !== truth)
      world.violation("L2", `${protector.metadata.name}: ${estimated} pods are estimated, ${truth} are available`);
    spare = Math.min(spare, truth - protector.spec.minAvailable);
  }
  if (spare > 0 && world.violations.length === 0) await freshRequest(world);
  if (world.violations.length === 0) await checkBounds(world);
}

/** A client that still repeats its deletion may replace a pod, which then matures. */
async function untilMature(world: World): Promise<void> {
  const readiness = (): string =>
    [...world.cells.values()]
      .flatMap(({ server }) => server.etcd.range("pods/"))
      .filter(({ value }) => isTrulyAvailable(value, ANY, Number.POSITIVE_INFINITY))
      .map(({ value }) => metadataOf(value).uid)
      .join();
  for (let round = 0; round < MOST_MATURING_ROUNDS; round++) {
    const before = readiness();
    await world.time.advance(MATURING_MS);
    if (readiness() === before) return;
  }
}

/** A client that repeats a denial, as each replica may have to try a probe that did not answer. */
async function freshRequest(world: World): Promise<void> {
  const chance = world.chance.fork();
  const pods = (cell: SimulatedCell) => cell.server.etcd.range(`pods/${NAMESPACE}/`);
  const cell = chance.pick([...world.cells.values()].filter((one) => pods(one).length > 0));
  const pod = chance.pick(pods(cell)).key;
  let status: number | undefined;
  for (let left = 1 + world.replicas.length; left > 0 && !isDone(status); left -= 1) {
    status = undefined;
    void disrupt(world, chance, cell, pod).then((code) => {
      status = code;
    });
    await world.time.advance(FRESH_REQUEST_MS);
  }
  if (!isDone(status))
    world.violation("L3", `a fresh request got ${status ?? "no response"} although pods can be spared`);
}

/** An API server that reviews a deletion again may find that the pod is gone meanwhile. */
function isDone(status: number | undefined): boolean {
  return status !== undefined && (status < 400 || status === 404);
}
