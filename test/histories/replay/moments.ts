/**
 * Brings what was recorded at different places into one order. Each thing is known to be later than some others; its
 * time is that at which the recorder saw it, which is not before it happened.
 */

/** A line of the history that the specification replays: docs/spec/README.md. */
export interface SpecifiedEvent extends Readonly<Record<string, unknown>> {
  readonly event: string;
}

export interface Happening {
  /** When it was seen at the latest. */
  readonly atMs: number;
  /** What was before it. */
  readonly after: Set<Happening>;
  /** What the specification is told of it. */
  readonly events: readonly SpecifiedEvent[];
}

/** Things that are recorded as they can't have been. */
export class InNoOrder extends Error {}

/**
 * An order that has everything after what was before it, and otherwise goes by time. It ends before `end` and `endMs`.
 * Throws {@link InNoOrder}.
 */
export function inOrder(happenings: readonly Happening[], endMs: number, end?: Happening): readonly Happening[] {
  const bounds = latestTimes(happenings);
  const timeOf = (one: Happening): number => bounds.get(one) ?? one.atMs;
  const lastMs = Math.min(endMs, end === undefined ? endMs : timeOf(end));
  const told = happenings.filter((one) => timeOf(one) < lastMs);
  const left = new Set(told.sort((a, b) => timeOf(a) - timeOf(b)));
  const ordered: Happening[] = [];
  while (left.size > 0) {
    const next = [...left].find(({ after }) => [...after].every((one) => !left.has(one)));
    if (next === undefined) throw new InNoOrder("some of it is in no order: each thing has to be before the other");
    left.delete(next);
    ordered.push(next);
  }
  return ordered;
}

/** What is seen late, and is before something that was seen early, happened by then. */
function latestTimes(happenings: readonly Happening[]): ReadonlyMap<Happening, number> {
  const bounds = new Map(happenings.map((one) => [one, one.atMs]));
  const lower = (one: Happening, atMs: number): void => {
    if ((bounds.get(one) ?? Number.NEGATIVE_INFINITY) <= atMs) return;
    bounds.set(one, atMs);
    for (const before of one.after) lower(before, atMs);
  };
  for (const one of happenings) for (const before of one.after) lower(before, bounds.get(one) ?? one.atMs);
  return bounds;
}
