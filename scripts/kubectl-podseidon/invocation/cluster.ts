/** One cluster as the commands see it: typed reads, dry runs and small writes, each bounded in time. */

import * as v from "valibot";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { podProtectorPath, withQuery } from "../../../shared/kube/client/api-path.ts";
import { describeFailure } from "../../../shared/kube/client/api-result.ts";
import { createHttpsTransport } from "../../../shared/kube/client/https-transport.ts";
import {
  type ApiResponse,
  isOversized,
  type Transport,
  TransportError,
} from "../../../shared/kube/client/transport.ts";
import {
  AccessError,
  type ClusterAccess,
  type CredentialSource,
} from "../../../shared/kube/credentials/cluster-access.ts";
import { impersonated } from "../../../shared/kube/credentials/impersonation.ts";
import { loadClusterAccess } from "../../../shared/kube/credentials/kubeconfig.ts";
import { parseListPage, type RawPage } from "../../../shared/kube/stream/raw-object.ts";
import { type Clock, type Ports, sleep } from "../../../shared/runtime/clock.ts";
import { messageOf } from "../../../shared/runtime/errors.ts";
import { version } from "../../../shared/runtime/version.ts";
import { GROUP } from "../../../shared/schema/annotations.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { CommandError } from "./errors.ts";
import type { Kubeconfig, PluginEnvironment } from "./kubeconfig.ts";
import { type KubectlOverrides, withPlace } from "./kubectl-flags.ts";

/** Longer than an apiserver waits for a webhook. */
export const CALL_TIMEOUT_MS = 35_000;
const LOG_IN = "the token or client certificate is not accepted, or has ended: log in again";
const NO_APISERVER =
  "the answer is not JSON, as an apiserver's: is the address right, or does a proxy ask for a login?";
/** What a port with TLS answers, by Go's server. */
const WITHOUT_TLS = "Client sent an HTTP request to an HTTPS server";
const PAGE_SIZE = 500;
/** Of pages after one that was too large for a response, where somebody has made objects of megabytes. */
const SMALL_PAGE_SIZE = 6;
/** A command reads at most this many objects of a kind: more than any installation has, and an end. */
const MAX_OBJECTS = 200_000;
/** Clocks that are this close agree: the date of a response has whole seconds. */
export const SKEW_MS = 5_000;

/** A cluster that a kubeconfig's context reaches. */
export class ClusterClient {
  /** The context's name, or `in-cluster`. */
  readonly name: string;
  readonly access: ClusterAccess;
  readonly namespace: string;
  readonly api: ApiClient;
  readonly transport: Transport;
  readonly #clock: Pick<Clock, "nowMs">;
  #aheadMs = 0;

  constructor(name: string, access: ClusterAccess, transport: Transport, clock: Pick<Clock, "nowMs">) {
    this.name = name;
    this.access = access;
    this.namespace = access.namespace ?? "default";
    this.#clock = clock;
    this.transport = {
      request: async (call) => {
        const response = await transport.request(call);
        const apartMs = Date.parse(response.headers.date ?? "") - clock.nowMs();
        this.#aheadMs = Math.abs(apartMs) > SKEW_MS ? apartMs : 0;
        return response;
      },
      stream: (call) => transport.stream(call),
      close: () => transport.close(),
    };
    this.api = new ApiClient(this.transport);
  }

  /**
   * Unix milliseconds by the clock of the apiserver that answered last, by which the cluster reads times: that of the
   * user's machine may be hours away.
   */
  nowMs(): number {
    return this.#clock.nowMs() + this.#aheadMs;
  }

  /** By how much the apiserver's clock is ahead of this machine's, by its last response. */
  get aheadMs(): number {
    return this.#aheadMs;
  }

  /** One object, or undefined when the object or its kind does not exist. Throws a sentence for every other failure. */
  async find(path: string): Promise<unknown> {
    const result = await this.api.get(path, (raw) => raw, { timeoutMs: CALL_TIMEOUT_MS });
    if (result.kind === "ok") return result.object;
    if (result.kind === "gone" || (result.kind === "unavailable" && result.status === 404)) return undefined;
    throw new CommandError(`${this.name}: ${describeFailure(result)}`);
  }

