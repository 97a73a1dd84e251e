/** Which protectors a disruption concerns, and the version of each that is in force. */
import { isTakenOut } from "../../shared/decide/availability/availability.ts";
import { type CompiledSelector, compileSelector } from "../../shared/decide/availability/selector.ts";
import type { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { LabelSelector } from "../../shared/schema/podprotector.ts";
import type { DisruptionTarget } from "../request/disruption-target.ts";
import type { ProtectorLookup, ProtectorMatch } from "./protector-cache.ts";

/** The version in force: the newest one, or the last one of a lost protector. */
export function versionOf({ lost, writer, lastVersion }: ProtectorMatch): ProtectorVersion | undefined {
  return lost ?? writer.newest() ?? lastVersion?.();
}

/** Of each version, because a selector may have thousands of values. */
const counted = new WeakMap<LabelSelector, CompiledSelector>();

function countedBy(selector: LabelSelector): CompiledSelector {
  const known = counted.get(selector) ?? compileSelector(selector, "fails");
  counted.set(selector, known);
  return known;
}

/** True where the labels do not keep the pod out of the protector's count. */
function areCounted(labels: Pod["labels"], { object, state }: ProtectorVersion): boolean {
  const { aggregationSelector } = object.spec;
  const isSelected = aggregationSelector === undefined || countedBy(aggregationSelector).matches(labels);
  return isSelected && !isTakenOut({ labels }, state.spec);
}

/**
 * A change of labels concerns the protectors that select the pod before it and not after it, and those for which it
 * takes the pod out of the count.
 */
export function matchesOf(
  core: Pick<ProtectorLookup, "match">,
  { pod, labelsAfter }: Pick<DisruptionTarget, "pod" | "labelsAfter">,
): ProtectorMatch[] {
  const matches = core.match(pod);
  if (labelsAfter === undefined) return matches;
  // Two backups may hold a lost protector with different selectors: both versions are in force.
  const staying = new Set(core.match({ ...pod, labels: labelsAfter }).map(({ name, lost }) => lost ?? name));
  return matches.filter((match) => {
    const version = versionOf(match);
    const isOut = version !== undefined && areCounted(pod.labels, version) && !areCounted(labelsAfter, version);
    return isOut || !staying.has(match.lost ?? match.name);
  });
}
