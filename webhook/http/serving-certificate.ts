/** The serving certificate: read and checked at the start, and read again when its files change. */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { splitAuthorities } from "../../shared/kube/credentials/authorities.ts";
import type { Timer, Timers } from "../../shared/runtime/clock.ts";
import { mounted } from "../../shared/runtime/mount-root.ts";

/** How often the files are checked. Polling, because a mounted Secret changes by a symbolic link in a parent folder. */
const CHECK_EVERY_MS = 5_000;

/** The serving certificate with its key, PEM. */
export interface ServingCertificate {
  readonly cert: string;
  readonly key: string;
  /** The authorities whose client certificates are accepted, PEM; undefined when callers need none. */
  readonly ca?: string;
}

/** Unix milliseconds at which the certificate expires. */
export function certificateExpiryMs({ cert }: ServingCertificate): number {
  return new X509Certificate(cert).validToDate.getTime();
}

/** The files that the flags name. With an empty `clientCaFile`, callers need no certificate. */
export interface CertificateFiles {
  readonly tlsCertFile: string;
  readonly tlsPrivateKeyFile: string;
  readonly clientCaFile?: string;
}

/** The certificate cannot be served. The message names the file and what to do, never its content. */
export class CertificateError extends Error {
  override readonly name = "CertificateError";
  readonly tag: "unreadable" | "malformed" | "mismatch";
  constructor(tag: CertificateError["tag"], message: string, options?: ErrorOptions) {
    super(message, options);
    this.tag = tag;
  }
}

function read(path: string, what: string): string {
  try {
    return readFileSync(mounted(path), "utf8");
  } catch (cause) {
    const message = `cannot read the ${what} file ${path} (${String(cause)}): check its path and mode`;
    throw new CertificateError("unreadable", message, { cause });
  }
}

function parsed<T>(path: string, what: string, parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    throw new CertificateError("malformed", `the ${what} file ${path} does not hold a ${what} in PEM form`, { cause });
  }
}

export function readServingCertificate(files: CertificateFiles): ServingCertificate {
  const { tlsCertFile, tlsPrivateKeyFile, clientCaFile = "" } = files;
  const pair = readKeyPair(tlsCertFile, tlsPrivateKeyFile);
  return clientCaFile === "" ? pair : { ...pair, ca: readAuthorities(clientCaFile, "client CA") };
}

/**
 * Also checks that key and certificate belong together: otherwise every handshake would fail. Throws {@link
 * CertificateError}.
 */
export function readKeyPair(certFile: string, keyFile: string): { readonly cert: string; readonly key: string } {
  const cert = read(certFile, "certificate");
  const key = read(keyFile, "private key");
  const certificate = parsed(certFile, "certificate", () => new X509Certificate(cert));
  const privateKey = parsed(keyFile, "private key", () => createPrivateKey(key));
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new CertificateError(
      "mismatch",
      `the private key in ${keyFile} does not belong to the certificate in ` +
        `${certFile}: give the pair that was issued together`,
    );
  }
  parsed(certFile, "certificate", () => createSecureContext({ cert, key }));
  return { cert, key };
}

/**
 * Throws {@link CertificateError} for an empty file, too: Node reads an empty `ca` as the public authorities. Each of
 * several authorities is checked.
 */
export function readAuthorities(path: string, what: string): string {
  const ca = read(path, what);
  for (const pem of splitAuthorities(ca)) parsed(path, what, () => new X509Certificate(pem));
  return ca;
}

interface CertificateReloadOptions extends CertificateFiles {
  /** The certificate that was read at the start. */
  readonly served: ServingCertificate;
  readonly timers: Timers;
  readonly changed: (certificate: ServingCertificate) => void;
  /** The new pair cannot be served: the old one stays in use until the files change again. */
  readonly failed: (error: unknown) => void;
}

/**
 * Passes on each new pair, and the served one that is back after a failure. A pair of which only one file has changed
 * yet is tried again at the next check. Returns a function that stops.
 */
export function watchServingCertificate(options: CertificateReloadOptions): () => void {
  const { tlsCertFile, tlsPrivateKeyFile, clientCaFile } = options;
  const files = [tlsCertFile, tlsPrivateKeyFile, ...(clientCaFile ? [clientCaFile] : [])];
  let { served } = options;
  // Empty, because the files may have changed since they were read at the start.
  let loaded = "";
  let reported = "";
  let timer: Timer;
  const check = (): void => {
    const stamps = files.map(stampOf).join(" ");
    if (stamps !== loaded) {
      try {
        const { cert, key, ca } = readServingCertificate(options);
        if (cert !== served.cert || key !== served.key || ca !== served.ca || reported !== "") {
          served = ca === undefined ? { cert, key } : { cert, key, ca };
          options.changed(served);
        }
        loaded = stamps;
        reported = "";
      } catch (error) {
        if (stamps !== reported) options.failed(error);
        reported = stamps;
      }
    }
    timer = options.timers.after(CHECK_EVERY_MS, check);
  };
  timer = options.timers.after(CHECK_EVERY_MS, check);
  return () => timer.cancel();
}

/** Changes whenever the file does. */
function stampOf(path: string): string {
  try {
    const { ino, mtimeMs, size } = statSync(mounted(path));
    return `${ino}/${mtimeMs}/${size}`;
  } catch {
    return "absent";
  }
}
