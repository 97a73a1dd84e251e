/**
 * The endpoints that are asked (docs/design.md#owner-probe). Each has a semaphore and a circuit breaker, so that an
 * endpoint that is slow or down does not delay the others. An endpoint that does not answer denies.
 */
import type { Log } from "../../shared/observe/log.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { readAuthorities, readKeyPair } from "../http/serving-certificate.ts";
import { CircuitBreaker } from "./circuit-breaker.ts";
import { GrpcProbeClient } from "./grpc-client.ts";
import { HttpProbeClient } from "./http-client.ts";
import type { ProbeResponse } from "./message.ts";
import { AllowedHosts, probeAddressOf } from "./probe-address.ts";
import { type ClientCertificate, describeError, type ProbeClient, ProbeFailure } from "./probe-client.ts";
import type { ProbeAnswer, ProbeRequest, ProbeResult, ProbeSpec } from "./probe-request.ts";
import { Semaphore } from "./semaphore.ts";

/** Calls in flight to one endpoint. */
export const MAX_IN_FLIGHT = 16;
/** Requests that wait for such a call; one more is answered "overloaded" at once. */
export const MAX_QUEUED = 500;
/** x-pdb's own default. */
const DEFAULT_TIMEOUT_MS = 2_000;
/** Endpoints that are remembered. Of those that are not being asked, the least recently used is forgotten first. */
export const MAX_ENDPOINTS = 500;
/** Of these, for the protectors of one namespace: a tenant may make any number, each with its own. */
export const MAX_OF_NAMESPACE = MAX_ENDPOINTS / 2;
/** Most characters of the owner's text in a denial: people read the denial, and the text is not trusted. */
const MAX_SAID = 200;

interface Endpoint {
  /** Of the protectors that name it. */
  readonly namespace: string;
  client: ProbeClient | undefined;
  /** Host and port, for texts. */
  where: string;
  /** The certificates of the current client. */
  certificates: string;
  /** Why no client could be made. */
  problem: string | undefined;
  /** The endpoint did not answer, perhaps because its certificates were replaced. */
  isDoubted: boolean;
  readonly circuit: CircuitBreaker;
  readonly semaphore: Semaphore;
  lastFailure: string;
}

export interface ProbeEvent {
  readonly result: ProbeResult;
  /** Host and port. */
  readonly endpoint: string;
  readonly tookMs: number;
}

interface ProbeEndpointsOptions {
  readonly ports: Ports;
  readonly onAsked: (event: ProbeEvent) => void;
  /** Hosts that may be asked, in the form of `--probe-allow`. */
  readonly allowed: readonly string[];
  /**
   * PEM certificates for protectors without their own; undefined selects the system's. Called for a new endpoint, and
   * again after a failure. When the function throws, a new endpoint cannot be asked.
   */
  readonly defaultCa?: () => string | undefined;
  /** The certificate that the webhook presents to owners' servers. Called when `defaultCa` is. */
  readonly clientCertificate?: () => ClientCertificate | undefined;
  /** Default: a client of the probe's protocol. */
  readonly connect?: (probe: ProbeSpec, clientCertificate: ClientCertificate | undefined) => ProbeClient;
}

/** Files that flags name. */
export interface ProbeCertificateFiles {
  /** PEM certificates for probes of protectors without their own; empty selects the system's. */
  readonly caFile: string;
  /** PEM certificate and key that the webhook presents; empty presents none. */
  readonly clientCertFile: string;
  readonly clientKeyFile: string;
}

/** Reads the files again for each new or failing endpoint, because files may have been replaced. */
export function certificatesOf(
  { caFile, clientCertFile, clientKeyFile }: ProbeCertificateFiles,
  log: Pick<Log, "error">,
) {
  return {
    defaultCa: keepingLast(log, "--probe-ca-file", () =>
      caFile === "" ? undefined : readAuthorities(caFile, "probe CA"),
    ),
    clientCertificate: keepingLast(log, "--probe-client-cert-file", () =>
      clientCertFile === "" ? undefined : readKeyPair(clientCertFile, clientKeyFile),
    ),
  };
}

