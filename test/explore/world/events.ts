/** What happens to pods and components without a decision: changes, failures, edits of the spec. */

import { NEW_LEADER } from "./first-world.ts";
import { copyOf, type Emit, leaderOf, nameOf, type PodPlace, partsOf } from "./parts.ts";
import { meetAll } from "./stores.ts";
import {
  changePod,
  cloneWorld,
  type Edits,
  endRequests,
  isLive,
  isReady,
  NOTHING_PROMISED,
  OPERATIONS,
  POD,
  type PodStage,
  type SmallWorld,
  stateNow,
  type WorldCell,
} from "./world.ts";

/** What a pod does by itself. `matures`: the protector has `minReadySeconds`. */
export function podEvents(world: SmallWorld, place: PodPlace, matures: boolean, emit: Emit): void {
  if (world.changes === 0) return;
  const state = stateNow(partsOf(world, place).pod);
  const become = (next: PodStage, what: string): void => {
    const copy = copyOf(world, place);
    copy.world.changes--;
    if (isReady(state) && next === POD.Unready) copy.world.lost++;
    changePod(copy.cell, copy.pod, next);
    emit(copy.world, () => `${nameOf(place)} ${what}`);
  };
  if (state === POD.Absent) become(POD.Unready, "is created");
  if (state === POD.Unready) become(readyFrom(world, matures), "becomes ready");
  if (isReady(state)) become(POD.Unready, "becomes unready");
  if (isLive(state)) become(state, "gets another version");
}

function readyFrom({ clock }: SmallWorld, matures: boolean): PodStage {
  if (!matures) return POD.Ready;
  return clock === 0 ? POD.Maturing : POD.Immature;
}

/** The clock ticks: pods that became ready before are mature. S2 is not promised where clocks decide. */
export function clockEvents(world: SmallWorld, emit: Emit): void {
  if (world.clock > 0) return;
  const next = cloneWorld(world);
  next.clock = 1;
  next.lost = NOTHING_PROMISED;
  emit(next, () => "pods that are ready become mature");
}

/** An aggregator crashes, or is cut off while another one leads already. A new leader lists the pods. */
export function leaderFaults(world: SmallWorld, at: number, emit: Emit): void {
  for (const which of world.cells[at]?.aggregators.keys() ?? []) {
    faulty(world, at, (_, cell) => {
      cell.aggregators[which] = newLeader(cell);
      meetAll(cell, which, false);
      return `${leaderOf(cell, at, which)} crashes; a new one lists the pods`;
    })(emit);
  }
  if ((world.cells[at]?.aggregators.length ?? 0) > 1) return;
  faulty(world, at, (_, cell) => {
    cell.aggregators.push(newLeader(cell));
    meetAll(cell, 1, false);
    return `aggregator ${at} lags; a second leader lists the pods`;
  })(emit);
}

function newLeader({ end }: WorldCell): WorldCell["aggregators"][number] {
  return { position: end, ...NEW_LEADER };
}

/** An operator removes the cell's entry, with its reservations: the generator leaves the epoch alone. */
export function entryFaults(world: SmallWorld, at: number, emit: Emit): void {
  if (world.cells[at]?.isCounted !== true) return;
  faulty(world, at, (_, cell) => {
    Object.assign(cell, { isCounted: false, total: 0, ready: 0, available: 0, position: 0, cutoff: 0 });
    Object.assign(cell, { isOfEditedSelector: false, isOnHold: false, isCountLost: false });
    for (const pod of cell.pods) {
      for (const [operation, record] of (pod.reservation?.records ?? []).entries())
        if (record?.nonces.some(({ inFlight }) => inFlight) === true) pod.unrecorded[operation] = true;
      pod.reservation = undefined;
    }
    return `the entry of cell ${at} is removed, and its reservations are lost`;
  })(emit);
}

/**
 * The cell's etcd is restored to an older state: changes are lost, and so are requests in flight. An aggregator that
 * has seen a lost change goes on with it, until it notices. S2 is not promised then.
 */
export function restores(world: SmallWorld, at: number, emit: Emit): void {
  const before = world.cells[at];
  if (before === undefined || before.aggregators.length > 1 || before.pods.some(({ lost }) => lost.length > 0)) return;
  const { position = 0 } = before.aggregators[0] ?? {};
  for (let place = 0; place < before.end; place++)
    for (const seen of new Set([position, before.end]))
      faulty(world, at, (next, cell) => restore(next, cell, place, seen, at))(emit);
}

/** The leader's stream has come to `seen` by then. */
function restore(next: SmallWorld, cell: WorldCell, place: number, seen: number, at: number): string {
  const changes = cell.end - place;
  next.lost = NOTHING_PROMISED;
  cell.end = place;
  for (const pod of cell.pods) {
    pod.lost = pod.log;
    pod.log = pod.log.filter((change) => change.place <= place);
    for (const operation of OPERATIONS.keys()) endRequests(pod, operation);
  }
  for (const aggregator of cell.aggregators) {
    aggregator.isLost = seen > place;
    aggregator.position = seen;
  }
  cell.isCountLost = cell.isCounted && cell.position > place;
  const lost = Math.max(0, seen - place);
  return `cell ${at} is restored to before ${changes} of its changes; its aggregator has seen ${lost} of them`;
}

/** An aggregator of the lost history lists the pods. */
export function notices(world: SmallWorld, at: number, emit: Emit): void {
  for (const [which, { isLost }] of (world.cells[at]?.aggregators ?? []).entries()) {
    const next = cloneWorld(world);
    const cell = next.cells[at];
    const aggregator = cell?.aggregators[which];
    if (!isLost || cell === undefined || aggregator === undefined) continue;
    notice(cell, aggregator);
    emit(next, () => `${leaderOf(cell, at, which)} lists the pods, and notices the restore`);
  }
}

export function notice(cell: WorldCell, aggregator: WorldCell["aggregators"][number]): void {
  Object.assign(aggregator, { isLost: false, hasIncident: true, position: cell.end });
}

/** The minimum, the counted selector, the suspension. S2 is promised for a constant spec. */
export function edits(world: SmallWorld, emit: Emit): void {
  const edit = (change: Partial<Edits>, what: string, cost = 1): SmallWorld => {
    const next = cloneWorld(world);
    next.faults -= cost;
    next.edits = { ...next.edits, ...change };
    next.lost = NOTHING_PROMISED;
    emit(next, () => what);
    return next;
  };
  const { isMinimumRaised, isSelectorEdited, isSuspended } = world.edits;
  if (isSuspended) edit({ isSuspended: false }, "the suspension ends", 0);
  if (world.faults === 0) return;
  if (!isSuspended) edit({ isSuspended: true }, "the protector is suspended");
  if (!isMinimumRaised) edit({ isMinimumRaised: true }, "the minimum is raised by one");
  if (isSelectorEdited) return;
  for (const [cell, { pods }] of world.cells.entries())
    for (const pod of pods.keys()) {
      const copy = copyOf(world, { cell, pod });
      copy.world.faults--;
      copy.world.edits = { ...copy.world.edits, isSelectorEdited: true };
      copy.world.lost = NOTHING_PROMISED;
      copy.pod.isOutside = true;
      emit(copy.world, () => `the counted selector is edited, and does not match ${nameOf({ cell, pod })}`);
    }
}

function faulty(world: SmallWorld, at: number, fail: (next: SmallWorld, cell: WorldCell) => string) {
  return (emit: Emit): void => {
    const next = cloneWorld(world);
    const cell = next.cells[at];
    if (cell === undefined) return;
    next.faults--;
    const what = fail(next, cell);
    emit(next, () => what);
  };
}
