/**
 * Pods as this part needs them beyond the trimmed {@link Pod}: the time of the newest thing that happened to them (design 5.6), and
 * whether an in-place change is over (design 10). Both are kept beside the pod and vanish with it.
 */
import * as v from "valibot";
import { parseMs } from "../../../shared/decide/time.ts";
import { UPDATE_TRIGGER_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { parsePod } from "../../../shared/schema/parse-pod.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { EventTime } from "./cell-pods.ts";
import { ChangesOfPods, type InPlaceChanges } from "./in-place-changes.ts";

const maybe = v.optional(v.nullable(v.string()));
const list = <T extends v.GenericSchema>(item: T) => v.optional(v.nullable(v.array(item)));

const RawTimes = v.looseObject({
  metadata: v.looseObject({ creationTimestamp: maybe, deletionTimestamp: maybe }),
  status: v.optional(v.nullable(v.looseObject({ conditions: list(v.looseObject({ lastProbeTime: maybe })) }))),
});

export interface PodParser {
  readonly parse: (raw: unknown) => Pod;
  readonly eventTime: EventTime;
  readonly changes: InPlaceChanges;
}

/** `status`: events are told by the pod's own times, as upstream's algorithm of that name; else by their receipt. */
export function podParser(algorithm: "exact" | "clock" | "status"): PodParser {
  const times = new WeakMap<Pod, number>();
  const changes = new ChangesOfPods();
  return {
    parse: (raw) => {
      const pod = parsePod(raw);
      if (algorithm === "status") times.set(pod, latestMs(raw, pod));
      changes.see(raw, pod);
      return pod;
    },
    eventTime: (pod, receivedMs) => (algorithm === "status" ? (times.get(pod) ?? 0) : receivedMs),
    changes,
  };
}

/** The latest of creation or deletion, the update trigger's annotation, and every condition's probe and transition. */
function latestMs(raw: unknown, pod: Pod): number {
  const parsed = v.safeParse(RawTimes, raw);
  const { metadata, status } = parsed.success ? parsed.output : { metadata: {}, status: undefined };
  let latest = parseMs(metadata.deletionTimestamp ?? metadata.creationTimestamp);
  latest = Math.max(latest, parseMs(pod.annotations?.[UPDATE_TRIGGER_ANNOTATION]));
  for (const { sinceMs } of pod.conditions) latest = Math.max(latest, sinceMs);
  for (const { lastProbeTime } of status?.conditions ?? []) latest = Math.max(latest, parseMs(lastProbeTime));
  return latest;
}
