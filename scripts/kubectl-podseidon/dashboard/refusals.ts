/** The webhook's Kubernetes Events at a protector about disruptions that it denied, or allowed without quota. */
import * as v from "valibot";
import { KIND } from "../../../shared/schema/annotations.ts";
import { parseMs } from "../../../shared/schema/time.ts";
import type { RefusalRow } from "./page-messages.ts";

/** The server filters Events by only one field; this file drops those with other reasons. */
export const EVENT_SELECTOR = `involvedObject.kind=${KIND}`;

/** The words for the reasons in `webhook/respond/event-notes.ts`. */
const WORDS: Readonly<Record<string, string>> = {
  DisruptionRefused: "denied",
  DisruptionWouldBeRefused: "would be denied",
  ProtectionBypassed: "allowed by a bypass",
  ProtectionLowered: "allowed, promise lowered",
  ProtectionSuspended: "allowed, suspended",
};
const DENIED = "DisruptionRefused";

const text = v.optional(v.nullable(v.string()), "");
const KubernetesEvent = v.object({
  metadata: v.object({ uid: v.string(), resourceVersion: v.string() }),
  involvedObject: v.object({ namespace: text, name: text }),
  reason: text,
  message: text,
  count: v.nullish(v.number()),
  firstTimestamp: text,
  lastTimestamp: text,
  eventTime: text,
  series: v.nullish(v.object({ count: v.number(), lastObservedTime: text })),
});

export interface EventAtProtector {
  readonly uid: string;
  readonly version: string;
  /** Undefined for an Event of another kind. */
  readonly refusal: Omit<RefusalRow, "core"> | undefined;
}

export function parseProtectorEvent(raw: unknown): EventAtProtector {
  const { metadata, involvedObject, reason, message, ...times } = v.parse(KubernetesEvent, raw);
  const { uid, resourceVersion: version } = metadata;
  const what = WORDS[reason ?? ""];
  const lastMs = parseMs(times.series?.lastObservedTime || times.lastTimestamp || times.eventTime);
  const refusal = what !== undefined && {
    id: uid,
    namespace: involvedObject.namespace ?? "",
    name: involvedObject.name ?? "",
    what,
    reason: reason ?? "",
    message: message ?? "",
    count: times.series?.count ?? times.count ?? 1,
    firstMs: parseMs(times.firstTimestamp || times.eventTime) || lastMs,
    lastMs,
  };
  return { uid, version, refusal: refusal || undefined };
}

/** How many disruptions were denied between two states of an Event. */
export function deniedBetween(before: EventAtProtector | undefined, after: EventAtProtector): number {
  if (after.refusal?.reason !== DENIED) return 0;
  return Math.max(0, after.refusal.count - (before?.refusal?.count ?? 0));
}
