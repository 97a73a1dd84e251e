import type { Listed, Lister } from "./list.ts";
import type { EventType } from "./raw-object.ts";
import { isRawObject } from "./raw-object.ts";
import { readWatch } from "./watch.ts";
import { WatchFailure } from "./watch-failure.ts";

/** Marks the bookmark after which a streamed list is complete (KEP-3157). */
const INITIAL_EVENTS_END = "k8s.io/initial-events-end";
/** The server ends the stream after this, complete or not. */
const STREAM_TIMEOUT_SECONDS = 120;

/**
 * A complete list as a stream of its objects (`sendInitialEvents`, KEP-3157): no page is ever held whole, here or in the server.
 * Consistent like `listAll`. Throws a `rejected` WatchFailure where the server does not offer it.
 */
export async function streamAll<T>(
  lister: Lister<T>,
  notOlderThan: string | undefined,
  signal: AbortSignal,
): Promise<Listed<T>> {
  const objects = new Map<string, T>();
  const sentMs = lister.ports.clock.monotonicMs();
  let version: string | undefined;
  await readWatch({
    name: lister.name,
    transport: lister.transport,
    ports: lister.ports,
    collection: lister.collection,
    parameters: {
      sendInitialEvents: "true",
      resourceVersionMatch: "NotOlderThan",
      ...(notOlderThan === undefined ? {} : { resourceVersion: notOlderThan }),
    },
    timeoutSeconds: STREAM_TIMEOUT_SECONDS,
    signal,
    contact: lister.contact,
    opened: () => {},
    pause: undefined,
    each: (type, raw) => {
      version = keep(lister, objects, type, raw);
      return version === undefined;
    },
  });
  if (version === undefined) {
    throw new WatchFailure("ended-early", `list ${lister.name}: the stream ended before the list was complete`);
  }
  return { objects, version, requests: 1, quorumSentMs: notOlderThan === undefined ? sentMs : undefined };
}

/** Takes one event into `objects`; returns the list's version when it is the one that completes it. */
function keep<T>(
  lister: Lister<T>,
  objects: Map<string, T>,
  type: Exclude<EventType, "ERROR">,
  raw: unknown,
): string | undefined {
  if (type === "BOOKMARK") {
    const ends = isRawObject(raw) && raw.metadata.annotations?.[INITIAL_EVENTS_END] === "true";
    return ends ? raw.metadata.resourceVersion : undefined;
  }
  const { owned, key, uid, object } = lister.parse(raw);
  if (!owned) return undefined;
  const kept = object ?? lister.fallback(key, uid);
  if (type === "DELETED" || kept === undefined) objects.delete(key);
  else objects.set(key, kept);
  return undefined;
}
