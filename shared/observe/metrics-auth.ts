/**
 * Protects /metrics (`--metrics-auth`), like other controllers do: serves it by HTTPS, with the process's own
 * certificate, only to callers whose bearer token the cluster authenticates (TokenReview) and whose user may `get` the
 * nonResourceURL /metrics (SubjectAccessReview). Loaded only with the flag.
 */
import { hash } from "node:crypto";
import type { IncomingMessage, RequestListener } from "node:http";
import { createServer } from "node:https";
import * as v from "valibot";
import { createCertificateAuthority, issueCertificate } from "../certificates/x509.ts";
import { ApiClient } from "../kube/client/api-client.ts";
import type { Transport } from "../kube/client/transport.ts";
import { BoundedMap } from "../runtime/bounded-map.ts";
import type { Ports } from "../runtime/clock.ts";
import type { ServerFactory } from "../runtime/health-server.ts";

const TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const TIMEOUT_MS = 5_000;
/** A permission that is revoked ends within this time. */
export const REMEMBERED_MS = 10_000;
/** Bound of remembered tokens, and of concurrent reviews: a cluster has few readers of metrics. */
const MAX_REMEMBERED = 64;
const MAX_IN_FLIGHT = 8;
const LIFETIME_MS = 10 * 365 * 86_400_000;

const REASONS = {
  401: "a bearer token that the cluster accepts is required",
  403: "the user of the token may not get /metrics; bind the ClusterRole podseidon-metrics-reader to it",
  503: "the cluster could not be asked about the token",
} as const;
type Outcome = 200 | keyof typeof REASONS;

const Authenticated = v.object({
  status: v.looseObject({
    authenticated: v.optional(v.boolean(), false),
    user: v.optional(
      v.looseObject({
        username: v.optional(v.string(), ""),
        uid: v.optional(v.string()),
        groups: v.optional(v.array(v.string()), []),
        extra: v.optional(v.record(v.string(), v.array(v.string())), {}),
      }),
    ),
  }),
});
const Authorized = v.object({ status: v.looseObject({ allowed: v.boolean() }) });

type ReviewApi = Pick<ApiClient, "create">;

/** Whether the bearer of a token may read /metrics. For a short time, the cluster is not asked again about a reader. */
export class MetricsReaders {
  readonly #api: ReviewApi;
  readonly #ports: Pick<Ports, "clock">;
  /**
   * The last time at which the cluster accepted a token. Rejected tokens are not remembered: anybody can send any
   * number of them.
   */
  readonly #known = new BoundedMap<string, number>(MAX_REMEMBERED);
  readonly #inFlight = new Map<string, Promise<Outcome>>();

  constructor(api: ReviewApi, ports: Pick<Ports, "clock">) {
    this.#api = api;
    this.#ports = ports;
  }

  /** Never rejects. */
  async outcome(authorization: string | undefined): Promise<Outcome> {
    const token = /^Bearer +(\S+)$/i.exec(authorization ?? "")?.[1];
    if (token === undefined) return 401;
    const key = hash("sha256", token, "base64");
    const knownMs = this.#known.get(key);
    if (knownMs !== undefined && this.#ports.clock.monotonicMs() - knownMs < REMEMBERED_MS) return 200;
    const inFlight = this.#inFlight.get(key);
    if (inFlight !== undefined) return inFlight;
    if (this.#inFlight.size >= MAX_IN_FLIGHT && knownMs === undefined) return 503;
    const asked = this.#ask(token).then((outcome) => {
      this.#inFlight.delete(key);
      if (outcome === 200) this.#known.set(key, this.#ports.clock.monotonicMs());
      else if (outcome !== 503) this.#known.delete(key);
      return outcome;
    });
    this.#inFlight.set(key, asked);
    return asked;
  }

  async #ask(token: string): Promise<Outcome> {
    const review = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: { token } };
    const parse = (raw: unknown) => v.parse(Authenticated, raw).status;
    const authenticated = await this.#api.create(TOKEN_REVIEWS, review, parse, { timeoutMs: TIMEOUT_MS });
    if (authenticated.kind !== "ok") return 503;
    const { user } = authenticated.object;
    if (!authenticated.object.authenticated || user === undefined) return 401;
    const { username, uid, groups, extra } = user;
    const access = {
      ...{ apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview" },
      spec: { user: username, uid, groups, extra, nonResourceAttributes: { path: "/metrics", verb: "get" } },
    };
    const parseAccess = (raw: unknown) => v.parse(Authorized, raw).status.allowed;
    const allowed = await this.#api.create(ACCESS_REVIEWS, access, parseAccess, { timeoutMs: TIMEOUT_MS });
    if (allowed.kind !== "ok") return 503;
    return allowed.object ? 200 : 403;
  }
}

/**
 * Creates servers that authenticate each caller in `cluster`: a kubeconfig, or `in-cluster`. Clients do not trust the
 * certificate's authority; TLS only hides the tokens from passive listeners.
 */
export async function guardedServers(
  cluster: string,
  connect: (kubeconfig: string) => Promise<Transport>,
  ports: Ports,
): Promise<ServerFactory> {
  const api = new ApiClient(await connect(cluster === "in-cluster" ? "" : cluster));
  const readers = new MetricsReaders(api, ports);
  const validity = { notBeforeMs: ports.clock.nowMs() - 3_600_000, notAfterMs: ports.clock.nowMs() + LIFETIME_MS };
  const authority = await createCertificateAuthority({ ...validity, commonName: "podseidon-metrics-ca" });
  const { certificatePem, privateKeyPem } = await issueCertificate(authority, {
    ...validity,
    commonName: "podseidon-metrics",
    dnsNames: ["podseidon-metrics.podseidon-system.svc"],
    usages: ["server"],
  });
  return (options, listener) =>
    createServer({ ...options, cert: certificatePem, key: privateKeyPem }, (request, response) => {
      void readers.outcome(request.headers.authorization).then((outcome) => {
        if (outcome === 200) listener(request, response);
        else refuse(request, response, outcome);
      });
    });
}

function refuse(
  request: IncomingMessage,
  response: Parameters<RequestListener>[1],
  status: keyof typeof REASONS,
): void {
  request.resume();
  response.writeHead(status, { "content-type": "text/plain; charset=utf-8", "cache-control": "no-store" });
  response.end(`${REASONS[status]}\n`);
}
