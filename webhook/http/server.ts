import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { Socket } from "node:net";
import { getRequestListener, type HttpBindings } from "@hono/node-server";
import type { Context } from "hono";
import { Hono } from "hono/tiny";
import { chain, type MaybePromise } from "../../shared/runtime/maybe-promise.ts";
import { MAX_BODY_BYTES, MAX_CONNECTIONS, MAX_REVIEW_BYTES, MAX_REVIEWS_IN_FLIGHT, NODE_LIMITS } from "../limits.ts";
import { BadReview } from "../request/admission-request.ts";
import { busy, isJson, isTooLarge, ReceivedCall, readBody, tooLarge } from "./body.ts";
import { ConnectionLimiter } from "./connection-limiter.ts";
import { FlushBatcher } from "./flush-batcher.ts";
import { InFlightLimiter, type InFlightLimits, type InFlightSlot } from "./in-flight-limiter.ts";
import type { ServingCertificate } from "./serving-certificate.ts";
import { SlowCallers } from "./slow-callers.ts";

/** One call, as the handler sees it. */
export interface AdmissionCall {
  readonly cell: string;
  /**
   * `validate` decides; `mutate` binds an eviction to the pod's UID (design 6); `gate` adds the counted gate to a new pod whose
   * protector asks for it, `gateAll` to every one that is counted (design 10).
   */
  readonly kind: "validate" | "mutate" | "gate" | "gateAll";
  readonly body: string;
  /** Value of the query parameter `timeout`. */
  readonly timeout: string | undefined;
  /** True from the moment at which the caller went away. */
  readonly gone: () => boolean;
}

export interface HttpReply {
  readonly status: number;
  /** JSON for 200, plain text otherwise. */
  readonly body: string;
  /** Called once: whether the answer was handed over while the caller was still there. */
  readonly delivered?: (complete: boolean) => void;
}

export type CallHandler = (call: AdmissionCall) => MaybePromise<HttpReply>;

export interface ServerLimits extends InFlightLimits {
  readonly connections: number;
}

export interface ServerOptions {
  readonly certificate: ServingCertificate;
  /** For example `/webhook`. */
  readonly pathPrefix: string;
  readonly cells: ReadonlySet<string>;
  /** Default: those of `limits.ts`. */
  readonly limits?: ServerLimits;
}

/** What serves the calls; a server without it answers 503. */
export interface Service {
  readonly handle: CallHandler;
  /** A call that was answered without the handler. */
  readonly rejected: (status: number, message: string) => void;
  /** The handler threw: a defect; this review is answered 500 and nothing else suffers (style rule 8). */
  readonly crashed: (error: unknown) => void;
}

type Env = { Bindings: HttpBindings };

const LIMITS: ServerLimits = {
  reviews: MAX_REVIEWS_IN_FLIGHT,
  bytes: MAX_BODY_BYTES,
  connections: MAX_CONNECTIONS,
};
const OTHER_METHODS = ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"];
const JSON_HEADERS = { "content-type": "application/json" };
const TEXT_HEADERS = { "content-type": "text/plain; charset=utf-8" };
const CLOSING_JSON_HEADERS = { ...JSON_HEADERS, connection: "close" };
const CLOSING_TEXT_HEADERS = { ...TEXT_HEADERS, connection: "close" };

/** Tells the reply whether it reached the caller. `finish` means handed to the kernel before the connection closed. */
function followDelivery(outgoing: ServerResponse, delivered: (complete: boolean) => void): void {
  if (outgoing.destroyed) delivered(false);
  else outgoing.once("close", () => delivered(outgoing.writableFinished));
}

