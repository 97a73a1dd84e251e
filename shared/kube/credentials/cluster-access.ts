/** How to reach one kube-apiserver, and how to authenticate there; made by `kubeconfig.ts`. */
export interface ClusterAccess {
  /** The source of the access, for messages: `in-cluster`, or file and context. Contains no secret. */
  readonly description: string;
  /** Base URL of the apiserver, without a trailing slash; may have a path prefix. */
  readonly server: string;
  /** The namespace of the context or of the service account, if any. */
  readonly namespace: string | undefined;
  readonly credentials: CredentialSource;
}

/** The credentials of one request. Two results with the same `tls` object may share connections. */
export interface Credentials {
  /** Value of the `Authorization` header. */
  readonly authorization: string | undefined;
  readonly tls: TlsMaterial;
  /** Headers that impersonate another user. */
  readonly impersonation?: Readonly<Record<string, string | readonly string[]>>;
}

export interface TlsMaterial {
  /** PEM; undefined uses the machine's trust store. */
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly serverName: string | undefined;
  readonly skipVerification: boolean;
  /** URL of the HTTP or HTTPS proxy in front of the server; may contain a password. Undefined connects directly. */
  readonly proxy: string | undefined;
}

export interface CredentialSource {
  /**
   * Resolves with the current credentials: a changed kubeconfig, token or certificate file is read again. Rejects with
   * {@link AccessError}, whose message names the file, never its content.
   */
  current(nowMs: number): Promise<Credentials>;
  /**
   * The server answered 401 to a call with these credentials, or TLS failed: the next `current` reads everything again.
   */
  rejected(used: Credentials): void;
}

type AccessErrorTag =
  | "missing"
  | "unreadable"
  | "malformed"
  | "no-context"
  | "unknown-cluster"
  | "unknown-user"
  | "no-server"
  | "server-changed"
  | "certificate"
  | "proxy"
  | "not-in-cluster"
  | "plugin";

/** Why there is no access: a fixed tag, and a message with the remedy. */
export class AccessError extends Error {
  override readonly name = "AccessError";
  readonly tag: AccessErrorTag;
  constructor(tag: AccessErrorTag, message: string, options?: ErrorOptions) {
    super(message, options);
    this.tag = tag;
  }
}

/**
 * A kubeconfig has changed, or it or a file of it is no longer usable. `unverified`: nothing shows that its server is
 * the one that it names. Contains no secret.
 */
export type KubeconfigEvent =
  | { readonly kind: "unverified"; readonly path: string }
  | { readonly kind: "renewed"; readonly path: string }
  | { readonly kind: "unusable"; readonly path: string; readonly error: AccessError };
