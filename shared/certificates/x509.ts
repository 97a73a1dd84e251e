import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { isIP, SocketAddress } from "node:net";
import {
  bitString,
  boolean,
  explicit,
  implicit,
  integer,
  objectIdentifier,
  octetString,
  readValues,
  sequence,
  set,
  time,
  utf8String,
} from "./der.ts";

/**
 * X.509 certificates (RFC 5280) without a command or library beside node:crypto, for the project's own webhook certificates
 * (design 11) and for the clusters of the tests. Keys are ECDSA on P-256; a certificate authority may also have an RSA key.
 */

/** A certificate and its private key (PKCS #8), both PEM. */
export interface KeyAndCertificate {
  readonly certificatePem: string;
  readonly privateKeyPem: string;
}

/** Unix milliseconds; certificates keep whole seconds. */
export interface Validity {
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

export interface AuthorityOptions extends Validity {
  readonly commonName: string;
}

export interface CertificateOptions extends Validity {
  /** For a client: its user name in Kubernetes. */
  readonly commonName: string;
  /** For a client: its groups in Kubernetes. */
  readonly organizations?: readonly string[];
  /** What a server may be called by; `*.` as the first label is a wildcard. */
  readonly dnsNames?: readonly string[];
  readonly ipAddresses?: readonly string[];
  readonly usages: readonly ("server" | "client")[];
}

const ECDSA_WITH_SHA256 = sequence(objectIdentifier("1.2.840.10045.4.3.2"));
const RSA_WITH_SHA256 = sequence(objectIdentifier("1.2.840.113549.1.1.11"), Buffer.from([0x05, 0x00]));
const COMMON_NAME = objectIdentifier("2.5.4.3");
const ORGANIZATION = objectIdentifier("2.5.4.10");
const EXTENSION = {
  subjectKeyIdentifier: objectIdentifier("2.5.29.14"),
  keyUsage: objectIdentifier("2.5.29.15"),
  subjectAltName: objectIdentifier("2.5.29.17"),
  basicConstraints: objectIdentifier("2.5.29.19"),
  authorityKeyIdentifier: objectIdentifier("2.5.29.35"),
  extendedKeyUsage: objectIdentifier("2.5.29.37"),
};
const EXTENDED_USAGE = {
  server: objectIdentifier("1.3.6.1.5.5.7.3.1"),
  client: objectIdentifier("1.3.6.1.5.5.7.3.2"),
};
/** The bits of KeyUsage (RFC 5280 4.2.1.3), the first one being the highest of the octet. */
const USAGE_DIGITAL_SIGNATURE = Buffer.from([0x80]);
const USAGE_CERTIFICATE_AND_CRL_SIGN = Buffer.from([0x06]);

/** A new self-signed certificate authority that may sign end-entity certificates and no further authority. */
export function createCertificateAuthority(options: AuthorityOptions): KeyAndCertificate {
  const keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const subject = distinguishedName(options.commonName, []);
  const identifier = keyIdentifier(keys.publicKey);
  const extensions = [
    extension(EXTENSION.basicConstraints, true, sequence(boolean(true), integer(Buffer.from([0])))),
    extension(EXTENSION.keyUsage, true, bitString(USAGE_CERTIFICATE_AND_CRL_SIGN, 1)),
    extension(EXTENSION.subjectKeyIdentifier, false, octetString(identifier)),
  ];
  const issuer = { subject, identifier, privateKey: keys.privateKey };
  return assemble(issuer, subject, keys, options, extensions);
}

/**
 * A new key and a certificate for it, signed by `authority`. Throws when the authority's PEM can't be read, its key doesn't fit
 * its certificate, or an IP address is malformed.
 */
export function issueCertificate(authority: KeyAndCertificate, options: CertificateOptions): KeyAndCertificate {
  const keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const issuer = readIssuer(authority);
  const names = [
    ...(options.dnsNames ?? []).map((name) => implicit(2, Buffer.from(name, "ascii"))),
    ...(options.ipAddresses ?? []).map((address) => implicit(7, addressOctets(address))),
  ];
  const extensions = [
    extension(EXTENSION.basicConstraints, true, sequence()),
    extension(EXTENSION.keyUsage, true, bitString(USAGE_DIGITAL_SIGNATURE, 7)),
    extension(EXTENSION.extendedKeyUsage, false, sequence(...options.usages.map((usage) => EXTENDED_USAGE[usage]))),
    extension(EXTENSION.subjectKeyIdentifier, false, octetString(keyIdentifier(keys.publicKey))),
    extension(EXTENSION.authorityKeyIdentifier, false, sequence(implicit(0, issuer.identifier))),
    ...(names.length > 0 ? [extension(EXTENSION.subjectAltName, false, sequence(...names))] : []),
  ];
  const subject = distinguishedName(options.commonName, options.organizations ?? []);
  return assemble(issuer, subject, keys, options, extensions);
}

interface Issuer {
  /** The DER of its Name, byte for byte as in its certificate: chains are compared by it. */
  readonly subject: Buffer;
  readonly identifier: Buffer;
  readonly privateKey: KeyObject;
}

function readIssuer(authority: KeyAndCertificate): Issuer {
  const base64 = /-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----/.exec(authority.certificatePem)?.[1];
  if (base64 === undefined) throw new TypeError("the certificate authority's certificate is not PEM");
  const [certificate] = readValues(Buffer.from(base64, "base64"));
  const [toBeSigned] = readValues(certificate?.content ?? Buffer.alloc(0));
  // version [0], serialNumber, signature, issuer, validity, subject, ... (RFC 5280 4.1)
  const subject = readValues(toBeSigned?.content ?? Buffer.alloc(0))[5];
  if (subject === undefined) throw new TypeError("the certificate authority's certificate has no subject");
  const privateKey = createPrivateKey(authority.privateKeyPem);
  const publicKey = createPublicKey(authority.certificatePem);
  if (!createPublicKey(authority.privateKeyPem).equals(publicKey)) {
    throw new TypeError("the certificate authority's private key belongs to another certificate");
  }
  return { subject: subject.whole, identifier: keyIdentifier(publicKey), privateKey };
}

function assemble(
  issuer: Issuer,
  subject: Buffer,
  keys: { readonly publicKey: KeyObject; readonly privateKey: KeyObject },
  validity: Validity,
  extensions: readonly Buffer[],
): KeyAndCertificate {
  const algorithm = issuer.privateKey.asymmetricKeyType === "rsa" ? RSA_WITH_SHA256 : ECDSA_WITH_SHA256;
  const publicKeyInfo = keys.publicKey.export({ type: "spki", format: "der" });
  const toBeSigned = sequence(
    explicit(0, integer(Buffer.from([2]))),
    integer(serialNumber(publicKeyInfo)),
    algorithm,
    issuer.subject,
    sequence(time(validity.notBeforeMs), time(validity.notAfterMs)),
    subject,
    publicKeyInfo,
    explicit(3, sequence(...extensions)),
  );
  const certificate = sequence(toBeSigned, algorithm, bitString(sign("sha256", toBeSigned, issuer.privateKey)));
  const lines = certificate.toString("base64").replaceAll(/.{64}(?=.)/g, "$&\n");
  return {
    certificatePem: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    privateKeyPem: keys.privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  };
}

/** Every certificate has a fresh key, so a hash of it is as unique as a random number. 127 bits: positive, and never zero. */
function serialNumber(publicKeyInfo: Buffer): Buffer {
  const serial = createHash("sha256").update(publicKeyInfo).digest().subarray(0, 16);
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  return serial;
}

/** RFC 7093 section 2 method 1: the leftmost 160 bits of the SHA-256 of the key. */
function keyIdentifier(publicKey: KeyObject): Buffer {
  return createHash("sha256")
    .update(publicKey.export({ type: "spki", format: "der" }))
    .digest()
    .subarray(0, 20);
}

function distinguishedName(commonName: string, organizations: readonly string[]): Buffer {
  const attributes = organizations.map((name) => set(sequence(ORGANIZATION, utf8String(name))));
  return sequence(...attributes, set(sequence(COMMON_NAME, utf8String(commonName))));
}

function extension(identifier: Buffer, critical: boolean, value: Buffer): Buffer {
  return sequence(identifier, ...(critical ? [boolean(true)] : []), octetString(value));
}

/** The 4 or 16 octets of an IP address. */
function addressOctets(address: string): Buffer {
  const family = isIP(address);
  if (family === 4) return Buffer.from(address.split(".").map(Number));
  if (family === 6) return ipv6Octets(new SocketAddress({ address, family: "ipv6" }).address);
  throw new TypeError(`${JSON.stringify(address)} is not an IP address`);
}

function ipv6Octets(canonical: string): Buffer {
  const [head = "", tail] = canonical.split("::");
  const groups = (part: string): number[] => part.split(":").filter(Boolean).flatMap(groupOctets);
  const start = groups(head);
  const end = groups(tail ?? "");
  return Buffer.from([...start, ...new Array<number>(16 - start.length - end.length).fill(0), ...end]);
}

function groupOctets(group: string): number[] {
  if (group.includes(".")) return group.split(".").map(Number);
  const value = Number.parseInt(group, 16);
  return [value >> 8, value & 0xff];
}
