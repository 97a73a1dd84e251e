/**
 * Translates a recorded history into histories that the specification replays, one for each small world in it
 * (docs/spec/README.md, Replay a history). Nothing here decides: versions say what was written, reviews what was asked
 * and answered, and the specification says whether it may have been so.
 */
import type { History, RecordedReview } from "../checker/history.ts";
import { readHistory } from "../checker/history.ts";
import { at, list, text } from "../checker/json.ts";
import { type ProtectorHistory, protectorsOf, type StoredStep } from "../checker/protector-history.ts";
import { type Happening, InNoOrder, inOrder, type SpecifiedEvent } from "./moments.ts";
import {
  groupsOf,
  NotSpecified,
  type PhaseVersion,
  type ReplayableWorld,
  type ReplayedPod,
  type WorldProtector,
  worldOf,
} from "./replayable-world.ts";
import { newNonces, noncesIn, type PodRequest, requestsOf } from "./requests.ts";
import { type Span, spansOf, stretchesOf } from "./stretches.ts";

export interface Translation {
  readonly protectors: readonly string[];
  /** The world, and what happens in it. */
  readonly events: readonly SpecifiedEvent[];
  /** What the specification has no word for. Then there are no events. */
  readonly unspecified: string | undefined;
  /** Why it can't have been so, whatever the specification says. Then there are no events. */
  readonly impossible: string | undefined;
}

/** Denials that the specification knows. Others say that the webhook had too much to do. */
const REASONS = ["AtMinimum", "Reserved", "NotCounted", "OnHold"];

export function translate(lines: Iterable<string>): readonly Translation[] {
  return stretchesOf(readHistory(lines)).flatMap((stretch) =>
    groupsOf(stretch.history, protectorsOf(stretch.history)).flatMap((group) =>
      spansOf(stretch, group).map((span) => translateSpan(stretch.history, group, span)),
    ),
  );
}

function translateSpan(history: History, group: readonly ProtectorHistory[], span: Span): Translation {
  const protectors = group.map(({ key }) => key);
  try {
    const world = worldOf(history, group, span);
    const isFirst = span.fromMs === Number.NEGATIVE_INFINITY;
    const reviews = history.reviews.filter(({ fromMs }) => isFirst || fromMs >= world.startMs);
    const events = [headOf(history, world), ...new Translator({ ...history, reviews }, world).events(span)];
    return { protectors, events, unspecified: undefined, impossible: undefined };
  } catch (error) {
    if (error instanceof NotSpecified)
      return { protectors, events: [], unspecified: error.message, impossible: undefined };
    if (!(error instanceof InNoOrder)) throw error;
    return { protectors, events: [], unspecified: undefined, impossible: error.message };
  }
}

function headOf(history: History, { pods, protectors, positions }: ReplayableWorld): SpecifiedEvent {
  const namesOf = (phase: string): string[] => pods.filter(({ first }) => first === phase).map(({ name }) => name);
  return {
    event: "world",
    pods: Object.fromEntries(pods.map(({ name, cell }) => [name, cell])),
    young: namesOf("Absent"),
    unready: namesOf("Unready"),
    protectors: Object.fromEntries(protectors.map(({ key, covers, minAvailable }) => [key, { covers, minAvailable }])),
    aggregators: Object.fromEntries(
      [...positions.keys()].flatMap((cell) => processesOf(history, cell).map(({ name }) => [name, cell])),
    ),
  };
}

interface Process {
  readonly name: string;
  /** Writes of it are seen in this time. */
  readonly fromMs: number;
  readonly toMs: number;
}

/** The processes of the aggregator of a cell: a fault `aggregator CELL` ends one and begins the next. */
function processesOf({ faults }: History, cell: string): readonly Process[] {
  const restarts = faults.filter(({ what }) => what === `aggregator ${cell}`);
  return [undefined, ...restarts].map((before, index) => ({
    name: index === 0 ? cell : `${cell}.${index + 1}`,
    fromMs: before?.fromMs ?? Number.NEGATIVE_INFINITY,
    toMs: restarts[index]?.toMs ?? Number.POSITIVE_INFINITY,
  }));
}

class Translator {
  readonly #history: History;
  readonly #world: ReplayableWorld;
  readonly #requests: readonly PodRequest[];
  readonly #nameOf: (nonce: string) => string;
  readonly #happenings: Happening[] = [];
  readonly #ofStep = new Map<StoredStep, Happening>();
  /** The told versions of each cell, by revision. */
  readonly #ofCell = new Map<string, { readonly revision: number; readonly happening: Happening }[]>();

  constructor(history: History, world: ReplayableWorld) {
    this.#history = history;
    this.#world = world;
    const { requests, nameOf } = requestsOf(world, history.reviews);
    this.#requests = requests;
    this.#nameOf = nameOf;
  }

