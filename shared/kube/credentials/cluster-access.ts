import type { Agent } from "node:https";

/** How to reach and convince one kube-apiserver; made by `kubeconfig.ts`, used by `https-transport.ts`. */
export interface ClusterAccess {
  /** Where it came from, for messages: `in-cluster`, or the file and context. Holds no secret. */
  readonly description: string;
  /** Base URL of the apiserver, without a trailing slash; may have a path prefix. */
  readonly server: string;
  /** The namespace of the context or of the service account, when there is one. */
  readonly namespace: string | undefined;
  readonly credentials: CredentialSource;
}

/** What one connection and request needs. Two results with the same `tls` object may share connections. */
export interface Credentials {
  /** Value of the `Authorization` header. */
  readonly authorization: string | undefined;
  readonly tls: TlsMaterial;
}

export interface TlsMaterial {
  /** PEM; undefined uses the machine's trust store. */
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly serverName: string | undefined;
  readonly skipVerification: boolean;
  /** Where a proxy is configured: makes the agent through which connections go (client-node, loaded on demand). */
  readonly agent: Agent | undefined;
}

export interface CredentialSource {
  /**
   * The credentials as they are now: token and certificate files are read again when they changed. Rejects with
   * {@link AccessError}; its message names the file, never its content.
   */
  current(nowMs: number): Promise<Credentials>;
  /** The server answered 401: the next `current` reads everything again. */
  rejected(): void;
}

/** Why there is no access; a fixed tag and a message that tells what to do. */
export type AccessErrorTag =
  | "missing"
  | "unreadable"
  | "malformed"
  | "no-context"
  | "unknown-cluster"
  | "unknown-user"
  | "no-server"
  | "certificate"
  | "not-in-cluster"
  | "plugin";

export class AccessError extends Error {
  override readonly name = "AccessError";
  readonly tag: AccessErrorTag;
  constructor(tag: AccessErrorTag, message: string, options?: ErrorOptions) {
    super(message, options);
    this.tag = tag;
  }
}
