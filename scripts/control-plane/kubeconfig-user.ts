import { type ClusterClient, field } from "./api-client.ts";
import type { Credential, Identity } from "./identity.ts";

/** Who a kubeconfig file is for. */
export type KubeconfigUserEntry =
  | { readonly token: string }
  /** Clients read the file anew when it changes. */
  | { readonly tokenFile: string }
  | { readonly user: string; readonly groups?: readonly string[]; readonly lifetimeMs?: number }
  | {
      readonly serviceAccount: { readonly namespace: string; readonly name: string };
      /** An hour by default; the apiserver refuses less than ten minutes. */
      readonly expirationSeconds?: number;
    };

const TOKEN_SECONDS = 3600;

/** How that user authenticates; for a service account, which has to exist, by a fresh token. */
export async function credentialOf(
  who: KubeconfigUserEntry,
  identity: Identity,
  admin: ClusterClient,
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
  admin: ClusterClient,
  namespace: string,
  name: string,
  expirationSeconds = TOKEN_SECONDS,
): Promise<string> {
  const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${name}/token`;
  const body = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: { expirationSeconds } };
  return String(field(await admin.call("POST", path, body), "status", "token"));
}