  events({ endMs, end }: Span): readonly SpecifiedEvent[] {
    for (const cell of this.#world.positions.keys()) {
      this.#addCell(cell);
      this.#addProcesses(cell);
    }
    this.#addCore();
    for (const request of this.#requests) this.#addRequest(request);
    const last = end && this.#ofStep.get(end);
    return inOrder(this.#happenings, endMs, last).flatMap(({ events }) => events);
  }

  #add(atMs: number, events: readonly SpecifiedEvent[], after: readonly (Happening | undefined)[]): Happening {
    const happening = { atMs, events, after: new Set(after.filter((one) => one !== undefined)) };
    this.#happenings.push(happening);
    return happening;
  }

  #addCell(cell: string): void {
    const told: { readonly revision: number; readonly happening: Happening }[] = [];
    this.#ofCell.set(cell, told);
    const own = this.#world.pods.filter((pod) => pod.cell === cell);
    const versions = own
      .flatMap((pod) => pod.versions.map((version, index) => ({ pod, version, index })))
      .sort((a, b) => a.version.revision - b.version.revision);
    for (const { pod, version, index } of versions) {
      const happening = this.#add(version.atMs, [podEvent(pod, index)], [told.at(-1)?.happening]);
      told.push({ revision: version.revision, happening });
    }
  }

  #addProcesses(cell: string): void {
    for (const { name: aggregator, fromMs, toMs } of processesOf(this.#history, cell)) {
      if (fromMs > Number.NEGATIVE_INFINITY) this.#add(fromMs, [{ event: "start", aggregator }], []);
      if (toMs < Number.POSITIVE_INFINITY) this.#add(toMs, [{ event: "stop", aggregator }], []);
    }
  }

  /** The last version of a cell that is not after this revision. */
  #upTo(cell: string, revision: number): readonly Happening[] {
    const told = this.#ofCell.get(cell) ?? [];
    return told.filter((one) => one.revision <= revision).map(({ happening }) => happening);
  }

  #addCore(): void {
    const steps = this.#world.protectors
      .flatMap((protector) => protector.steps.map((step) => ({ protector, step })))
      .sort((a, b) => a.step.moment.revision - b.step.moment.revision);
    let last: Happening | undefined;
    for (const { protector, step } of asDecided(steps)) {
      const positions = [...(step.after?.cells ?? [])].map(([cell, { position = 0 }]) =>
        this.#upTo(cell, Math.max(position, ...readVersions(step, cell))).at(-1),
      );
      last = this.#add(step.atMs, this.#eventsOf(protector, step), [last, ...positions]);
      this.#ofStep.set(step, last);
    }
  }

  /** A webhook adds and takes back nonces, an aggregator writes the aggregation of its cell. */
  #eventsOf({ key: protector }: WorldProtector, step: StoredStep): readonly SpecifiedEvent[] {
    const cells = [...this.#world.positions.keys()];
    const counted = cells.filter((cell) => isCountOf(cell, step));
    const reserved = newNonces(step).map(({ nonce }) => ({
      event: "reserve",
      nonce: this.#nameOf(nonce),
      protector,
      allowed: true,
    }));
    const isDropped = ({ cell, nonce }: { cell: string; nonce: string }): boolean =>
      !counted.includes(cell) && !noncesIn(step.after, cell).some((other) => other.nonce === nonce);
    const rolledBack = noncesIn(step.before)
      .filter(isDropped)
      .map(({ nonce }) => this.#rollBack(protector, this.#nameOf(nonce)));
    // A batch rolls back first: what is free then may be reserved in the same write.
    return [...rolledBack, ...reserved, ...counted.map((cell) => this.#account(protector, step, cell))];
  }

  /** Of a denial that nobody got, or that has another reason, no line is told. */
  #rollBack(protector: string, nonce: string): SpecifiedEvent {
    const review = this.#requests.find(({ name }) => name === nonce)?.review;
    const isOther = review?.answer === "denied" && this.#deniersOf(review).length === 0;
    const unspecified = isOther || review?.answer === "none";
    return { event: "rollBack", nonce, protector, ...(unspecified && { unspecified }) };
  }

  #deniersOf({ reasons }: RecordedReview): readonly WorldProtector[] {
    return this.#world.protectors.filter(({ key }) => REASONS.includes(reasons.get(key) ?? ""));
  }

  #account(protector: string, step: StoredStep, cell: string): SpecifiedEvent {
    const entry = step.after?.cells.get(cell);
    const processes = processesOf(this.#history, cell).filter(
      ({ fromMs, toMs }) => fromMs <= step.atMs && step.atMs <= toMs,
    );
    return {
      event: "account",
      aggregator: processes.map(({ name }) => name),
      protector,
      available: entry?.available,
      position: this.#upTo(cell, entry?.position ?? 0).length,
      weight: entry?.weight,
      nonces: noncesIn(step.after, cell).map(({ nonce }) => this.#nameOf(nonce)),
    };
  }

  #addRequest(request: PodRequest): void {
    const { name: nonce, review, pod, operation, reviewedAt, records } = request;
    const own = pod.versions.map(({ revision }) => revision);
    const shown = own.findLast((revision) => revision <= (reviewedAt ?? Number.NEGATIVE_INFINITY));
    const next = own.find((revision) => revision > (reviewedAt ?? Number.POSITIVE_INFINITY));
    const ask = { event: "ask", nonce, pod: pod.name, operation };
    const asked = this.#add(review.fromMs, [ask], shown === undefined ? [] : [this.#upTo(pod.cell, shown).at(-1)]);
    if (next !== undefined) this.#upTo(pod.cell, next).at(-1)?.after.add(asked);
    const written = records.map(({ step }) => this.#ofStep.get(step));
    for (const one of written) one?.after.add(asked);
    const answered = this.#addAnswer(request, [asked, ...written]);
    const isRollBack = (one: SpecifiedEvent): boolean => one.event === "rollBack" && one.nonce === nonce;
    const rolledBack = [...this.#ofStep.values()].filter(({ events }) => events.some(isRollBack));
    // Until then an apiserver can still commit what was allowed. A roll-back may come later than that.
    const overMs = review.fromMs + this.#history.settleMs;
    const last = [answered, ...rolledBack];
    this.#add(Math.max(overMs, ...last.map((one) => one.atMs)), [{ event: "expire", nonce }], last);
  }

  /** The requests that may have ended the pod, by the time of their answers: one of them did. */
  #committers(pod: ReplayedPod): readonly PodRequest[] {
    const end = endOf(pod)?.revision ?? 0;
    const last = pod.versions.findLast(({ revision }) => revision < end)?.revision ?? 0;
    return this.#requests
      .filter((one) => one.pod === pod && one.review.answer === "allowed" && (one.reviewedAt ?? end) >= last)
      .sort((a, b) => a.review.toMs - b.review.toMs);
  }

  #addAnswer(request: PodRequest, before: readonly (Happening | undefined)[]): Happening {
    const { name: nonce, review, pod } = request;
    const { answer, to, toMs } = review;
    if (answer === "allowed") {
      const allowed = this.#add(toMs, [{ event: "allow", nonce }], before);
      const end = endOf(pod);
      const isFirst = this.#committers(pod)[0] === request;
      if (isFirst && end !== undefined) this.#upTo(pod.cell, end.revision).at(-1)?.after.add(allowed);
      return allowed;
    }
    const deniers = this.#deniersOf(review);
    if (answer !== "denied" || deniers.length === 0) return this.#add(toMs, [], before);
    // It may rest on any version up to there, and nothing rests on it.
    const read = [...this.#ofStep].filter(([{ moment }]) => to !== undefined && moment.revision <= to.revision);
    const last = read.map(([, happening]) => happening);
    const atMs = Math.max(toMs, ...last.map((one) => one.atMs));
    return this.#add(atMs, [{ event: "deny", nonce, protectors: deniers.map(({ key }) => key) }], [...before, ...last]);
  }
}

