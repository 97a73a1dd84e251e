import { generateKeyPairSync, randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  createCertificateAuthority,
  issueCertificate,
  type KeyAndCertificate,
  type Validity,
} from "../../shared/certificates/x509.ts";
import { type ApiserverClient, field } from "./api-client.ts";

/**
 * A cluster's own certificate authority, the files that its processes read from it, and kubeconfig files for its users.
 */

const HOUR_MS = 3_600_000;
const LIFETIME_MS = 7 * 24 * HOUR_MS;

export type Credential =
  | { readonly token: string }
  /** Clients read the file again when it changes. */
  | { readonly tokenFile: string }
  | { readonly clientCertificate: KeyAndCertificate };

export interface StaticToken {
  readonly token: string;
  readonly user: string;
  readonly groups?: readonly string[];
}

export class Identity {
  readonly directory: string;
  readonly adminToken = randomBytes(24).toString("base64url");
  readonly #authority: KeyAndCertificate;
  readonly #validity: Validity;
  #kubeconfigs = 0;

  private constructor(directory: string, authority: KeyAndCertificate, validity: Validity) {
    this.directory = directory;
    this.#authority = authority;
    this.#validity = validity;
    this.#write("ca.crt", authority.certificatePem);
  }

  /** Creates the certificate authority of the cluster `name`, with files in `directory`. */
  static async create(name: string, directory: string): Promise<Identity> {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const validity = { notBeforeMs: Date.now() - HOUR_MS, notAfterMs: Date.now() + LIFETIME_MS };
    const commonName = `${name} certificate authority`;
    return new Identity(directory, await createCertificateAuthority({ commonName, ...validity }), validity);
  }

  get certificateAuthorityPem(): string {
    return this.#authority.certificatePem;
  }

  get certificateAuthorityFile(): string {
    return join(this.directory, "ca.crt");
  }

  /** A certificate for a server; returns the paths of its certificate and key. */
  async serverFiles(
    name: string,
    dnsNames: readonly string[],
    ipAddresses: readonly string[],
  ): Promise<{ cert: string; key: string }> {
    // etcd dials itself with its serving certificate.
    const usages = ["server", "client"] as const;
    const options = { commonName: name, dnsNames, ipAddresses, usages, ...this.#validity };
    return this.#files(name, await issueCertificate(this.#authority, options));
  }

  async clientFiles(name: string, user: string): Promise<{ cert: string; key: string }> {
    return this.#files(name, await this.clientCertificate(user));
  }

  async clientCertificate(
    user: string,
    groups: readonly string[] = [],
    lifetimeMs = LIFETIME_MS,
  ): Promise<KeyAndCertificate> {
    return await issueCertificate(this.#authority, {
      commonName: user,
      organizations: groups,
      usages: ["client"],
      notBeforeMs: this.#validity.notBeforeMs,
      notAfterMs: Date.now() + lifetimeMs,
    });
  }

  /**
   * A certificate for a server outside of the cluster, such as a webhook; the caBundle is {@link
   * certificateAuthorityPem}.
   */
  async servingCertificate(dnsNames: readonly string[], ipAddresses: readonly string[]): Promise<KeyAndCertificate> {
    const [commonName = "server"] = [...dnsNames, ...ipAddresses];
    const usages = ["server"] as const;
    return await issueCertificate(this.#authority, { commonName, dnsNames, ipAddresses, usages, ...this.#validity });
  }

  /** The key pair that signs service account tokens; returns the paths of its two halves. */
  serviceAccountKeyFiles(): { privateKey: string; publicKey: string } {
    const keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
    return {
      privateKey: this.#write(
        "service-account.key",
        keys.privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
      ),
      publicKey: this.#write("service-account.pub", keys.publicKey.export({ type: "spki", format: "pem" }).toString()),
    };
  }

  /** The file for `--token-auth-file`: the administrator and `others`. */
  tokenFile(others: readonly StaticToken[]): string {
    const admin: StaticToken = { token: this.adminToken, user: "admin", groups: ["system:masters"] };
    const lines = [admin, ...others].map(
      ({ token, user, groups = [] }) => `${token},${user},${user},"${groups.join(",")}"\n`,
    );
    return this.#write("tokens.csv", lines.join(""));
  }

  kubeconfig(name: string, server: string, credential: Credential, path?: string): string {
    const user =
      "clientCertificate" in credential
        ? {
            "client-certificate-data": base64(credential.clientCertificate.certificatePem),
            "client-key-data": base64(credential.clientCertificate.privateKeyPem),
          }
        : credential;
    const config = {
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name, cluster: { server, "certificate-authority-data": base64(this.certificateAuthorityPem) } }],
      users: [{ name, user }],
      contexts: [{ name, context: { cluster: name, user: name } }],
      "current-context": name,
    };
    // JSON is YAML, and every reader of kubeconfig files accepts it.
    const text = `${JSON.stringify(config, null, 2)}\n`;
    if (path === undefined) return this.#write(`${name}-${++this.#kubeconfigs}.kubeconfig`, text);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }

  #files(name: string, issued: KeyAndCertificate): { cert: string; key: string } {
    return {
      cert: this.#write(`${name}.crt`, issued.certificatePem),
      key: this.#write(`${name}.key`, issued.privateKeyPem),
    };
  }

  #write(name: string, text: string): string {
    const path = join(this.directory, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }
}

function base64(text: string): string {
  return Buffer.from(text, "utf8").toString("base64");
}

export type KubeconfigUserEntry =
  | Exclude<Credential, { readonly clientCertificate: KeyAndCertificate }>
  | { readonly user: string; readonly groups?: readonly string[]; readonly lifetimeMs?: number }
  | {
      readonly serviceAccount: { readonly namespace: string; readonly name: string };
      /** An hour by default; the apiserver rejects less than ten minutes. */
      readonly expirationSeconds?: number;
    };

const TOKEN_SECONDS = 3600;

/** The credential of a user; for a service account, which has to exist, a new token. */
export async function credentialOf(
  who: KubeconfigUserEntry,
  identity: Identity,
  admin: ApiserverClient,
): Promise<Credential> {
  if ("user" in who) {
    return { clientCertificate: await identity.clientCertificate(who.user, who.groups ?? [], who.lifetimeMs) };
  }
  if ("serviceAccount" in who) {
    const { namespace, name } = who.serviceAccount;
    return { token: await requestToken(admin, namespace, name, who.expirationSeconds) };
  }
  return who;
}

/** A fresh token of an existing service account (authentication.k8s.io/v1 TokenRequest). */
export async function requestToken(
  admin: ApiserverClient,
  namespace: string,
  name: string,
  expirationSeconds = TOKEN_SECONDS,
): Promise<string> {
  const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`;
  const body = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: { expirationSeconds } };
  return String(field(await admin.call("POST", path, body), "status", "token"));
}
