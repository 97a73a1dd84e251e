/**
 * The HTTPS endpoint that apiservers call: routes, limits and drain. The server knows bodies and statuses only; the
 * handler decides what an AdmissionReview means. A request passes `connection-limiter`, `slow-callers`,
 * `in-flight-limiter` and `body`, then a route.
 */
import { constants } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { Socket } from "node:net";
import type { SecureContextOptions } from "node:tls";
import { getRequestListener, type HttpBindings } from "@hono/node-server";
import type { Context } from "hono";
import { Hono } from "hono/tiny";
import { SECRET_SEGMENT } from "../../shared/certificates/ca-bundle.ts";
import { chain, type MaybePromise } from "../../shared/runtime/maybe-promise.ts";
import { isJson, isTooLarge, ReceivedRequest, readBody, tooLarge, tooManyRequests } from "./body.ts";
import { type AdmissionCall, type CallHandler, HttpError, type HttpResponse } from "./call.ts";
import type { CallerTokens } from "./caller-tokens.ts";
import { isNamed } from "./client-names.ts";
import { ConnectionLimiter } from "./connection-limiter.ts";
import { FlushBatcher } from "./flush-batcher.ts";
import { InFlightLimiter, type InFlightLimits, type InFlightSlot } from "./in-flight-limiter.ts";
import {
  MAX_BYTES_IN_FLIGHT,
  MAX_CONNECTIONS,
  MAX_REQUEST_BYTES,
  MAX_REQUESTS_IN_FLIGHT,
  MAX_VALUES_IN_FLIGHT,
} from "./limits.ts";
import type { ServingCertificate } from "./serving-certificate.ts";
import { SlowCallers } from "./slow-callers.ts";

interface WebhookServerOptions {
  readonly certificate: ServingCertificate;
  /** For example `/webhook`. */
  readonly pathPrefix: string;
  readonly cells: ReadonlySet<string>;
  /** Names whose client certificates are accepted. Default: every certificate that the authorities signed. */
  readonly clientNames?: readonly string[] | undefined;
  /** Whether the secret segment of a path is known; the segment is empty where a path has none. Default: all are. */
  readonly isPathKnown?: ((segment: string) => boolean) | undefined;
  /** Default: those of `limits.ts`. */
  readonly limits?: InFlightLimits & { readonly connections: number };
}

/** What serves the calls. A server without it answers 503. */
export interface Service {
  readonly handle: CallHandler;
  readonly callers?: Pick<CallerTokens, "check">;
  /** A call was answered without the handler. */
  readonly rejected: (status: number, message: string) => void;
  /** The handler threw, which is a defect. This call gets 500, and no other call suffers. */
  readonly crashed: (error: unknown) => void;
}

type Env = { Bindings: HttpBindings };

/**
 * Go's default transport, which apiservers use, closes idle connections after 90 s. The server must not close one
 * first, not even a connection without a request yet. So Node's own limits for headers and requests are longer than 90
 * s; `slow-callers.ts` is stricter.
 */
const UNUSED_MS = 120_000;
export const NODE_LIMITS = {
  keepAliveTimeout: UNUSED_MS,
  headersTimeout: UNUSED_MS,
  requestTimeout: UNUSED_MS,
  connectionsCheckingInterval: 30_000,
};
const DEFAULT_LIMITS = {
  requests: MAX_REQUESTS_IN_FLIGHT,
  bytes: MAX_BYTES_IN_FLIGHT,
  values: MAX_VALUES_IN_FLIGHT,
  connections: MAX_CONNECTIONS,
};
const OTHER_METHODS = ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"];
const JSON_HEADERS = { "content-type": "application/json" };
const TEXT_HEADERS = { "content-type": "text/plain; charset=utf-8" };
const CLOSING_JSON_HEADERS = { ...JSON_HEADERS, connection: "close" };
const CLOSING_TEXT_HEADERS = { ...TEXT_HEADERS, connection: "close" };

/**
 * The end of an idle connection. An apiserver whose request crosses it repeats the request at once on another
 * connection, as client-go does after `Retry-After`. Without a response, the request would fail: Go repeats no POST.
 */
export const DISMISSAL =
  "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/** A resumed session would spare a client certificate that has expired its verification. Apiservers resume none. */
function contextOf(certificate: ServingCertificate): SecureContextOptions {
  const secureOptions = certificate.ca === undefined ? 0 : constants.SSL_OP_NO_TICKET;
  return { ...certificate, minVersion: "TLSv1.2", secureOptions };
}

/** Reports whether the response was handed to the kernel before the connection closed. */
function followDelivery(outgoing: ServerResponse, delivered: (isComplete: boolean) => void): void {
  if (outgoing.destroyed) delivered(false);
  else outgoing.once("close", () => delivered(outgoing.writableFinished));
}

export class WebhookServer {
  readonly #options: WebhookServerOptions;
  readonly #server: Server;
  readonly #flush = new FlushBatcher();
  readonly slowCallers: SlowCallers;
  readonly #connections: ConnectionLimiter;
  readonly #limiter: InFlightLimiter;
  readonly #respond: ReturnType<typeof getRequestListener>;
  /** Connections whose client certificate has none of the names. */
  readonly #strangers = new WeakSet<Socket>();
  #certificate: ServingCertificate;
  #service: Service | undefined;
  #inFlight = 0;
  #draining = false;
  #drained: (() => void) | undefined;