function endOf({ versions }: ReplayedPod): PhaseVersion | undefined {
  return versions.find(({ phase }) => phase === "Terminating" || phase === "Absent");
}

interface CoreStep {
  readonly protector: WorldProtector;
  readonly step: StoredStep;
}

/**
 * An aggregator decides about its protectors one after the other, and their writes may be stored the other way round:
 * a count goes before those of other protectors at later positions of its cell. Nothing is stored of its own protector
 * between the decision and the write, which is conditional.
 */
function asDecided(steps: readonly CoreStep[]): readonly CoreStep[] {
  const decided: CoreStep[] = [];
  for (const one of steps) {
    const own = decided.findLastIndex(({ protector }) => protector === one.protector);
    const later = decided.findIndex((other, index) => index > own && isBefore(one.step, other.step));
    decided.splice(later < 0 ? decided.length : later, 0, one);
  }
  return decided;
}

/** Whether both count the same cell, the first at an earlier position. */
function isBefore(first: StoredStep, second: StoredStep): boolean {
  return [...(first.after?.cells ?? [])].some(([cell, { position = 0 }]) => {
    const areBoth = isCountOf(cell, first) && isCountOf(cell, second);
    return areBoth && position < (second.after?.cells.get(cell)?.position ?? 0);
  });
}

function isCountOf(cell: string, { before, after }: StoredStep): boolean {
  return aggregationOf(before, cell) !== aggregationOf(after, cell);
}

function aggregationOf(state: StoredStep["after"], cell: string): string {
  const entry = list(state?.version.object, "status", "cells").find((one) => text(one, "cellID") === cell);
  return JSON.stringify(at(entry, "aggregation") ?? {});
}

/** The versions of pods on which the admissions rest that the step has stored. */
function readVersions({ after }: StoredStep, cell: string): readonly number[] {
  const entry = list(after?.version.object, "status", "cells").find((one) => text(one, "cellID") === cell);
  const read = list(entry, "admissionHistory", "buckets").map((bucket) => text(bucket, "podResourceVersion"));
  return read.flatMap((version) => (/^[0-9]+$/.test(version) ? [Number(version)] : []));
}

function podEvent({ name: pod, first, versions }: ReplayedPod, index: number): SpecifiedEvent {
  const before = versions[index - 1]?.phase ?? first;
  const to = versions[index]?.phase;
  const isCommitted = (before === "Ready" || before === "Unready") && (to === "Absent" || to === "Terminating");
  return { event: isCommitted ? "commit" : "change", pod, to };
}