  /** All objects of a collection, page by page. Throws like {@link find}, also when the kind is not served. */
  async list(path: string, query?: Readonly<Record<string, string>>): Promise<readonly unknown[]>;
  /** `parse` is called for each page's objects before the next page: it keeps less of 50,000 pods than they are. */
  async list<T>(
    path: string,
    query: Readonly<Record<string, string>>,
    parse: (raw: unknown) => T,
  ): Promise<readonly T[]>;
  async list(
    path: string,
    query: Readonly<Record<string, string>> = {},
    parse: (raw: unknown) => unknown = (raw) => raw,
  ): Promise<readonly unknown[]> {
    const all: unknown[] = [];
    let token: string | undefined;
    let limit = PAGE_SIZE;
    while (all.length < MAX_OBJECTS) {
      const page = (most: number): string => withQuery(path, { ...query, limit: most, continue: token });
      const response = await this.raw("GET", page(limit)).catch(async (error: CommandError) => {
        if (!isOversized(error.cause) || limit === SMALL_PAGE_SIZE) throw error;
        limit = SMALL_PAGE_SIZE;
        return await this.raw("GET", page(limit));
      });
      if (response.status !== 200) throw new CommandError(`${this.name}: ${listFailure(path, response)}`);
      const { items, continueToken } = this.#pageOf(path, response);
      all.push(...items.map(parse));
      if (continueToken === undefined) return all;
      token = continueToken;
    }
    throw new CommandError(`${this.name}: GET ${path}: there are more than ${MAX_OBJECTS} objects`);
  }

  #pageOf(path: string, { body }: ApiResponse): RawPage {
    try {
      return parseListPage(body);
    } catch (error) {
      throw new CommandError(`${this.name}: GET ${path}: ${messageOf(error)}`);
    }
  }

  /** The protectors of one namespace, or of all (`undefined`), in their order by name. */
  async protectors(namespace: string | undefined): Promise<readonly PodProtector[]> {
    return (await this.list(podProtectorPath(namespace ?? ""))).map((raw) => parsePodProtector(raw));
  }

  /** The response to one request, whatever its status. Throws a sentence without a response. */
  async raw(method: "GET" | "POST" | "DELETE", path: string, body?: unknown): Promise<ApiResponse> {
    const text = body === undefined ? {} : { body: JSON.stringify(body) };
    try {
      return await this.transport.request({ method, path, ...text, timeoutMs: CALL_TIMEOUT_MS });
    } catch (error) {
      const isAnswer = isCredentials(error) || (error instanceof TransportError && error.tag === "protocol");
      const what = isAnswer ? this.name : `${this.name} (${this.access.server}) gives no answer`;
      throw new CommandError(`${what}: ${messageOf(error)}`, { cause: error });
    }
  }

  close(): void {
    this.transport.close();
  }
}

const Text = v.optional(v.string(), "");
const Cause = v.object({ reason: Text, message: Text, field: Text });
const Details = v.looseObject({ retryAfterSeconds: v.optional(v.number()), causes: v.optional(v.array(Cause), []) });
const Status = v.looseObject({ message: v.optional(v.string()), details: v.nullish(Details) });

export interface StatusText {
  readonly message: string;
  /** Seconds after which clients repeat by themselves; only for a refusal that passes by itself. */
  readonly retryAfterSeconds: number | undefined;
  readonly causes: readonly v.InferOutput<typeof Cause>[];
}

/** Reads a `Status`; of another body the beginning is the message. */
export function statusOf({ status, body }: ApiResponse): StatusText {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Status), body);
  if (!parsed.success)
    return { message: `HTTP ${status}: ${body.slice(0, 200).trim()}`, retryAfterSeconds: undefined, causes: [] };
  const { message = `HTTP ${status}`, details } = parsed.output;
  return { message, retryAfterSeconds: details?.retryAfterSeconds, causes: details?.causes ?? [] };
}

/**
 * Why a collection can't be listed. A cluster that is not the core has no PodProtectors, but answers 403 to a user who
 * may not list them, instead of 404.
 */
export function listFailure(path: string, response: ApiResponse): string {
  const isOwn = path.startsWith(`/apis/${GROUP}/`);
  const advice = "no PodProtectors there; name the core cluster by --core-context, or install podseidon";
  if (isOwn && response.status === 404) return `GET ${path}: ${advice}`;
  const hint = isOwn && response.status === 403 ? "; if it is not the core cluster, name that by --core-context" : "";
  return `GET ${path}: ${statusOf(response).message}${hint}`;
}

