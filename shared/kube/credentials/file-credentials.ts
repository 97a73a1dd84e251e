import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { codeOf } from "../client/https-errors.ts";
import { isCertificate, splitAuthorities } from "./authorities.ts";
import {
  AccessError,
  type CredentialSource,
  type Credentials,
  type KubeconfigEvent,
  type TlsMaterial,
} from "./cluster-access.ts";

/** Shortest time between two checks of a file for changes. */
export const CHECK_EVERY_MS = 5_000;
/** A file is read again after this time even without a visible change: some file systems have no useful times. */
const READ_EVERY_MS = 60_000;
/** Files that are unusable for longer are not just being replaced. */
const TELL_AFTER_MS = 2 * CHECK_EVERY_MS;

/** A token or certificate file that may be replaced at any time (projected volumes, rotated certificates). */
export class CredentialFile {
  readonly path: string;
  readonly #what: string;
  #text: string | undefined;
  #mark = "";
  #checkedMs = Number.NEGATIVE_INFINITY;
  #readMs = Number.NEGATIVE_INFINITY;
  #failure: AccessError | undefined;

  /** `what` names the content in messages, for example `the token file`. */
  constructor(path: string, what: string) {
    this.path = path;
    this.#what = what;
  }

  /** Why the content of the last `read` may be old. */
  get failure(): AccessError | undefined {
    return this.#failure;
  }

  /**
   * Resolves with the content. After the first read, a failure keeps the last content, because a file is missing for a
   * moment while it is replaced. Rejects with {@link AccessError} before that.
   */
  async read(nowMs: number): Promise<string> {
    if (this.#text !== undefined && nowMs - this.#checkedMs < CHECK_EVERY_MS) return this.#text;
    try {
      const { mtimeMs, ino, size } = await stat(this.path);
      const mark = `${mtimeMs}/${ino}/${size}`;
      if (this.#text === undefined || mark !== this.#mark || nowMs - this.#readMs >= READ_EVERY_MS) {
        this.#text = await readFile(this.path, "utf8");
        this.#mark = mark;
        this.#readMs = nowMs;
      }
      this.#checkedMs = nowMs;
      this.#failure = undefined;
    } catch (error) {
      this.#failure = fileError(error, this.path, this.#what);
      if (this.#text === undefined) throw this.#failure;
    }
    return this.#text;
  }

  /** The next `read` reads the file, however recent the last read was. */
  invalidate(): void {
    this.#mark = "";
    this.#checkedMs = Number.NEGATIVE_INFINITY;
  }
}

/** The error for a file that can't be read, with the remedy. */
function fileError(error: unknown, path: string, what: string): AccessError {
  const code = codeOf(error);
  const tag = code === "ENOENT" || code === "ENOTDIR" ? "missing" : "unreadable";
  const message = `${what} ${path} cannot be read (${code}); check its path, owner and mode`;
  return new AccessError(tag, message, { cause: error });
}

/** A value from the configuration itself, or from a file that is read again. */
export type Given = string | CredentialFile | undefined;

interface GivenCredentials extends Pick<TlsMaterial, "serverName" | "skipVerification" | "proxy"> {
  /** The configuration that the values come from, for messages. */
  readonly where: string;
  readonly token: Given;
  /** Used until the token file has been readable. */
  readonly inlineToken?: string | undefined;
  readonly basic: { readonly username: string; readonly password: string } | undefined;
  readonly ca: Given;
  readonly cert: Given;
  readonly key: Given;
  /** Called once when files stay unusable. */
  readonly onEvent?: ((event: KubeconfigEvent) => void) | undefined;
}

/** Tokens, certificates and basic authentication. The TLS object stays the same until its content changes. */
export class FileCredentials implements CredentialSource {
  readonly #given: GivenCredentials;
  #tls: TlsMaterial | undefined;
  #bearer: string | undefined;
  /** Why the credentials in use may be old. */
  #problem: AccessError | undefined;
  /** Monotonic time since which there is a problem; infinity once it is reported. */
  #problemMs: number | undefined;

  constructor(given: GivenCredentials) {
    this.#given = given;
  }

  async current(nowMs: number): Promise<Credentials> {
    const { ca, cert, key } = this.#given;
    const [tokenText, caText, certText, keyText] = await Promise.all([
      this.#tokenText(nowMs),
      ...[ca, cert, key].map((given) => read(given, nowMs)),
    ]);
    this.#problem = this.#files().find(({ failure }) => failure)?.failure;
    const credentials = {
      authorization: this.#authorization(tokenText),
      tls: this.#material(caText, certText, keyText),
    };
    this.#tellOf(this.#problem, nowMs);
    return credentials;
  }

  rejected(): void {
    for (const file of this.#files()) file.invalidate();
  }

  #files(): readonly CredentialFile[] {
    const { token, ca, cert, key } = this.#given;
    return [token, ca, cert, key].filter((given) => typeof given === "object");
  }

  #tellOf(error: AccessError | undefined, nowMs: number): void {
    const sinceMs = this.#problemMs ?? nowMs;
    this.#problemMs = error && sinceMs;
    if (error === undefined || nowMs - sinceMs < TELL_AFTER_MS) return;
    this.#problemMs = Number.POSITIVE_INFINITY;
    this.#given.onEvent?.({ kind: "unusable", path: this.#given.where, error });
  }

  async #tokenText(nowMs: number): Promise<string | undefined> {
    const { token, inlineToken } = this.#given;
    try {
      return await read(token, nowMs);
    } catch (error) {
      if (inlineToken === undefined) throw error;
      return inlineToken;
    }
  }

