import dns from "node:dns";
import type { LookupFunction } from "node:net";

const inFlight = new Map<string, Parameters<LookupFunction>[2][]>();

/**
 * `lookup` of connections: calls for the same name share one lookup. The process can run two lookups at a time, and
 * each ends only by the resolver's own timeouts, even if no call waits any more. With a lookup for each attempt, one
 * unresolvable name would block all others.
 */
export const lookupOnce: LookupFunction = (host, options, callback) => {
  const key = JSON.stringify([host, options]);
  const callbacks = inFlight.get(key) ?? [];
  if (callbacks.push(callback) > 1) return;
  inFlight.set(key, callbacks);
  dns.lookup(host, options, (...found) => {
    inFlight.delete(key);
    for (const one of callbacks) one(...found);
  });
};