  constructor(options: WebhookServerOptions) {
    this.#options = options;
    this.#certificate = options.certificate;
    const limits = options.limits ?? DEFAULT_LIMITS;
    this.#limiter = new InFlightLimiter(limits);
    // With client authorities configured, the handshake fails for a caller without a certificate.
    const isMutual = options.certificate.ca !== undefined;
    const app = this.#routes();
    this.#respond = getRequestListener((request, env) => app.fetch(request, env));
    this.#server = createServer(
      {
        ...contextOf(options.certificate),
        IncomingMessage: ReceivedRequest,
        requestCert: isMutual,
        rejectUnauthorized: isMutual,
        ALPNProtocols: ["http/1.1"],
        ...NODE_LIMITS,
        noDelay: true,
      },
      (incoming, outgoing) => this.#receive(incoming, outgoing),
    );
    // Without a listener, a failed handshake would end the process.
    this.#server.on("tlsClientError", () => undefined);
    const { clientNames = [] } = options;
    this.#server.on("secureConnection", (socket) => {
      if (!isNamed(socket, clientNames)) this.#strangers.add(socket);
    });
    this.slowCallers = new SlowCallers(this.#server);
    this.#connections = new ConnectionLimiter(this.#server, limits.connections);
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  get bodyBytes(): number {
    return this.#limiter.bytes;
  }

  get certificate(): ServingCertificate {
    return this.#certificate;
  }

  /** The port that the server listens on, once {@link listen} has resolved. */
  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  /** Resolves when connections are accepted; rejects when the port cannot be bound. */
  listen(port: number, address: string | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ port, host: address, backlog: 1024 }, () => {
        this.#server.off("error", reject);
        this.#server.on("error", (error) => this.#service?.crashed(error));
        resolve();
      });
    });
  }

  serve(service: Service): void {
    this.#service = service;
  }

  /** Serves this certificate from the next handshake on. With other authorities, each open connection ends. */
  setCertificate(certificate: ServingCertificate): void {
    if (certificate.ca !== this.#certificate.ca) this.#connections.outdate();
    this.#certificate = certificate;
    this.#server.setSecureContext(contextOf(certificate));
  }

  /**
   * Sends `Connection: close` with every response from now on, and serves as before. So each apiserver closes its
   * connections one by one. If the server closed a connection, a request that was just sent on it would be lost, and Go
   * does not repeat such a request.
   */
  retire(): void {
    this.#draining = true;
  }

  /** Retires, ends idle connections, accepts no more, and resolves when no request is in flight. */
  async drain(): Promise<void> {
    this.retire();
    // On a busy machine, requests on idle connections have arrived and are not read yet.
    await this.#flush.reached();
    await this.#connections.dismissIdle(DISMISSAL);
    this.#server.close();
    if (this.#inFlight === 0) return;
    await new Promise<void>((resolve) => {
      this.#drained = resolve;
    });
  }

  /** Closes the connections that {@link drain} left open. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#connections.closeAll();
    });
  }

  #routes(): Hono<Env> {
    const app = new Hono<Env>();
    const { pathPrefix } = this.#options;
    app.post(`${pathPrefix}/:cell`, (context) => this.#handle(context, "validate"));
    app.post(`${pathPrefix}/:cell/mutate`, (context) => this.#handle(context, "mutate"));
    app.post(`${pathPrefix}/:cell/gate`, (context) => this.#handle(context, "gate"));
    app.post(`${pathPrefix}/:cell/gate/all`, (context) => this.#handle(context, "gateAll"));
    // Not `all`: a POST that matches two routes goes through Hono's middleware chain, which costs more than the route.
    app.on(OTHER_METHODS, "*", (context) =>
      this.#reject(context, new HttpError(405, "send an AdmissionReview by POST")),
    );
    app.notFound((context) => this.#reject(context, new HttpError(404, `AdmissionReviews go to ${pathPrefix}/CELL`)));
    app.onError((error, context) => {
      if (error instanceof HttpError) return this.#reject(context, error);
      this.#service?.crashed(error);
      const message = "this admission request could not be decided because of a defect in the webhook; see its log";
      return this.#text(500, message);
    });
    return app;
  }

  /**
   * Reads the body before Hono gets the request, so that a decision that needs no waiting is answered without a
   * promise. A request that is rejected whatever its body says is rejected without reading the body.
   */
  #receive(incoming: ReceivedRequest, outgoing: ServerResponse): void {
    const { socket } = incoming;
    if (this.#connections.isDismissed(socket)) return void incoming.resume();
    if (this.#connections.isOutdated(socket)) {
      // No apiserver sends a request before the response to the one before.
      if (this.#connections.isBusy(socket)) return void socket.destroy();
      // The request is answered: the apiserver may have a new certificate for its next connection, and no client
      // repeats the request.
      outgoing.shouldKeepAlive = false;
    }
    this.slowCallers.requestBegan(socket);
    // The Host header is replaced: no route depends on it, and Hono rejects an IPv6 address that is not in its shortest
    // form.
    incoming.headers.host = "any";
    const slot =
      this.#readPath(incoming) && this.#isAccepted(incoming)
        ? readBody(incoming, this.#limiter, MAX_REQUEST_BYTES, (body) => {
            this.slowCallers.requestComplete(socket);
            const respond = (): void => {
              incoming.received = body instanceof HttpError ? body : body.text();
              void this.#respond(incoming, outgoing).then(() => this.#finished(socket, slot));
            };
            if (!(body instanceof HttpError) && body.isLarge) this.#flush.afterOthers(respond);
            else this.#flush.after(respond);
          })
        : undefined;
    if (slot === undefined) {
      // The rest of the body may arrive after the response.
      incoming.once("close", () => this.slowCallers.requestComplete(socket));
      void this.#respond(incoming, outgoing);
      return;
    }
    this.#inFlight++;
    this.#connections.requestStarted(socket);
  }

  /** Removes the secret segment, `/~` or `/secret-` and a hash, from the path. False for an unknown segment. */
  #readPath(incoming: IncomingMessage): boolean {
    const { url = "/" } = incoming;
    const [segment = "", hexadecimal] = SECRET_SEGMENT.exec(url) ?? [];
    const hash = hexadecimal === undefined ? segment.slice(2) : Buffer.from(hexadecimal, "hex").toString("base64url");
    const isKnown = this.#options.isPathKnown?.(hash) ?? true;
    incoming.url = isKnown ? url.slice(segment.length) : "/";
    return isKnown;
  }

  #isAccepted(incoming: IncomingMessage): boolean {
    if (incoming.method !== "POST" || this.#service === undefined) return false;
    return isJson(incoming) && !isTooLarge(incoming, MAX_REQUEST_BYTES) && !this.#strangers.has(incoming.socket);
  }

  #finished(socket: Socket, slot: InFlightSlot | undefined): void {
    slot?.leave();
    this.#connections.requestEnded(socket);
    this.#inFlight--;
    if (this.#inFlight === 0) this.#drained?.();
  }

  #handle(context: Context<Env, string>, kind: AdmissionCall["kind"]): MaybePromise<Response> {
    const { incoming, outgoing } = context.env;
    if (this.#strangers.has(incoming.socket))
      throw new HttpError(403, "the client certificate has none of the names that --client-name accepts");
    const cell = context.req.param("cell") ?? "";
    if (!this.#options.cells.has(cell)) {
      const advice = "check --cell and the URL in the webhook configuration";
      throw new HttpError(404, `no cell ${JSON.stringify(cell)} is configured here: ${advice}`);
    }
    if (!isJson(incoming)) throw new HttpError(415, "the content type must be application/json");
    const service = this.#service;
    if (service === undefined) return this.#text(503, "this replica is starting, try another one");
    if (isTooLarge(incoming, MAX_REQUEST_BYTES)) throw tooLarge(MAX_REQUEST_BYTES);
    const body = incoming instanceof ReceivedRequest ? incoming.received : undefined;
    if (body === undefined) throw tooManyRequests();
    if (body instanceof HttpError) throw body;
    const call: AdmissionCall = {
      cell,
      kind,
      body,
      address: incoming.socket.remoteAddress,
      timeout: context.req.query("timeout"),
      isCallerGone: () => outgoing.destroyed,
    };
    const caller = { cell, path: context.req.path, authorization: incoming.headers.authorization };
    return chain(service.callers?.check(caller), (rejection) => {
      if (rejection !== undefined) return this.#reject(context, rejection);
      const response = service.handle(call);
      return chain(response instanceof Promise ? this.#flushed(response) : response, (known) =>
        this.#send(known, outgoing),
      );
    });
  }

  async #flushed(response: Promise<HttpResponse>): Promise<HttpResponse> {
    const known = await response;
    await this.#flush.reached();
    return known;
  }

  #send({ status, body, delivered }: HttpResponse, outgoing: ServerResponse): Response {
    if (delivered !== undefined) followDelivery(outgoing, delivered);
    // This replica could not decide, and keeps no connection: the next request may reach one that can.
    if (status !== 200) return this.#text(status, body, { connection: "close" });
    return new Response(body, { headers: this.#draining ? CLOSING_JSON_HEADERS : JSON_HEADERS });
  }

  #reject(context: Context<Env, string>, { status, message }: HttpError): Response {
    this.#service?.rejected(status, message);
    // The rest of the body is not read, or this replica is full: the next request may reach another one.
    if (!context.env.incoming.complete || status === 503)
      return new Response(`${message}\n`, { status, headers: CLOSING_TEXT_HEADERS });
    return this.#text(status, message, status === 405 ? { allow: "POST" } : undefined);
  }

  #text(status: number, message: string, extra?: Readonly<Record<string, string>>): Response {
    const headers = { ...(this.#draining ? CLOSING_TEXT_HEADERS : TEXT_HEADERS), ...extra };
    return new Response(`${message}\n`, { status, headers });
  }
}
