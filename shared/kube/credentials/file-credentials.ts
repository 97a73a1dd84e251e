import { createPrivateKey, X509Certificate } from "node:crypto";
import { AccessError, type CredentialSource, type Credentials, type TlsMaterial } from "./cluster-access.ts";
import type { CredentialFile } from "./credential-file.ts";

/** A value given in the configuration itself, or in a file that is followed. */
export type Given = string | CredentialFile | undefined;

export interface GivenCredentials {
  /** The configuration that all this comes from, for messages. */
  readonly where: string;
  readonly token: Given;
  readonly basic: { readonly username: string; readonly password: string } | undefined;
  readonly ca: Given;
  readonly cert: Given;
  readonly key: Given;
  readonly serverName: string | undefined;
  readonly skipVerification: boolean;
}

/** Tokens, certificates and basic authentication, inline or in files. The TLS object stays the same until its content changes. */
export class FileCredentials implements CredentialSource {
  readonly #given: GivenCredentials;
  #tls: TlsMaterial | undefined;
  #bearer: string | undefined;

  constructor(given: GivenCredentials) {
    this.#given = given;
  }

  async current(nowMs: number): Promise<Credentials> {
    const { token, ca, cert, key } = this.#given;
    const [tokenText, caText, certText, keyText] = await Promise.all(
      [token, ca, cert, key].map((given) => (typeof given === "object" ? given.read(nowMs) : given)),
    );
    return { authorization: this.#authorization(tokenText), tls: this.#material(caText, certText, keyText) };
  }

  rejected(): void {
    const { token, ca, cert, key } = this.#given;
    for (const given of [token, ca, cert, key]) if (typeof given === "object") given.invalidate();
  }

  #authorization(tokenText: string | undefined): string | undefined {
    const { basic, where, token } = this.#given;
    if (tokenText !== undefined) {
      const value = tokenText.trim();
      // What is no header value would make the HTTP client quote it in its error.
      if (!/^[\x21-\x7e]+$/.test(value)) {
        // A file that is written in place is empty first: until the new token follows, the old one is the one to use.
        if (this.#bearer !== undefined) return this.#bearer;
        const place = typeof token === "object" ? token.path : where;
        throw new AccessError("malformed", `${place}: the token is empty or has characters that no token has`);
      }
      this.#bearer = `Bearer ${value}`;
      return this.#bearer;
    }
    if (basic === undefined) return undefined;
    return `Basic ${Buffer.from(`${basic.username}:${basic.password}`).toString("base64")}`;
  }

  #material(ca: string | undefined, cert: string | undefined, key: string | undefined): TlsMaterial {
    const old = this.#tls;
    if (old !== undefined && old.ca === ca && old.cert === cert && old.key === key) return old;
    try {
      checkCertificates(this.#given.where, ca, cert, key);
    } catch (error) {
      // Half of a pair was replaced: the other half follows, until then the old pair is the one to use.
      if (old !== undefined) return old;
      throw error;
    }
    const { serverName, skipVerification } = this.#given;
    this.#tls = { ca, cert, key, serverName, skipVerification, agent: undefined };
    return this.#tls;
  }
}

/** Throws an {@link AccessError} for what would fail later, and less clearly, in the TLS handshake. */
function checkCertificates(
  where: string,
  ca: string | undefined,
  cert: string | undefined,
  key: string | undefined,
): void {
  if (ca !== undefined) parse(where, "the certificate authority", () => new X509Certificate(ca));
  if ((cert === undefined) !== (key === undefined)) {
    const missing = cert === undefined ? "client certificate" : "client key";
    throw new AccessError("certificate", `${where}: the ${missing} is missing; both or neither must be given`);
  }
  if (cert === undefined || key === undefined) return;
  const certificate = parse(where, "the client certificate", () => new X509Certificate(cert));
  const privateKey = parse(where, "the client key", () => createPrivateKey(key));
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new AccessError(
      "certificate",
      `${where}: the client key does not belong to the client certificate; issue them together`,
    );
  }
}

function parse<R>(where: string, what: string, read: () => R): R {
  try {
    return read();
  } catch (cause) {
    throw new AccessError("certificate", `${where}: ${what} is no PEM that can be read; check how it was encoded`, {
      cause,
    });
  }
}
