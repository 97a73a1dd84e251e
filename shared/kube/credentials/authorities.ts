import { X509Certificate } from "node:crypto";

/** One that was cut off has no end. */
const AUTHORITY = /-----BEGIN [A-Z\d ]*CERTIFICATE-----[^-]*(-----END [A-Z\d ]*-----)?/g;

/**
 * Each authority of a PEM text, readable or not; the text itself where it has none. Of one text, OpenSSL drops an
 * unreadable authority, and all behind it, without a word.
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
