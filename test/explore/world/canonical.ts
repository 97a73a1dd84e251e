/**
 * The text of a state, the same for all states that differ only in the names of pods and cells, in what nobody can see
 * any more, and in admissions that share a record and are alike. A character is a small number.
 */
import {
  type Edits,
  isLive,
  type Nonce,
  OLDER,
  POD,
  type PodStage,
  type SmallWorld,
  versionAt,
  type WorldCell,
  type WorldPod,
  type WorldRecord,
} from "./world.ts";

/** Written numbers begin at -1. */
const OFFSET = 1;

/** Makes `world` canonical, and returns its text. */
export function canonicalText(world: SmallWorld): string {
  const { admissions, changes, faults, lost, clock } = world;
  const cells = world.cells.map((cell) => ({ cell, text: cellText(cell) }));
  if (cells.length > 1) {
    cells.sort(byText);
    world.cells = cells.map(({ cell }) => cell);
  }
  const head = [admissions, changes, faults, lost, clock, editsNumber(world.edits)];
  return numbers(head) + cells.map(({ text }) => text).join("");
}

function byText(a: { text: string }, b: { text: string }): number {
  return a.text < b.text ? -1 : a.text > b.text ? 1 : 0;
}

function numbers(values: readonly number[]): string {
  let text = "";
  for (const value of values) text += String.fromCharCode(value + OFFSET);
  return text;
}

function cellText(cell: WorldCell): string {
  forgetPast(cell);
  const pods = cell.pods.map((pod) => ({ pod, text: podText(pod) }));
  pods.sort(byText);
  cell.pods = pods.map(({ pod }) => pod);
  const { end, total, ready, available, position, epoch, aggregators } = cell;
  const head = [end, total, ready, available, position, epoch, cellFlags(cell), aggregators.length];
  for (const one of aggregators)
    head.push(one.position, one.knownEpoch, one.seenEpoch, one.adoptedEpoch, flags(aggregatorFlags(one)));
  return numbers(head) + pods.map(({ text }) => text).join("");
}

function flags(values: readonly boolean[]): number {
  return values.reduce((sum, value, index) => sum + (value ? 1 << index : 0), 0);
}

function cellFlags({ isCounted, isOfEditedSelector, isOnHold, cutoff, isCountLost }: WorldCell): number {
  return flags([isCounted, isOfEditedSelector, isOnHold, cutoff > 0, isCountLost]);
}

function aggregatorFlags(aggregator: WorldCell["aggregators"][number]): readonly boolean[] {
  const { isKnowing, knewCounts, sawHold, isLost, hasIncident } = aggregator;
  return [isKnowing, knewCounts, sawHold, isLost, hasIncident];
}

function editsNumber({ isMinimumRaised, isSelectorEdited, isSuspended }: Edits): number {
  return flags([isMinimumRaised, isSelectorEdited, isSuspended]);
}

/** Changes that every snapshot has become the base; of an older version only that it is older is kept. */
function forgetPast(cell: WorldCell): void {
  if (cell.isCountLost || cell.aggregators.some(({ isLost }) => isLost)) return;
  for (const pod of cell.pods) {
    pod.lost = [];
    for (const record of pod.reservation?.records ?? [])
      for (const nonce of record?.nonces ?? []) nonce.isAfterRestore = false;
  }
  let known = cell.isCounted ? cell.position : cell.end;
  for (const { position } of cell.aggregators) known = Math.min(known, position);
  // A version of a lost history may be between that of the pod and the position.
  for (const pod of cell.pods)
    for (const record of pod.reservation?.records ?? [])
      if (record !== undefined && record.version > versionAt(pod, known)) known = Math.min(known, record.version - 1);
  if (known <= 0) return;
  for (const pod of cell.pods) {
    const version = versionAt(pod, known);
    const moved = (old: number): number => (old > known ? old - known : old === version ? 0 : OLDER);
    rebase(pod, known);
    pod.log = pod.log.filter(({ place }) => place > known);
    for (const change of pod.log) change.place -= known;
    for (const record of pod.reservation?.records ?? [])
      if (record !== undefined) record.version = moved(record.version);
  }
  for (const aggregator of cell.aggregators) aggregator.position -= known;
  cell.position = Math.max(0, cell.position - known);
  cell.end -= known;
}

/** Of the live states before, the last one that differs is kept. */
function rebase(pod: WorldPod, known: number): void {
  for (const { place, state } of pod.log) {
    if (place > known) break;
    if (isLive(pod.base) && pod.base !== state) pod.earlier = pod.base;
    pod.base = remembered(state);
  }
  if (!isLive(pod.base)) pod.earlier = POD.Absent;
}

/** Once the stored count is without the pod, nobody asks how it went. */
function remembered(state: PodStage): PodStage {
  if (state === POD.TakenTerminating) return POD.Terminating;
  return state === POD.TakenGone ? POD.Gone : state;
}