/** The user has no credentials that the server accepts. */
export function isCredentials(error: unknown): boolean {
  return error instanceof TransportError && error.tag === "credentials";
}

/**
 * The response, if an apiserver has accepted the credentials and answered. A proxy may answer 200 with a page to log
 * in.
 */
function checked(response: ApiResponse, method: string, server: string): ApiResponse {
  const { status, body } = response;
  if (status === 401 && !statusOf(response).message.startsWith("admission webhook"))
    throw new TransportError("credentials", false, `${server}: ${statusOf(response).message}: ${LOG_IN}`);
  if (status >= 200 && status < 300 && !/^\s*\{/.test(body))
    throw new TransportError("protocol", method !== "GET", `${server}: ${NO_APISERVER}`);
  if (status === 400 && body.startsWith(WITHOUT_TLS))
    throw new TransportError("protocol", false, `${server}: ${WITHOUT_TLS}: write https:// into the kubeconfig`);
  return response;
}

/** As often as client-go repeats a call to a busy server. */
const MOST_REPEATS = 10;

/**
 * Repeats a read that the server puts off, as client-go does: a loaded apiserver answers 429, or 504 while its cache is
 * behind. A dry run is not repeated: such an answer may be the webhook's, which the user asks for.
 */
async function untilServed(
  request: Transport["request"],
  call: Parameters<Transport["request"]>[0],
  ports: Ports,
): Promise<ApiResponse> {
  for (let repeats = 0; ; repeats++) {
    const response = await request(call);
    const { "retry-after": after = "" } = response.headers;
    const isPutOff = (response.status === 429 || response.status >= 500) && /^\d{1,2}$/.test(after);
    if (call.method !== "GET" || !isPutOff || repeats === MOST_REPEATS) return response;
    await sleep(ports, Number(after) * 1000);
  }
}

/**
 * Gets the credentials before the command begins. The user may have to log in by a browser, which takes longer than a
 * call may, and a prompt must not overwrite the progress line.
 */
async function logIn(credentials: CredentialSource, { clock }: Ports): Promise<void> {
  await credentials.current(clock.monotonicMs()).catch((error: unknown) => {
    // The first call tells of files that can't be read.
    if (error instanceof AccessError && error.tag === "plugin") throw error;
  });
}

/** Connects to the context; throws a sentence when the kubeconfig does not allow it. */
export async function connect(
  config: Kubeconfig,
  context: string | undefined,
  ports: Ports,
  environment: PluginEnvironment,
  { as, place, timeoutMs }: KubectlOverrides,
): Promise<ClusterClient> {
  try {
    const name = context ?? config.currentContext ?? "";
    const inCluster = config.text === undefined;
    if (inCluster && environment.KUBERNETES_SERVICE_HOST === undefined) {
      throw new CommandError(`there is no kubeconfig at ${config.path}; set KUBECONFIG or --kubeconfig`);
    }
    const options = {
      env: environment,
      ...(context === undefined ? {} : { context }),
      ...(config.text === undefined ? {} : { text: withPlace(config.text, name, place) }),
    };
    const own = await loadClusterAccess(inCluster ? "" : config.path, options);
    const credentials = as === undefined ? own.credentials : impersonated(own.credentials, "--as", { user: as, name });
    if (process.stdin.isTTY) await logIn(credentials, ports);
    const access = { ...own, credentials };
    const transport = createHttpsTransport(access, { ports, userAgent: `kubectl-podseidon/${version}` });
    const within: Transport["request"] = (call) =>
      transport.request({ ...call, timeoutMs: timeoutMs ?? call.timeoutMs });
    const checkedTransport: Transport = {
      request: async (call) => checked(await untilServed(within, call, ports), call.method, access.server),
      stream: (call) => transport.stream(call),
      close: () => transport.close(),
    };
    return new ClusterClient(inCluster ? "in-cluster" : name, access, checkedTransport, ports.clock);
  } catch (error) {
    if (error instanceof AccessError) throw new CommandError(error.message);
    throw error;
  }
}
