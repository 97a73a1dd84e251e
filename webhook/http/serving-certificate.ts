import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { mounted } from "../../shared/runtime/mount-root.ts";

/** The serving certificate with its key, PEM. */
export interface ServingCertificate {
  readonly cert: string;
  readonly key: string;
  /** Where callers must show a certificate: whose certificates are taken, PEM. */
  readonly ca?: string;
}

/** Unix milliseconds from which on no caller takes the certificate. */
export function certificateExpiryMs({ cert }: ServingCertificate): number {
  return new X509Certificate(cert).validToDate.getTime();
}

/** What is read; without `clientCaFile` (or with an empty one) everybody may call. */
export interface CertificateFiles {
  readonly certFile: string;
  readonly keyFile: string;
  readonly clientCaFile?: string;
}

/** As the options name them. */
export function certificateFiles(options: {
  readonly tlsCertFile: string;
  readonly tlsPrivateKeyFile: string;
  readonly clientCaFile: string;
}): CertificateFiles {
  const { tlsCertFile: certFile, tlsPrivateKeyFile: keyFile, clientCaFile } = options;
  return { certFile, keyFile, clientCaFile };
}

export type CertificateErrorTag = "unreadable" | "malformed" | "mismatch";

/** The certificate can't be served; the message names the file and what to do, never its content. */
export class CertificateError extends Error {
  override readonly name = "CertificateError";
  readonly tag: CertificateErrorTag;
  constructor(tag: CertificateErrorTag, message: string, options?: ErrorOptions) {
    super(message, options);
    this.tag = tag;
  }
}

function read(path: string, what: string): string {
  try {
    return readFileSync(mounted(path), "utf8");
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unknown";
    throw new CertificateError(
      "unreadable",
      `cannot read the ${what} file ${path} (${code}): check its path and mode`,
      {
        cause,
      },
    );
  }
}

function parsed<T>(path: string, what: string, parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    throw new CertificateError("malformed", `the ${what} file ${path} does not hold a ${what} in PEM form`, { cause });
  }
}

/**
 * Reads the files and checks that they fit each other, because a pair that does not would only fail at each handshake.
 * Throws {@link CertificateError}.
 */
export function readServingCertificate({ certFile, keyFile, clientCaFile = "" }: CertificateFiles): ServingCertificate {
  const cert = read(certFile, "certificate");
  const key = read(keyFile, "private key");
  const certificate = parsed(certFile, "certificate", () => new X509Certificate(cert));
  const privateKey = parsed(keyFile, "private key", () => createPrivateKey(key));
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new CertificateError(
      "mismatch",
      `the private key in ${keyFile} does not belong to the certificate in ${certFile}: give the pair that was issued together`,
    );
  }
  parsed(certFile, "certificate", () => createSecureContext({ cert, key }));
  if (clientCaFile === "") return { cert, key };
  const ca = read(clientCaFile, "client CA");
  // An empty list would turn every caller away, or in other libraries none.
  parsed(clientCaFile, "client CA", () => new X509Certificate(ca));
  return { cert, key, ca };
}