function podText({ base, earlier, log, lost, reservation, unrecorded, isOutside }: WorldPod): string {
  const values = [base, earlier];
  for (const changes of [log, lost]) {
    values.push(changes.length);
    for (const { place, state } of changes) values.push(place, state);
  }
  values.push(flags([unrecorded[0] === true, unrecorded[1] === true, isOutside]));
  if (reservation === undefined) return numbers([...values, 0]);
  values.push(1 + reservation.weight + (reservation.packed ? 2 : 0));
  for (const record of reservation.records) pushRecord(values, record);
  return numbers(values);
}

function pushRecord(values: number[], record: WorldRecord | undefined): void {
  if (record === undefined) {
    values.push(0);
    return;
  }
  record.nonces = distinct(record.nonces);
  values.push(record.nonces.length, record.version, record.paid ? 1 : 0, ...record.nonces.map(nonceNumber));
}

/**
 * Of the admissions that can't be committed any more one stands for all: the newest counts for an aggregator, and only
 * requests that may be committed are taken back one by one.
 */
function distinct(nonces: readonly Nonce[]): Nonce[] {
  const over = nonces.filter(({ inFlight }) => !inFlight);
  const numbers = new Set(nonces.filter(({ inFlight }) => inFlight).map(nonceNumber));
  const aggregators = nonces[0]?.seen.length ?? 0;
  const kept = [...numbers].sort((a, b) => a - b).map((number) => nonceOf(number, aggregators));
  if (over.length === 0) return kept;
  const seen = Array.from({ length: aggregators }, (_, which) => over.every((nonce) => nonce.seen[which] === true));
  return [{ inFlight: false, seen, isAfterRestore: over.some((nonce) => nonce.isAfterRestore) }, ...kept];
}

function nonceNumber({ inFlight, seen, isAfterRestore }: Nonce): number {
  return flags([inFlight, isAfterRestore, ...seen]);
}

function nonceOf(number: number, aggregators: number): Nonce {
  const seen = Array.from({ length: aggregators }, (_, which) => isSet(number, which + 2));
  return { inFlight: isSet(number, 0), isAfterRestore: isSet(number, 1), seen };
}

/** The state of a canonical text. */
export function parseText(text: string, cells: number, pods: number): SmallWorld {
  let at = 0;
  const next = (): number => text.charCodeAt(at++) - OFFSET;
  const counts = { admissions: next(), changes: next(), faults: next(), lost: next(), clock: next() };
  const edits = next();
  const [isMinimumRaised, isSelectorEdited, isSuspended] = [isSet(edits, 0), isSet(edits, 1), isSet(edits, 2)];
  const world: SmallWorld = { ...counts, edits: { isMinimumRaised, isSelectorEdited, isSuspended }, cells: [] };
  for (let index = 0; index < cells; index++) world.cells.push(parseCell(next, pods));
  return world;
}

function isSet(flag: number, index: number): boolean {
  return (flag & (1 << index)) !== 0;
}

function parseCell(next: () => number, pods: number): WorldCell {
  const counts = { end: next(), total: next(), ready: next(), available: next(), position: next(), epoch: next() };
  const flag = next();
  const kind = { isCounted: isSet(flag, 0), isOfEditedSelector: isSet(flag, 1), isOnHold: isSet(flag, 2) };
  const isCountLost = isSet(flag, 4);
  const aggregators = times(next(), () => {
    const numbers = { position: next(), knownEpoch: next(), seenEpoch: next(), adoptedEpoch: next() };
    const own = next();
    const knows = { isKnowing: isSet(own, 0), knewCounts: isSet(own, 1), sawHold: isSet(own, 2) };
    return { ...numbers, ...knows, isLost: isSet(own, 3), hasIncident: isSet(own, 4) };
  });
  const cutoff = isSet(flag, 3) ? 1 : 0;
  return {
    ...counts,
    ...kind,
    isCountLost,
    cutoff,
    aggregators,
    pods: times(pods, () => parsePod(next, aggregators.length)),
  };
}

function parsePod(next: () => number, aggregators: number): WorldPod {
  const base = next();
  const earlier = next();
  const log = times(next(), () => ({ place: next(), state: next() }));
  const lost = times(next(), () => ({ place: next(), state: next() }));
  const open = next();
  const unrecorded = [isSet(open, 0), isSet(open, 1)];
  const pod: WorldPod = { base, earlier, log, lost, reservation: undefined, unrecorded, isOutside: isSet(open, 2) };
  const kind = next() - 1;
  if (kind < 0) return pod;
  const records = times(2, () => parseRecord(next, aggregators));
  pod.reservation = { weight: kind % 2, packed: kind >= 2, records };
  return pod;
}

function parseRecord(next: () => number, aggregators: number): WorldRecord | undefined {
  const count = next();
  if (count === 0) return undefined;
  const version = next();
  const paid = next() === 1;
  return { version, paid, nonces: times(count, () => nonceOf(next(), aggregators)) };
}

function times<T>(count: number, make: () => T): T[] {
  const all: T[] = [];
  for (let index = 0; index < count; index++) all.push(make());
  return all;
}
