/**
 * A history in which an etcd was restored has stretches in which none was. Each is a history of its own: revisions of
 * one etcd compare. The specification is told of no restore, so a world begins after a stretch has found its feet, and
 * ends with the next hold or epoch.
 */
import type { History } from "../checker/history.ts";
import type { ProtectorHistory, StoredStep } from "../checker/protector-history.ts";

/** A part of a history between two restores, or the whole of it. */
export interface Stretch {
  readonly history: History;
  /** Milliseconds at which an etcd was restored; infinite at the ends of the history. */
  readonly fromMs: number;
  readonly endMs: number;
}

/** Where a world may begin, and what ends it. */
export interface Span {
  readonly fromMs: number;
  readonly endMs: number;
  /** The step that the specification has no word for. */
  readonly end: StoredStep | undefined;
}

export function stretchesOf(history: History): readonly Stretch[] {
  const timelines = [history.protectors, ...history.pods.values()];
  const restores = timelines.flatMap((of) => of.slice(1).map(({ startMs }) => startMs)).sort((a, b) => a - b);
  return [Number.NEGATIVE_INFINITY, ...restores].map((fromMs, index) => {
    const endMs = restores[index] ?? Number.POSITIVE_INFINITY;
    const current = (of: History["protectors"]): History["protectors"] => {
      const last = of.findLast(({ startMs }, at) => at === 0 || startMs <= fromMs);
      return last === undefined ? [] : [last];
    };
    const part = {
      ...history,
      protectors: current(history.protectors),
      pods: new Map([...history.pods].map(([cluster, of]) => [cluster, current(of)])),
      reviews: history.reviews.filter((review) => review.fromMs >= fromMs && review.fromMs < endMs),
      faults: history.faults.filter(({ toMs }) => toMs >= fromMs),
    };
    return { history: part, fromMs, endMs };
  });
}

/** Between holds and new epochs, which tell that a process has noticed a loss of history. */
export function spansOf({ fromMs, endMs }: Stretch, group: readonly ProtectorHistory[]): readonly Span[] {
  const steps = group.flatMap((protector) => protector.steps).filter(({ atMs }) => atMs >= fromMs && atMs < endMs);
  if (steps.length === 0) return [];
  const ends = steps.filter(isUnquiet).sort((a, b) => a.moment.revision - b.moment.revision);
  const begins = [Number.NEGATIVE_INFINITY, ...ends.map(({ atMs }) => atMs)];
  const spans = begins.map((begin, index) => ({ fromMs: begin, endMs: ends[index]?.atMs ?? endMs, end: ends[index] }));
  // Until its processes notice the restore, what was there before is counted by revisions of another history.
  const isYoung = group.every(({ steps: [first] }) => first?.before === undefined && (first?.atMs ?? 0) >= fromMs);
  return isYoung ? spans : spans.slice(1);
}

function isUnquiet({ before, after }: StoredStep): boolean {
  return [...(after?.cells ?? [])].some(
    ([cell, { epoch, isOnHold }]) => isOnHold || epoch !== (before?.cells.get(cell)?.epoch ?? epoch),
  );
}