/** Returns what `read` last returned, if anything, while `read` throws. The reason is logged once. */
function keepingLast<T>(log: Pick<Log, "error">, flag: string, read: () => T): () => T | undefined {
  let last: T | undefined;
  let told = "";
  return () => {
    try {
      last = read();
      told = "";
    } catch (error) {
      if (told !== String(error))
        log.error({ flag, error }, "Certificates for probes can't be used; the last ones serve, if any");
      told = String(error);
      // Users who delete pods read this text, so only the log has the file's path.
      if (last === undefined) throw new ProbeFailure(`the file of the webhook's ${flag} can't be used`);
    }
    return last;
  };
}

function connectTo(
  { endpoint, protocol, caBundle, insecure = false }: ProbeSpec,
  clientCertificate: ClientCertificate | undefined,
): ProbeClient {
  const options = { endpoint, caBundle, insecure, clientCertificate };
  return protocol === "HTTP" ? new HttpProbeClient(options) : new GrpcProbeClient(options);
}

function cleaned(text: string): string {
  const clean = text.replace(/\p{Cc}+/gu, " ").trim();
  return clean.length > MAX_SAID ? `${clean.slice(0, MAX_SAID)}...` : clean;
}

export class ProbeEndpoints {
  readonly #options: ProbeEndpointsOptions;
  readonly #endpoints = new Map<string, Endpoint>();
  readonly #allowed: AllowedHosts;

  constructor(options: ProbeEndpointsOptions) {
    this.#options = options;
    this.#allowed = new AllowedHosts(options.allowed);
  }

  get openCircuits(): number {
    return [...this.#endpoints.values()].filter(({ circuit }) => circuit.isOpen).length;
  }

  /** Never rejects; resolves before the request's deadline. */
  async ask(request: ProbeRequest): Promise<ProbeAnswer> {
    const { clock } = this.#options.ports;
    const startedMs = clock.monotonicMs();
    const endpoint = this.#endpoint(request);
    if (endpoint === undefined) {
      this.#options.onAsked({ result: "overloaded", endpoint: "", tookMs: 0 });
      return { result: "overloaded", message: "has a probe that has to wait: too many others are being asked" };
    }
    const answer = await this.#ask(request, endpoint, startedMs);
    const tookMs = clock.monotonicMs() - startedMs;
    this.#options.onAsked({ result: answer.result, endpoint: endpoint.where, tookMs });
    return answer;
  }

  close(): void {
    for (const { client } of this.#endpoints.values()) client?.close();
    this.#endpoints.clear();
  }

  async #ask(request: ProbeRequest, endpoint: Endpoint, nowMs: number): Promise<ProbeAnswer> {
    const { client, circuit, semaphore, where } = endpoint;
    if (client === undefined) {
      return { result: "failed", message: `has a probe that can't be asked: ${endpoint.problem ?? ""}` };
    }
    const untilMs = Math.min(request.deadlineMs, nowMs + (request.probe.timeoutMillis ?? DEFAULT_TIMEOUT_MS));
    if (!(await semaphore.acquire(untilMs))) {
      return { result: "overloaded", message: `has too many questions waiting for its probe ${where}` };
    }
    try {
      if (!circuit.enter()) return down(endpoint);
      const response = await this.#call(client, request, untilMs);
      circuit.succeeded();
      return answerOf(response, where);
    } catch (error) {
      circuit.failed();
      endpoint.isDoubted = true;
      endpoint.lastFailure = cleaned(describeError(error));
      return { result: "failed", message: `could not ask its probe ${where}: ${endpoint.lastFailure}` };
    } finally {
      semaphore.release();
    }
  }

  async #call(client: ProbeClient, request: ProbeRequest, untilMs: number): Promise<ProbeResponse> {
    const { clock, timers } = this.#options.ports;
    const giveUp = new AbortController();
    const timer = timers.after(Math.max(0, untilMs - clock.monotonicMs()), () => giveUp.abort());
    try {
      return await client.ask(request, giveUp.signal);
    } finally {
      timer.cancel();
    }
  }

