import { generateKeyPairSync, X509Certificate } from "node:crypto";
import { createServer, request } from "node:https";
import { describe, expect, test } from "vitest";
import { objectIdentifier, readValues, time } from "./der.ts";
import { createCertificateAuthority, issueCertificate, type KeyAndCertificate } from "./x509.ts";

const validity = { notBeforeMs: Date.UTC(2020, 0, 2, 3, 4, 5), notAfterMs: Date.UTC(2120, 5, 7, 8, 9, 10) };
const authority = createCertificateAuthority({ commonName: "test authority", ...validity });
const authorityCertificate = new X509Certificate(authority.certificatePem);

const server = issueCertificate(authority, {
  commonName: "server",
  dnsNames: ["localhost", "*.example.test"],
  ipAddresses: ["127.0.0.7", "::1", "2001:db8::ff:1", "::ffff:10.0.0.1"],
  usages: ["server"],
  ...validity,
});
const client = issueCertificate(authority, {
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
  ])("issues a %s certificate that verifies against it alone", (_name, issued) => {
    const certificate = new X509Certificate(issued.certificatePem);
    const stranger = createCertificateAuthority({ commonName: "test authority", ...validity });
    expect(certificate.ca).toBe(false);
    expect(certificate.checkIssued(authorityCertificate)).toBe(true);
    expect(certificate.verify(authorityCertificate.publicKey)).toBe(true);
    expect(certificate.verify(new X509Certificate(stranger.certificatePem).publicKey)).toBe(false);
  });

  test("refuses a private key of another authority", () => {
    const stranger = createCertificateAuthority({ commonName: "stranger", ...validity });
    const mixed = { certificatePem: authority.certificatePem, privateKeyPem: stranger.privateKeyPem };
    expect(() => issueCertificate(mixed, { commonName: "x", usages: ["server"], ...validity })).toThrow(
      /another certificate/,
    );
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

  test("keeps both kinds of time", () => {
    expect(certificate.validFromDate.getTime()).toBe(validity.notBeforeMs);
    expect(certificate.validToDate.getTime()).toBe(validity.notAfterMs);
  });

  test("is refused for a malformed address", () => {
    const options = { commonName: "x", ipAddresses: ["1.2.3"], usages: ["server" as const], ...validity };
    expect(() => issueCertificate(authority, options)).toThrow('"1.2.3" is not an IP address');
  });
});

test("an authority with an RSA key signs too", () => {
  const rsa = selfSignedRsaAuthority();
  const issued = new X509Certificate(
    issueCertificate(rsa, { commonName: "x", usages: ["server"], ...validity }).certificatePem,
  );
  expect(issued.verify(new X509Certificate(rsa.certificatePem).publicKey)).toBe(true);
});

/** The certificate of `authority` around another public key; its own signature no longer fits, which nothing here asks for. */
function selfSignedRsaAuthority(): KeyAndCertificate {
  const keys = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const spki = keys.publicKey.export({ type: "spki", format: "der" });
  const [toBeSigned, ...signature] = readValues(readValues(authorityCertificate.raw)[0]?.content ?? Buffer.alloc(0));
  const parts = readValues(toBeSigned?.content ?? Buffer.alloc(0)).map((part) => part.whole);
  parts[6] = spki;
  const wrap = (content: Buffer): Buffer => {
    const length = Buffer.alloc(2);
    length.writeUInt16BE(content.length);
    return Buffer.concat([Buffer.from([0x30, 0x82]), length, content]);
  };
  const whole = wrap(Buffer.concat([wrap(Buffer.concat(parts)), ...signature.map((part) => part.whole)]));
  return {
    certificatePem: `-----BEGIN CERTIFICATE-----\n${whole.toString("base64")}\n-----END CERTIFICATE-----\n`,
    privateKeyPem: keys.privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  };
}

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

describe("DER", () => {
  test.each([
    ["2.5.4.3", "0603550403"],
    ["1.2.840.113549.1.1.11", "06092a864886f70d01010b"],
  ])("object identifier %s", (dotted, hex) => {
    expect(objectIdentifier(dotted).toString("hex")).toBe(hex);
  });

  test.each([
    [Date.UTC(2049, 11, 31, 23, 59, 59), "170d3439313233313233353935395a"],
    [Date.UTC(2050, 0, 1), "180f32303530303130313030303030305a"],
  ])("time %d", (ms, hex) => {
    expect(time(ms).toString("hex")).toBe(hex);
  });

  test.each([["30"], ["3005aa"], ["3085ffffffffff"]])("truncated %s is refused", (hex) => {
    expect(() => readValues(Buffer.from(hex, "hex"))).toThrow(RangeError);
  });
});
