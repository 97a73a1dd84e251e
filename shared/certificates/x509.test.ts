import "reflect-metadata";
import { KeyObject, webcrypto, X509Certificate } from "node:crypto";
import { createServer, request } from "node:https";
import { type Extension, SubjectKeyIdentifierExtension, X509CertificateGenerator } from "@peculiar/x509";
import { describe, expect, test } from "vitest";
import { createCertificateAuthority, issueCertificate, type KeyAndCertificate } from "./x509.ts";

const validity = { notBeforeMs: Date.UTC(2020, 0, 2, 3, 4, 5), notAfterMs: Date.UTC(2120, 5, 7, 8, 9, 10) };
const authority = await createCertificateAuthority({ commonName: "test authority", ...validity });
const authorityCertificate = new X509Certificate(authority.certificatePem);

const server = await issueCertificate(authority, {
  commonName: "server",
  dnsNames: ["localhost", "*.example.test"],
  ipAddresses: ["127.0.0.7", "::1", "2001:db8::ff:1", "::ffff:10.0.0.1"],
  usages: ["server"],
  ...validity,
});
const client = await issueCertificate(authority, {
  commonName: "jörg",
  organizations: ["system:masters", "developers"],
  usages: ["client"],
  ...validity,
});

describe("certificate authority", () => {
  test("is a self-signed authority with its own key", () => {
    expect(authorityCertificate.ca).toBe(true);
    expect(authorityCertificate.verify(authorityCertificate.publicKey)).toBe(true);
    expect(authorityCertificate.checkIssued(authorityCertificate)).toBe(true);
    expect(authorityCertificate.subject).toBe("CN=test authority");
  });

  test.each([
    ["server", server],
    ["client", client],
  ])("issues a %s certificate that verifies against it alone", async (_name, issued) => {
    const certificate = new X509Certificate(issued.certificatePem);
    const stranger = await createCertificateAuthority({ commonName: "test authority", ...validity });
    expect(certificate.ca).toBe(false);
    expect(certificate.checkIssued(authorityCertificate)).toBe(true);
    expect(certificate.verify(authorityCertificate.publicKey)).toBe(true);
    expect(certificate.verify(new X509Certificate(stranger.certificatePem).publicKey)).toBe(false);
  });

  test("refuses a private key of another authority", async () => {
    const stranger = await createCertificateAuthority({ commonName: "stranger", ...validity });
    const mixed = { certificatePem: authority.certificatePem, privateKeyPem: stranger.privateKeyPem };
    const issued = issueCertificate(mixed, { commonName: "x", usages: ["server"], ...validity });
    await expect(issued).rejects.toThrow(/another certificate/);
  });

  test("gives each certificate a serial number of its own", () => {
    const serials = [authority, server, client].map(
      (issued) => new X509Certificate(issued.certificatePem).serialNumber,
    );
    expect(new Set(serials).size).toBe(3);
  });
});

describe("issued certificate", () => {
  const certificate = new X509Certificate(server.certificatePem);

  test.each([
    ["localhost", true],
    ["a.example.test", true],
    ["example.test", false],
    ["other", false],
  ])("host name %s: %s", (name, expected) => {
    expect(certificate.checkHost(name) !== undefined).toBe(expected);
  });

  test.each([
    ["127.0.0.7", true],
    ["::1", true],
    ["2001:db8::ff:1", true],
    ["127.0.0.1", false],
  ])("address %s: %s", (address, expected) => {
    expect(certificate.checkIP(address) !== undefined).toBe(expected);
  });

  test("keeps an IPv4-mapped IPv6 address", () => {
    expect(certificate.subjectAltName).toContain("0:0:0:0:0:FFFF:A00:1");
  });

  test("carries user, groups and usage of a client", () => {
    const parsed = new X509Certificate(client.certificatePem);
    expect(parsed.subject).toBe("O=system:masters\nO=developers\nCN=jörg");
    expect(parsed.keyUsage).toEqual(["1.3.6.1.5.5.7.3.2"]);
  });

  test("keeps notBefore and notAfter", () => {
    expect(certificate.validFromDate.getTime()).toBe(validity.notBeforeMs);
    expect(certificate.validToDate.getTime()).toBe(validity.notAfterMs);
  });

  test("is refused for a malformed address", async () => {
    const options = { commonName: "x", ipAddresses: ["1.2.3"], usages: ["server" as const], ...validity };
    await expect(issueCertificate(authority, options)).rejects.toThrow('"1.2.3" is not an IP address');
  });
});

