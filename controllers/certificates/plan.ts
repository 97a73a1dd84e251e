/**
 * What is to be done next about the authority and the serving certificate (docs/decisions/0004): gathered state in, one
 * step out.
 *
 * An authority is made, published beside the one before it, and signs a serving certificate only when every cell has
 * said that it trusts it; so no apiserver is ever shown a certificate that it cannot verify. Each step is one
 * compare-and-swap on one object, and each can be repeated: nothing is lost when the process ends between two of them,
 * or when two processes do the same.
 */
import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { fingerprintOf } from "../../shared/certificates/ca-bundle.ts";
import type { KeyAndCertificate } from "../../shared/certificates/x509.ts";

/** Certificates are valid from so long before they are made: clocks differ. */
export const BACKDATE_MS = 3_600_000;
/** A certificate is renewed when so much of its life is left, and used by force when so much is. */
const RENEW_AT = 1 / 3;
const OVERDUE_AT = 1 / 6;
/** A rotation begins while more than so much of the certificate's life is left. */
const ROTATE_WITHIN = 2 / 3;
/** Certificates of authorities that are published at once: the one before, and the newest. */
const MAX_PUBLISHED = 2;

export interface CertificateTerms {
  readonly authorityLifetimeMs: number;
  readonly servingLifetimeMs: number;
  /** The least time between what one step publishes and the next one that rests on its having arrived. */
  readonly overlapMs: number;
  /** What the webhook is called by; an address counts as one, as a registration's URL may have it. */
  readonly dnsNames: readonly string[];
}

export interface CertificateState {
  /** The newest authority, with its key; undefined when there is none that can be read. */
  readonly authority: KeyAndCertificate | undefined;
  /** Somebody asked for a new authority. */
  readonly rotationAsked: boolean;
  /** What is published, oldest first, PEM. */
  readonly published: readonly string[];
  /** What the webhook serves; undefined when there is none that can be read. */
  readonly serving: KeyAndCertificate | undefined;
  /** Fingerprint of what each cell trusts. */
  readonly trusted: ReadonlyMap<string, string>;
}

export type CertificateStep =
  /** `early`: what is there was made by a clock that was ahead, and is not valid yet. */
  | { readonly kind: "createAuthority"; readonly reason: "missing" | "early" | "expiring" | "asked" }
  | { readonly kind: "publish"; readonly certificates: readonly string[] }
  | {
      readonly kind: "issue";
      readonly reason: "missing" | "early" | "expiring" | "names" | "beforeRotation" | "rotation" | "overdue";
    }
  /** A new authority waits for these cells; empty when all of them have it, and only time has to pass. */
  | { readonly kind: "wait"; readonly cells: readonly string[] }
  | { readonly kind: "none" };

/** Those that do not trust what is published; the names of cells, sorted. */
export function untrusting({ published, trusted }: CertificateState): string[] {
  const fingerprint = fingerprintOf(published);
  return [...trusted].flatMap(([cell, known]) => (known === fingerprint ? [] : [cell])).sort();
}

/**
 * `trustedForMs`: for how long it has been known that every cell trusts what is published; undefined when one does not.
 */
export function nextStep(
  state: CertificateState,
  terms: CertificateTerms,
  nowMs: number,
  trustedForMs: number | undefined,
): CertificateStep {
  const { authority, serving } = state;
  if (authority === undefined) return { kind: "createAuthority", reason: "missing" };
  const newest = new X509Certificate(authority.certificatePem);
  if (newest.validToDate.getTime() <= nowMs) return { kind: "createAuthority", reason: "expiring" };
  if (isEarly(newest, nowMs)) return { kind: "createAuthority", reason: "early" };
  const certificate = serving === undefined ? undefined : new X509Certificate(serving.certificatePem);
  const certificates = toPublish(state, authority.certificatePem, certificate, nowMs);
  if (fingerprintOf(certificates) !== fingerprintOf(state.published)) return { kind: "publish", certificates };
  if (certificate === undefined || certificate.validToDate.getTime() <= nowMs) {
    return { kind: "issue", reason: "missing" };
  }
  // No apiserver takes it, whomever it trusts: nothing is lost by waiting for no cell.
  if (isEarly(certificate, nowMs)) return { kind: "issue", reason: "early" };
  if (!certificates.some((pem) => isIssuer(new X509Certificate(pem), certificate))) {
    return { kind: "issue", reason: "missing" };
  }
  if (isIssuer(newest, certificate)) return keepUp(state, terms, newest, certificate, nowMs);
  if (state.trusted.size > 0 && trustedForMs !== undefined && trustedForMs >= terms.overlapMs) {
    return { kind: "issue", reason: "rotation" };
  }
  if (isDue(certificate, OVERDUE_AT, nowMs)) return { kind: "issue", reason: "overdue" };
  return { kind: "wait", cells: untrusting(state) };
}

/** No rotation is under way: the newest authority is in use. */
function keepUp(
  { rotationAsked }: CertificateState,
  terms: CertificateTerms,
  newest: X509Certificate,
  certificate: X509Certificate,
  nowMs: number,
): CertificateStep {
  // Every replica has loaded the certificate before the authority of the one before it can be forgotten.
  const settled = certificate.validFromDate.getTime() + BACKDATE_MS + terms.overlapMs <= nowMs;
  const isOld = isDue(newest, RENEW_AT, nowMs);
  if (settled && (rotationAsked || isOld)) {
    // The certificate in use can't be renewed while cells are waited for: they are to have half of its life for it.
    if (isDue(certificate, ROTATE_WITHIN, nowMs)) return { kind: "issue", reason: "beforeRotation" };
    return { kind: "createAuthority", reason: rotationAsked ? "asked" : "expiring" };
  }
  if (isDue(certificate, RENEW_AT, nowMs)) return { kind: "issue", reason: "expiring" };
  if (!terms.dnsNames.every((name) => isFor(certificate, name))) {
    return { kind: "issue", reason: "names" };
  }
  return { kind: "none" };
}

/** The newest authority, and before it the one whose certificate is being served, or was until the last change. */
function toPublish(
  { published }: CertificateState,
  newest: string,
  serving: X509Certificate | undefined,
  nowMs: number,
): readonly string[] {
  const others = published.filter((pem) => pem.trim() !== newest.trim() && isUsable(pem, nowMs));
  const issuer = others.find((pem) => serving !== undefined && isIssuer(new X509Certificate(pem), serving));
  const before = issuer === undefined ? others.slice(1 - MAX_PUBLISHED) : [issuer];
  return [...before, newest];
}

/** Anybody who may write the ConfigMap can damage what is published, and what can't be read is as good as absent. */
function isUsable(pem: string, nowMs: number): boolean {
  try {
    return new X509Certificate(pem).validToDate.getTime() > nowMs;
  } catch {
    return false;
  }
}

function isIssuer(authority: X509Certificate, certificate: X509Certificate): boolean {
  return certificate.checkIssued(authority) && certificate.verify(authority.publicKey);
}

function isFor(certificate: X509Certificate, name: string): boolean {
  return (isIP(name) === 0 ? certificate.checkHost(name) : certificate.checkIP(name)) !== undefined;
}

function isEarly({ validFromDate }: X509Certificate, nowMs: number): boolean {
  return validFromDate.getTime() > nowMs;
}

function isDue({ validFromDate, validToDate }: X509Certificate, share: number, nowMs: number): boolean {
  const lifetimeMs = validToDate.getTime() - validFromDate.getTime() - BACKDATE_MS;
  return nowMs >= validToDate.getTime() - lifetimeMs * share;
}
