/**
 * Pods as this part needs them beyond the trimmed {@link Pod}: the time of the newest thing that happened to them (design 5.6), and
 * whether an in-place change is over (design 10). Both are kept beside the pod and vanish with it.
 */
import * as v from "valibot";
import { parseMs } from "../../shared/decide/time.ts";
import { UPDATE_TRIGGER_ANNOTATION } from "../../shared/schema/annotations.ts";
import { parsePod } from "../../shared/schema/parse-pod.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { EventTime } from "./cell.ts";

const maybe = v.optional(v.nullable(v.string()));
const list = <T extends v.GenericSchema>(item: T) => v.optional(v.nullable(v.array(item)));

const RawTimes = v.looseObject({
  metadata: v.looseObject({ creationTimestamp: maybe, deletionTimestamp: maybe }),
  status: v.optional(v.nullable(v.looseObject({ conditions: list(v.looseObject({ lastProbeTime: maybe })) }))),
});

const RawContainers = v.looseObject({
  spec: v.looseObject({ containers: v.array(v.looseObject({ name: v.string(), image: maybe })) }),
  status: v.looseObject({
    observedGeneration: v.optional(v.number()),
    containerStatuses: list(v.looseObject({ name: v.string(), image: v.string() })),
  }),
});

export interface PodParser {
  readonly parse: (raw: unknown) => Pod;
  readonly eventTime: EventTime;
  /** The generation whose images the pod runs, as far as its status tells; undefined while a change is under way. */
  readonly settledGeneration: (pod: Pod) => number | undefined;
}

/** `status`: events are told by the pod's own times, as upstream's algorithm of that name; else by their receipt. */
export function podParser(algorithm: "exact" | "clock" | "status"): PodParser {
  const times = new WeakMap<Pod, number>();
  const settled = new WeakMap<Pod, number>();
  return {
    parse: (raw) => {
      const pod = parsePod(raw);
      if (algorithm === "status") times.set(pod, latestMs(raw, pod));
      // Most pods never change in place: nothing is kept for them.
      if (pod.generation > 1 && runsItsSpec(raw, pod)) settled.set(pod, pod.generation);
      return pod;
    },
    eventTime: (pod, receivedMs) => (algorithm === "status" ? (times.get(pod) ?? 0) : receivedMs),
    settledGeneration: (pod) => (pod.generation > 1 ? settled.get(pod) : pod.generation),
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

function runsItsSpec(raw: unknown, pod: Pod): boolean {
  const parsed = v.safeParse(RawContainers, raw);
  if (!parsed.success) return false;
  const { spec, status } = parsed.output;
  // Servers before 1.34 do not report it; there the images have to do.
  if (status.observedGeneration !== undefined && status.observedGeneration < pod.generation) return false;
  const running = new Map((status.containerStatuses ?? []).map(({ name, image }) => [name, fullImage(image)]));
  return spec.containers.every(({ name, image }) => running.get(name) === fullImage(image ?? ""));
}

/** Container runtimes report the image with the defaults spelled out. */
function fullImage(image: string): string {
  const named = image.replace(/^(index\.)?docker\.io\//, "").replace(/^library\//, "");
  const last = named.slice(named.lastIndexOf("/") + 1);
  return last.includes(":") || last.includes("@") ? named : `${named}:latest`;
}
