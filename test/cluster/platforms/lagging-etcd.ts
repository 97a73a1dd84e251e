/**
 * Stands between a kube-apiserver and its etcd, and can hold what etcd tells of its watches: reads and writes go on, so
 * the apiserver stays ready, and its watch caches grow old. Progress of watches is held as well, by which consistent
 * reads are served from the cache.
 */
import {
  type ClientHttp2Session,
  connect,
  createSecureServer,
  type Http2SecureServer,
  type Http2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import type { Cluster } from "../../../scripts/control-plane/cluster.ts";

const WATCH = "/etcdserverpb.Watch/Watch";
/** etcd's clients open a stream for each call; Node's limit is lower. */
const SETTINGS = { maxConcurrentStreams: 100_000 };

export class LaggingEtcd implements AsyncDisposable {
  readonly #server: Http2SecureServer;
  readonly #sockets = new Set<Socket>();
  readonly #watches = new Set<(go: boolean) => void>();
  #holding = false;

  static async start(cluster: Cluster): Promise<LaggingEtcd> {
    const { identity } = cluster;
    const serving = await identity.servingCertificate(["localhost"], ["127.0.0.1"]);
    const client = await identity.clientCertificate("lagging-etcd");
    const server = createSecureServer({
      ...{ cert: serving.certificatePem, key: serving.privateKeyPem, settings: SETTINGS },
    });
    const lagging = new LaggingEtcd(server, () =>
      connect(cluster.etcd.url, {
        ca: identity.certificateAuthorityPem,
        cert: client.certificatePem,
        key: client.privateKeyPem,
        settings: SETTINGS,
      }),
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return lagging;
  }

  private constructor(server: Http2SecureServer, open: () => ClientHttp2Session) {
    this.#server = server;
    server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    server.on("session", (session) => {
      const upstream = open();
      endTogether(session, upstream);
      session.on("stream", (stream, headers) => this.#pass(stream, headers, upstream));
    });
  }

  get url(): string {
    const address: AddressInfo | string | null = this.#server.address();
    return `https://127.0.0.1:${typeof address === "object" ? (address?.port ?? 0) : 0}`;
  }

  /** What etcd tells of watches waits from now on, and is delivered in order when this ends. */
  hold(on: boolean): void {
    this.#holding = on;
    for (const watch of this.#watches) watch(!on);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #pass(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, upstream: ClientHttp2Session): void {
    const call = upstream.request(headers);
    const end = (): void => {
      call.destroy();
      stream.destroy();
    };
    for (const one of [call, stream]) one.on("error", end);
    call.once("response", (answer) => {
      if (stream.closed) return;
      stream.respond(answer, { waitForTrailers: true });
      let trailers: IncomingHttpHeaders = {};
      call.once("trailers", (sent) => {
        trailers = sent;
      });
      stream.once("wantTrailers", () => stream.sendTrailers(trailers));
      call.pipe(stream);
      if (headers[":path"] === WATCH) this.#watch(call, stream);
    });
    stream.pipe(call);
    stream.once("close", () => call.close());
  }

  #watch(call: NodeJS.ReadableStream, stream: ServerHttp2Stream): void {
    const set = (go: boolean): void => {
      if (go) call.pipe(stream);
      else call.unpipe(stream).pause();
    };
    this.#watches.add(set);
    stream.once("close", () => this.#watches.delete(set));
    if (this.#holding) set(false);
  }
}

function endTogether(...sessions: readonly Http2Session[]): void {
  for (const session of sessions) {
    session.on("error", () => session.destroy());
    session.once("close", () => {
      for (const one of sessions) one.destroy();
    });
  }
}