  #authorization(tokenText: string | undefined): string | undefined {
    const { basic, where, token } = this.#given;
    if (tokenText !== undefined) {
      const value = tokenText.trim();
      // The HTTP client would quote an invalid header value in its error.
      if (!/^[\x21-\x7e]+$/.test(value)) {
        const place = typeof token === "object" ? token.path : where;
        const message = `${place}: the token is empty or has characters that no token has`;
        this.#problem = new AccessError("malformed", message);
        // A file that is written in place is empty first: the old token is used until the new one is there.
        if (this.#bearer !== undefined) return this.#bearer;
        throw this.#problem;
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
      // Only one half of a pair was replaced: the old pair is used until the other half is replaced.
      if (old === undefined || !(error instanceof AccessError)) throw error;
      this.#problem = error;
      return old;
    }
    const { serverName, skipVerification, proxy } = this.#given;
    this.#tls = { ca, cert, key, serverName, skipVerification, proxy };
    return this.#tls;
  }
}

async function read(given: Given, nowMs: number): Promise<string | undefined> {
  return typeof given === "object" ? await given.read(nowMs) : given;
}

/** Throws an {@link AccessError} for material that would fail later, and less clearly, in the TLS handshake. */
function checkCertificates(where: string, ca?: string, cert?: string, key?: string): void {
  // An unreadable authority beside others is left out, as by client-go.
  if (ca !== undefined && !splitAuthorities(ca).some(isCertificate))
    parse(where, "the certificate authority", () => new X509Certificate(ca));
  if ((cert === undefined) !== (key === undefined)) {
    const missing = cert === undefined ? "client certificate" : "client key";
    throw new AccessError("certificate", `${where}: the ${missing} is missing; both or neither must be given`);
  }
  if (cert === undefined || key === undefined) return;
  const certificate = parse(where, "the client certificate", () => new X509Certificate(cert));
  const privateKey = parse(where, "the client key", () => createPrivateKey(key));
  if (certificate.checkPrivateKey(privateKey)) return;
  const message = `${where}: the client key does not belong to the client certificate; issue them together`;
  throw new AccessError("certificate", message);
}

function parse<R>(where: string, what: string, read: () => R): R {
  try {
    return read();
  } catch (cause) {
    const message = `${where}: ${what} is no PEM that can be read; check how it was encoded`;
    throw new AccessError("certificate", message, { cause });
  }
}
