/**
 * The identity tokens of apiservers (KEP-6060): a JSON Web Token of the cell's own issuer, for this webhook's URL,
 * bound to a webhook configuration. A token of that kind is verified whenever a caller presents one. Callers without
 * one are rejected only where the operator says that every apiserver sends it.
 */
import { hash, X509Certificate } from "node:crypto";
import * as v from "valibot";
import { isForHost, SECRET_SEGMENT } from "../../shared/certificates/ca-bundle.ts";
import type { Transport } from "../../shared/kube/client/transport.ts";
import { BoundedMap } from "../../shared/runtime/bounded-map.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { chain, type MaybePromise } from "../../shared/runtime/maybe-promise.ts";
import { HttpError } from "./call.ts";
import type { ServingCertificate } from "./serving-certificate.ts";

const KEYS_PATH = "/openid/v1/jwks";
const KEYS_TIMEOUT_MS = 3_000;
/** Shortest time between reads of a cell's keys, which a token with an unknown key starts. */
const KEYS_EVERY_MS = 30_000;
/** The same after a failed read, and during a slow one. */
const KEYS_RETRY_MS = 1_000;
/** A new token is valid from the second of its creation. Clocks differ; Kubernetes allows the same tolerance. */
const CLOCK_TOLERANCE_S = 60;
/** Each apiserver has one token for each webhook configuration, and renews it every ten minutes. */
const MAX_VERIFIED = 256;
const MAX_TOKEN_LENGTH = 8_192;
/** The account for which kube-apiserver requests these tokens. */
const SUBJECT = "system:serviceaccount:kube-system:webhook-auth";

const Bound = v.optional(v.looseObject({ name: v.string() }));
const Claims = v.looseObject({
  sub: v.literal(SUBJECT),
  aud: v.union([v.string(), v.array(v.string())]),
  exp: v.number(),
  "kubernetes.io": v.looseObject({ validatingWebhookConfiguration: Bound, mutatingWebhookConfiguration: Bound }),
});
const Keys = v.object({ keys: v.array(v.looseObject({ kty: v.string() })) });

/** Whether a client that calls this host would accept the certificate. */
export function servesHost({ cert }: ServingCertificate, host: string): boolean {
  return isForHost(new X509Certificate(cert), host);
}

interface CallerTokenOptions {
  readonly cells: readonly { readonly name: string; readonly transport: Transport | undefined }[];
  readonly ports: Ports;
  /** Rejects callers without a token. */
  readonly isRequired: boolean;
  /** Whether the serving certificate is for this host. Rejects tokens that were issued for other webhooks. */
  readonly servesHost: (host: string) => boolean;
}

/** What a call says about its caller. */
export interface Caller {
  readonly cell: string;
  /** The path of the URL, without a query. */
  readonly path: string;
  readonly authorization: string | undefined;
}

type CellKeys = v.InferOutput<typeof Keys>;

interface KeysRead {
  readonly ended: Promise<void>;
  /** Monotonic time of the next read, at the earliest. */
  nextMs: number;
}

export class CallerTokens {
  readonly #options: CallerTokenOptions;
  readonly #keys = new Map<string, CellKeys>();
  readonly #reads = new Map<string, KeysRead>();
  /** By the hash of cell, path and token; the value is when the token expires, in Unix milliseconds. */
  readonly #verified = new BoundedMap<string, number>(MAX_VERIFIED);

  constructor(options: CallerTokenOptions) {
    this.#options = options;
  }

