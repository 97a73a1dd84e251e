/**
 * How the authorities of the webhook's certificate are published to the cells (docs/decisions/0004): two ConfigMaps in
 * the webhook's namespace. One has the authorities to trust; in the other, each cell acknowledges the authorities that
 * its webhook configuration trusts.
 */
import { hash, type X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import * as v from "valibot";
import { checker } from "../schema/check.ts";

/** The ConfigMap with the authorities' certificates (`ca.crt`, PEM, oldest first). Every aggregator reads it. */
export const PUBLISHED_CONFIG_MAP = "podseidon-webhook-ca";
export const PUBLISHED_KEY = "ca.crt";
/**
 * A ConfigMap: by cell, the fingerprint of the authorities that its webhook configuration trusts. Every cell's
 * aggregator writes it.
 */
export const TRUSTED_CONFIG_MAP = "podseidon-webhook-ca-cells";

const ConfigMap = v.looseObject({ data: v.nullish(v.record(v.string(), v.string())) });

/** The `data` of a ConfigMap; throws a SchemaError for anything else. */
export function parseConfigMapData(raw: unknown): Readonly<Record<string, string>> {
  return checker(ConfigMap)(raw).data ?? {};
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g;

/** The certificates of a PEM file, in order, each with one line break at its end; text between them is dropped. */
export function splitCertificates(pem: string): string[] {
  return [...pem.matchAll(CERTIFICATE)].map(([certificate]) => `${certificate.trim()}\n`);
}

/** The hash of the published authorities that a cell acknowledges. */
export function fingerprintOf(certificates: readonly string[]): string {
  return hash("sha256", certificates.map((pem) => pem.trim()).join("\n"), "hex");
}

/**
 * The secret segment of the webhook's path, a hash of a published authority. Only webhook configurations and the
 * webhook's cluster have this certificate; no TLS handshake shows it.
 */
export function pathSegment(pem: string): string {
  return hash("sha256", `path of the podseidon webhook\n${pem.trim()}`, "base64url");
}

/**
 * Matches this segment at the start of a path: `/~` and the hash, or `/secret-` and the hash in hexadecimal. A segment
 * of another length is the id of a cell.
 */
export const SECRET_SEGMENT = /^\/(?:~[\w-]{43}|secret-([0-9a-f]{64}))(?=\/)/;

/** Whether clients that call `host`, a name or an address, accept the certificate. */
export function isForHost(certificate: X509Certificate, host: string): boolean {
  return (isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host)) !== undefined;
}
