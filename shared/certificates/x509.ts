/**
 * Issues X.509 certificates for the webhook (docs/decisions/0004-certificates.md) and for the clusters of the tests.
 * Keys are ECDSA on P-256; an authority may also have an RSA or Ed25519 key. Only the certificates process loads this
 * file, and the library behind it.
 */
// Must be loaded first, for the dependency injection of @peculiar/x509.
import "reflect-metadata";
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { isIP } from "node:net";
import * as x509 from "@peculiar/x509";

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

interface AuthorityOptions extends Validity {
  readonly commonName: string;
}

interface CertificateOptions extends Validity {
  /** For a client: its user name in Kubernetes. */
  readonly commonName: string;
  /** For a client: its groups in Kubernetes. */
  readonly organizations?: readonly string[];
  /** Host names of a server; `*.` as the first label is a wildcard. */
  readonly dnsNames?: readonly string[];
  readonly ipAddresses?: readonly string[];
  readonly usages: readonly ("server" | "client")[];
}

interface KeyPair {
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
}

interface Issuer {
  readonly name: x509.Name;
  readonly keys: KeyPair;
  readonly keyIdentifier: string;
}

/** WebCrypto's names of curves, by the OpenSSL names that node:crypto uses. */
const CURVES: Readonly<Record<string, string>> = { prime256v1: "P-256", secp384r1: "P-384", secp521r1: "P-521" };

/** By node:crypto's names for types of keys, except for ECDSA. */
const ALGORITHMS: Readonly<Record<string, SigningAlgorithm>> = {
  rsa: { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" },
  ed25519: { name: "Ed25519" },
};

interface SigningAlgorithm {
  readonly name: string;
  readonly hash?: string;
  readonly namedCurve?: string;
}

/** Undefined for a private key of an unsupported type, with which this project can't sign or Go can't verify. */
export function signingAlgorithm({ asymmetricKeyType, asymmetricKeyDetails }: KeyObject): SigningAlgorithm | undefined {
  const namedCurve = CURVES[asymmetricKeyDetails?.namedCurve ?? ""];
  return namedCurve === undefined ? ALGORITHMS[asymmetricKeyType ?? ""] : { name: "ECDSA", namedCurve };
}

/** Returns a new self-signed certificate authority, which may sign end-entity certificates but no other authority. */
export async function createCertificateAuthority(options: AuthorityOptions): Promise<KeyAndCertificate> {
  const keys = newKeys();
  const name = distinguishedName(options.commonName, []);
  const issuer = { name, keys, keyIdentifier: keyIdentifierOf(keys.publicKey) };
  return await sign(issuer, name, keys, options, [
    new x509.BasicConstraintsExtension(true, 0, true),
    new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
    new x509.SubjectKeyIdentifierExtension(issuer.keyIdentifier),
  ]);
}

/**
 * Returns a new key and a certificate for it, signed by `authority`. Rejects when the authority's PEM can't be read,
 * when its key does not belong to its certificate, and when an IP address is malformed.
 */
export async function issueCertificate(
  authority: KeyAndCertificate,
  options: CertificateOptions,
): Promise<KeyAndCertificate> {
  const issuer = readIssuer(authority);
  const keys = newKeys();
  const malformed = options.ipAddresses?.find((address) => isIP(address) === 0);
  if (malformed !== undefined) throw new TypeError(`${JSON.stringify(malformed)} is not an IP address`);
  const names = [
    ...(options.dnsNames ?? []).map((value) => ({ type: "dns" as const, value })),
    ...(options.ipAddresses ?? []).map((address) => ({ type: "ip" as const, value: withoutDots(address) })),
  ];
  const usages = { server: x509.ExtendedKeyUsage.serverAuth, client: x509.ExtendedKeyUsage.clientAuth };
  return await sign(issuer, distinguishedName(options.commonName, options.organizations ?? []), keys, options, [
    new x509.BasicConstraintsExtension(false, undefined, true),
    new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
    new x509.ExtendedKeyUsageExtension(options.usages.map((usage) => usages[usage])),
    new x509.SubjectKeyIdentifierExtension(keyIdentifierOf(keys.publicKey)),
    new x509.AuthorityKeyIdentifierExtension(issuer.keyIdentifier),
    ...(names.length > 0 ? [new x509.SubjectAlternativeNameExtension(names)] : []),
  ]);
}

function newKeys(): KeyPair {
  return generateKeyPairSync("ec", { namedCurve: "P-256" });
}

function readIssuer({ certificatePem, privateKeyPem }: KeyAndCertificate): Issuer {
  const publicKey = createPublicKey(certificatePem);
  if (!createPublicKey(privateKeyPem).equals(publicKey)) {
    throw new TypeError("the certificate authority's private key belongs to another certificate");
  }
  const certificate = new x509.X509Certificate(certificatePem);
  // Copies name and key identifier from the certificate: verifiers compare their bytes, and openssl encodes them
  // differently.
  const name = certificate.subjectName;
  const identifier = certificate.getExtension(x509.SubjectKeyIdentifierExtension)?.keyId;
  const keys = { publicKey, privateKey: createPrivateKey(privateKeyPem) };
  return { name, keys, keyIdentifier: identifier ?? keyIdentifierOf(publicKey) };
}

async function sign(
  issuer: Issuer,
  subject: x509.Name,
  { publicKey, privateKey }: KeyPair,
  { notBeforeMs, notAfterMs }: Validity,
  extensions: x509.Extension[],
): Promise<KeyAndCertificate> {
  const { privateKey: key } = issuer.keys;
  const algorithm = signingAlgorithm(key);
  if (algorithm === undefined) throw new TypeError("the certificate authority's private key is of an unusual kind");
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: serialNumber(publicKey),
    issuer: issuer.name,
    subject,
    notBefore: wholeSeconds(notBeforeMs),
    notAfter: wholeSeconds(notAfterMs),
    publicKey: derOf(publicKey),
    signingKey: key.toCryptoKey(algorithm, false, ["sign"]),
    extensions,
  });
  return {
    certificatePem: `${certificate.toString("pem").trim()}\n`,
    privateKeyPem: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  };
}

/** 127 bits, positive and never zero. The key is fresh, so its hash is as unique as a random number. */
function serialNumber(publicKey: KeyObject): string {
  const serial = createHash("sha256").update(derOf(publicKey)).digest().subarray(0, 16);
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  return serial.toString("hex");
}

/** RFC 7093 section 2 method 1: the leftmost 160 bits of the SHA-256 of the key. */
function keyIdentifierOf(publicKey: KeyObject): string {
  return createHash("sha256").update(derOf(publicKey)).digest("hex").slice(0, 40);
}

function derOf(publicKey: KeyObject): Buffer {
  return publicKey.export({ type: "spki", format: "der" });
}

function distinguishedName(commonName: string, organizations: readonly string[]): x509.Name {
  const groups = organizations.map((utf8String) => ({ O: [{ utf8String }] }));
  return new x509.Name([...groups, { CN: [{ utf8String: commonName }] }]);
}

/** The library misreads an IPv6 address with dots, such as `::ffff:10.0.0.1`. */
function withoutDots(address: string): string {
  return isIP(address) === 6 ? new URL(`http://[${address}]`).hostname.slice(1, -1) : address;
}

function wholeSeconds(unixMs: number): Date {
  return new Date(Math.floor(unixMs / 1000) * 1000);
}
