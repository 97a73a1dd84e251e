// Must be loaded first, for the dependency injection of @peculiar/x509.
import "reflect-metadata";
import { KeyObject } from "node:crypto";
import { createServer } from "node:https";
import { X509CertificateGenerator } from "@peculiar/x509";
import { expect, test } from "vitest";
import { failure, GET, listen, material, ok, plainTransport } from "../../../test/support/kube/https-server.ts";

const RSA = {
  name: "RSASSA-PKCS1-v1_5",
  hash: "SHA-256",
  modulusLength: 1024,
  publicExponent: new Uint8Array([1, 0, 1]),
} as const;

test("a certificate that OpenSSL rejects for a reason that Node has no code for is no lost connection", async () => {
  const keys = await crypto.subtle.generateKey(RSA, true, ["sign", "verify"]);
  const made = { notBefore: new Date(0), notAfter: new Date(Date.UTC(2100, 0)), signingAlgorithm: RSA, keys };
  const cert = (await X509CertificateGenerator.createSelfSigned({ ...made, name: "CN=old" })).toString("pem");
  const key = KeyObject.from(keys.privateKey).export({ type: "pkcs8", format: "pem" });
  const port = await listen(createServer({ key, cert, ciphers: "DEFAULT@SECLEVEL=0" }, ok));
  expect(await failure(plainTransport(port, material({ ca: cert })).request(GET))).toMatchObject({
    tag: "tls",
    sent: false,
    message: expect.stringMatching(/TLS failed; check the CA.*\(EE certificate key too weak\)/),
  });
});
