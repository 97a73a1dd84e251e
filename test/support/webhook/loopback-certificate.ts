/**
 * A serving certificate for a server of the tests on the loopback address, and the authority that clients of it trust.
 */
import { createCertificateAuthority, issueCertificate } from "../../../shared/certificates/x509.ts";

export const validity = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };

export const authority = await createCertificateAuthority({ ...validity, commonName: "test" });

const { certificatePem, privateKeyPem } = await issueCertificate(authority, {
  ...validity,
  commonName: "webhook",
  ipAddresses: ["127.0.0.1"],
  usages: ["server"],
});

/** As {@link authority} issued it, for a server's options. */
export const certificate = { cert: certificatePem, key: privateKeyPem };
