/** The token of a ServiceAccount in a kubeconfig: its claims, when it is renewed, and where it is stored. Pure. */
import * as v from "valibot";

const Reference = v.object({ name: v.string(), uid: v.string() });
const Claims = v.object({
  iat: v.number(),
  exp: v.number(),
  "kubernetes.io": v.optional(
    v.object({ namespace: v.string(), serviceaccount: Reference, secret: v.optional(Reference) }),
  ),
});

type Reference = v.InferOutput<typeof Reference>;

/** The claims of a token. Only its apiserver verifies the signature. */
export interface AccountToken {
  readonly issuedMs: number;
  readonly expiresMs: number;
  /** Undefined for a token of another kind of user. */
  readonly account: (Reference & { readonly namespace: string }) | undefined;
  /** The Secret whose deletion ends the token. */
  readonly boundTo: Reference | undefined;
}

/** Undefined for a text that is not a JWT with issue and expiry times. */
export function readAccountToken(token: string): AccountToken | undefined {
  let payload: unknown;
  try {
    payload = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString("utf8"));
  } catch {
    return undefined;
  }
  const parsed = v.safeParse(Claims, payload);
  if (!parsed.success) return undefined;
  const { iat, exp, "kubernetes.io": owner } = parsed.output;
  const account = owner && { namespace: owner.namespace, ...owner.serviceaccount };
  return { issuedMs: iat * 1000, expiresMs: exp * 1000, account, boundTo: owner?.secret };
}

/** The kubelet renews at the same fraction of a token's life. */
const RENEW_AFTER = 0.8;
/** Replicas with the same kubeconfig renew at different times, so that all use the first one's token. */
const JITTER = 0.05;

/** When a token is renewed, Unix milliseconds: at 80 to 85 per cent of its life, chosen by `fraction` (0 to 1). */
export function renewalMs({ issuedMs, expiresMs }: AccountToken, fraction: number): number {
  return issuedMs + (expiresMs - issuedMs) * (RENEW_AFTER + JITTER * fraction);
}

/** The shortest life that an apiserver issues. */
const MIN_LIFE_SECONDS = 600;

/** The TokenRequest for a token of this life that ends with the Secret. */
export function tokenRequest(lifeMs: number, { name, uid }: Reference): unknown {
  const expirationSeconds = Math.max(MIN_LIFE_SECONDS, Math.round(lifeMs / 1000));
  const boundObjectRef = { apiVersion: "v1", kind: "Secret", name, uid };
  return { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: { expirationSeconds, boundObjectRef } };
}

const TokenResponse = v.object({ status: v.object({ token: v.pipe(v.string(), v.minLength(1)) }) });

/** The token in the response to a TokenRequest. Throws for a response without a token. */
export function issuedToken(raw: unknown): string {
  return v.parse(TokenResponse, raw).status.token;
}

/** The key of a Secret that holds a kubeconfig. */
export const KUBECONFIG_KEY = "kubeconfig";
const EXTENSION = "podseidon.kubewharf.io/renewal";

const Home = v.object({ cell: v.string(), namespace: v.string(), secret: v.string() });
/** The Secret in the cluster of a cell that holds the kubeconfig: a renewed token is written there. */
export type TokenHome = v.InferOutput<typeof Home>;

const Extensions = v.array(v.looseObject({ name: v.string(), extension: v.unknown() }));

/** The home that an entry `user` of a kubeconfig names; undefined where the cluster was not joined by command. */
export function homeOf(user: Readonly<Record<string, unknown>>): TokenHome | undefined {
  const extensions = v.safeParse(Extensions, user.extensions);
  const found = extensions.success ? extensions.output.find(({ name }) => name === EXTENSION) : undefined;
  const home = v.safeParse(Home, found?.extension);
  return home.success ? home.output : undefined;
}

/** The extensions of an entry `user`, in the form that {@link homeOf} reads. */
export function extensionsOf(
  extension: TokenHome,
): readonly { readonly name: string; readonly extension: TokenHome }[] {
  return [{ name: EXTENSION, extension }];
}
