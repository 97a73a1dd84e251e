import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { performance } from "node:perf_hooks";

interface Target {
  readonly host: string;
  readonly port: number;
}

/** A proxy that carries TLS unseen (CONNECT), as a company's proxy does. It maps every host to one server. */
export class TunnelProxy implements AsyncDisposable {
  readonly #target: Target;
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  #isHanging = false;
  /** It sees no requests. */
  readonly requests = [];
  /** Monotonic times of the CONNECT requests. */
  readonly connections: number[] = [];

  private constructor(target: Target) {
    this.#target = target;
    this.#server = createServer((_request, response) => void response.writeHead(405).end());
    this.#server.on("connect", (_request, client: Socket) => this.#connect(client));
  }

  static async start(target: Target): Promise<TunnelProxy> {
    const proxy = new TunnelProxy(target);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  /** For `proxy-url`. */
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Accepts connections and never answers CONNECT. The tunnels that are open end. */
  hang(on: boolean): void {
    this.#isHanging = on;
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    this.hang(true);
    await once(this.#server, "close");
  }

  #connect(client: Socket): void {
    this.connections.push(performance.now());
    this.#keep(client);
    if (this.#isHanging) return;
    const server = connect(this.#target, () => {
      client.write("HTTP/1.1 200 Connection established\r\n\r\n");
      server.pipe(client).pipe(server);
    });
    this.#keep(server);
    for (const socket of [client, server]) socket.on("close", () => [client, server].map((one) => one.destroy()));
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => this.#sockets.delete(socket));
  }
}