test.each([
  { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256", modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]) },
  { name: "Ed25519" },
])("an authority with a key for $name signs too", async (algorithm) => {
  const other = await selfSignedAuthority(algorithm);
  const { certificatePem } = await issueCertificate(other, { commonName: "x", usages: ["server"], ...validity });
  const issued = new X509Certificate(certificatePem);
  const issuer = new X509Certificate(other.certificatePem);
  expect(issued.verify(issuer.publicKey)).toBe(true);
  expect(issued.checkIssued(issuer)).toBe(true);
});

test("an authority that identifies its key by SHA-1, as openssl does, is the issuer of what it signs", async () => {
  const other = await selfSignedAuthority({ name: "Ed25519" }, async (key) => [
    await SubjectKeyIdentifierExtension.create(key),
  ]);
  const { certificatePem } = await issueCertificate(other, { commonName: "x", usages: ["server"], ...validity });
  expect(new X509Certificate(certificatePem).checkIssued(new X509Certificate(other.certificatePem))).toBe(true);
});

async function selfSignedAuthority(
  algorithm: { readonly name: string },
  extensionsOf: (key: webcrypto.CryptoKey) => Promise<Extension[]> = async () => [],
): Promise<KeyAndCertificate> {
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
  if (!("privateKey" in keys)) throw new TypeError("not a pair of keys");
  const extensions = await extensionsOf(keys.publicKey);
  const certificate = await X509CertificateGenerator.createSelfSigned({ name: "CN=other", keys, extensions });
  const privateKeyPem = KeyObject.from(keys.privateKey).export({ type: "pkcs8", format: "pem" }).toString();
  return { certificatePem: certificate.toString("pem"), privateKeyPem };
}

test("an authority that version 0.1.0 made signs certificates that verify against it", async () => {
  const { certificatePem } = await issueCertificate(EARLIER, { commonName: "x", usages: ["server"], ...validity });
  const issued = new X509Certificate(certificatePem);
  const issuer = new X509Certificate(EARLIER.certificatePem);
  expect(issued.verify(issuer.publicKey)).toBe(true);
  expect(issued.checkIssued(issuer)).toBe(true);
  // Go's verifier compares the bytes of the names.
  const name = Buffer.from("301f311d301b06035504030c14706f64736569646f6e20776562686f6f6b204341", "hex");
  expect([issued.raw.includes(name), issuer.raw.includes(name)]).toEqual([true, true]);
});

/** From before the library made certificates; valid until 2120. */
const EARLIER: KeyAndCertificate = {
  certificatePem: `-----BEGIN CERTIFICATE-----
MIIBhDCCASmgAwIBAgIQQq9qAb/WQnWyC8hUa0VCmjAKBggqhkjOPQQDAjAfMR0w
GwYDVQQDDBRwb2RzZWlkb24gd2ViaG9vayBDQTAgFw0yMDAxMDIwMzA0MDVaGA8y
MTIwMDYwNzA4MDkxMFowHzEdMBsGA1UEAwwUcG9kc2VpZG9uIHdlYmhvb2sgQ0Ew
WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQ0a/57Cth6nYwc1LkyChJ+A+HAn55q
FZy9yePM1HqNJfkI34fV5X9Q3pFovLoxq49zMYnaQxyY14OP9HCFyjgEo0UwQzAS
BgNVHRMBAf8ECDAGAQH/AgEAMA4GA1UdDwEB/wQEAwIBBjAdBgNVHQ4EFgQUQq9q
Ab/WQnWyC8hUa0VCmiW6KxQwCgYIKoZIzj0EAwIDSQAwRgIhALTXi0ddUrHTr/PE
6QF0CrkcbuX1QH+0i9pJ3OCJkdaCAiEAosDKP7IIh2EQ14GRaotNCQUe29bvjBG5
WLte1pxuKTg=
-----END CERTIFICATE-----
`,
  privateKeyPem: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgyDrPu4d3kx+EpnlU
ACVga6IUiVmo6pH5yhdfvodfQxKhRANCAAQ0a/57Cth6nYwc1LkyChJ+A+HAn55q
FZy9yePM1HqNJfkI34fV5X9Q3pFovLoxq49zMYnaQxyY14OP9HCFyjgE
-----END PRIVATE KEY-----
`,
};

test("TLS with both sides' certificates verifies", async () => {
  const listener = createServer(
    {
      key: server.privateKeyPem,
      cert: server.certificatePem,
      ca: authority.certificatePem,
      requestCert: true,
      rejectUnauthorized: true,
    },
    (_request, response) => response.end("hello"),
  );
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const address = listener.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  try {
    const answer = await new Promise<string>((resolve, reject) => {
      const call = request(
        {
          host: "127.0.0.1",
          port,
          servername: "localhost",
          key: client.privateKeyPem,
          cert: client.certificatePem,
          ca: authority.certificatePem,
          agent: false,
        },
        (response) => response.setEncoding("utf8").on("data", resolve),
      );
      call.on("error", reject).end();
    });
    expect(answer).toBe("hello");
  } finally {
    listener.close();
  }
});

test.each([
  [Date.UTC(2049, 11, 31, 23, 59, 59), "170d3439313233313233353935395a"],
  [Date.UTC(2050, 0, 1), "180f32303530303130313030303030305a"],
])("time %d is a UTCTime through 2049 and a GeneralizedTime from 2050", async (notAfterMs, hex) => {
  const made = await createCertificateAuthority({ commonName: "x", ...validity, notAfterMs: notAfterMs + 999 });
  expect(new X509Certificate(made.certificatePem).raw.toString("hex")).toContain(hex);
});