  /** Why the call is rejected; undefined when it is accepted. */
  check(caller: Caller): MaybePromise<HttpError | undefined> {
    const { isRequired } = this.#options;
    const token = /^Bearer ([\w-]+\.[\w-]+\.[\w-]+)$/.exec(caller.authorization ?? "")?.[1];
    if (token === undefined || token.length > MAX_TOKEN_LENGTH || !(isRequired || isIdentityToken(token)))
      return isRequired ? rejection("the call has no identity token of an apiserver") : undefined;
    const key = hash("sha256", `${caller.cell}\n${caller.path}\n${token}`, "base64");
    if ((this.#verified.get(key) ?? 0) > this.#nowMs()) return undefined;
    return chain(this.#problem(token, caller), (problem) => {
      if (typeof problem === "string") return rejection(problem);
      this.#verified.set(key, problem);
      return undefined;
    });
  }

  /** When the token expires, or what is wrong with it. */
  async #problem(token: string, { cell, path }: Caller): Promise<string | number> {
    const jose = await import("jose");
    const times = { currentDate: new Date(this.#nowMs()), clockTolerance: CLOCK_TOLERANCE_S };
    for (const isRenewed of [false, true]) {
      const keys = await this.#keysOf(cell, isRenewed);
      if (keys === undefined) return `the keys of cell ${cell} can't be read`;
      try {
        const { payload } = await jose.jwtVerify(token, jose.createLocalJWKSet(keys), times);
        return this.#problemOf(payload, path);
      } catch (error) {
        if (error instanceof jose.errors.JWKSNoMatchingKey && !isRenewed) continue;
        const code = error instanceof jose.errors.JOSEError ? error.code : "unreadable";
        return `the identity token is not valid (${code})`;
      }
    }
    return "the identity token is not valid";
  }

  #problemOf(payload: unknown, path: string): string | number {
    const { success, output } = v.safeParse(Claims, payload);
    if (!success) return `the token is no identity token of ${SUBJECT}`;
    const { validatingWebhookConfiguration, mutatingWebhookConfiguration } = output["kubernetes.io"];
    if (validatingWebhookConfiguration === undefined && mutatingWebhookConfiguration === undefined)
      return "the identity token is not bound to a webhook configuration";
    const isForThis = [output.aud].flat().some((audience) => this.#isAudience(audience, path));
    return isForThis ? output.exp * 1000 : "the identity token is for another webhook";
  }

  #isAudience(audience: string, path: string): boolean {
    const url = URL.parse(audience);
    return (
      url?.protocol === "https:" &&
      url.pathname.replace(SECRET_SEGMENT, "") === path &&
      this.#options.servesHost(url.hostname.replace(/^\[|\]$/g, ""))
    );
  }

  /** After a failed read, the keys of the last successful read stay in use. */
  async #keysOf(cell: string, renew: boolean): Promise<CellKeys | undefined> {
    if (renew || !this.#keys.has(cell)) await this.#readKeys(cell);
    return this.#keys.get(cell);
  }

  /** Anybody can present tokens with unknown keys, so callers share one read and its failure. */
  #readKeys(cell: string): Promise<void> {
    const nowMs = this.#options.ports.clock.monotonicMs();
    const last = this.#reads.get(cell);
    if (last !== undefined && nowMs < last.nextMs) return last.ended;
    const ended = this.#fetchKeys(cell).then((keys) => {
      if (keys === undefined) return;
      this.#keys.set(cell, keys);
      read.nextMs = nowMs + KEYS_EVERY_MS;
    });
    const read: KeysRead = { ended, nextMs: nowMs + KEYS_RETRY_MS };
    this.#reads.set(cell, read);
    return ended;
  }

  async #fetchKeys(cell: string): Promise<CellKeys | undefined> {
    const transport = this.#options.cells.find(({ name }) => name === cell)?.transport;
    try {
      const request = { method: "GET", path: KEYS_PATH, timeoutMs: KEYS_TIMEOUT_MS } as const;
      const response = await transport?.request(request);
      return v.parse(Keys, JSON.parse(response?.status === 200 ? response.body : ""));
    } catch {
      return undefined;
    }
  }

  #nowMs(): number {
    return this.#options.ports.clock.nowMs();
  }
}

/** True for a token that claims to be bound to a webhook configuration. An operator may send other tokens. */
function isIdentityToken(token: string): boolean {
  try {
    const claims: unknown = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString("utf8"));
    if (!v.is(v.looseObject({ "kubernetes.io": v.looseObject({}) }), claims)) return false;
    return Object.keys(claims["kubernetes.io"]).some((name) => name.endsWith("WebhookConfiguration"));
  } catch {
    return false;
  }
}

function rejection(what: string): HttpError {
  return new HttpError(401, `${what}: only kube-apiserver may ask this webhook`);
}
