/**
 * What asks for protection and can't have it, by the generator's Events: it repeats each every half hour while it finds
 * the problem. Pure.
 */
import * as v from "valibot";
import { age, plural } from "../invocation/output.ts";
import { type Finding, warning } from "./findings.ts";

/** Reasons of the Events, as `controllers/generator/observe.ts` writes them. */
export const SOURCE_REASONS = ["NotProtected", "BudgetUnresolved", "RepairUndone"] as const;
/** Older Events are about problems that are gone. */
const REPEATED_WITHIN_MS = 35 * 60_000;

/**
 * The beginnings of messages for these kinds in `controllers/generator/sources/workload-kinds.ts`: they are shown last.
 */
const BY_DESIGN = /^none of its pods is promised|^its strategy Recreate/;

const SourceEvent = v.looseObject({
  involvedObject: v.looseObject({ kind: v.string(), namespace: v.optional(v.string(), ""), name: v.string() }),
  message: v.string(),
  lastTimestamp: v.string(),
});

/** No finding where nothing is wrong. */
export function sourceFindings(events: readonly unknown[], nowMs: number): Finding[] {
  const told = new Map<string, { readonly why: string; readonly ageMs: number }>();
  for (const raw of events) {
    const parsed = v.safeParse(SourceEvent, raw);
    if (!parsed.success) continue;
    const { involvedObject, message, lastTimestamp } = parsed.output;
    const ageMs = nowMs - Date.parse(lastTimestamp);
    const source = `${involvedObject.kind} ${involvedObject.namespace}/${involvedObject.name}`;
    // Also false for a time that can't be read. A changed message is another Event: the newest one counts.
    if (ageMs <= Math.min(REPEATED_WITHIN_MS, told.get(source)?.ageMs ?? Number.POSITIVE_INFINITY))
      told.set(source, { why: message, ageMs });
  }
  const [first] = [...told].sort(
    ([, one], [, other]) => Number(BY_DESIGN.test(one.why)) - Number(BY_DESIGN.test(other.why)),
  );
  if (first === undefined) return [];
  const [source, { why, ageMs }] = first;
  const others = told.size === 1 ? "" : `, and ${told.size - 1} more`;
  return [
    warning(
      "sources",
      `${plural(told.size, "source")} can't be protected as asked: ${source}${others}`,
      `${source}, ${age(ageMs)} ago: ${why}. See docs/runbooks/PodseidonSourceNotProtected.md`,
    ),
  ];
}