/** The HTTPS endpoint that apiservers call: routes, limits and drain; what a review means is the handler's business. */
export class WebhookServer {
  readonly #options: ServerOptions;
  readonly #server: Server;
  readonly #endOfTurn = new FlushBatcher();
  readonly slowCallers: SlowCallers;
  readonly #connections: ConnectionLimiter;
  readonly #room: InFlightLimiter;
  readonly #answer: ReturnType<typeof getRequestListener>;
  #certificate: ServingCertificate;
  #service: Service | undefined;
  #inFlight = 0;
  #draining = false;
  #idle: (() => void) | undefined;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#certificate = options.certificate;
    const limits = options.limits ?? LIMITS;
    this.#room = new InFlightLimiter(limits);
    // Only apiservers may call, where they show a certificate (design 11); everybody else ends at the handshake.
    const mutual = options.certificate.ca !== undefined;
    const app = this.#routes();
    this.#answer = getRequestListener((request, env) => app.fetch(request, env));
    this.#server = createServer(
      {
        ...options.certificate,
        IncomingMessage: ReceivedCall,
        requestCert: mutual,
        rejectUnauthorized: mutual,
        minVersion: "TLSv1.2",
        ALPNProtocols: ["http/1.1"],
        ...NODE_LIMITS,
        noDelay: true,
      },
      (incoming, outgoing) => this.#receive(incoming, outgoing),
    );
    // A handshake that fails is the caller's trouble; without a listener it would end the process.
    this.#server.on("tlsClientError", () => undefined);
    this.slowCallers = new SlowCallers(this.#server);
    this.#connections = new ConnectionLimiter(this.#server, limits.connections);
  }

  /** Reviews that are not answered yet. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** What the bodies of those take. */
  get bodyBytes(): number {
    return this.#room.bytes;
  }

  /** What new connections are served with. */
  get certificate(): ServingCertificate {
    return this.#certificate;
  }

  /** The port that is listened on, once {@link listen} has resolved. */
  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  /** Resolves when connections are accepted; rejects when the port can't be had. */
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

  /** Calls are decided from now on. */
  serve(service: Service): void {
    this.#service = service;
  }

  /** Serves another certificate from the next handshake on. */
  setCertificate(certificate: ServingCertificate): void {
    this.#certificate = certificate;
    this.#server.setSecureContext({ ...certificate, minVersion: "TLSv1.2" });
  }

  /**
   * Answers go out with `Connection: close` from now on, and everything is served as before: an apiserver leaves its connections one
   * by one, each with an answer. Were they closed under it, it would lose the review that it has just sent, which Go does not repeat.
   */
  retire(): void {
    this.#draining = true;
  }

  /**
   * Retires, takes no more connections, closes those that nobody used meanwhile, and resolves when the last review under way is
   * answered; {@link close} ends what is left.
   */
  drain(): Promise<void> {
    this.retire();
    this.#server.close();
    if (this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#idle = resolve;
    });
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  #routes(): Hono<Env> {
    const app = new Hono<Env>();
    const { pathPrefix } = this.#options;
    app.post(`${pathPrefix}/:cell`, (context) => this.#review(context, "validate"));
    app.post(`${pathPrefix}/:cell/mutate`, (context) => this.#review(context, "mutate"));
    app.post(`${pathPrefix}/:cell/gate`, (context) => this.#review(context, "gate"));
    app.post(`${pathPrefix}/:cell/gate/all`, (context) => this.#review(context, "gateAll"));
    // Not `all`: a POST that matches two routes goes through Hono's middleware chain, which costs more than the route.
    app.on(OTHER_METHODS, `${pathPrefix}/*`, (context) =>
      this.#refuse(context, new BadReview(405, "a review is sent by POST")),
    );
    app.notFound((context) => this.#refuse(context, new BadReview(404, `reviews go to ${pathPrefix}/CELL`)));
    app.onError((error, context) => this.#failed(context, error));
    return app;
  }

  /**
   * Reads the body before Hono has the call: what is decided at once is then answered at once, without a promise. What is refused
   * whatever its body says is refused unread.
   */
  #receive(incoming: ReceivedCall, outgoing: ServerResponse): void {
    const { socket } = incoming;
    this.slowCallers.began(socket);
    const place = this.#isTaken(incoming)
      ? readBody(incoming, this.#room, MAX_REVIEW_BYTES, (body) => {
          this.slowCallers.complete(socket);
          incoming.received = body;
          this.#endOfTurn.after(() => void this.#answer(incoming, outgoing).then(() => this.#left(socket, place)));
        })
      : undefined;
    if (place === undefined) {
      outgoing.once("close", () => this.slowCallers.complete(socket));
      void this.#answer(incoming, outgoing);
      return;
    }
    this.#inFlight++;
    this.#connections.reviewing(socket);
  }

  #isTaken(incoming: IncomingMessage): boolean {
    if (incoming.method !== "POST" || this.#service === undefined) return false;
    return isJson(incoming) && !isTooLarge(incoming, MAX_REVIEW_BYTES);
  }

  #left(socket: Socket, place: InFlightSlot | undefined): void {
    place?.leave();
    this.#connections.answered(socket);
    this.#inFlight--;
    if (this.#inFlight === 0) this.#idle?.();
  }

  #review(context: Context<Env, string>, kind: AdmissionCall["kind"]): MaybePromise<Response> {
    const { incoming, outgoing } = context.env;
    const cell = context.req.param("cell") ?? "";
    if (!this.#options.cells.has(cell)) {
      throw new BadReview(
        404,
        `no cell ${JSON.stringify(cell)} is configured here: check --cell and the URL of the registration`,
      );
    }
    if (!isJson(incoming)) throw new BadReview(415, "the content type of a review must be application/json");
    const service = this.#service;
    if (service === undefined) return this.#text(503, "this replica is starting, try another one");
    if (isTooLarge(incoming, MAX_REVIEW_BYTES)) throw tooLarge(MAX_REVIEW_BYTES);
    const body = incoming instanceof ReceivedCall ? incoming.received : undefined;
    if (body === undefined) {
      const { status, message } = busy();
      service.rejected(status, message);
      return this.#text(status, message);
    }
    if (body instanceof BadReview) throw body;
    const call: AdmissionCall = {
      cell,
      kind,
      body,
      timeout: context.req.query("timeout"),
      gone: () => outgoing.destroyed,
    };
    const reply = service.handle(call);
    return chain(reply instanceof Promise ? this.#together(reply) : reply, (one) => this.#reply(one, outgoing));
  }

  async #together(reply: Promise<HttpReply>): Promise<HttpReply> {
    const known = await reply;
    await this.#endOfTurn.reached();
    return known;
  }

  #reply({ status, body, delivered }: HttpReply, outgoing: ServerResponse): Response {
    if (delivered !== undefined) followDelivery(outgoing, delivered);
    if (status !== 200) return this.#text(status, body);
    return new Response(body, { headers: this.#draining ? CLOSING_JSON_HEADERS : JSON_HEADERS });
  }

  #failed(context: Context<Env, string>, error: unknown): Response {
    if (error instanceof BadReview) return this.#refuse(context, error);
    this.#service?.crashed(error);
    return this.#text(500, "this review could not be decided because of a defect in the webhook; see its log");
  }

  #refuse(context: Context<Env, string>, error: BadReview): Response {
    this.#service?.rejected(error.status, error.message);
    // What is left of the body is not worth reading: the connection ends with this answer.
    if (!context.env.incoming.complete) {
      return new Response(`${error.message}\n`, { status: error.status, headers: CLOSING_TEXT_HEADERS });
    }
    return this.#text(error.status, error.message, error.status === 405 ? { allow: "POST" } : undefined);
  }

  #text(status: number, message: string, extra?: Readonly<Record<string, string>>): Response {
    const headers = this.#draining ? CLOSING_TEXT_HEADERS : TEXT_HEADERS;
    return new Response(`${message}\n`, {
      status,
      headers: extra === undefined ? headers : { ...headers, ...extra },
    });
  }
}
