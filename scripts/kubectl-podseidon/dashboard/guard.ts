/**
 * Protects the dashboard: only clients that know the secret in its path may read it. Other users of the machine can
 * reach the port, and any web page can send requests to it. A foreign page can't read a response, unless its name
 * resolves to this machine (DNS rebinding), which the Host header shows. Browsers would send a cookie to every port of
 * the machine.
 */
import { timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";

const LOOPBACK = /^(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?$/;
/** How a browser marks a request by the page itself, or by a user who typed the URL. */
const OWN_SITES = ["same-origin", "none"];

export type AccessDecision =
  | { readonly kind: "granted" /** Behind the secret, without a leading slash or query. */; readonly path: string }
  | { readonly kind: "refused"; readonly status: number; readonly why: string };

const refused = (status: number, why: string): AccessDecision => ({ kind: "refused", status, why });

export function admit({ method, url = "", headers }: IncomingMessage, secret: string): AccessDecision {
  if (!LOOPBACK.test(headers.host ?? "")) return refused(421, "this server is for requests to 127.0.0.1");
  if (method !== "GET") return refused(405, "this server is read with GET");
  const site = headers["sec-fetch-site"];
  if (site !== undefined && !OWN_SITES.includes(String(site))) return refused(403, "another site asked for this");
  const [, given = "", path] = /^\/([^/?]*)(?:\/([^?]*))?/.exec(url) ?? [];
  const advice = "open the address that kubectl podseidon dashboard printed";
  if (!isSame(given, secret)) return refused(404, advice);
  if (path === undefined) return refused(404, `${advice}, with the slash at its end`);
  return { kind: "granted", path };
}

function isSame(given: string, secret: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(secret)];
  return a.length === b.length && timingSafeEqual(a, b);
}

/** Loads nothing from other sites, stores nothing, and forbids frames and referrers. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "cache-control": "no-store",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
};