  /** Undefined when there is no room. */
  #endpoint({ probe, budgetNamespace: namespace }: ProbeRequest): Endpoint | undefined {
    // Of its namespace: others may ask the same owner as often, and with as little time, as they like.
    const key = JSON.stringify([namespace, probe.protocol, probe.endpoint, probe.insecure, probe.caBundle]);
    const known = this.#endpoints.get(key);
    if (known !== undefined) {
      this.#endpoints.delete(key);
      this.#endpoints.set(key, known);
      if (known.isDoubted) this.#connect(known, probe);
      return known;
    }
    const all = [...this.#endpoints];
    const own = all.filter(([, one]) => one.namespace === namespace);
    if (own.length >= MAX_OF_NAMESPACE ? !this.#forgetOne(own) : all.length >= MAX_ENDPOINTS && !this.#forgetOne(all))
      return undefined;
    const { ports } = this.#options;
    const endpoint: Endpoint = {
      namespace,
      client: undefined,
      where: "",
      certificates: "",
      problem: undefined,
      isDoubted: false,
      circuit: new CircuitBreaker(ports.clock, ports.random),
      semaphore: new Semaphore(ports, MAX_IN_FLIGHT, MAX_QUEUED),
      lastFailure: "",
    };
    this.#connect(endpoint, probe);
    this.#endpoints.set(key, endpoint);
    return endpoint;
  }

  /** Forgets the first that is not being asked: a client that is closed ends its calls. False without any. */
  #forgetOne(endpoints: readonly (readonly [string, Endpoint])[]): boolean {
    const [key, idle] = endpoints.find(([, { semaphore }]) => semaphore.isIdle) ?? [];
    idle?.client?.close();
    return key !== undefined && this.#endpoints.delete(key);
  }

  /** Makes the client, or another one when the certificates have changed. A failure leaves the old client in use. */
  #connect(endpoint: Endpoint, probe: ProbeSpec): void {
    const { defaultCa, clientCertificate, connect = connectTo } = this.#options;
    endpoint.isDoubted = false;
    try {
      const { host, text } = probeAddressOf(probe);
      endpoint.where = text;
      if (!this.#allowed.has(host)) {
        const what = `${text} is not among the hosts that the operator allows`;
        throw new ProbeFailure(`${what}: name a Service as NAME.NAMESPACE.svc, or see --probe-allow`);
      }
      const caBundle = probe.caBundle || defaultCa?.();
      const shown = clientCertificate?.();
      const certificates = JSON.stringify([caBundle, shown]);
      if (endpoint.client !== undefined && endpoint.certificates === certificates) return;
      // The old client is not closed: calls may be in flight on it. Its idle connections end by themselves.
      endpoint.client = connect(caBundle === undefined ? probe : { ...probe, caBundle }, shown);
      endpoint.certificates = certificates;
      endpoint.problem = undefined;
    } catch (error) {
      endpoint.problem = describeError(error);
      endpoint.isDoubted = true;
    }
  }
}

/** As in x-pdb, an error is a no, whatever else the response says. */
function answerOf({ isAllowed, error }: ProbeResponse, where: string): ProbeAnswer {
  if (isAllowed && error === "") return { result: "allowed", message: "" };
  const why = error === "" ? "" : `: ${cleaned(error)}`;
  return { result: "refused", message: `is told by its probe ${where} that it may not go${why}` };
}

function down({ circuit, lastFailure, where }: Endpoint): ProbeAnswer {
  const again = circuit.waitMs === 0 ? "is being tried" : `is tried again in ${Math.ceil(circuit.waitMs / 1000)} s`;
  return { result: "down", message: `has a probe that does not answer: ${where} ${again} (${lastFailure})` };
}
