/** Upstream's `status` algorithm (design 5.6): the time of an event is told by the pod itself. */
import * as v from "valibot";
import { parseMs } from "../../shared/decide/time.ts";
import { UPDATE_TRIGGER_ANNOTATION } from "../../shared/schema/annotations.ts";
import { parsePod } from "../../shared/schema/parse-pod.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { EventTime } from "./cell.ts";

const maybe = v.optional(v.nullable(v.string()));
const RawTimes = v.looseObject({
  metadata: v.looseObject({ creationTimestamp: maybe, deletionTimestamp: maybe }),
  status: v.optional(
    v.nullable(v.looseObject({ conditions: v.optional(v.nullable(v.array(v.looseObject({ lastProbeTime: maybe })))) })),
  ),
});

/**
 * A pod parser that also remembers the times that a trimmed pod does not have, and the {@link EventTime} that reads them: the latest of
 * creation or deletion, the update trigger's annotation, and every condition's `lastProbeTime`, as upstream has it, or transition.
 */
export function statusTime(): { readonly parse: (raw: unknown) => Pod; readonly eventTime: EventTime } {
  const times = new WeakMap<Pod, number>();
  return {
    parse: (raw) => {
      const pod = parsePod(raw);
      times.set(pod, latestMs(raw, pod));
      return pod;
    },
    eventTime: (pod) => times.get(pod) ?? 0,
  };
}

function latestMs(raw: unknown, pod: Pod): number {
  const parsed = v.safeParse(RawTimes, raw);
  const { metadata, status } = parsed.success ? parsed.output : { metadata: {}, status: undefined };
  const trigger = pod.annotations?.[UPDATE_TRIGGER_ANNOTATION];
  return Math.max(
    parseMs(metadata.deletionTimestamp ?? metadata.creationTimestamp),
    parseMs(trigger),
    ...pod.conditions.map(({ sinceMs }) => sinceMs),
    ...(status?.conditions ?? []).map(({ lastProbeTime }) => parseMs(lastProbeTime)),
  );
}
