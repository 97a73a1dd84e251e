/**
 * The pure part of this folder (docs/decisions/0004-certificates.md): from the state of the authority and of the
 * serving certificate, the next step. `keeper.ts` reads that state and takes the step.
 *
 * A new authority is published beside the one before it. It signs a serving certificate only when every cell has
 * acknowledged that it trusts the authority, so that no apiserver gets a certificate that it can't verify. Each step is
 * one compare-and-swap on one object and can be repeated: a process may end between two steps, and two processes may
 * take the same step.
 */
import { X509Certificate } from "node:crypto";
import { fingerprintOf, isForHost } from "../../shared/certificates/ca-bundle.ts";
import type { KeyAndCertificate } from "../../shared/certificates/x509.ts";

/** Certificates are valid from this long before their creation, because clocks differ. */
export const BACKDATE_MS = 3_600_000;
/** A certificate is renewed when this share of its lifetime is left. */
const RENEW_AT = 1 / 3;
/** A certificate of the new authority is used although some cells do not trust it when this share is left. */
const OVERDUE_AT = 1 / 6;
/** A rotation begins while more than this share of the serving certificate's lifetime is left. */
const ROTATE_WITHIN = 2 / 3;
/** Authorities that are published together: the newest and the one before it. */
const MAX_PUBLISHED = 2;

export interface CertificateTerms {
  readonly authorityLifetimeMs: number;
  readonly servingLifetimeMs: number;
  /** Shortest time between a publication and a step that needs it to have reached every apiserver and replica. */
  readonly overlapMs: number;
  /** The host names and addresses by which apiservers call the webhook. */
  readonly dnsNames: readonly string[];
}

export interface CertificateState {
  /** The newest authority with its key; undefined when the Secret holds no usable one. */
  readonly authority: KeyAndCertificate | undefined;
  /** An operator has asked for a new authority. */
  readonly rotationAsked: boolean;
  /** The published authorities, oldest first, PEM. */
  readonly published: readonly string[];
  /** The webhook's serving certificate; undefined when the Secret has no usable one. */
  readonly serving: KeyAndCertificate | undefined;
  /** The authority that signed it, as its Secret says, PEM; in case that nothing else has that authority any more. */
  readonly issuer: string;
  /** By cell, the fingerprint of the authorities that it trusts. */
  readonly trusted: ReadonlyMap<string, string>;
}

export type CertificateStep =
  /** `early`: the authority in use is not valid yet, because a fast clock made it. */
  | { readonly kind: "createAuthority"; readonly reason: "missing" | "early" | "expiring" | "asked" }
  | { readonly kind: "publish"; readonly certificates: readonly string[] }
  | {
      readonly kind: "issue";
      readonly reason: "missing" | "early" | "expiring" | "names" | "beforeRotation" | "rotation" | "overdue";
    }
  /** A new authority waits for these cells; empty when all of them trust it and only the overlap has to pass. */
  | { readonly kind: "wait"; readonly cells: readonly string[] }
  | { readonly kind: "none" };

/** The cells that do not trust the published authorities, sorted. */
export function untrusting({ published, trusted }: CertificateState): string[] {
  const fingerprint = fingerprintOf(published);
  return [...trusted].flatMap(([cell, known]) => (known === fingerprint ? [] : [cell])).sort();
}

/**
 * `trustedForMs` is the time for which every cell is known to trust the published authorities; undefined when a cell
 * does not.
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
  // No apiserver accepts a certificate that is not valid yet, so waiting for cells would not help.
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
  // Every replica loads the certificate before the authority of its predecessor may be dropped.
  const settled = certificate.validFromDate.getTime() + BACKDATE_MS + terms.overlapMs <= nowMs;
  const isOld = isDue(newest, RENEW_AT, nowMs);
  // The next one of the same authority would end with it, too.
  const isLast = certificate.validToDate.getTime() >= newest.validToDate.getTime();
  if (settled && (rotationAsked || isOld)) {
    // A rotation that waits for cells can't renew the certificate in use, so the cells get half of its lifetime.
    if (!isLast && isDue(certificate, ROTATE_WITHIN, nowMs)) return { kind: "issue", reason: "beforeRotation" };
    return { kind: "createAuthority", reason: rotationAsked ? "asked" : "expiring" };
  }
  if (isDue(certificate, RENEW_AT, nowMs)) return { kind: "issue", reason: "expiring" };
  if (!terms.dnsNames.every((name) => isForHost(certificate, name))) {
    return { kind: "issue", reason: "names" };
  }
  return { kind: "none" };
}

/** The newest authority, preceded by the one that signed the certificate in use, or else by the one published last. */
function toPublish(
  { published, issuer: recorded }: CertificateState,
  newest: string,
  serving: X509Certificate | undefined,
  nowMs: number,
): readonly string[] {
  const others = published.filter((pem) => isOther(pem, newest, nowMs));
  const known = isOther(recorded, newest, nowMs) ? [...others, recorded] : others;
  const issuer = known.find((pem) => serving !== undefined && isIssuer(new X509Certificate(pem), serving));
  const before = issuer === undefined ? others.slice(1 - MAX_PUBLISHED) : [issuer];
  return [...before, newest];
}

/**
 * True for a valid certificate other than `newest`. False for an unreadable one: every client that may write the
 * ConfigMap can damage it.
 */
function isOther(pem: string, newest: string, nowMs: number): boolean {
  try {
    const certificate = new X509Certificate(pem);
    return certificate.validToDate.getTime() > nowMs && !certificate.raw.equals(new X509Certificate(newest).raw);
  } catch {
    return false;
  }
}

function isIssuer(authority: X509Certificate, certificate: X509Certificate): boolean {
  return certificate.checkIssued(authority) && certificate.verify(authority.publicKey);
}

function isEarly({ validFromDate }: X509Certificate, nowMs: number): boolean {
  return validFromDate.getTime() > nowMs;
}

function isDue({ validFromDate, validToDate }: X509Certificate, share: number, nowMs: number): boolean {
  const lifetimeMs = validToDate.getTime() - validFromDate.getTime() - BACKDATE_MS;
  return nowMs >= validToDate.getTime() - lifetimeMs * share;
}
