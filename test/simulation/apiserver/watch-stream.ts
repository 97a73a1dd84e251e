/**
 * One watch of the API server model: events after a version, bookmarks, the server-side timeout, and 410 when the
 * history was compacted.
 */
import type { Ports, Timer } from "../../../shared/runtime/clock.ts";
import type { Etcd, EtcdChange, EtcdObject, Json } from "./etcd.ts";
import { asObject, jsonOf, matchesLabels } from "./objects.ts";
import { prefixOf, type RequestTarget, type SimulatedResource } from "./resources.ts";
import { statusBody } from "./responses.ts";
import { shardMatcher } from "./shards.ts";
import type { WatchCache } from "./watch-cache.ts";

export interface WatchSink {
  /** One line of the stream; the bytes are shared and must not be changed. */
  line(bytes: Uint8Array): void;
  end(): void;
}

const BOOKMARK_INTERVAL_MS = 60_000;
/** kube-apiserver sends a bookmark this long before a watch's deadline. */
const BEFORE_DEADLINE_MS = 2_000;
const DEFAULT_TIMEOUT_SECONDS = 1800;

type EventType = "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";

const encoder = new TextEncoder();
const lines = new WeakMap<Json, Map<EventType, Uint8Array>>();
const lastStates = new WeakMap<EtcdChange, EtcdObject>();
const bookmarks = new WeakMap<WatchCache, { readonly revision: number; readonly object: Json }>();

/** The line of an event, encoded once for all watchers. */
function lineOf(type: EventType, object: Json): Uint8Array {
  const known = lines.get(object) ?? new Map<EventType, Uint8Array>();
  lines.set(object, known);
  let line = known.get(type);
  if (line === undefined) {
    line = encoder.encode(`{"type":"${type}","object":${jsonOf(object)}}\n`);
    known.set(type, line);
  }
  return line;
}

/** A deleted object in its event: the last state, at the version of the deletion. */
function lastState(change: EtcdChange, before: EtcdObject): EtcdObject {
  const state = lastStates.get(change) ?? { ...before, revision: change.revision };
  lastStates.set(change, state);
  return state;
}

/** The bookmark of the cache's present revision, made once for all streams. */
function bookmarkOf(cache: WatchCache, resource: SimulatedResource): Json {
  const { revision } = cache;
  const known = bookmarks.get(cache);
  if (known?.revision === revision) return known.object;
  const apiVersion = resource.group === "" ? resource.version : `${resource.group}/${resource.version}`;
  const metadata = { resourceVersion: String(revision), creationTimestamp: null };
  const object = { kind: resource.kind, apiVersion, metadata };
  bookmarks.set(cache, { revision, object });
  return object;
}

export function watchStream(given: {
  readonly cache: WatchCache;
  readonly etcd: Etcd;
  readonly ports: Ports;
  readonly target: RequestTarget;
  readonly sink: WatchSink;
}): () => void {
  const { cache, etcd, ports, target, sink } = given;
  const { query, resource } = target;
  const from = Number(query.get("resourceVersion") ?? 0);
  const selector = query.get("labelSelector");
  const isInShard = shardMatcher(query.get("shardSelector"));
  const isWanted = ({ value }: EtcdObject): boolean => matchesLabels(value, selector) && isInShard(value);
  const prefix = prefixOf(resource, target.namespace);
  const timers: Timer[] = [];
  let unsubscribe = (): void => {};
  let ended = false;

  const finish = (): void => {
    if (ended) return;
    ended = true;
    unsubscribe();
    for (const timer of timers) timer.cancel();
    sink.end();
  };
  const send = (type: EventType, object: Json): void => sink.line(lineOf(type, object));
  const bookmark = (): void => {
    if (!ended && cache.revision >= from) send("BOOKMARK", bookmarkOf(cache, resource));
  };
  const event = (change: EtcdChange): void => {
    if (ended || change.revision <= from || !change.key.startsWith(prefix)) return;
    const before = change.before !== undefined && isWanted(change.before);
    const after = change.after !== undefined && isWanted(change.after);
    if (after && change.after) send(before ? "MODIFIED" : "ADDED", asObject(resource, change.after));
    else if (before && change.before) send("DELETED", asObject(resource, lastState(change, change.before)));
  };

  const missed = from < cache.windowFrom ? undefined : etcd.changesSince(from);
  if (missed === undefined || from > etcd.revision) {
    if (missed === undefined)
      send("ERROR", statusBody(410, "Expired", `too old resource version: ${from} (${etcd.compacted})`));
    else send("ERROR", statusBody(504, "Timeout", `Too large resource version: ${from}, current: ${etcd.revision}`));
    finish();
    return finish;
  }
  for (const change of missed) if (change.revision <= cache.revision) event(change);
  unsubscribe = cache.watch({ event, closed: finish });
  const timeoutMs = 1000 * (Number(query.get("timeoutSeconds") ?? 0) || DEFAULT_TIMEOUT_SECONDS);
  timers.push(ports.timers.after(timeoutMs, finish));
  if (query.get("allowWatchBookmarks") === "true") {
    if (timeoutMs > BEFORE_DEADLINE_MS) timers.push(ports.timers.after(timeoutMs - BEFORE_DEADLINE_MS, bookmark));
    const periodic = (): void => {
      bookmark();
      if (!ended) timers.push(ports.timers.after(BOOKMARK_INTERVAL_MS, periodic));
    };
    timers.push(ports.timers.after(BOOKMARK_INTERVAL_MS, periodic));
  }
  return finish;
}
