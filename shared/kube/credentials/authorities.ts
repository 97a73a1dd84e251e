import { X509Certificate } from "node:crypto";

/** An authority that was cut off has no END line. */
const AUTHORITY = /-----BEGIN [A-Z\d ]*CERTIFICATE-----[^-]*(-----END [A-Z\d ]*-----)?/g;

/**
 * Each authority of a PEM text, readable or not; the whole text where it has none. Given as one text, OpenSSL silently
 * drops an unreadable authority and all that follow it.
 */
export function splitAuthorities(pem: string): string[] {
  return pem.match(AUTHORITY) ?? [pem];
}

/** Whether the first certificate of a PEM text can be read. */
export function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0;
  } catch {
    return false;
  }
}
