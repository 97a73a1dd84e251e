import dns from "node:dns";
import type { LookupFunction } from "node:net";

/**
 * How long a connection waits for one address of a name before it tries the next one, which ends the first try. Node's
 * 250 ms are less than the way to a distant apiserver and back: a name whose other addresses are dead could never be
 * reached. Where the first address is dead, each new connection loses this time, and a call to a core has 3 s.
 */
export const ADDRESS_MS = 750;

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
