/** Parsers of the watched objects. Facts that the trimmed {@link Pod} lacks are stored beside the pod. */
import * as v from "valibot";
import type { SyncTimeAlgorithm } from "../../../shared/decide/settling/settle-history.ts";
import { UPDATE_TRIGGER_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { type Pod, parsePod } from "../../../shared/schema/pod.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { LATEST_MS, parseMs } from "../../../shared/schema/time.ts";
import { InPlaceChanges } from "./in-place-changes.ts";

const time = v.nullish(v.string());
const conditions = v.nullish(v.array(v.looseObject({ lastProbeTime: time })));
const RawTimes = v.looseObject({
  metadata: v.looseObject({ creationTimestamp: time, deletionTimestamp: time }),
  status: v.nullish(v.looseObject({ conditions })),
});

export interface PodParser {
  readonly parse: (raw: unknown) => Pod;
  /** The time of the event that delivered the pod, Unix milliseconds (docs/design.md#sync-time-algorithms). */
  readonly eventTime: (pod: Pod, receivedMs: number) => number;
  readonly changes: InPlaceChanges;
}

/** `status`, upstream's algorithm, takes the event time from the pod; the others take the time of receipt. */
export function podParser(algorithm: SyncTimeAlgorithm): PodParser {
  const times = new WeakMap<Pod, number>();
  const changes = new InPlaceChanges();
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
  return Math.max(
    parseMs(metadata.deletionTimestamp ?? metadata.creationTimestamp),
    parseMs(pod.annotations?.[UPDATE_TRIGGER_ANNOTATION]),
    ...pod.conditions.map(({ sinceMs }) => sinceMs).filter((ms) => ms < LATEST_MS),
    ...(status?.conditions ?? []).map(({ lastProbeTime }) => parseMs(lastProbeTime)),
  );
}

const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";

/**
 * A protector without the large fields that this process never reads: a core may have 10,000 protectors. No field is
 * lost, because only the status is written back. Throws `SchemaError`.
 */
export function parseTrimmedProtector(raw: unknown): PodProtector {
  const { metadata, spec, status } = parsePodProtector(raw);
  const { managedFields: _, annotations, ...kept } = metadata;
  const { [LAST_APPLIED]: __, ...others } = annotations ?? {};
  return {
    metadata: { ...kept, ...(annotations === undefined ? {} : { annotations: others }) },
    spec,
    ...(status === undefined ? {} : { status }),
  };
}
