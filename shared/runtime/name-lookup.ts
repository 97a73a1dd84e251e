import dns from "node:dns";
import type { LookupFunction } from "node:net";

const inFlight = new Map<string, Parameters<LookupFunction>[2][]>();

/**
 * `lookup` of connections: calls for one name share one lookup. The process has room for two at a time, and one ends
 * only with the resolver's own timeouts, whoever still waits for it. With a lookup for each attempt, one name that no
 * resolver answers would keep all others waiting.
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
