/** Every count equals the available pods at its position, as the recorded versions of the pods have them. */
import type { History, ObjectVersion } from "./history.ts";
import { at, texts } from "./json.ts";
import type { Judgement } from "./judgement.ts";
import { hasCountedGate, isAvailable, isSelected, PodWalk } from "./pods.ts";
import type { CellEntry, StoredState } from "./protector.ts";
import type { ProtectorHistory, StoredStep } from "./protector-history.ts";

interface Claim {
  readonly step: StoredStep;
  readonly cell: string;
  readonly entry: CellEntry;
  readonly position: number;
  /** What the count may have been made of: the spec of this version, and the one before. */
  readonly specs: readonly unknown[];
}

export function judgeCounts(history: History, protectors: readonly ProtectorHistory[], judgement: Judgement): void {
  for (const { key, steps } of protectors) {
    const claims = steps.flatMap(claimsIn);
    for (const cell of new Set(claims.map((claim) => claim.cell))) {
      const own = claims.filter((claim) => claim.cell === cell).sort((a, b) => a.position - b.position);
      const timelines = history.pods.get(history.cells.get(cell) ?? "") ?? [];
      // A cell that was restored has several pasts; the count is of one of those that had begun.
      const right = new Set<Claim>();
      const unknown = new Set<Claim>();
      for (const { versions, startMs } of timelines)
        judgePast(
          key,
          versions,
          own.filter(({ step }) => step.atMs >= startMs),
          right,
          unknown,
        );
      for (const claim of own) {
        if (unknown.has(claim)) continue;
        judgement.judged("counts");
        if (!right.has(claim)) judgement.violation("counts", `${key}: ${wordsOf(claim)}`);
      }
    }
  }
}

/** A count that this version publishes. */
function claimsIn(step: StoredStep): readonly Claim[] {
  const { before, after } = step;
  const claims: Claim[] = [];
  for (const [cell, entry] of after?.cells ?? []) {
    const { position, isOnHold } = entry;
    const previous = before?.uid === after?.uid ? before?.cells.get(cell) : undefined;
    if (position === undefined || isOnHold || isSame(previous, entry)) continue;
    claims.push({ step, cell, entry, position, specs: specsOf(before, after) });
  }
  return claims;
}

function isSame(before: CellEntry | undefined, after: CellEntry): boolean {
  return (
    before !== undefined &&
    before.position === after.position &&
    before.available === after.available &&
    before.cutoff === after.cutoff &&
    before.epoch === after.epoch
  );
}

function specsOf(before: StoredState | undefined, after: StoredState | undefined): readonly unknown[] {
  return [after, before].flatMap((state) => (state === undefined ? [] : [state.spec]));
}

function judgePast(
  key: string,
  versions: readonly ObjectVersion[],
  claims: readonly Claim[],
  right: Set<Claim>,
  unknown: Set<Claim>,
): void {
  const [namespace] = key.split("/");
  const walk = new PodWalk(versions);
  for (const claim of claims) {
    const pods = [...walk.at(claim.position)].filter(([name]) => name.startsWith(`${namespace}/`));
    if (pods.some(([, pod]) => hasCountedGate(pod))) unknown.add(claim);
    const isRight = claim.specs.some((spec) => {
      const selector = at(spec, "aggregationSelector") ?? at(spec, "selector");
      const available = pods.filter(
        ([, pod]) =>
          isSelected(selector, texts(pod, "metadata", "labels")) && isAvailable(pod, spec, claim.entry.cutoff),
      );
      return available.length === claim.entry.available;
    });
    if (isRight) right.add(claim);
  }
}

function wordsOf({ step, cell, entry, position }: Claim): string {
  const { revision } = step.moment;
  return `revision ${revision} counts ${entry.available} at ${position} of ${cell}, which is not what there was`;
}
