import {
  AccessError,
  type CredentialSource,
  type Credentials,
  type KubeconfigEvent,
  type TlsMaterial,
} from "./cluster-access.ts";
import { CHECK_EVERY_MS, type CredentialFile } from "./file-credentials.ts";

interface KubeconfigCredentialsOptions {
  readonly file: CredentialFile;
  /** The text that `source` was made from. */
  readonly text: string;
  readonly source: CredentialSource;
  /** Makes the credentials of another text. Rejects with {@link AccessError} for an unusable text. */
  readonly open: (text: string) => Promise<CredentialSource>;
  readonly onEvent: (event: KubeconfigEvent) => void;
}

/**
 * The credentials of a kubeconfig that may be replaced at any time, for example in a renewed Secret. An unusable text
 * is reported, and tried again later; until then, the last usable text stays in use.
 */
export class KubeconfigCredentials implements CredentialSource {
  readonly #options: KubeconfigCredentialsOptions;
  #source: CredentialSource;
  #text: string;
  #tls: TlsMaterial | undefined;
  #opening: Promise<void> | undefined;
  #failed: { readonly text: string; readonly atMs: number } | undefined;
  #reported = "";

  constructor(options: KubeconfigCredentialsOptions) {
    this.#options = options;
    this.#source = options.source;
    this.#text = options.text;
  }

  async current(nowMs: number): Promise<Credentials> {
    const { file } = this.#options;
    const text = await file.read(nowMs);
    if (file.failure !== undefined) this.#report(file.failure);
    else if (text === this.#text) this.#reported = "";
    else if (this.#isDue(text, nowMs)) await this.#renew(text, nowMs);
    const credentials = await this.#source.current(nowMs);
    return { ...credentials, tls: this.#stable(credentials.tls) };
  }

  rejected(used: Credentials): void {
    this.#options.file.invalidate();
    this.#failed = undefined;
    this.#source.rejected(used);
  }

  #isDue(text: string, nowMs: number): boolean {
    return this.#failed?.text !== text || nowMs - this.#failed.atMs >= CHECK_EVERY_MS;
  }

  /** Concurrent calls wait for the same read, so that none is sent with credentials that are known to be old. */
  async #renew(text: string, nowMs: number): Promise<void> {
    this.#opening ??= this.#open(text, nowMs).finally(() => {
      this.#opening = undefined;
    });
    await this.#opening;
  }

  async #open(text: string, nowMs: number): Promise<void> {
    const { open, onEvent, file } = this.#options;
    try {
      this.#source = await open(text);
      this.#text = text;
      this.#failed = undefined;
      this.#reported = "";
      onEvent({ kind: "renewed", path: file.path });
    } catch (error) {
      if (!(error instanceof AccessError)) throw error;
      this.#failed = { text, atMs: nowMs };
      this.#report(error);
    }
  }

  /** Reports each problem once. */
  #report(error: AccessError): void {
    if (this.#reported === error.message) return;
    this.#reported = error.message;
    this.#options.onEvent({ kind: "unusable", path: this.#options.file.path, error });
  }

  /** Keeps the connections if only the token is new. */
  #stable(tls: TlsMaterial): TlsMaterial {
    const old = this.#tls;
    if (old !== undefined && sameMaterial(old, tls)) return old;
    this.#tls = tls;
    return tls;
  }
}

function sameMaterial(one: TlsMaterial, other: TlsMaterial): boolean {
  return (
    one.ca === other.ca &&
    one.cert === other.cert &&
    one.key === other.key &&
    one.serverName === other.serverName &&
    one.skipVerification === other.skipVerification &&
    one.proxy === other.proxy
  );
}
